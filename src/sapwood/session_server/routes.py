"""Which client hears of what the core of a session server wants done. No I/O.

A client has its own numbers for streams, requests and messages; the server has others. Here
are the tables between both, and the way back of each effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.messages import StreamSpec
from sapwood.comm.messages.groups import NO_GROUP, GroupNumber, Key
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.point_to_point import TAGGED
from sapwood.core.errors import ErrorRecord, SapwoodError
from sapwood.core.failures import as_error, log_failure
from sapwood.session_server import wire

_Own = Mapping[type[ev.Effect], Callable[[Any], None]]


class EffectHearer(Protocol):
    """A client, as what it hears of sees it."""

    def tell(self, message: msgspec.Struct) -> None:
        """Send it something."""

    def give_back(self, effect: ev.Released | gev.Discarded) -> None:
        """Release its memory."""


class MessageHearer(Protocol):
    """The requests and messages of a client.

    Attributes:
        asked: Its open requests: its number and the server's.
        sends: Its messages on their way, likewise.
        receives: Messages that it waits for, likewise.
        tell: Sends it something.
    """

    asked: dict[int, int]
    sends: dict[int, int]
    receives: dict[int, int]
    tell: Callable[[msgspec.Struct], None]


class StreamServed(Protocol):
    """A stream of a client.

    Attributes:
        spec: What it is.
        waiting: Its waves that are not over.
    """

    spec: StreamSpec
    waiting: set[int]


class StreamHearer(Protocol):
    """A receiver of the results of a stream."""

    def hear(self, stream: int, effect: Any) -> None:
        """Receive a result of a stream, with its own number of it."""

    def refused(self, effect: Any) -> None:
        """Take in that a sweep of a stream cannot be."""

    def served(self, stream: int) -> StreamServed:
        """Return a stream, by its own number of it."""


class ClientMemory:
    """The owner of a payload in the memory of a client."""

    __slots__ = ("client",)

    def __init__(self, client: EffectHearer) -> None:
        self.client = client

    def close(self) -> None:
        """Do nothing: the client has it."""


class EffectRoutes:
    """The tables of a root: whose each stream, request, message and group is.

    Attributes:
        of_stream: Of each stream who hears of it, and what that calls it.
        of_part: Receivers of the results of parts of streams over several sessions.
        spanning: Receivers of the events of streams over several sessions.
        of_request: Of each request, likewise, and the place that is asked.
        of_send: Of each message on its way, likewise, and who has not taken it yet.
        of_receive: Of each awaited message, likewise.
        entering: Who enters each group.
        of_group: Members of each group, and its number.
    """

    def __init__(self) -> None:
        self.of_stream: dict[int, tuple[StreamHearer, int]] = {}
        self.of_part: dict[int, Callable[[Any], None]] = {}
        self.spanning: dict[int, Callable[[Any], None]] = {}
        self.of_request: dict[int, tuple[MessageHearer, int, int]] = {}
        self.of_send: dict[int, tuple[MessageHearer, int, set[int]]] = {}
        self.of_receive: dict[int, tuple[MessageHearer, int]] = {}
        self.entering: dict[Key, EffectHearer] = {}
        self.of_group: dict[GroupNumber, tuple[EffectHearer, Key]] = {}

    def post_to_core(self, event: Any) -> None:
        """Give the core of this session an event."""
        raise NotImplementedError

    def freed(self, effect: ev.Released) -> None:
        """Have memory of this server used again."""
        raise NotImplementedError

    def post_of_stream(self, event: Any) -> None:
        """Give an event of a stream to the core, or to what has it done by several sessions."""
        self.spanning.get(event.stream, self.post_to_core)(event)

    def emit(self, effect: Any) -> None:
        """Report a result of a stream over several sessions."""
        if isinstance(effect, ev.Released):
            self._returned({ev.Released: self.freed}, effect)
            return
        known = self.of_stream.get(effect.stream)
        if known is None:
            return
        hearer, number = known
        renumbered = msgspec.structs.replace(effect, stream=number)
        if isinstance(effect, wire.SweepRefused):
            hearer.refused(renumbered)
        else:
            hearer.hear(number, renumbered)
        payload = getattr(effect, "payload", None)
        if payload is not None:
            self.freed(ev.Released(payload))

    def routed(self, own: _Own) -> dict[type[ev.Effect], Callable[[Any], None]]:
        """Return what to do with effects: those of clients go to these, the rest to ``own``."""
        stream, request = partial(self._stream_effect, own), partial(self._request_effect, own)
        return {
            **own,
            ev.WaveCompleted: stream,
            ev.WaveFailed: stream,
            ev.Contributed: stream,
            ev.SweepDone: stream,
            ev.Answered: request,
            mev.TaggedArrived: partial(self._receive_effect, own),
            mev.ReceiveFailed: partial(self._receive_effect, own),
            mev.SendEnded: partial(self._send_effect, own),
            mev.Progressed: partial(self._progress, own),
            gev.GroupEntered: partial(self._entered, own),
            gev.GroupFinished: partial(self._group_effect, own),
            gev.GroupBroken: partial(self._broken_group, own),
            ev.Released: partial(self._returned, own),
            gev.Discarded: partial(self._returned, own),
        }

    def _stream_effect(self, own: _Own, effect: Any) -> None:
        known, part = self.of_stream.get(effect.stream), self.of_part.get(effect.stream)
        if part is None and known is None:
            own[type(effect)](effect)
            return
        try:
            if part is not None:
                part(effect)
            elif known is not None:
                hearer, number = known
                mine = msgspec.structs.replace(effect, stream=number)
                tell_or_fail(partial(hearer.hear, number), mine)
        finally:
            payload = getattr(effect, "payload", None)
            if payload is not None:
                own[ev.Released](ev.Released(payload))

    def _request_effect(self, own: _Own, effect: ev.Answered) -> None:
        known = self.of_request.pop(effect.number, None)
        if known is None:
            own[ev.Answered](effect)
            return
        client, number, _ = known
        client.asked.pop(number, None)
        tell_or_fail(client.tell, msgspec.structs.replace(effect, number=number))

    def _receive_effect(self, own: _Own, effect: Any) -> None:
        known = self.of_receive.pop(effect.number, None)
        if known is None:
            own[type(effect)](effect)
            return
        client, number = known
        client.receives.pop(number, None)
        tell_or_fail(client.tell, msgspec.structs.replace(effect, number=number))

    def _send_effect(self, own: _Own, effect: mev.SendEnded) -> None:
        known = self.of_send.get(effect.number)
        if known is None:
            own[mev.SendEnded](effect)
            return
        client, number, missing = known
        missing.discard(effect.destination)
        if not missing:
            del self.of_send[effect.number]
            client.sends.pop(number, None)
        client.tell(msgspec.structs.replace(effect, number=number))

    def _progress(self, own: _Own, effect: mev.Progressed) -> None:
        table: dict[int, Any] = self.of_send if effect.outgoing else self.of_receive
        known = table.get(effect.number) if effect.channel == TAGGED else None
        if known is None:
            own[mev.Progressed](effect)
        else:
            known[0].tell(msgspec.structs.replace(effect, number=known[1]))

    def _entered(self, own: _Own, effect: gev.GroupEntered) -> None:
        key = (effect.members, effect.name)
        client = self.entering.pop(key, None)
        if client is None:
            own[gev.GroupEntered](effect)
            return
        self.of_group[effect.group] = (client, key)
        client.tell(effect)

    def _group_effect(self, own: _Own, effect: gev.GroupFinished) -> None:
        known = self.of_group.get(effect.group)
        if known is None:
            own[gev.GroupFinished](effect)
        else:
            known[0].tell(effect)

    def _broken_group(self, own: _Own, effect: gev.GroupBroken) -> None:
        if effect.group == NO_GROUP:
            client = self.entering.pop((effect.members, effect.name), None)
        else:
            known = self.of_group.get(effect.group)
            client = None if known is None else known[0]
        if client is None:
            own[gev.GroupBroken](effect)
        else:
            client.tell(effect)

    def _returned(self, own: _Own, effect: ev.Released | gev.Discarded) -> None:
        owner = effect.payload.owner
        if isinstance(owner, ClientMemory):
            owner.client.give_back(effect)
        else:
            own[type(effect)](effect)


def tell_or_fail(tell: Callable[[Any], None], effect: Any) -> None:
    """Tell a client of an effect; where that fails, have what the effect is for fail there.

    Its arrays may have gone with the process that made them, or be too large to be copied.

    Args:
        tell: Tells the client.
        effect: The result of its request, wave or message.
    """
    try:
        tell(effect)
    except Exception as exception:
        doing = f"telling a client of {type(effect).__name__}"
        instead = _failed(effect, as_error(exception, doing).to_record())
        if instead is None:
            raise
        if not isinstance(exception, SapwoodError):
            log_failure(doing, exception)
        tell(instead)


def _failed(effect: Any, error: ErrorRecord) -> Any:
    """Return the effect that fails what another one is for; None if there is none."""
    if isinstance(effect, ev.Answered):
        return ev.Answered(effect.number, b"", None, error)
    if isinstance(effect, ev.WaveCompleted | ev.Contributed):
        return ev.WaveFailed(effect.stream, effect.wave, 0, error)
    if isinstance(effect, mev.TaggedArrived):
        return mev.ReceiveFailed(effect.number, error)
    return None
