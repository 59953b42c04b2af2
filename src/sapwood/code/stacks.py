"""The stack of a runner: types for users, and readers of what faulthandler and py-spy write.

Agents load this when a stack is asked for, so it needs no numpy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from sapwood.core import typed
from sapwood.core.rankset import fold

MAX_THREADS: Final = 64
"""Threads of one runner that are shown."""

MAX_FRAMES: Final = 128
"""Frames of one thread that are shown: the innermost ones."""

MAX_NAME: Final = 500
"""Characters of a function's or file's name that are kept."""

_RUNNER_FILE: Final = os.path.join("sapwood", "code", "runner", "child.py")  # noqa: PTH118 - agents have no pathlib
_BOOTSTRAP: Final = ("_bootstrap", "Thread._bootstrap")
"""What each thread of Python begins with."""

_CALLERS: Final = ("libffi", "/_ctypes.", "/fastpath.so")
"""Libraries whose frames call the native frames of user code."""


class FrameInfo(msgspec.Struct, frozen=True):
    """One frame of a stack.

    Attributes:
        function: The function; of a native one without a name, its place in the library.
        file: The source file; of native code without debug information, the library.
        line: The line; 0 where it is not known.
        native: Whether it is native code.
    """

    function: str
    file: str = ""
    line: int = 0
    native: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.function} ({place})" if place else self.function


class ThreadInfo(msgspec.Struct, frozen=True):
    """One thread of a runner, with its frames of user code.

    Attributes:
        main: Whether it is the thread in which calls are made.
        frames: Its frames, the innermost one first.
    """

    main: bool
    frames: tuple[FrameInfo, ...] = ()


class StackInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the runner of an agent does.

    Attributes:
        agent: The agent's rank.
        node: What its machine calls itself.
        pid: The process of its runner; 0 while it has none.
        state: ``busy``; ``idle``: it waits for a call, or does not exist; ``stopped`` by a
            signal or a debugger; ``silent``: it did not answer in time; ``lost``: the agent did
            not answer.
        function: The function that is called, as errors name it; empty if none is.
        seconds: For how long it has been called.
        threads: The threads that execute user code, the main thread first.
        note: Why frames are missing; empty if none are.
    """

    agent: int = 0
    node: str = ""
    pid: int = 0
    state: str = "idle"
    function: str = ""
    seconds: float = 0.0
    threads: tuple[ThreadInfo, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return "\n".join(_lines(self.state, self.function, [self.seconds], self))


class StackResult(msgspec.Struct, frozen=True):
    """The stacks of all runners; as text, equal ones are shown once.

    Attributes:
        agents: One for each agent, by rank.

    Example:
        >>> def idle(rank):
        ...     return StackInfo(agent=rank, state="idle")
        >>> print(StackResult((idle(1), idle(2), StackInfo(agent=3, state="stopped", pid=7))))
        agent[1-2]: idle
        agent 3: stopped
    """

    agents: tuple[StackInfo, ...]

    def folded(self) -> tuple[tuple[tuple[int, ...], StackInfo], ...]:
        """Return each different stack once, with the ranks of the agents that have it.

        Stacks are equal if state, function and all frames are.
        """
        groups: dict[object, list[StackInfo]] = {}
        for one in self.agents:
            key = (one.state, one.function, one.threads, one.note)
            groups.setdefault(key, []).append(one)
        return tuple((tuple(one.agent for one in same), same[0]) for same in groups.values())

    def __str__(self) -> str:
        by_rank = {one.agent: one for one in self.agents}
        texts = []
        for ranks, info in self.folded():
            seconds = [by_rank[rank].seconds for rank in ranks]
            first, *rest = _lines(info.state, info.function, seconds, info)
            texts.append("\n".join([f"{fold('agent', ranks)}: {first}", *rest]))
        return "\n".join(texts)


def _lines(state: str, function: str, seconds: Sequence[float], info: StackInfo) -> Iterator[str]:
    """Yield a stack as lines: what it does, then its frames."""
    what = f"{state} in {function}" if function else state
    if function:
        least, most = f"{min(seconds):.1f}", f"{max(seconds):.1f}"
        what += f" for {most} s" if least == most else f" for {least} to {most} s"
    yield what
    if info.note:
        yield f"  ({info.note})"
    for thread in info.threads:
        if not thread.main:
            yield "  another thread:"
        for frame in thread.frames:
            yield f"  {'' if thread.main else '  '}{frame}"


# --- faulthandler ---------------------------------------------------------------------------------


def from_faulthandler(text: str) -> tuple[ThreadInfo, ...]:
    r"""Return the threads that execute user code, from what faulthandler has written.

    Native frames of the main thread, as ``backtrace_symbols_fd`` writes them, may come first.

    Example:
        >>> text = '''/tmp/liba.so(spin+0x1a)[0x7f]
        ... /usr/lib/libffi.so.8(+0x7e3a)[0x7f]
        ... Current thread 0x00007f10 (most recent call first):
        ...   File "/home/a.py", line 6 in wait
        ...   File "/lib/sapwood/code/call.py", line 3 in call
        ...   File "/lib/sapwood/code/runner/child.py", line 9 in serve
        ... '''
        >>> [str(frame) for frame in from_faulthandler(text)[0].frames]
        ['spin+0x1a (/tmp/liba.so)', 'wait (/home/a.py:6)']
    """
    native: list[str] = []
    stacks: list[list[FrameInfo]] = []
    for line in text.splitlines():
        if line.startswith(("Thread 0x", "Current thread 0x", "Stack (most recent")):
            stacks.append([])
        elif line.startswith("  File ") and stacks:
            stacks[-1].append(_python_frame(line))
        elif not line.startswith("  ") and line and not stacks:
            native.append(line)
    # The thread that began first is the last one; it has the frames of the runner itself.
    main = next((number for number, one in enumerate(stacks) if _is_main(one)), len(stacks) - 1)
    found = [ThreadInfo(main=False, frames=_short(one)) for one in stacks]
    if not stacks:
        return ()
    own = (*_user_frames(native), *_of_user(stacks[main], skip_binding=bool(native)))
    found.pop(main)
    threads = [ThreadInfo(main=True, frames=_short(own)), *found]
    return tuple(one for one in threads[:MAX_THREADS] if one.frames)


def is_serving(text: str) -> bool:
    """Whether a runner that wrote this waits for calls or makes one: it has started.

    Example:
        >>> is_serving('  File "/lib/sapwood/code/runner/child.py", line 9 in serve')
        True
    """
    return any(
        line.endswith(" in serve") and _RUNNER_FILE in line for line in reversed(text.splitlines())
    )


def _python_frame(line: str) -> FrameInfo:
    place, _, function = line.rpartition(" in ")
    file, _, number = place.rpartition(", line ")
    file = file.strip().removeprefix('File "').removesuffix('"')
    known = int(number) if number.isdecimal() else 0
    return FrameInfo(function[:MAX_NAME], file[-MAX_NAME:], known)


def _user_frames(lines: Iterable[str]) -> Iterator[FrameInfo]:
    """Yield the native frames above the one that called them from Python; none without one."""
    found: list[FrameInfo] = []
    for line in lines:
        path, _, rest = line.rpartition("(")
        if any(caller in path for caller in _CALLERS):
            yield from found
            return
        function = rest.partition(")")[0]
        found.append(FrameInfo(function[:MAX_NAME], path[-MAX_NAME:], native=True))


def _is_main(frames: Iterable[FrameInfo]) -> bool:
    return any(one.file.endswith(_RUNNER_FILE) for one in frames)


def _of_user(frames: Sequence[FrameInfo], *, skip_binding: bool) -> Sequence[FrameInfo]:
    """Return the frames of the main thread without the frames of the runner.

    Args:
        frames: All of them.
        skip_binding: Whether the innermost ones, if they are Sapwood's, only call native code.
    """
    runner = next((at for at, one in enumerate(frames) if one.file.endswith(_RUNNER_FILE)), None)
    if runner is None:
        return frames
    package = frames[runner].file.removesuffix(_RUNNER_FILE) + "sapwood" + os.sep
    end = runner
    while end and frames[end - 1].file.startswith(package):
        end -= 1
    if skip_binding:
        begin = 0
        while begin < end and frames[begin].file.startswith(package):
            begin += 1
        return frames[begin:end]
    return frames[: end or runner]  # without user code, what is done for it: opening a program


def _short(frames: Sequence[FrameInfo]) -> tuple[FrameInfo, ...]:
    end = len(frames)
    while end and frames[end - 1].function.startswith(_BOOTSTRAP):
        end -= 1
    return tuple(frames[: min(end, MAX_FRAMES)])


def stack_text(text: str) -> str:
    """Return the frames of what faulthandler has written as text, one a line.

    Native frames look as in backtraces of crashes, so that their lines can be found.
    """
    lines = []
    for thread in from_faulthandler(text):
        lines += [] if thread.main else ["another thread:"]
        lines += [
            f"{one.file}({one.function})" if one.native else str(one) for one in thread.frames
        ]
    return "\n".join(lines)


# --- py-spy ---------------------------------------------------------------------------------------


class _SpyFrame(msgspec.Struct):
    name: str
    filename: str = ""
    module: str | None = None
    line: int = 0


class _SpyThread(msgspec.Struct):
    frames: list[_SpyFrame]


_read_spy: Callable[[bytes], list[_SpyThread]] = typed.json_reader(list[_SpyThread])


def from_py_spy(data: bytes) -> tuple[ThreadInfo, ...]:
    """Return the threads that execute user code, from ``py-spy dump --native --json``.

    Raises:
        msgspec.MsgspecError: It is something else.
    """
    found = []
    for thread in _read_spy(data):
        frames = [
            FrameInfo(
                one.name[:MAX_NAME], one.filename[-MAX_NAME:], one.line, one.module is not None
            )
            for one in thread.frames
            if one.module is None or not _is_interpreter(one)
        ]
        main = _is_main(frames)
        own = _without_binding(frames) if main else frames
        found.append(ThreadInfo(main=main, frames=_short(own)))
    found.sort(key=lambda one: not one.main)
    return tuple(one for one in found[:MAX_THREADS] if one.frames)


def _without_binding(frames: Sequence[FrameInfo]) -> Sequence[FrameInfo]:
    """Return the frames of the main thread without the frames of the runner."""
    first = next((at for at, one in enumerate(frames) if not one.native), len(frames))
    return (*frames[:first], *_of_user(frames[first:], skip_binding=first > 0))


def _is_interpreter(frame: _SpyFrame) -> bool:
    """Whether a native frame is one of the interpreter or of what calls user code."""
    module = frame.module or ""
    name = module.rpartition("/")[2]
    return name.startswith(("libpython", "python", "libffi", "_ctypes")) or frame.name.startswith(
        "0x"
    )
