"""Commands on a node: their processes, and the pipes between them and the loop of the daemon."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from sapwood.contexts.local_user import LocalUser, find_user
from sapwood.contexts.process import resident_memory
from sapwood.core.errors import ConfigurationError, ResourceError, SapwoodError, SecurityError
from sapwood.core.failures import start_thread
from sapwood.core.shown import shown
from sapwood.environment.interpreter import python_command
from sapwood.environment.logs import logger
from sapwood.nodes import messages, sweeping
from sapwood.nodes.staged_use import with_environment, with_staged_programs
from sapwood.session.shared_reactor import SharedReactor

CHUNK = 64 * 1024
"""Bytes of one piece of output, and of input: what a pipe holds."""

NOT_FOUND = 127
"""Status of a command that does not exist, as shells have it."""

NOT_STARTED = 126
"""Status of a command that cannot be started, as shells have it."""

LINGER = 1.0
"""Seconds that what a command left behind gets to end its output, before it is killed."""

SWEEPER_TIMEOUT = 10.0
"""Seconds that the process that ends what is left may take."""

STREAMS = {1: "stdout", 2: "stderr"}

Done = Callable[[], None]
Wrote = Callable[[messages.CommandOutput, Done], None]
Ended = Callable[[messages.CommandEnded], None]

_log = logger("nodes")


class CommandProcess:
    """One command, started.

    It is over when its first process has ended and its output has. Whatever it began that is still
    there then is killed, also processes that write for longer than :data:`LINGER`. Output is read
    only while the head takes it: else the command waits.

    Args:
        order: What to start.
        mark: What all of its processes carry in their environment.
        loop: The loop; all methods are called on its thread.
        wrote: Given output, with a function to be called when there is room for more.
        ended: Told when it is over, and all output was taken.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(
        self,
        order: messages.StartCommand,
        mark: str,
        loop: SharedReactor,
        wrote: Wrote,
        ended: Ended,
    ) -> None:
        self._number = order.command
        self._arguments = shown_words(order.arguments)
        self._since = time.time()
        self._window = min(max(1, order.window), messages.MAX_WINDOW)
        self._mark = f"{mark}{order.command}."
        self._loop = loop
        self._wrote = wrote
        self._ended = ended
        self._process = _start(order, self._mark)
        process = self._process
        self._output = {
            file.fileno(): (number, file)
            for number, file in ((1, process.stdout), (2, process.stderr))
            if file is not None
        }
        self._input = process.stdin
        self._unwritten: deque[tuple[memoryview, Done]] = deque()
        self._watch = -1
        self._taken = 0
        self._reading = False
        self._sweeping = False
        self._signalled = False
        self._status: int | None = None
        self._cancelled = False
        self._done: list[Done] = []
        for descriptor in self._output:
            os.set_blocking(descriptor, False)
        if self._input is not None:
            os.set_blocking(self._input.fileno(), False)
        try:
            self._watch = os.pidfd_open(process.pid)
        except OSError:
            self.close_now()
            raise
        loop.add_reader(self._watch, self._leader_ended)
        self._read_on()

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._process.pid

    def activity(self) -> messages.CommandActivity:
        """Return what it is, for people."""
        return messages.CommandActivity(
            command=self._number,
            arguments=self._arguments,
            process=messages.ProcessActivity(
                pid=self.pid, since=self._since, memory=resident_memory(self.pid)
            ),
        )

    # --- input ---------------------------------------------------------------------------------

    def give(self, data: bytes, done: Done) -> None:
        """Write to standard input, or close it if ``data`` is empty; then call ``done``."""
        if self._input is None:
            done()
            return
        self._unwritten.append((memoryview(data), done))
        if len(self._unwritten) == 1:
            self._write()

    def _write(self) -> None:
        while self._unwritten and self._input is not None:
            data, done = self._unwritten[0]
            if not data:
                self._close_input()
                return
            try:
                written = os.write(self._input.fileno(), data)
            except BlockingIOError:
                self._loop.add_writer(self._input.fileno(), self._write)
                return
            except OSError:  # it does not read any more
                self._close_input()
                return
            if written == len(data):
                self._unwritten.popleft()
                done()
            else:
                self._unwritten[0] = (data[written:], done)
        if self._input is not None:
            self._loop.remove_writer(self._input.fileno())

    def _close_input(self) -> None:
        if self._input is not None:
            self._loop.remove_writer(self._input.fileno())
            with contextlib.suppress(OSError):
                self._input.close()
            self._input = None
        unwritten, self._unwritten = self._unwritten, deque()
        for _, done in unwritten:
            done()

    # --- output --------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            for descriptor in self._output:
                self._loop.add_reader(descriptor, partial(self._read, descriptor))

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            for descriptor in self._output:
                self._loop.remove_reader(descriptor)

    def _read(self, descriptor: int) -> None:
        if self._taken >= self._window:  # the other pipe took the last place
            return
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        number, file = self._output[descriptor]
        if not data:
            self._loop.remove_reader(descriptor)
            file.close()
            del self._output[descriptor]
            self._look()
            return
        self._taken += 1
        if self._taken >= self._window:
            self._pause()
        self._wrote(messages.CommandOutput(self._number, number, data), self._was_taken)

    def _was_taken(self) -> None:
        self._taken -= 1
        if self._cancelled:
            return
        if self._status is not None:
            self._tell()
        else:
            self._read_on()

    # --- the end -------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        """Send a signal to the processes of its group; SIGKILL ends all that it began."""
        if self._status is not None:
            return
        self._signalled = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
        if number == signal.SIGKILL:
            self._sweep()

    def cancel(self, done: Done) -> None:
        """Kill it, and all that it began, and lose its output; then call ``done``."""
        self._done.append(done)
        self._cancelled = True
        if self._status is not None:
            self._tell()
            return
        self.signal(signal.SIGKILL)  # first, so that it does not end by a broken pipe
        self._close_pipes()

    def close_now(self) -> None:
        """Kill it, and all that it began, and wait for that: the loop ends."""
        self._cancelled = True
        self._close_pipes()
        sweeping.sweep(self._mark, self._process.pid)
        self._process.wait()

    def _leader_ended(self) -> None:
        self._stop_watching()
        self._look()
        self._loop.call_later(LINGER, self._lingered)

    def _lingered(self) -> None:
        """Kill processes that still write; while their output is not read, only at a signal."""
        if self._status is not None:
            return
        if self._taken >= self._window and not self._signalled:
            self._loop.call_later(LINGER, self._lingered)
        else:
            self._sweep()

    @property
    def _is_over(self) -> bool:
        return self._cancelled or (self._watch < 0 and not self._output)

    def _look(self) -> None:
        if self._is_over:
            self._sweep()

    def _sweep(self) -> None:
        """Kill what is left, in a thread: the loop does not wait for that."""
        if self._sweeping:
            return
        self._sweeping = True

        def work() -> None:
            try:
                sweeping.sweep(self._mark, self._process.pid)
            finally:
                with contextlib.suppress(SapwoodError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._swept)

        start_thread("sapwood-sweep", work)

    def _swept(self) -> None:
        """Reap the first process, if that was the end: until now its number was no other's."""
        self._sweeping = False
        if self._status is None and self._is_over:
            self._close_pipes()
            status = self._process.poll()
            self._status = -signal.SIGKILL if status is None else status
            self._tell()

    def _tell(self) -> None:
        if self._taken and not self._cancelled:
            return  # the head is to have all output first
        status = self._status
        assert status is not None  # noqa: S101 - it is over
        self._ended(messages.CommandEnded(self._number, status))
        done, self._done = self._done, []
        for function in done:
            function()

    def _stop_watching(self) -> None:
        if self._watch >= 0:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = -1

    def _close_pipes(self) -> None:
        self._close_input()
        self._pause()
        self._stop_watching()
        for _, file in self._output.values():
            file.close()
        self._output.clear()


