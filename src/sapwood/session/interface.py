"""The interface of a session: the only module of this package that the client's packages import.

The session itself is a *host* (``host.py``): the root of the tree, its supervision, the numbers of
streams. The holder of a :class:`SessionInterface` opens streams, sends requests and messages and
enters groups, from any thread, and gets futures. Where the host is in the same process,
``embedded.py`` implements the interface; only ``client/local.py``, which makes the session, knows
that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from sapwood.comm import values
from sapwood.comm.groups.handle import GroupOptions
from sapwood.comm.messages import FilterAt, StreamSpec
from sapwood.comm.messages.groups import GroupNumber
from sapwood.comm.shared_memory import SharedRef
from sapwood.content.refs import ContentRef, FileStamp
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import CallerFuture
from sapwood.core.request import Request
from sapwood.core.topology import ROOT, Tree
from sapwood.lifecycle.processes import ProcessState
from sapwood.session.invited import AgentEvent, InvitationInfo
from sapwood.session.options import PlacesChanged
from sapwood.session.requests import RequestFuture
from sapwood.session.session_life import SessionState
from sapwood.session.streams import StreamOptions, SweepResult
from sapwood.session.wave_result import WaveResult

__all__ = [
    "AgentEvent",
    "ContentInterface",
    "GroupInterface",
    "HostedInvitations",
    "InvitationInfo",
    "InvitationInterface",
    "PlacesChanged",
    "ProcessState",
    "ProcessView",
    "RequestFuture",
    "SessionInterface",
    "SessionState",
    "StreamInterface",
    "StreamOptions",
    "SweepResult",
    "WaveResult",
]


class ProcessView(msgspec.Struct, frozen=True):
    """A snapshot of a place of the tree.

    Attributes:
        rank: The place.
        pid: Its process; 0 while there is none.
        state: Where that is in its life.
        incarnation: Counts the processes that have been at this place.
        joined: Whether its process joined by an invitation.
    """

    rank: int
    pid: int
    state: ProcessState
    incarnation: int
    joined: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether its process is there and can be reached."""
        return self.state is ProcessState.READY

    @property
    def is_gone(self) -> bool:
        """Whether its process is missing or has not joined yet."""
        return self.state.is_lost or self.state is ProcessState.STARTING


class StreamInterface(Protocol):
    """An open stream, as its user holds it.

    Attributes:
        spec: What it is.
        on_contribution: Receives each contribution to a stream that does not wait.
        explain: Receives each error of a wave before it is reported, to add to it.
        new_future: Makes the future of a wave.
    """

    spec: StreamSpec
    on_contribution: Callable[[WaveResult | SapwoodError], None]
    explain: Callable[[SapwoodError], None]
    new_future: Callable[[], CallerFuture[WaveResult]]

    @property
    def open_waves(self) -> int:
        """Waves that are not over."""

    @property
    def waves_begun(self) -> int:
        """Waves that were broadcast so far."""

    @property
    def closed(self) -> SapwoodError | None:
        """Why the stream is closed; None while it is open."""

    def broadcast(self, value: Any) -> CallerFuture[WaveResult]:
        """Send a value to all members; the future is the reduction of their answers."""

    def exchange(
        self,
        value: Any,
        timeout: float | None = None,
        meanwhile: Callable[[], object] = ...,
    ) -> WaveResult:
        """Send a value to all members and return the reduction of their answers."""

    def sweep(self, action: str, filters: tuple[FilterAt, ...] = ()) -> Future[SweepResult]:
        """Flush, quiesce, resume or query the stream; the future is done when that is.

        With ``stage``, all places load ``filters`` and report whether they can.
        """

    def read(self, counts: dict[int, int]) -> None:
        """Say how many values that agents have sent of themselves were read."""

    def configure(self, parameters: bytes, code: str = "") -> None:
        """Give the filters other parameters, or staged code, from the next wave on."""

    def close(self, reason: SapwoodError | None = None) -> None:
        """Close the stream; what its agents do for it is cancelled.

        Args:
            reason: What open waves fail with; by default a ClosedError.
        """


class GroupInterface(Protocol):
    """The groups that the client takes part in, as rank 0."""

    def enter(
        self, agents: list[int], name: str, options: GroupOptions, enter_timeout: float | None
    ) -> Request:
        """Enter a group with some agents; the request is the group."""

    def call(self, order: dict[str, Any], value: Any, convert: Callable[[Any], Any]) -> Request:
        """Make a call; the request is its converted result."""

    def leave(self, number: GroupNumber) -> None:
        """Leave a group."""


class ContentInterface(Protocol):
    """What the root offers to places that see neither its memory nor its files, by its hash."""

    def offer(self, data: bytes | bytearray | memoryview) -> ContentRef:
        """Offer bytes, of which a copy is made."""

    def offer_memory(self, memory: SharedRef) -> ContentRef:
        """Offer shared memory of this process, which must not change meanwhile."""

    def offer_file(
        self, stamp: FileStamp, offset: int = 0, nbytes: int | None = None, sha256: str = ""
    ) -> ContentRef:
        """Offer a file, or a part of it; places that see the same file are to use that."""

    def withdraw(self, ref: ContentRef) -> None:
        """Offer something once less; with the last time it is gone."""


