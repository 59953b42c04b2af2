"""The streams of one client: its numbers of them, and what an owner leaves to the next one."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.activity import agent_requests
from sapwood.comm import events as ev
from sapwood.comm.messages import FilterAt
from sapwood.core.errors import ProtocolError, SapwoodError, SecurityError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT
from sapwood.session_server import wire
from sapwood.session_server.client_outbox import ClientOutbox
from sapwood.session_server.client_work import take_back
from sapwood.session_server.keeping import KeptStreams, ServedStream
from sapwood.session_server.merging_hook import SessionMerging
from sapwood.session_server.rights import NOTHING, Allowed, ClientRole
from sapwood.session_server.served_session import ServedSession

MAX_STREAMS = 10_000
"""Streams that one client may have open."""

_AT_ROOT = frozenset({f"rank {ROOT}", "depth 0", "*"})
"""Where filters of one's own may run at the root."""


class ClientStreams:
    """The streams that one client has open; all on the loop's thread.

    Args:
        session: The session.
        outbox: Sends to the client.
        kept: Takes the streams of an owner that is gone.
        merging: Opens streams over several sessions.
    """

    def __init__(
        self,
        session: ServedSession,
        outbox: ClientOutbox,
        kept: KeptStreams,
        merging: SessionMerging,
    ) -> None:
        self._session = session
        self._outbox = outbox
        self._kept = kept
        self._merging = merging
        self._role: ClientRole | None = None
        self._allowed = NOTHING
        self._streams: dict[int, ServedStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def admit(self, role: ClientRole, allowed: Allowed) -> None:
        """Open streams from now on for a client with a role."""
        self._role, self._allowed = role, allowed

    def open(self, event: ev.OpenStream) -> None:
        """Open a stream.

        Raises:
            SapwoodError: It cannot be opened.
        """
        mine = event.spec.stream
        if mine in self._streams or len(self._streams) >= MAX_STREAMS:
            raise ProtocolError(f"a client opens stream {mine} twice, or too many")
        self._check_filters(event.spec.filters)
        session, merging = self._session, self._merging
        unknown = from_ranges(event.spec.members) - set(session.tree.agent_ranks)
        spans = self._role is not ClientRole.MERGER and merging.spans(event.spec)
        if unknown and not spans and max(unknown) >= session.tree.size:
            raise ProtocolError(f"a stream to places that never were: {sorted(unknown)}")
        number = session.host.new_stream()
        self._streams[mine] = ServedStream(number, event.spec, paced=event.paced)
        session.of_stream[number] = (self, mine)
        spec = msgspec.structs.replace(event.spec, stream=number)
        if spec.follows:  # the tree may have changed, and the client has not heard of it yet
            spec = msgspec.structs.replace(spec, members=to_ranges(session.tree.agent_ranks))
        try:
            if spans:
                merging.open(spec, paced=event.paced)
            else:
                session.host.post(msgspec.structs.replace(event, spec=spec))
        except SapwoodError:
            del self._streams[mine], session.of_stream[number]
            raise

    def _check_filters(self, filters: tuple[FilterAt, ...]) -> None:
        """Refuse code at the root to who has not shown that it is the session's user.

        What another filter would hide from the root is refused, too: it may not hide it at a part
        of a stream over several sessions.

        Raises:
            SecurityError: A filter may run at the root.
        """
        if not self._allowed.credential and ClientRole.MERGER in self._allowed.roles:
            return
        if self._session.streams.filters is None:  # none can run there
            return
        found = [one.where for one in filters if one.where in _AT_ROOT and (one.up or one.down)]
        if found:
            raise SecurityError(
                "filters of your own at the root of this session run as the user of its head",
                where=f'FilterAt("{found[0]}")',
                hint='place them below it, e.g. FilterAt("depth 1"): `up={"depth 1": …}`',
            )

    def post(self, event: Any) -> None:
        """Give the core an event of a stream."""
        stream = self._streams.get(event.stream)
        if stream is not None:
            if isinstance(event, ev.Broadcast):
                stream.begun += 1
                stream.waiting.add(stream.begun)
            self._session.post_of_stream(msgspec.structs.replace(event, stream=stream.number))
        elif isinstance(event, ev.Broadcast) and event.payload is not None:
            self._outbox.give_back(ev.Released(event.payload))  # it was closed meanwhile

    def sweep(self, event: ev.SweepStream) -> None:
        """Begin a sweep of a stream, or say why that is impossible."""
        try:
            self._check_filters(event.filters)
            self.post(event)
        except SapwoodError as error:  # the stream is in another state
            self._outbox.tell(wire.SweepRefused(event.stream, event.number, error.to_record()))

    def close(self, event: ev.CloseStream) -> None:
        """Close a stream."""
        stream = self._streams.pop(event.stream, None)
        if stream is not None:
            del self._session.of_stream[stream.number]
            self._session.post_of_stream(ev.CloseStream(stream.number))

    def read(self, event: ev.Read) -> None:
        """Tell agents that there is room, but for what the root has read before."""
        stream = self._streams.get(event.stream)
        if stream is None:
            return
        if self._role is ClientRole.OWNER:
            self._kept.was_read(event.stream, event.rank, event.count)
        count = stream.read(event.rank, event.count)
        if count:
            self._session.post_of_stream(ev.Read(stream.number, event.rank, count))

    def inherit(self) -> None:
        """Own the streams that the last owner has left."""
        streams = dict(self._kept.streams)
        kept, effects = self._kept.hand_over()
        self._streams.update(streams)
        for mine, stream in streams.items():
            self._session.of_stream[stream.number] = (self, mine)
        self._outbox.write(kept)
        for effect in effects:
            self._outbox.tell(effect)

    def get(self, stream: int) -> ServedStream | None:
        """Return a stream of this client; None where it has none of that number."""
        return self._streams.get(stream)

    def served(self, stream: int) -> ServedStream:
        """Return a stream of this client."""
        return self._streams[stream]

    def hear(self, stream: int, effect: Any) -> None:
        """Send it results of its stream."""
        served = self._streams[stream]
        served.over(effect)
        served.record(effect)
        if self._role is ClientRole.OWNER:
            self._kept.also_deliver(stream, effect)
        self._outbox.tell(effect)

    def refused(self, effect: wire.SweepRefused) -> None:
        """Send it that a sweep of its stream is impossible."""
        self._outbox.tell(effect)

    def leave(self) -> None:
        """Leave an owner's streams to the next owner, and close the others: the client is gone."""
        streams, self._streams = self._streams, {}
        if self._role is ClientRole.OWNER:
            # No client can continue a run: its state was in the client.
            left = {m: s for m, s in streams.items() if s.spec.handler != agent_requests.MAP}
            self._kept.take(left)
            for mine, stream in left.items():
                self._session.of_stream[stream.number] = (self._kept, mine)
                del streams[mine]
        for stream in streams.values():
            del self._session.of_stream[stream.number]
            take_back(self._session, ev.CloseStream(stream.number))
