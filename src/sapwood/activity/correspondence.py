"""An agent's part in the messages of its runner: what user code sends and receives."""

from collections.abc import Callable
from typing import Any

from sapwood.code.runner.asks import RECEIVE, SEND
from sapwood.code.runner.door import Visit, close_owner
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.envelope import check_places, check_tag
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.session.agent import Agent

_addressed = typed.unpacker(tuple[list[int], int, bytes])
_wanted = typed.unpacker(tuple[int, int])


class Sending:
    """A message of the runner, to one place or several."""

    __slots__ = ("error", "missing", "visit")

    def __init__(self, visit: Visit, destinations: list[int]) -> None:
        self.visit = visit
        self.missing = set(destinations)
        self.error: SapwoodError | None = None


class Correspondence:
    """Connects the runner's messages with the agent's place in the tree.

    Args:
        agent: The agent.
        visits: Where to answer the runner.
    """

    def __init__(self, agent: Agent, visits: dict[str, Callable[[Visit], None]]) -> None:
        self._agent = agent
        self._agents = agent.configuration.tree.agents
        self._node = agent.place.node
        self._sends: dict[int, Sending] = {}
        self._receives: dict[int, Visit] = {}
        self._next = 1
        self._node.point_to_point.allocate = _shared
        visits[SEND] = self._send
        visits[RECEIVE] = self._receive
        agent.on_mail = self._mail
        self._handlers: dict[type[ev.Effect], Callable[[Any], None]] = {
            mev.TaggedArrived: self._arrived,
            mev.ReceiveFailed: self._failed,
            mev.SendEnded: self._ended,
            mev.Progressed: self._progressed,
        }

    def _mail(self, effect: ev.Effect) -> None:
        self._handlers[type(effect)](effect)

    # --- sending -----------------------------------------------------------------------------

    def _send(self, visit: Visit) -> None:
        destinations, tag, body = _addressed(visit.body)
        check_places(destinations, self._agents)
        check_tag(tag)
        number = self._next
        self._next += 1
        sending = self._sends[number] = Sending(visit, destinations)

        def withdraw() -> bool:
            for destination in tuple(sending.missing):
                self._agent.post(mev.CancelSend(number, destination))
            return False  # its end comes as that of any other

        visit.on_cancel = withdraw
        self._agent.post(mev.SendTagged(number, tuple(destinations), tag, body, visit.payload))

    def _ended(self, effect: mev.SendEnded) -> None:
        sending = self._sends.get(effect.number)
        if sending is None:
            return
        sending.missing.discard(effect.destination)
        if effect.error is not None:
            sending.error = SapwoodError.from_record(effect.error)
        if sending.missing:
            return
        del self._sends[effect.number]
        close_owner(sending.visit.payload)
        if sending.error is not None:
            sending.visit.fail(sending.error)
        else:
            sending.visit.answer(b"")

    # --- receiving ---------------------------------------------------------------------------

    def _receive(self, visit: Visit) -> None:
        source, tag = _wanted(visit.body)
        number = self._next
        self._next += 1
        self._receives[number] = visit
        visit.on_cancel = lambda: self._cancel(number)
        self._agent.post(mev.PostReceive(number, source, tag))

    def _cancel(self, number: int) -> bool:
        if not self._node.point_to_point.cancel(number):
            return False
        self._receives.pop(number, None)
        return True

    def _arrived(self, effect: mev.TaggedArrived) -> None:
        visit = self._receives.pop(effect.number)
        payload = effect.payload
        if payload is not None and payload.ref is not None and payload.owner is None:
            try:
                payload = Payload.adopted(payload.ref)
            except SapwoodError as error:
                visit.fail(error)
                return
        visit.answer(plain.encode([effect.source, effect.tag, effect.body]), payload)

    def _failed(self, effect: mev.ReceiveFailed) -> None:
        self._receives.pop(effect.number).fail(SapwoodError.from_record(effect.error))

    def _progressed(self, effect: mev.Progressed) -> None:
        sending = self._sends.get(effect.number)
        visit = sending.visit if sending and effect.outgoing else self._receives.get(effect.number)
        if visit is not None:
            visit.progress(effect.done, effect.total)


def _shared(nbytes: int) -> Payload:
    """Return room for a payload where the runner can map it."""
    block = SharedBlock(nbytes)
    return Payload(block.view[:nbytes], block.ref(0, nbytes), block)