class InvitationInterface(Protocol):
    """The invitations by which other processes become agents of a session.

    Attributes:
        listed_by: What shows them, for hints.
    """

    listed_by: str

    def create(self, count: int, lifetime: float, listen: str = "") -> list[str]:
        """Make invitations; return their lines, which are secrets."""

    def views(self) -> list[InvitationInfo]:
        """Return snapshots of all invitations."""

    def revoke(self, invitation: str) -> bool:
        """Revoke an invitation; return whether it existed."""

    def close(self) -> None:
        """Stop all invited agents, and admit no more."""


class HostedInvitations(InvitationInterface, Protocol):
    """The same where the root is in this process.

    Attributes:
        events: The last events of the agents.
    """

    events: deque[AgentEvent]

    def create(
        self, count: int, lifetime: float, listen: str = "", by: tuple[str, ...] = ()
    ) -> list[str]:
        """Make invitations that end with the credential of whoever makes them."""

    def current(self) -> list[InvitationInfo]:
        """Return snapshots of all invitations; on the session's loop."""

    def deny(self, ids: frozenset[str]) -> None:
        """End the invitations by revoked credentials, with their agents; on the session's loop."""


class NewAgent(msgspec.Struct, frozen=True):
    """An agent that is to be added.

    Attributes:
        parent: Its home: the root or a junction.
        host: The machine on which it is; 0 for the root's.
    """

    parent: int = ROOT
    host: int = 0


class SessionThread(Protocol):
    """The thread of a session's loop, as callers of the session see it."""

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread, which must not wait for the session."""

    @property
    def in_forked_child(self) -> bool:
        """Whether this process was forked from the one that has the thread."""

    def refuse_forked_child(self) -> None:
        """Raise ClosedError in a process that was forked from the one that has the thread."""


class SessionInterface(Protocol):
    """A session, as its users hold it; all of it may be used from any thread.

    Attributes:
        tree: The shape of its tree.
    """

    @property
    def tree(self) -> Tree:
        """Its present tree."""

    @property
    def hosts(self) -> tuple[int, ...]:
        """The machine of each place, by rank; none where all are on one."""

    def ready_hosts(self) -> list[int]:
        """Return the other machines on which processes can begin now."""

    @property
    def groups(self) -> GroupInterface:
        """The groups that the client takes part in."""

    @property
    def invitations(self) -> InvitationInterface:
        """The invitations by which other processes become its agents."""

    @property
    def content(self) -> ContentInterface:
        """Content that is offered to places on other machines."""

    def shares_machine(self, rank: int | None = None) -> bool:
        """Whether a place sees the memory and the files of the root; without a rank, all do."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, if the restart policy gave up."""

    @property
    def thread(self) -> SessionThread:
        """The thread of its loop."""

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of processes; none before the start."""

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of the Pythons of all processes, the root's first, each once."""

    def processes(self, ranks: Iterable[int] | None = None) -> list[ProcessView]:
        """Return the processes of places as they are now; without ranks all agents, in order."""

    def open_stream(
        self,
        handler: str,
        reduce: Mapping[str, str],
        members: Sequence[int] | None = None,
        context: str = "",
        options: StreamOptions = ...,
    ) -> StreamInterface:
        """Open a stream to agents."""

    def ask(self, rank: int, handler: str, value: Any) -> RequestFuture:
        """Have a handler called at an agent; the future is its answer."""

    def ask_encoded(
        self,
        rank: int,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: RequestFuture | None = None,
    ) -> RequestFuture:
        """As :meth:`ask`, with a body that the caller encoded and the arrays that belong to it."""

    def withdraw(self, answer: RequestFuture) -> None:
        """Take a request back: its future ends with CancelledError."""

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have ``function(rank, value)`` called when an agent asks; on the session's thread."""

    def send(self, destination: int | Iterable[int], value: Any, tag: int) -> Request:
        """Send a tagged message."""

    def receive(self, source: int, tag: int) -> Request:
        """Wait for a tagged message."""

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add agents while the session runs, and wait until they are ready; return their ranks."""

    def contract(self, ranks: Sequence[int], seconds: float = ..., reason: str = ...) -> None:
        """Remove places for good: wait for what they were asked for, then end their processes."""

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Call a function for lost and replaced places, until the returned function is called."""

    def drain(self, streams: Sequence[StreamInterface], seconds: float) -> None:
        """Wait until what agents have sent of themselves so far has arrived."""

    def start(self) -> None:
        """Start all processes and wait until they are ready."""

    def close(self) -> None:
        """End all processes and leave nothing behind; a second call does nothing."""
