"""Nodes through Ray: machines of a running Ray cluster.

A process of its own (:mod:`~sapwood.contexts.launchers.ray_holder`) is the program that Ray sees:
this one stays free of Ray's threads and signal handlers, and may use Ray itself. That process asks
for a placement group with one bundle on each machine. What is started on a machine is the child of
a small actor there, which carries its standard streams. Ray ends the actors and the group with that
process, and that process ends with this one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sapwood.contexts.launchers import ray_holder
from sapwood.contexts.launchers.allocation import (
    TRANSITIONS,
    AllocationEvent,
    AllocationState,
    WaitCallback,
)
from sapwood.contexts.process import describe_status
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.whole import whole
from sapwood.environment.logs import logger

CONCURRENCY = 16
"""Commands that start at once; for each, Ray may start a process of its own on the machine."""

TIMEOUT = 300.0
"""Seconds until machines that Ray does not have free are given up."""

CONNECT_TIMEOUT = 30.0
"""Seconds that the cluster may take to answer at first; Ray itself would try for minutes."""

RELEASE_TIMEOUT = 15.0
"""Seconds that the process which holds the machines may take to give them back."""

LISTEN_TIMEOUT = 2.0
"""Seconds in which its last words are read: another process may have its standard error still."""

MAX_SAID = 16 * 1024
"""Characters of what that process says that are kept."""

ASK_AGAIN = 1.0
"""Seconds between two reports of a wait in which Ray says nothing yet."""

_CHANNEL = """\
import os, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(channel, [b"."], [0, 1, 2])
os.close(0)
os.close(1)
status = channel.recv(16)
if not status:
    os.write(2, b"the connection with Ray has ended\\n")
os._exit(int(status or 255))
"""
"""A process that stands for a command on a machine: it hands its standard streams to the holder,
and ends with the exit code that it is told. When it is killed, the command's input ends."""


