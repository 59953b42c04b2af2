"""Machines that a separate process holds: the program that another cluster sees.

That process keeps this one free of the other cluster's threads and signal handlers. It asks for the
machines, and what is started on a machine is a command there whose standard streams it carries. It
ends with this process, and gives the machines back then.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sapwood.contexts.launchers.allocation import (
    TRANSITIONS,
    AllocationEvent,
    AllocationState,
    WaitCallback,
)
from sapwood.contexts.process import describe_status
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.environment.interpreter import python_command
from sapwood.environment.logs import logger

CONCURRENCY = 16
"""Commands that start at once."""

TIMEOUT = 300.0
"""Seconds until machines that are not free are given up."""

CONNECT_TIMEOUT = 30.0
"""Seconds that the cluster may take to answer at first."""

RELEASE_TIMEOUT = 15.0
"""Seconds that the process which holds the machines may take to give them back."""

LISTEN_TIMEOUT = 2.0
"""Seconds in which its last words are read: another process may have its standard error still."""

MAX_SAID = 16 * 1024
"""Characters of what that process says that are kept."""

MESSAGE = 256 * 1024
"""Bytes of a message between this process and that one."""

ASK_AGAIN = 1.0
"""Seconds between two reports of a wait in which the other cluster says nothing yet."""

_CHANNEL = """\
import os, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(channel, [b"."], [0, 1, 2])
os.close(0)
os.close(1)
status = channel.recv(16)
if not status:
    os.write(2, b"the connection with the other cluster has ended\\n")
os._exit(int(status or 255))
"""
"""A process that stands for a command on a machine: it hands its standard streams to the holder,
and ends with the exit code that it receives. When it is killed, the command's input ends."""


class HeldLauncher:
    """Starts nodes on machines that a separate process holds, as for Ray and Dask.

    :meth:`request` asks for the machines, and :meth:`close` gives them back.

    Args:
        order: What that process is to hold; it gets this as JSON.
        cpus: CPUs of each machine; 0 if the other cluster says so later.
    """

    name: str
    title: ClassVar[str]
    """What people call the other cluster."""
    holder: ClassVar[Path]
    """The text of the process."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables of the process."""
    no_answer: ClassVar[str]
    """What to do where the other cluster does not answer."""

    def __init__(self, order: Mapping[str, Any], cpus: int = 0) -> None:
        self.hosts: Sequence[str] = ()
        self.concurrency = CONCURRENCY
        self.cpus = cpus
        self._order = dict(order)
        self._lock = threading.Lock()
        self._state = AllocationState.DELAYED
        self._holder: subprocess.Popen[bytes] | None = None
        self._front: socket.socket | None = None
        self._said = ""
        self._connected = False
        self._heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def where(self) -> str:
        """Return where the other cluster is looked for."""
        return str(self._order.get("address", ""))

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
            ConfigurationError: The cluster is missing or cannot be used.
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
        text = self.holder.read_text("utf-8")
        with back:
            try:
                held = subprocess.Popen(
                    python_command("-c", text),
                    stdin=back.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd="/",  # workers may import from here first
                    env=os.environ | self.environment,
                    start_new_session=True,  # Ctrl-C at the terminal is the client's business
                )
            except OSError as error:
                front.close()
                raise ResourceError(f"cannot start Python: {error.strerror}") from error
        self._holder, self._front = held, front
        for function in (self._listen, self._read_messages):
            thread = threading.Thread(
                target=function, args=(held, front), name=f"sapwood-{self.name}"
            )
            thread.daemon = True
            self._threads.append(thread)
            thread.start()
        with contextlib.suppress(OSError):  # it has ended: that is heard
            front.sendall(json.dumps(self._order).encode())

    def _listen(self, held: subprocess.Popen[bytes], front: socket.socket) -> None:
        """Receive messages of the holder, then wait for its end; on a separate thread."""
        with contextlib.suppress(OSError):
            while data := front.recv(MESSAGE):
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
        """Read the output of the holder and the other cluster; on a separate thread."""
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
                raise ResourceError(
                    f"the connection with {self.title} has ended", where=self._last_said()
                )
            if "waits" in told and on_wait is not None:
                on_wait(f"{self.title}: {told['waits']}", time.monotonic() - began)

    def _no_answer(self, on_wait: WaitCallback | None, seconds: float) -> None:
        if seconds > CONNECT_TIMEOUT:
            raise ResourceError(
                f"the {self.title} cluster did not answer within {CONNECT_TIMEOUT:g} s",
                where=self.where(),
                hint=self.no_answer,
            )
        if on_wait is not None:
            on_wait(f"{self.title}: no answer yet", seconds)

    def _last_said(self) -> str:
        with self._lock:
            return self._said.strip().rpartition("\n")[2]

    # --- the nodes -----------------------------------------------------------------------------

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command; see :class:`~sapwood.contexts.launchers.base.Launcher`."""
        front = self._front
        if front is None or self.state is not AllocationState.GRANTED:
            raise ResourceError(
                f"the machines of {self.title} are given back, or {self.title} has ended"
            )
        ours, theirs = socket.socketpair()
        with ours, theirs:
            asked = {"node": self.hosts.index(host), "command": command}
            try:
                process = subprocess.Popen(
                    python_command("-c", _CHANNEL, str(ours.fileno()), site=False, variables=False),
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


_log = logger("launchers")