class CommandProcesses:
    """All commands on a node.

    Args:
        loop: The loop; all methods are called on its thread.
        wrote: Given output, with a function to be called when there is room for more.
        ended: Told of commands that are over.
    """

    def __init__(self, loop: SharedReactor, wrote: Wrote, ended: Ended) -> None:
        self._loop = loop
        self._wrote = wrote
        self._tell = ended
        self._mark = f"{secrets.token_hex(8)}."
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._open: dict[int, CommandProcess] = {}
        self.requests: dict[str, Callable[[Any, Done], None]] = {
            messages.COMMAND_START: self._start,
            messages.COMMAND_INPUT: self._give,
            messages.COMMAND_SIGNAL: self._signal,
            messages.COMMAND_CANCEL: self._cancel,
        }
        """What to do with the value of a request; the function is called when that is done."""

    @property
    def running(self) -> int:
        """How many commands are not over."""
        return len(self._open)

    def activity(self) -> list[messages.CommandActivity]:
        """Return what runs, for people."""
        return [command.activity() for command in self._open.values()]

    def processes(self) -> set[int]:
        """Return the processes of all commands, and the one that stands beside them."""
        found = {command.pid for command in self._open.values()}
        if found:
            found.update(sweeping.marked(self._mark))
        if self._sweeper is not None:
            found.add(self._sweeper.pid)
        return found

    def cancel_all(self) -> None:
        """Kill all commands, and all that they began; the head hears of each when it is gone."""
        for command in list(self._open.values()):
            command.cancel(_nothing)

    def close(self) -> None:
        """Kill all commands, and all that they began, and wait for that."""
        for command in self._open.values():
            command.close_now()
        self._open.clear()
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is None or sweeper.stdin is None:
            return
        sweeper.stdin.close()
        try:
            sweeper.wait(SWEEPER_TIMEOUT)
        except subprocess.TimeoutExpired:
            sweeper.kill()
            sweeper.wait()

    def _start(self, value: Any, done: Done) -> None:
        order = messages.from_value(value, messages.StartCommand)
        try:
            self._start_sweeper()
            self._open[order.command] = CommandProcess(
                order, self._mark, self._loop, self._wrote, self._ended
            )
        except (OSError, ValueError, ConfigurationError, SecurityError) as error:
            status, reason = _refusal(order, error)
            self._tell(messages.CommandEnded(order.command, status, reason))
        done()

    def _give(self, value: Any, done: Done) -> None:
        order = messages.from_value(value, messages.CommandInput)
        command = self._open.get(order.command)
        if command is None:  # it has ended
            done()
        else:
            command.give(order.data, done)

    def _signal(self, value: Any, done: Done) -> None:
        order = messages.from_value(value, messages.SignalCommand)
        command = self._open.get(order.command)
        if command is not None:
            command.signal(order.signal)
        done()

    def _cancel(self, value: Any, done: Done) -> None:
        command = self._open.get(messages.from_value(value, messages.CancelCommand).command)
        if command is None:
            done()
        else:
            command.cancel(done)

    def _ended(self, report: messages.CommandEnded) -> None:
        self._open.pop(report.command, None)
        self._tell(report)

    def _start_sweeper(self) -> None:
        """Start the process that ends what is left if this one is killed."""
        if self._sweeper is not None:
            return
        try:
            self._sweeper = subprocess.Popen(
                python_command(sweeping.__file__, self._mark, site=False, variables=False),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ResourceError(f"cannot start a process: {error.strerror}") from error


def _start(order: messages.StartCommand, mark: str) -> subprocess.Popen[bytes]:
    outer = os.environ.get(sweeping.VARIABLE, "")
    marks = f"{outer} {mark}" if outer else mark
    owner = find_user(order.user) if order.user else None
    variables = dict(os.environ) if owner is None else owner.environment()
    variables |= with_environment(order.environment, variables, owner)
    options: dict[str, Any] = {"cwd": order.folder or None}
    if owner is not None:
        options = owner.process_options(_enterable(order.folder, owner))
    with _default_interrupt():
        made: subprocess.Popen[bytes] = subprocess.Popen(
            order.arguments,
            stdin=subprocess.PIPE if order.wants_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**with_staged_programs(variables), sweeping.VARIABLE: marks},
            start_new_session=True,
            **options,
        )
        return made


