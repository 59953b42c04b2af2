"""What a session server does with merged sessions, if the package ``merging`` is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from sapwood.comm.messages import StreamSpec
from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.core.optional import merging
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.wire import SessionCall


class MergingClient(Protocol):
    """A client of a session server: what merges need of it.

    Attributes:
        label: What users call it.
        here: Whether it is on this machine.
    """

    label: str
    here: bool


class MergingServer(Protocol):
    """A session server: what merges need of it.

    Attributes:
        session: The session.
        id: Its id.
        name: What users call it.
        largest: Bytes of the largest message and payload of another server.
        changed: Told that a session was merged into this one, or split off.
    """

    session: ServedSession
    id: str
    name: str
    largest: int
    changed: Callable[[], None]

    def mergers(self) -> Sequence[MergingClient]:
        """Return the servers of the sessions that this one is merged into."""

    def split_off(self, labels: Sequence[str], error: SapwoodError) -> None:
        """End the connections of such servers."""


class SessionMerging(Protocol):
    """The sessions that are merged into the one of a server; all on its loop's thread."""

    @property
    def begun(self) -> bool:
        """Whether a session is merged into this one, or is about to be."""

    @property
    def handles(self) -> list[str]:
        """What names the sessions that are merged into this one, ``name#id``."""

    def must_be_mergeable(self) -> None:
        """Raise ConfigurationError if this session cannot be merged into another one."""

    def answer(self, client: MergingClient, call: SessionCall) -> Any:
        """Return the answer to a call about merges, or a future that gets it."""

    def spans(self, spec: StreamSpec) -> bool:
        """Whether a stream has members of other sessions."""

    def open(self, spec: StreamSpec, *, paced: bool) -> None:
        """Open a stream over this session and another one."""

    def close(self) -> None:
        """Split off all sessions, because this one ends."""


class NoMerging:
    """The same without the package: no session is merged with another one."""

    begun = False

    @property
    def handles(self) -> list[str]:
        """What names the sessions that are merged into this one: none."""
        return []

    def must_be_mergeable(self) -> None:
        """Raise ConfigurationError."""
        refuse_merges()

    def answer(self, client: MergingClient, call: SessionCall) -> Any:
        """Raise ConfigurationError."""
        del client, call
        refuse_merges()

    def spans(self, spec: StreamSpec) -> bool:
        """Say that a stream has no members of other sessions."""
        del spec
        return False

    def open(self, spec: StreamSpec, *, paced: bool) -> None:
        """Raise ConfigurationError."""
        del spec, paced
        refuse_merges()

    def close(self) -> None:
        """Do nothing."""


def refuse_merges() -> NoReturn:
    """Raise the error of an installation without the package.

    Raises:
        ConfigurationError: Always.
    """
    raise ConfigurationError(
        "this installation cannot merge sessions: it lacks the package sapwood.merging",
        hint="install Sapwood with all its packages",
    )


def merging_of(server: MergingServer) -> SessionMerging:
    """Return what merges other sessions into the one of a server."""
    merges = merging("merges")
    if merges is None:
        return NoMerging()
    made: SessionMerging = merges.Merges(server)
    return made
