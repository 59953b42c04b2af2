"""The stacks of all runners, gathered from their agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from pathlib import Path

import msgspec

from sapwood.activity import agent_requests
from sapwood.code.languages.compiled import DEBUG, LIBRARY
from sapwood.code.stacks import FrameInfo, StackInfo, StackResult, ThreadInfo
from sapwood.code.symbolise import symbolise
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.core.failures import log_failure
from sapwood.session.port import SessionPort

LOST = "lost"


def read_stacks(session: SessionPort, ranks: Iterable[int], timeout: float) -> StackResult:
    """Ask agents for the stacks of their runners.

    Args:
        session: Their session.
        ranks: The agents.
        timeout: Seconds that they have to answer.
    """
    asked = {rank: session.ask(rank, agent_requests.STACK, None) for rank in ranks}
    _, late = wait(asked.values(), timeout)
    found = []
    names = _Names()
    for rank, future in asked.items():
        if future in late:
            session.withdraw(future)
            note = f"the agent did not answer within {timeout:g} s"
            found.append(StackInfo(agent=rank, state=LOST, note=note))
            continue
        try:
            info = typed.convert(future.result(), StackInfo)
        except SapwoodError as error:
            found.append(StackInfo(agent=rank, state=LOST, note=error.what))
        except msgspec.ValidationError:
            found.append(StackInfo(agent=rank, state=LOST, note="its answer cannot be read"))
        else:
            found.append(msgspec.structs.replace(info, agent=rank, threads=names.of(info.threads)))
    return StackResult(tuple(found))


class _Names:
    """Names the lines of native frames, where their debug information is on this machine."""

    def __init__(self) -> None:
        self._known: dict[FrameInfo, FrameInfo] = {}

    def of(self, threads: Iterable[ThreadInfo]) -> tuple[ThreadInfo, ...]:
        """Return threads with names of lines."""
        return tuple(
            ThreadInfo(one.main, tuple(self._frame(frame) for frame in one.frames))
            for one in threads
        )

    def _frame(self, frame: FrameInfo) -> FrameInfo:
        if not frame.native or frame.line or not frame.file.endswith(f"/{LIBRARY}"):
            return frame
        if frame not in self._known:
            self._known[frame] = _named(frame)
        return self._known[frame]


def _named(frame: FrameInfo) -> FrameInfo:
    """Return a native frame with its line; as it is where that is not known."""
    library = Path(frame.file)
    debug = library.with_name(DEBUG)
    files: Mapping[str, Path] = {frame.file: debug if debug.is_file() else library}
    line = f"{frame.file}({frame.function})"
    try:
        text = symbolise(line, files)
    except Exception as error:  # noqa: BLE001 - debug information may be damaged in any way
        log_failure("naming the line of a native frame", error)
        return frame
    function, _, place = text.rpartition(" (")
    file, _, number = place.removesuffix(")").rpartition(":")
    if text == line or not number.isdecimal():
        return frame
    return FrameInfo(function, file, int(number), native=True)