def _enterable(folder: str, owner: LocalUser) -> str:
    """Return a folder that its command starts in, if the user may: root goes there first.

    Raises:
        PermissionError: The user may not.
    """
    if folder and not owner.is_this_process and not owner.may_enter(folder):
        if Path(folder).is_dir() or not owner.may_enter(Path(folder).parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    return folder


@contextlib.contextmanager
def _default_interrupt() -> Any:
    """Let what is started heed SIGINT, which a daemon ignores and would hand on as ignored."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):
        yield
        return
    signal.signal(signal.SIGINT, _ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def _refusal(
    order: messages.StartCommand, error: OSError | ValueError | SapwoodError
) -> tuple[int, str]:
    """Return status and reason of a command that could not be started."""
    program = os.fsdecode(order.arguments[0]) if order.arguments else ""
    if isinstance(error, SapwoodError):
        return NOT_STARTED, str(error)
    if isinstance(error, ValueError):
        return NOT_STARTED, f"{shown(program)} cannot be started: {error}"
    if order.folder and error.filename in {order.folder, os.fsencode(order.folder)}:
        return NOT_STARTED, f"it cannot start in {order.folder}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return NOT_FOUND, f"command not found: {shown(program)}"
    return NOT_STARTED, f"{shown(program)} cannot be started: {error.strerror or error}"


def _nothing() -> None:
    pass


def shown_words(arguments: Sequence[bytes]) -> list[str]:
    """Return the words of a command as a node reports them: its status is one message.

    Example:
        >>> shown_words([b"echo", b"x" * 300])[1][-5:]
        'xxxx…'
    """
    words = [word.decode(errors="replace") for word in arguments[: messages.MAX_WORDS]]
    most = messages.MAX_WORD
    shown = [word if len(word) <= most else word[: most - 1] + "…" for word in words]
    return shown if len(arguments) <= messages.MAX_WORDS else [*shown[:-1], "…"]
