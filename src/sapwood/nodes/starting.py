"""How the head starts the daemons of its nodes: through a launcher, one thread a machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.code.interruption import interrupt
from sapwood.contexts import orders
from sapwood.contexts.launchers.base import ForwardingLauncher, Launcher
from sapwood.contexts.runtime import (
    PythonBuild,
    Runtime,
    folder_for,
    own_runtime,
    runtime_for,
)
from sapwood.core.errors import NodeLostError, ResourceError, SapwoodError
from sapwood.core.failures import new_thread
from sapwood.environment.interpreter import python_command
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings
from sapwood.nodes import stub
from sapwood.nodes.daemon import DaemonOrder
from sapwood.nodes.fetched_libraries import FETCH_SECONDS, FetchedLibraries
from sapwood.nodes.joining import JOIN_TIMEOUT, OLDEST_PYTHON
from sapwood.session.shared_reactor import SharedReactor

END_TIMEOUT = 5.0
"""Seconds that a node gets to end what it began, before its channel is cut."""

SEND_TIMEOUT = 120.0
"""Seconds that sending the runtime to a node may take."""

MAX_SAID = 64 * 1024
"""Bytes of a node's standard error that are kept."""

LONGEST_LINE = 64 * 1024
"""Bytes of one line that a node may say on its channel."""

LINES_FOR_SCRIPTS = 16
"""Empty lines that are sent first: a login script that reads a line gets one of these."""

CUT_TIMEOUT = 1.0
"""Seconds that a failed channel may take to end, so that its status gives the reason."""

NEWEST_PYTHON = (3, 14)
"""The newest Python that is looked for by name; a newer one may be called ``python3``."""

_READY = '\\n%s{"ready": "yes"}\\n'

_NO_PYTHON = '\\n%s{"error": "it has no Python 3.11 or newer"}\\n'

_OLD_PYTHON = (
    '\\n%s{"error": "its Python is %s, and Sapwood needs 3.11 or newer: install one there, or name '
    'one in nodes.python"}\\n'
)

_TELL = 'import sys; print("%d.%d.%d" % sys.version_info[:3])'

_log = logger("nodes")


def shell_command(python: Sequence[str] = (), mark: str = "") -> str:
    """Return the command of the shell that starts a stub, whose text comes by standard input.

    A Python of the same minor version as this one runs it; where there is none, the newest. The
    shell first says that it is ready: login scripts that read standard input have ended by then.

    Args:
        python: The interpreter, where the user names one; it must be new enough.
        mark: What precedes each answer, so that no output of login scripts is taken for one.
    """
    # Without its site: that may have imported another Sapwood before this one comes.
    start = "import sys; b = sys.stdin.buffer; exec(b.read(int(next(filter(bytes.strip, b)))))"
    ask = shlex.join(python_command("-c", site=False, variables=False)[1:])
    check = f'command -v "$1" >/dev/null 2>&1 && "$@" {ask} "$must" </dev/null 2>/dev/null'
    options = python_command("-u", "-c", start, site=False)[1:]
    run = f'exec "$@" {shlex.join(options)}'
    mark = shlex.quote(mark)
    lines = [f"printf {shlex.quote(_READY)} {mark}"]
    lines += [f'try() {{ must="$1"; shift; {check} && {run}; }}']
    lines += [f"try {shlex.quote(must)} {shlex.join(words)}" for must, words in _tried(python)]
    named = shlex.join(python) if python else "python3"
    none = f"printf {shlex.quote(_NO_PYTHON)} {mark}"
    lines += [
        f"v=$({named} {ask} {shlex.quote(_TELL)} </dev/null 2>/dev/null)",
        f'[ "$v" ] && printf {shlex.quote(_OLD_PYTHON)} {mark} "$v" || {none}',
        "exit 3",
    ]
    text = "; ".join(lines)
    return f"exec /bin/sh -c {shlex.quote(text)}"  # the user's own shell may be another


