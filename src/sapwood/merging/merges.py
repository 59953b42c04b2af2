"""The sessions that are merged into one, at its server: asked in, worked with, let go.

A merge is one line to the server of the other session. Nothing is copied and no tree changes: a
stream over both is a :class:`~sapwood.merging.joint_stream.JointStream`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from sapwood.activity.agent_requests import decode_code
from sapwood.comm import events as ev
from sapwood.comm.loop import Timer
from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.transport.unix import UnixTransport
from sapwood.content.refs import ContentRef
from sapwood.core import typed
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    ConfigurationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.futures import CallerFuture
from sapwood.core.hints import command
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.shown import shown
from sapwood.environment.logs import logger
from sapwood.merging.joint_stream import JointStream, StreamPart, filters_of_part
from sapwood.merging.line import MergeLine
from sapwood.merging.orders import FIRST, MergedSession, MergeOrder, SplitOrder
from sapwood.session_server import session_calls, wire
from sapwood.session_server.merging_hook import MergingClient, MergingServer
from sapwood.session_server.remote import connect_by
from sapwood.session_server.server_link import Connect, SessionAddress
from sapwood.session_server.session_credential import cluster_of, read_credential

LONGEST_SPLIT = 86_400.0
"""Seconds for which a split waits for open waves at most."""

MAX_MERGED = 16
"""Sessions that may be merged into one at a time."""

_log = logger("session")


class _Merge:
    """A session that is merged into this one, or is about to be."""

    def __init__(self, line: MergeLine, first: int, asked: Future[Any]) -> None:
        self.line = line
        self.first = first
        self.asked = asked
        self.since = time.time()
        self.parts: dict[JointStream, StreamPart] = {}
        self.ending: list[Future[Any]] = []
        self.timer: Timer | None = None

    @property
    def name(self) -> str:
        return f"{self.line.address.name}#{self.line.address.session}"

    def view(self) -> MergedSession:
        facts = self.line.facts
        assert facts is not None  # noqa: S101 - only those that are there are shown
        return MergedSession(
            id=facts.session,
            name=facts.name,
            first=self.first,
            agents=to_ranges(self.line.tree.agent_ranks),
            platforms=facts.platforms,
            since=self.since,
            streams=len(self.parts),
            pythons=facts.pythons,
        )


class Merges:
    """The sessions that are merged into the one of a server; all on the loop's thread.

    Args:
        server: The session server.

    Attributes:
        found: Returns which session an order means, and what connects to its server.
    """

    def __init__(self, server: MergingServer) -> None:
        self._server = server
        self._session = server.session
        self.found: Callable[[MergeOrder], tuple[SessionAddress, Connect]] = _found
        self._merges: dict[str, _Merge] = {}
        self._firsts = itertools.count(FIRST, FIRST)

    @property
    def begun(self) -> bool:
        """Whether a session is merged into this one, or is about to be."""
        return bool(self._merges)

    def views(self) -> list[MergedSession]:
        """Return the sessions that are merged into this one."""
        return [one.view() for one in self._merges.values() if one.line.facts is not None]

    @property
    def handles(self) -> list[str]:
        """What names the sessions that are merged into this one, ``name#id``."""
        return [one.handle for one in self.views()]

    def must_be_mergeable(self) -> None:
        """Refuse to be merged into another session while others are merged into this one.

        Raises:
            ConfigurationError: Others are.
        """
        if self.begun:
            raise ConfigurationError(
                f"the session '{self._server.name}' has others merged into it, and so cannot be "
                "merged into one more",
                hint="split those off first",
            )

    # --- merge and split -----------------------------------------------------------------------

    def answer(self, client: MergingClient, call: wire.SessionCall) -> Any:
        """Merge this session with another one, or split both; also for who is not its owner now.

        Raises:
            SapwoodError: It cannot be done.
        """
        if call.name == session_calls.MERGED:
            return msgspec.to_builtins(self.views())
        if call.name == session_calls.SPLIT:
            wanted = typed.convert(call.value, SplitOrder)
            above = [
                one.label
                for one in self._server.mergers()
                if wanted.session in {one.label, *one.label.split("#")}
            ]
            error = ClosedError(f"the owner of '{self._server.name}' has split the two")
            self._server.split_off(above, error)
            return None if above else self.split(wanted)
        order = typed.convert(call.value, MergeOrder)
        if order.socket and not client.here:
            raise SecurityError(
                "a client on another machine needs a credential of the other session",
                hint="`sapwood credential issue --rights connect,merge --session …` makes one",
            )
        return self.merge(order)

    def merge(self, order: MergeOrder) -> Future[Any]:
        """Merge a session into this one; the future gets its :class:`MergedSession`.

        Raises:
            ConfigurationError: It cannot be merged.
            InputError: The credential is none.
        """
        address, connect = self.found(order)
        if address.session == self._server.id:
            raise ConfigurationError(
                "a session cannot be merged with itself", hint="name another session"
            )
        if address.session in self._merges:
            raise ConfigurationError(
                f"the session '{address.name}' is merged into this one already",
                hint=f"{command('session', 'split', self._server.name, address.name)} ends that",
            )
        above = self._server.mergers()
        if above:
            raise ConfigurationError(
                f"this session is merged into {above[0].label}, and so cannot have others in it",
                hint="split the two first, or merge the others into that one",
            )
        if len(self._merges) >= MAX_MERGED:
            raise ConfigurationError(
                f"{MAX_MERGED} sessions are merged into this one", hint="split one off first"
            )
        asked: Future[Any] = CallerFuture()
        key = address.session
        line = MergeLine(
            address,
            connect,
            self._session.loop,
            f"{self._server.name}#{self._server.id}",
            partial(self._ready, key),
            partial(self._over, key),
            self._server.largest,
        )
        self._merges[key] = _Merge(line, next(self._firsts), asked)
        line.begin()
        return asked

    def split(self, order: SplitOrder) -> Future[Any]:
        """Split off a session when its open waves are over, or after a time.

        Raises:
            ConfigurationError: It is not merged into this one, or the time is not valid.
        """
        if not 0 <= order.seconds <= LONGEST_SPLIT:
            raise ConfigurationError(
                f"a split cannot wait for {order.seconds:g} s",
                hint=f"say how many seconds, up to {LONGEST_SPLIT:g}",
            )
        key = self._find(order.session)
        merge = self._merges[key]
        done: Future[Any] = CallerFuture()
        merge.ending.append(done)
        if len(merge.ending) > 1:
            return done
        error = ClosedError(f"the session '{merge.name}' was split off", where=self._server.name)
        merge.timer = self._session.loop.call_later(order.seconds, self._part, key, error)
        for joint, part in list(merge.parts.items()):
            joint.leave(part, error, partial(self._part_if_idle, key, error))
        self._part_if_idle(key, error)
        return done

    def close(self) -> None:
        """Split off all of them, because this session ends."""
        for key in list(self._merges):
            self._part(key, ClosedError("the session has ended"))

    def _find(self, text: str) -> str:
        for key, one in self._merges.items():
            if text in {key, one.name, one.line.address.name} and one.line.facts is not None:
                return key
        known = ", ".join(one.handle for one in self.views())
        raise ConfigurationError(
            f"the session '{self._server.name}' is not merged with {shown(text)}",
            hint=f"with it are: {known}"
            if known
            else f"{command('session', 'merge', self._server.name, text)} merges them",
        )

    def _ready(self, key: str) -> None:
        merge = self._merges[key]
        merge.since = time.time()
        merge.asked.set_result(msgspec.to_builtins(merge.view()))
        _log.info("merged", session=merge.name)
        self._server.changed()

    def _over(self, key: str, error: SapwoodError) -> None:
        """The line to a session has ended, or there is none."""
        merge = self._merges.pop(key, None)
        if merge is None:
            return
        if not merge.asked.done():
            merge.asked.set_exception(error.located(f"session {merge.name}"))
            return
        lost = AgentLostError(
            f"the session '{merge.name}' takes part no more: {error.what}",
            hint="merge it again, and open a new stream",
        )
        self._let_go(merge, lost)

    def _part_if_idle(self, key: str, error: SapwoodError) -> None:
        merge = self._merges.get(key)
        if merge is not None and not any(
            joint.waits_for(part) for joint, part in merge.parts.items()
        ):
            self._part(key, error)

    def _part(self, key: str, error: SapwoodError) -> None:
        merge = self._merges.pop(key, None)
        if merge is None:
            return
        for part in merge.parts.values():
            merge.line.post(ev.CloseStream(part.spec.stream))
        merge.line.close()
        if not merge.asked.done():
            merge.asked.set_exception(error)
        self._let_go(merge, error)

    def _let_go(self, merge: _Merge, error: SapwoodError) -> None:
        if merge.timer is not None:
            merge.timer.cancel()
        for joint, part in list(merge.parts.items()):
            joint.lose(part, error)
        merge.parts.clear()
        for future in merge.ending:
            future.set_result(None)
        _log.info("split", session=merge.name, reason=error.what)
        self._server.changed()

    # --- streams over both ---------------------------------------------------------------------

    def spans(self, spec: StreamSpec) -> bool:
        """Whether a stream has members of other sessions."""
        return any(stop > FIRST for _, stop in spec.members)

    def open(self, spec: StreamSpec, *, paced: bool) -> None:
        """Open a stream over this session and another one.

        Raises:
            SapwoodError: It cannot be opened.
        """
        members = from_ranges(spec.members)
        own = {rank for rank in members if rank < FIRST}
        others = members - own
        merge = self._merge_of(others)
        if spec.follows:
            raise ProtocolError("a stream over several sessions follows none of them")
        parts: list[StreamPart] = []
        take = _Taker()
        line = merge.line
        theirs = _part_of(spec, line.new_stream(take), others, merge.first)
        parts.append(StreamPart(theirs, merge.first, line.post))
        session = self._session
        if own:
            number = session.host.new_stream()
            parts.append(StreamPart(_part_of(spec, number, own, 0), 0, session.host.post))
        joint = JointStream(spec, tuple(parts), session.emit, session.streams.filters, self._closed)
        take.joint, take.part = joint, parts[0]
        self._lend_content(line, theirs)
        merge.parts[joint] = parts[0]
        session.spanning[spec.stream] = joint.take
        if own:
            session.of_part[parts[1].spec.stream] = partial(joint.answered, parts[1])
        try:
            joint.open(paced=paced)
        except SapwoodError:
            self._closed(joint)
            line.post(ev.CloseStream(theirs.stream))
            raise

    def _closed(self, joint: JointStream) -> None:
        """Forget a stream that was closed."""
        self._session.spanning.pop(joint.spec.stream)
        for part in joint.parts:
            if not part.first:
                self._session.of_part.pop(part.spec.stream, None)
        for merge in self._merges.values():
            theirs = merge.parts.pop(joint, None)
            if theirs is not None:
                self._take_back_content(merge.line, theirs.spec)

    def _merge_of(self, others: set[int]) -> _Merge:
        for merge in self._merges.values():
            if merge.first <= min(others) and max(others) < merge.first + FIRST:
                agents = {rank - merge.first for rank in others}
                there = merge.line.facts is not None and not merge.ending
                if there and agents <= set(merge.line.tree.agent_ranks):
                    return merge
        raise ProtocolError("a stream over sessions that are not merged, or over more than two")

    def _lend_content(self, line: MergeLine, spec: StreamSpec) -> None:
        """Offer the other session what the code of a stream needs."""
        for ref in _content_of(spec):
            data = self._session.content.read(ref)
            line.tell(session_calls.OFFER, ref.sha256, Payload(data))

    def _take_back_content(self, line: MergeLine, spec: StreamSpec) -> None:
        for ref in _content_of(spec):
            plain = ContentRef(ref.sha256, ref.nbytes)
            line.tell(session_calls.WITHDRAW, msgspec.to_builtins(plain, builtin_types=(bytes,)))


