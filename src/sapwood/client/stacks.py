"""The stacks of all runners, gathered from their agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from sapwood.activity.stack_round import LONGEST, gather_stacks
from sapwood.code.languages.compiled import DEBUG, LIBRARY
from sapwood.code.stacks import FrameInfo, StackInfo, StackResult, ThreadInfo
from sapwood.code.symbolise import symbolise
from sapwood.core import typed
from sapwood.core.failures import log_failure
from sapwood.head.session_records import SessionCredential
from sapwood.session.interface import SessionInterface
from sapwood.session_server import session_calls
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.remote import connect_by
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.server_link import CALL_TIMEOUT, SessionAddress
from sapwood.session_server.session_credential import cluster_of


def read_stacks(session: SessionInterface, ranks: Sequence[int], timeout: float) -> StackResult:
    """Ask agents for the stacks of their runners; of a session with a server, that asks them.

    Args:
        session: Their session.
        ranks: The agents.
        timeout: Seconds that they have to answer.
    """
    if isinstance(session, AttachedSession):
        timeout = min(timeout, LONGEST)
        asked = session.link.ask(session_calls.STACKS, [list(ranks), timeout])
        found = typed.convert(asked.result(timeout + CALL_TIMEOUT), list[StackInfo])
    else:
        found = gather_stacks(session, ranks, timeout)
    names = LineNames()
    return StackResult(
        tuple(msgspec.structs.replace(one, threads=names.of(one.threads)) for one in found)
    )


def stacks_by_credential(credential: SessionCredential, timeout: float) -> StackResult:
    """Attach to a session to watch it, and ask its agents for the stacks of their runners.

    Args:
        credential: What lets this process attach.
        timeout: Seconds that agents have to answer.

    Raises:
        SapwoodError: The session cannot be attached to.
    """
    address = SessionAddress(
        session=credential.session,
        name=credential.name,
        secret=credential.secret,
        cluster=cluster_of(credential),
    )
    session = AttachedSession(address, connect_by(credential), role=ClientRole.WATCHER)
    try:
        session.start()
        return read_stacks(session, session.tree.agent_ranks, timeout)
    finally:
        session.close()


class LineNames:
    """Names the lines of native frames, where their debug information is on this machine."""

    def __init__(self) -> None:
        self._known: dict[FrameInfo, FrameInfo] = {}

    def of(self, threads: Iterable[ThreadInfo]) -> tuple[ThreadInfo, ...]:
        """Return threads with names of lines."""
        return tuple(
            ThreadInfo(one.main, tuple(self.frame(frame) for frame in one.frames))
            for one in threads
        )

    def frame(self, frame: FrameInfo) -> FrameInfo:
        """Return a frame with the name of its line."""
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