def _tried(python: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the interpreters that may run a stub, the best first, each after what it must be."""
    here, oldest = sys.version_info[:2], OLDEST_PYTHON
    new = f"import sys; sys.exit(sys.version_info < {oldest})"
    if python:
        yield new, python
        return
    same = f"import sys; sys.exit(sys.version_info[:2] != {here})"
    for name in (sys.executable, f"python3.{here[1]}", "python3"):
        yield same, (name,)
    for minor in range(NEWEST_PYTHON[1], oldest[1] - 1, -1):
        yield new, (f"python3.{minor}",)
    yield new, ("python3",)


class DaemonStarter:
    """Starts and ends the daemon of one machine: a starter of the control tree.

    Args:
        launcher: What reaches the machine.
        host: The machine, as users name it.
        slots: Bounds how many machines are on their way at once.
        order: Returns the configuration of the daemon of a place: ``order(rank, incarnation)``.
        expect: Told which daemon may join from now on.
        on_report: Receives its state changes, on the loop of the control tree; of a daemon that did
            not come the end of a process without an id.
        settings: How machines become nodes.
        on_way: Told, on any thread, how the machine reaches the head: the name of the launcher
            that leads it there, or nothing where it does so directly.
        libraries: Those for machines whose Python differs from this one.
    """

    def __init__(  # noqa: PLR0913 - a starter is made in one place, of all that it needs
        self,
        launcher: Launcher,
        host: str,
        slots: threading.Semaphore,
        order: Callable[[int, int], DaemonOrder],
        expect: Callable[[orders.ProcessSpec], None],
        on_report: Callable[[orders.Report], None],
        settings: NodeSettings,
        on_way: Callable[[str], None],
        *,
        libraries: FetchedLibraries,
    ) -> None:
        self._libraries = libraries
        self._timeout = settings.start_timeout
        self._on_way = on_way
        self._launcher = launcher
        self._host = host
        self._slots = slots
        self._order = order
        self._expect = expect
        self._on_report = on_report
        self._mode = settings.runtime
        self._python = tuple(settings.python)
        self._packages = tuple(settings.packages)
        self._loop: SharedReactor | None = None
        self._early: list[orders.Report] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._channels: dict[int, subprocess.Popen[bytes]] = {}
        self._mark = f"sapwood-{secrets.token_hex(8)}:"
        self._ends_by = 0.0
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Do nothing: :meth:`spawn` starts the daemon."""

    def listen(self, loop: SharedReactor) -> None:
        """Report on a loop from now on; called on its thread."""
        with self._lock:
            self._loop = loop
            early, self._early = self._early, []
        for report in early:
            self._on_report(report)

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Start daemons, and cut what may be left of the attempts before."""
        with self._lock:
            attempts = [channel for pid, channel in self._channels.items() if pid < 0]
        for channel in attempts:
            channel.kill()
        for spec in processes:
            self._expect(spec)
            failed = partial(self._failed, spec)
            thread = new_thread(f"sapwood-{self._host}", self._live, spec, failed=failed)
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()

    def kill(self, pid: int) -> None:
        """Cut the channel of a daemon, by its process id there: it ends, and all that it began.

        One that is stopped heeds no other signal.
        """
        with self._lock:
            channel = self._channels.get(pid)
        if channel is not None:
            channel.kill()

    def detach(self) -> None:
        """Stop reporting, and let the daemon end; so the daemons of all machines end together."""
        with self._lock:
            self._loop = None
            closed = self._closed.is_set()
            self._closed.set()
            channels = dict(self._channels)
            self._ends_by = self._ends_by or time.monotonic() + END_TIMEOUT
        if closed:
            return
        for pid, channel in channels.items():
            if pid < 0:  # its thread may be writing to it still: only that may close it
                channel.terminate()
            elif channel.stdin is not None:
                with contextlib.suppress(OSError):
                    channel.stdin.close()

    def close(self) -> None:
        """End the daemon, and wait for that."""
        self.detach()
        for thread in self._threads:
            interrupt(thread)  # it may be fetching libraries
        with self._lock:
            channels = list(self._channels.values())
        for channel in channels:
            try:
                channel.wait(max(0.0, self._ends_by - time.monotonic()))
            except subprocess.TimeoutExpired:
                channel.kill()
        for thread in self._threads:
            thread.join(max(0.0, self._ends_by + CUT_TIMEOUT - time.monotonic()))

    # --- the thread of one daemon ----------------------------------------------------------------

    def _live(self, spec: orders.ProcessSpec) -> None:
        """Start a daemon, then wait for its end."""
        said = _Tail()
        try:
            with self._slots:
                if self._closed.is_set():
                    return
                command = shell_command(self._python, self._mark)
                channel = self._launcher.start(self._host, command)
                with self._lock:
                    self._channels[-spec.incarnation] = channel
                if self._closed.is_set():
                    channel.terminate()
                said.follow(channel)
                pid = self._lead(channel, spec, said)
        except SapwoodError as error:
            self._failed(spec, error)
            return
        with self._lock:
            self._channels.pop(-spec.incarnation, None)
            self._channels[pid] = channel
        if self._closed.is_set():  # it was closed while it still seemed to be led
            channel.terminate()
        self._report(orders.Spawned(spec.rank, spec.incarnation, pid))
        status = channel.wait()
        said.close(channel)
        with self._lock:
            self._channels.pop(pid, None)
        reason = self._launcher.explain(self._host, status, said.text)
        self._report(orders.Exited(spec.rank, spec.incarnation, pid, status, reason))

    def _lead(self, channel: subprocess.Popen[bytes], spec: orders.ProcessSpec, said: _Tail) -> int:
        """Lead a machine from a bare Python to a node; return its daemon's process id."""
        patience = _Patience(channel)
        try:
            return self._talk(channel, spec, own_runtime(), patience)
        except (OSError, EOFError, ValueError) as error:
            status = _end(channel)
            try:
                if patience.over:
                    raise NodeLostError(patience.reason, where=self._host) from error
                self._hear_last(channel)
            finally:
                said.close(channel)
            reason = self._launcher.explain(self._host, status, said.text)
            raise NodeLostError(reason, where=self._host) from error
        except SapwoodError:
            _end(channel)
            said.close(channel)
            raise
        finally:
            patience.end()
            if isinstance(self._launcher, ForwardingLauncher):
                self._launcher.settle(channel)

    def _talk(
        self,
        channel: subprocess.Popen[bytes],
        spec: orders.ProcessSpec,
        runtime: Runtime,
        patience: _Patience,
    ) -> int:
        assert channel.stdin is not None  # noqa: S101 - launchers make pipes
        text = Path(stub.__file__).read_bytes() if stub.__file__ else b""
        text += f"\nMARK = {self._mark!r}\nmain()\n".encode()
        patience.begin(self._timeout, f"it did not answer within {self._timeout:g} s")
        channel.stdin.write(b"\n" * LINES_FOR_SCRIPTS)
        channel.stdin.flush()
        self._hear(channel, "ready")
        channel.stdin.write(b"%d\n" % len(text) + text)
        _write(channel, runtime.offer(self._mode))
        found = self._hear(channel, "runtime", "abi")
        if "runtime" not in found:
            patience.begin(
                FETCH_SECONDS, f"libraries for its Python did not come within {FETCH_SECONDS:g} s"
            )
            runtime = self._other_runtime(channel, found)
            patience.begin(self._timeout, f"it did not answer within {self._timeout:g} s")
            found = self._hear(channel, "runtime")
        if found.get("runtime") == "wanted":
            patience.begin(
                SEND_TIMEOUT, f"Sapwood could not be sent to it within {SEND_TIMEOUT:g} s"
            )
            archive, digest = runtime.archive
            _write(channel, {"digest": digest, "size": len(archive)})
            channel.stdin.write(archive)
            channel.stdin.flush()
            self._hear(channel, "runtime")
        patience.begin(
            JOIN_TIMEOUT + self._timeout,
            f"it did not join within {JOIN_TIMEOUT + self._timeout:g} s",
        )
        launcher = self._launcher
        order = self._order(spec.rank, spec.incarnation)
        leads = isinstance(launcher, ForwardingLauncher) and bool(order.addresses)
        _write(channel, msgspec.to_builtins(msgspec.structs.replace(order, way=leads)))
        joined = self._hear(channel, "joined", "way")
        way = ""
        if leads and isinstance(joined.get("way"), str):
            way = launcher.name
            self._lead_to_head(channel, joined["way"], order.addresses)
            joined = self._hear(channel, "joined")
        self._on_way(way)
        told = {"way": way} if way else {}
        _log.info(
            "node joined", host=self._host, runtime=found["runtime"], node=joined["joined"], **told
        )
        pid = joined.get("pid")
        if not isinstance(pid, int) or pid < 1:
            raise NodeLostError("its daemon has no process id", where=self._host)
        return pid

    def _other_runtime(self, channel: subprocess.Popen[bytes], found: dict[str, Any]) -> Runtime:
        """Offer a machine the runtime for its own Python, or say there why there is none."""
        python = PythonBuild(found["abi"], str(found.get("python", "")), str(found.get("libc", "")))
        try:
            folder = folder_for(python, self._packages)
            runtime = runtime_for(python, folder or self._libraries.folder(python, self._host))
        except ResourceError as error:
            _write(channel, {"refused": error.what})
            self._hear(channel, "runtime")  # it says that, and ends
            raise
        _write(channel, runtime.offer("send"))
        return runtime

    def _lead_to_head(
        self, channel: subprocess.Popen[bytes], path: str, addresses: Sequence[str]
    ) -> None:
        """Lead connections from a machine to the head, or say there why that cannot be."""
        refused = ""
        try:
            assert isinstance(self._launcher, ForwardingLauncher)  # noqa: S101 - it was asked
            self._launcher.forward(channel, path, addresses[-1])  # loopback, where there is that
        except SapwoodError as error:
            refused = error.what + (f" ({error.hint})" if error.hint else "")
        _write(channel, {"refused": refused})

    def _hear(self, channel: subprocess.Popen[bytes], *what: str) -> dict[str, Any]:
        """Return the next line of a machine that tells of one of some things.

        Lines without the mark come from its login scripts.

        Raises:
            EOFError: It says nothing any more.
            NodeLostError: It says why it cannot be a node.
        """
        assert channel.stdout is not None  # noqa: S101 - launchers make pipes
        while True:
            line = channel.stdout.readline(LONGEST_LINE)
            if not line:
                raise EOFError
            if not line.startswith(self._mark.encode()):
                continue
            try:
                found = json.loads(line[len(self._mark) :])
            except (ValueError, RecursionError):
                continue
            if not isinstance(found, dict):
                continue
            if isinstance(found.get("error"), str):
                raise NodeLostError(found["error"], where=self._host)
            if any(isinstance(found.get(one), str) for one in what):
                return found

    def _hear_last(self, channel: subprocess.Popen[bytes]) -> None:
        """Hear why a machine that takes nothing any more cannot be a node, if it said that.

        Raises:
            NodeLostError: It did.
        """
        assert channel.stdout is not None  # noqa: S101 - launchers make pipes
        os.set_blocking(channel.stdout.fileno(), False)  # another process may have the other end
        with contextlib.suppress(OSError, EOFError):
            self._hear(channel)

    def _failed(self, spec: orders.ProcessSpec, error: SapwoodError) -> None:
        with self._lock:
            self._channels.pop(-spec.incarnation, None)
        self._report(orders.Exited(spec.rank, spec.incarnation, 0, 1, error.what))

    def _report(self, report: orders.Report) -> None:
        with self._lock:
            loop = self._loop
            if loop is None:
                if not self._closed.is_set():
                    self._early.append(report)
                return
        with contextlib.suppress(SapwoodError):  # the loop has ended
            loop.call_soon_threadsafe(self._if_listening, report)

    def _if_listening(self, report: orders.Report) -> None:
        if self._loop is not None:
            self._on_report(report)


class AwaitedDaemon:
    """A starter of the control tree for a daemon that joins: it waits for the daemon.

    Its process is known by its link alone: when that is gone for too long, so is the process.

    Args:
        expect: Told which process of which place may join from now on.
        on_report: Receives its state changes, on the loop of the control tree.
    """

    def __init__(
        self,
        expect: Callable[[orders.ProcessSpec], None],
        on_report: Callable[[orders.Report], None],
    ) -> None:
        self._expect = expect
        self._on_report = on_report
        self._loop: SharedReactor | None = None
        self._spec: orders.ProcessSpec | None = None

    def start(self) -> None:
        """Do nothing: the daemon is started elsewhere."""

    def listen(self, loop: SharedReactor) -> None:
        """Report on a loop from now on; called on its thread."""
        self._loop = loop

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Let the next process of the place join."""
        for spec in processes:
            self._spec = spec
            self._expect(spec)

    def kill(self, pid: int) -> None:
        """Take the process for gone: no place takes it any more, and without one it ends."""
        if self._loop is not None and self._spec is not None:
            self._loop.call_soon(self._gone, self._spec, pid)

    def _gone(self, spec: orders.ProcessSpec, pid: int) -> None:
        if self._loop is not None:
            self._on_report(orders.Exited(spec.rank, spec.incarnation, pid, 0, "its link is gone"))

    def detach(self) -> None:
        """Report nothing any more."""
        self._loop = None

    def close(self) -> None:
        """Do nothing: the daemon ends when no place of the tree takes it."""


class _Patience:
    """Ends the channel of a machine that takes too long for a step.

    Args:
        channel: The channel.

    Attributes:
        over: Whether it has done so.
        reason: Why.
    """

    def __init__(self, channel: subprocess.Popen[bytes]) -> None:
        self._channel = channel
        self._timer: threading.Timer | None = None
        self.over = False
        self.reason = ""

    def begin(self, seconds: float, reason: str) -> None:
        """Begin the next step."""
        self.end()
        self.reason = reason
        self._timer = threading.Timer(seconds, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self.over = True
        self._channel.kill()


class _Tail:
    """The last that a process wrote to standard error."""

    def __init__(self) -> None:
        self.text = ""
        self._thread: threading.Thread | None = None

    def follow(self, channel: subprocess.Popen[bytes]) -> None:
        """Read until the end, in a thread."""
        stream = channel.stderr
        if stream is None:
            return

        def read() -> None:
            with stream:  # only this thread may close it: others would wait for the reader
                for line in iter(lambda: stream.readline(LONGEST_LINE), b""):
                    self.text = (self.text + line.decode(errors="replace"))[-MAX_SAID:]

        self._thread = new_thread("sapwood-stderr", read)
        self._thread.start()

    def close(self, channel: subprocess.Popen[bytes]) -> None:
        """Wait until all is read, and close what is left of a channel.

        Who inherited standard error may have it longer than the process itself lives.
        """
        if self._thread is not None:
            self._thread.join(1.0)
        for stream in (channel.stdin, channel.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _end(channel: subprocess.Popen[bytes]) -> int:
    """Return the status of a channel that is over: its own if it ends in time."""
    try:
        return channel.wait(CUT_TIMEOUT)
    except subprocess.TimeoutExpired:
        channel.kill()
        return channel.wait()


def _write(channel: subprocess.Popen[bytes], what: Any) -> None:
    assert channel.stdin is not None  # noqa: S101 - launchers make pipes
    channel.stdin.write(json.dumps(what).encode() + b"\n")
    channel.stdin.flush()