class _Taker:
    """Receives the results of one part of a stream."""

    def __init__(self) -> None:
        self.joint: JointStream | None = None
        self.part: StreamPart | None = None

    def __call__(self, effect: Any) -> None:
        if self.joint is not None and self.part is not None:
            self.joint.answered(self.part, effect)


def _part_of(spec: StreamSpec, number: int, members: Iterable[int], first: int) -> StreamSpec:
    filters = filters_of_part(spec.filters, here=not first)
    return msgspec.structs.replace(
        spec,
        stream=number,
        members=to_ranges(rank - first for rank in members),
        filters=filters,
        parameters=spec.parameters if filters else {},
        first=first,
    )


def _content_of(spec: StreamSpec) -> list[ContentRef]:
    codes = [spec.code, *(code for one in spec.filters for code in (one.up, one.down))]
    return [ref for code in codes if code for ref in decode_code(code).content]


def _found(order: MergeOrder) -> tuple[SessionAddress, Connect]:
    """Return which session is meant, and what connects to its root."""
    if order.socket:
        address = SessionAddress(session=order.session, name=order.name)
        return address, partial(UnixTransport().connect, order.socket)
    shown = read_credential(order.credential)
    address = SessionAddress(
        session=shown.session, name=shown.name, secret=shown.secret, cluster=cluster_of(shown)
    )
    return address, connect_by(shown)