class RayLauncher:
    """Starts nodes on machines of a running Ray cluster.

    :meth:`request` asks for the machines, and :meth:`close` gives them back.

    Args:
        nodes: How many machines.
        cpus: CPUs of Ray on each; 0 means as many as each of that many machines has.
        gpus: GPUs of Ray on each.
        address: The cluster; empty means ``RAY_ADDRESS``, or that which runs on this machine.
        timeout: Seconds until machines that Ray does not have free are given up.

    Raises:
        ConfigurationError: A number is out of range, or there is no Ray.
    """

    name = "ray"

    def __init__(
        self,
        nodes: int,
        *,
        cpus: int = 0,
        gpus: int = 0,
        address: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        self.hosts: Sequence[str] = ()
        self.concurrency = CONCURRENCY
        self.cpus = cpus
        self._order: dict[str, Any] = {
            "nodes": whole(nodes, "nodes", ConfigurationError),
            "cpus": cpus,
            "gpus": gpus,
            "address": address,
            "timeout": timeout,
        }
        if (address or os.environ.get("RAY_ADDRESS", "")).startswith(("ray://", "http")):
            raise ConfigurationError(
                "the address of a Ray cluster is that of its GCS here, not of a client server",
                where=address or "RAY_ADDRESS",
                hint="start this on a machine of the cluster, with RAY_ADDRESS=auto",
            )
        if importlib.util.find_spec("ray") is None:
            raise ConfigurationError(
                "this Python has no Ray",
                where=sys.executable,
                hint="install the version that the cluster has: pip install ray==VERSION",
            )
        self._lock = threading.Lock()
        self._state = AllocationState.DELAYED
        self._holder: subprocess.Popen[bytes] | None = None
        self._front: socket.socket | None = None
        self._said = ""
        self._connected = False
        self._heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def state(self) -> AllocationState:
        """What the allocation is."""
        with self._lock:
            return self._state

    # --- the machines --------------------------------------------------------------------------

    def request(self, on_wait: WaitCallback | None = None) -> None:
        """Get the machines, and wait for them; they are given back if this fails.

        Args:
            on_wait: Told about once a second, later less often, what is waited for.

        Raises:
            ConfigurationError: There is no cluster, or it cannot be used.
            ResourceError: The cluster does not have such machines free in time.
        """
        try:
            self._hold()
            self._wait(on_wait)
        except BaseException:
            self.close()
            raise

    def _hold(self) -> None:
        """Start what holds the machines."""
        front, back = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        text = Path(ray_holder.__file__).read_text("utf-8")
        with back:
            try:
                held = subprocess.Popen(
                    [sys.executable, "-P", "-c", text],
                    stdin=back.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    # Ray has its workers import from here first, and packs it under `uv run`.
                    cwd="/",
                    env=os.environ | {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"},
                    start_new_session=True,  # Ctrl-C at the terminal is the front end's business
                )
            except OSError as error:
                front.close()
                raise ResourceError(f"cannot start Python: {error.strerror}") from error
        self._holder, self._front = held, front
        for function in (self._listen, self._read_messages):
            thread = threading.Thread(target=function, args=(held, front), name="sapwood-ray")
            thread.daemon = True
            self._threads.append(thread)
            thread.start()
        with contextlib.suppress(OSError):  # it has ended: that is heard
            front.sendall(json.dumps(self._order).encode())

    def _listen(self, held: subprocess.Popen[bytes], front: socket.socket) -> None:
        """Hear what the holder tells, then wait for its end; a thread of its own."""
        with contextlib.suppress(OSError):
            while data := front.recv(ray_holder.MESSAGE):
                told = json.loads(data)
                if "granted" in told:
                    with self._lock:
                        self.hosts = tuple(told["granted"])
                        self.cpus = int(told["cpus"])
                        if self._state is AllocationState.DELAYED:
                            self._state = TRANSITIONS.after(self._state, AllocationEvent.GRANT)
                    _log.info("machines granted", nodes=self.hosts, cpus=self.cpus)
                self._heard.put(told)
        held.wait()
        with self._lock:
            self._state = TRANSITIONS.after(self._state, AllocationEvent.GONE)
        self._heard.put({"gone": True})

    def _read_messages(self, held: subprocess.Popen[bytes], front: socket.socket) -> None:
        """Read what the holder and Ray say; a thread of its own."""
        del front
        assert held.stderr is not None  # noqa: S101 - made with a pipe
        with held.stderr as stream:
            for line in stream:
                with self._lock:
                    self._said = (self._said + line.decode(errors="replace"))[-MAX_SAID:]

    def _wait(self, on_wait: WaitCallback | None) -> None:
        """Wait until the machines are there."""
        began = time.monotonic()
        while True:
            try:
                told = self._heard.get(timeout=ASK_AGAIN)
            except queue.Empty:
                if not self._connected:
                    self._no_answer(on_wait, time.monotonic() - began)
                continue
            self._connected = True
            if "granted" in told:
                return
            if "refused" in told:
                kind = ConfigurationError if told["kind"] == "configuration" else ResourceError
                raise kind(told["refused"], where=told["where"], hint=told["hint"])
            if "gone" in told:
                raise ResourceError("the connection with Ray has ended", where=self._last_said())
            if "waits" in told and on_wait is not None:
                on_wait(f"Ray: {told['waits']}", time.monotonic() - began)

    def _no_answer(self, on_wait: WaitCallback | None, seconds: float) -> None:
        if seconds > CONNECT_TIMEOUT:
            raise ResourceError(
                f"the Ray cluster did not answer within {CONNECT_TIMEOUT:g} s",
                where=self._order["address"] or os.environ.get("RAY_ADDRESS", "auto"),
                hint="start this on a machine of the cluster, and see what `ray status` says there",
            )
        if on_wait is not None:
            on_wait("Ray: no answer yet", seconds)

    def _last_said(self) -> str:
        with self._lock:
            return self._said.strip().rpartition("\n")[2]

    # --- the nodes -----------------------------------------------------------------------------

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        front = self._front
        if front is None or self.state is not AllocationState.GRANTED:
            raise ResourceError("the machines of Ray are given back, or Ray has ended")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            asked = {"node": self.hosts.index(host), "command": command}
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _CHANNEL, str(ours.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[ours.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                raise ResourceError(f"cannot start Python: {error.strerror}") from error
            # Where the holder has ended, the process finds that out as its socket ends.
            with contextlib.suppress(OSError), self._lock:
                socket.send_fds(front, [json.dumps(asked).encode()], [theirs.fileno()])
        return process

    def explain(self, host: str, status: int, said: str) -> str:
        """Return why a machine did not come, or went."""
        del host
        last = said.strip().rpartition("\n")[2]
        return last or describe_status(status)

    def close(self) -> None:
        """Give the machines back, and wait for that."""
        held, front = self._holder, self._front
        if held is None or front is None:
            return
        with self._lock:
            if self._state in {AllocationState.DELAYED, AllocationState.GRANTED}:
                self._state = TRANSITIONS.after(self._state, AllocationEvent.RELEASE)
        with contextlib.suppress(OSError):
            front.shutdown(socket.SHUT_WR)
        try:
            held.wait(RELEASE_TIMEOUT if self._connected else 0.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(held.pid, signal.SIGKILL)
            held.wait()
        for thread in self._threads:
            thread.join(LISTEN_TIMEOUT)
        front.close()


_log = logger("ray")
