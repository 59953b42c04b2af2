"""Two sessions that are merged: streams over the agents of both."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from sapwood.activity.offered_content import OfferedContent
from sapwood.client.finding import find_root
from sapwood.client.stream_opening import (
    FilterSource,
    Keep,
    Late,
    Loss,
    StreamRequest,
    open_stream,
)
from sapwood.client.user_code import CodeMaker
from sapwood.code.target import targets_of
from sapwood.core import typed
from sapwood.core.arguments import text, wait_time
from sapwood.core.errors import ClosedError, CommunicationError, ConfigurationError
from sapwood.core.rankset import from_ranges
from sapwood.core.staying import StaysHere
from sapwood.merging.orders import MergedSession, MergeOrder
from sapwood.session_server import session_calls
from sapwood.session_server.attached import AttachedSession

if TYPE_CHECKING:
    from sapwood.client.stream import Stream
    from sapwood.code.cache import BuildCache
    from sapwood.code.program import NativeFunctionRef
    from sapwood.environment.settings import Settings
    from sapwood.session.interface import ContentInterface, WaveResult

MERGE_TIMEOUT = 30.0
"""Seconds in which the server of the other session must have answered."""


class _FromAfar:
    """A session as it is to code that also goes to agents that see neither its memory nor files."""

    def __init__(self, session: AttachedSession) -> None:
        self.content: ContentInterface = session.content

    def shares_machine(self, rank: int | None = None) -> bool:
        """Say that they do not."""
        del rank
        return False


class SessionMerges:
    """The merges of the session of one cluster, by its client.

    Args:
        session: The session.
        settings: The settings of the cluster.
        cache: Where built libraries are kept.
        environment: Returns the variables of builds.
        must_be_open: Raises if the cluster is closed.
    """

    def __init__(
        self,
        session: AttachedSession,
        settings: Settings,
        cache: BuildCache,
        environment: Callable[[], Mapping[str, str]],
        must_be_open: Callable[[], None],
    ) -> None:
        self.session = session
        self.settings = settings
        self.cache = cache
        self.environment = environment
        self.must_be_open = must_be_open

    def merge(
        self,
        handle: str,
        credential: str | os.PathLike[str] | None,
        key: str | os.PathLike[str] | None,
        cluster: str,
    ) -> Merged:
        """Merge another session into this one; see :meth:`.Cluster.merge`."""
        return self.merge_by(merge_order(handle, credential, key, cluster))

    def merge_by(self, order: MergeOrder) -> Merged:
        """Merge the session of an order into this one."""
        asked = self.session.link.ask(session_calls.MERGE, msgspec.to_builtins(order))
        return Merged(self, typed.convert(asked.result(MERGE_TIMEOUT), MergedSession))

    def split(self, handle: str, timeout: float) -> None:
        """End the merge with another session; see :meth:`.Cluster.split`."""
        wanted = {"session": handle, "seconds": timeout}
        asked = self.session.link.ask(session_calls.SPLIT, wanted)
        asked.result(timeout + MERGE_TIMEOUT)

    def found(self) -> list[MergedSession]:
        """Return what the server says of the sessions that are merged into this one."""
        found = self.session.link.ask(session_calls.MERGED).result(MERGE_TIMEOUT)
        return typed.convert(found, list[MergedSession])

    def current(self) -> tuple[Merged, ...]:
        """Return the sessions that are merged into this one."""
        return tuple(Merged(self, one) for one in self.found())


class Merged(StaysHere):
    """A session that is merged into the one of a cluster; made by :meth:`.Cluster.merge`.

    As a context manager it splits the two at the end. All methods may be called from any thread.
    """

    def __init__(self, merges: SessionMerges, there: MergedSession) -> None:
        self._merges = merges
        self._session = session = merges.session
        self._there = there
        self._lock = threading.Lock()
        self._split = False
        kinds = tuple(dict.fromkeys((*session.platforms, *there.platforms)))
        pythons = (*session.pythons, *there.pythons)
        offered: Any = _FromAfar(session)
        self._maker = CodeMaker(
            merges.cache,
            merges.environment,
            lambda: targets_of(kinds),
            lambda: pythons,
            OfferedContent(offered),
            pickle=merges.settings.tasks.pickle,
        )

    @property
    def name(self) -> str:
        """What its users call the other session."""
        return self._there.name

    @property
    def handle(self) -> str:
        """The permanent name of the other session, ``name#id``."""
        return self._there.handle

    @property
    def id(self) -> str:
        """Its id."""
        return self._there.id

    @property
    def first(self) -> int:
        """Offset of the ranks of the other session; its agent 3 is ``first + 3`` here."""
        return self._there.first

    @property
    def agents(self) -> list[int]:
        """The present ranks of the other session's agents.

        Raises:
            ClosedError: The two are not merged any more.
        """
        found = next((one for one in self._merges.found() if one.first == self.first), None)
        if found is None or self._split:
            raise ClosedError(
                f"the session '{self.handle}' is not merged any more",
                hint="cluster.merge() merges it again",
            )
        return sorted(from_ranges(found.agents))

    def stream(  # noqa: PLR0913 - what a stream can be; all but the first by name
        self,
        what: str | Callable[..., Any] | NativeFunctionRef,
        *,
        reduce: str | Mapping[str, str] | FilterSource = "gather",
        sync: str | float = "all",
        late: Late = "drop",
        keep: Keep = "all",
        on_loss: Loss = "replace",
        up: FilterSource | Mapping[str, FilterSource] | None = None,
        down: FilterSource | Mapping[str, FilterSource] | None = None,
        parameters: Mapping[str, Any] | None = None,
        time_limit: float | None = None,
    ) -> Stream:
        """Open a stream over the agents of both sessions; see :meth:`.Cluster.stream`.

        Each session brings its own agents together. The two results come together above both
        roots, where the reduction and filters for ``"*"`` work once more, and those for the root
        (``"rank 0"``, ``"depth 0"``) only there. Other filters for ranks are of this cluster.

        Results name the agents of the other session by ``first`` and their rank there:
        :meth:`ranks_of` tells them apart.

        Args:
            what: As :meth:`.Cluster.stream` has it, like all options here.
            reduce: The reduction, or an own filter.
            sync: When a wave is over, in each of the sessions.
            late: What becomes of what comes after a time-out.
            keep: Which results are kept.
            on_loss: What becomes of waves that wait for an agent, or for the whole other session,
                that is lost: with ``"partial"`` they continue without it, else they fail.
            up: Your filters on the way up.
            down: Your filters for what is broadcast.
            parameters: Of your filters.
            time_limit: Seconds that one call may take.

        Raises:
            ConfigurationError: The options do not describe a stream.
            ClosedError: The cluster is closed, or the two are not merged any more.

        Example:
            ::

                with merged.stream(load, reduce="sum") as stream:
                    result = stream.broadcast().result()
                    print(result.total, merged.ranks_of(result))
        """
        self._merges.must_be_open()
        others = [self.first + rank for rank in self.agents]
        agents = [*self._session.tree.agent_ranks, *others]
        limit = self._merges.settings.limits.time if time_limit is None else time_limit
        own = dict(parameters or {})
        request = StreamRequest(
            what, reduce, agents, sync, late, keep, on_loss, up, down, own, limit
        )
        return open_stream(self._session, request, self._code, self._merges.must_be_open, others)

    def ranks_of(self, result: WaveResult) -> dict[str, list[int]]:
        """Return which agents are in a result, by the handle of their session, as ranks there.

        Example:
            ::

                merged.ranks_of(result)  # {"night#5b9a77aa": [1, 2], "day#0c1d2e3f": [1, 2, 3]}
        """
        address = self._session.address
        found = from_ranges(result.ranks)
        return {
            f"{address.name}#{address.session}": sorted(one for one in found if one < self.first),
            self.handle: sorted(one - self.first for one in found if one >= self.first),
        }

    def split(self, timeout: float = 10.0) -> None:
        """End the merge; both sessions are as before.

        Waves over both that are open end first. Streams over both begin no more waves, unless they
        may continue without the other session.

        Args:
            timeout: Seconds to wait for open waves; then they fail, or continue without it.

        Raises:
            ClosedError: The cluster is closed.
        """
        timeout = wait_time(timeout) or 0.0
        with self._lock:
            if self._split:
                return
            self._split = True
        try:
            self._merges.split(self._there.id, timeout)
        except ConfigurationError:
            return  # the other session has ended, or another client has split them

    def _code(self, function: Any, limit: float) -> tuple[Any, dict[str, Path]]:
        return self._maker.for_stream(function, limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(CommunicationError):  # the client has left or lost the session
            self.split()

    def __repr__(self) -> str:
        return f"<Merged: {self.handle}, agents from {self.first + 1} on>"


def merge_order(
    handle: str,
    credential: str | os.PathLike[str] | None,
    key: str | os.PathLike[str] | None,
    cluster: str,
) -> MergeOrder:
    """Return how a root reaches another session, and what it shows there.

    Raises:
        ConfigurationError: There is no such session.
        ClosedError: It has ended.
        SecurityError: The credential does not allow it, or its head is another one.
        CommunicationError: Its head is not reached.
    """
    if text(handle, "handle").startswith("sws1."):
        return MergeOrder(credential=handle)
    session, _, addresses = handle.partition("@")
    if credential is None and not addresses:
        socket, number, name = find_root(session, cluster)
        return MergeOrder(socket=socket, session=number, name=name)
    from sapwood.head.parts.sessions import Sessions  # noqa: PLC0415 - as above
    from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - cryptography is not needed here
    from sapwood.head_client.connection import SCHEME  # noqa: PLC0415 - as above
    from sapwood.security.credential_file import (  # noqa: PLC0415 - as above
        find_credential,
        find_holder_key,
    )
    from sapwood.session_server.session_credential import credential_text  # noqa: PLC0415 - as above

    head = HeadAccess(
        f"{SCHEME}{addresses}" if addresses else cluster,
        None if credential is None else find_credential(credential),
        None if key is None else find_holder_key(key),
    )
    try:
        found = head.client.call_within(MERGE_TIMEOUT, Sessions.merge_credential, session)
    finally:
        head.close()
    return MergeOrder(credential=credential_text(found))
