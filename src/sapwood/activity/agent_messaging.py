"""Point-to-point messages of user code: the agent sends and receives them for its runner."""

from collections.abc import Callable
from typing import Any

from sapwood.code.runner.rpc_messages import RECEIVE, SEND
from sapwood.code.runner.rpc_server import RpcCall, close_owner
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.messaging import events
from sapwood.comm.messaging.envelope import check_places, check_tag
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.session.agent import Agent

_addressed = typed.unpacker(tuple[list[int], int, bytes])
_wanted = typed.unpacker(tuple[int, int])


class AgentSend:
    """A message of the runner, to one place or several."""

    __slots__ = ("call", "error", "missing")

    def __init__(self, call: RpcCall, destinations: list[int]) -> None:
        self.call = call
        self.missing = set(destinations)
        self.error: SapwoodError | None = None


class AgentMessaging:
    """Serves the send and receive requests of a runner from the agent's place in the tree.

    Args:
        agent: The agent.
        handlers: Who answers the runner's requests, by name; sending and receiving are added.
    """

    def __init__(self, agent: Agent, handlers: dict[str, Callable[[RpcCall], None]]) -> None:
        self._agent = agent
        self._node = agent.driver.node
        self._sends: dict[int, AgentSend] = {}
        self._receives: dict[int, RpcCall] = {}
        self._next = 1
        self._node.point_to_point.allocate = _shared
        handlers[SEND] = self._send
        handlers[RECEIVE] = self._receive
        agent.on_mail = self._mail
        self._effects: dict[type[ev.Effect], Callable[[Any], None]] = {
            events.TaggedArrived: self._arrived,
            events.ReceiveFailed: self._failed,
            events.SendEnded: self._ended,
            events.Progressed: self._progressed,
        }

    def _mail(self, effect: ev.Effect) -> None:
        self._effects[type(effect)](effect)

    # --- sending -----------------------------------------------------------------------------

    def _send(self, call: RpcCall) -> None:
        destinations, tag, body = _addressed(call.body)
        check_places(destinations, self._agent.configuration.tree.agent_ranks)
        check_tag(tag)
        number = self._next
        self._next += 1
        sending = self._sends[number] = AgentSend(call, destinations)

        def withdraw() -> bool:
            for destination in tuple(sending.missing):
                self._agent.post(events.CancelSend(number, destination))
            return False  # its end comes as that of any other

        call.on_cancel = withdraw
        self._agent.post(events.SendTagged(number, tuple(destinations), tag, body, call.payload))

    def _ended(self, effect: events.SendEnded) -> None:
        sending = self._sends.get(effect.number)
        if sending is None:
            return
        sending.missing.discard(effect.destination)
        if effect.error is not None:
            sending.error = SapwoodError.from_record(effect.error)
        if sending.missing:
            return
        del self._sends[effect.number]
        close_owner(sending.call.payload)
        if sending.error is not None:
            sending.call.fail(sending.error)
        else:
            sending.call.answer(b"")

    # --- receiving ---------------------------------------------------------------------------

    def _receive(self, call: RpcCall) -> None:
        source, tag = _wanted(call.body)
        number = self._next
        self._next += 1
        self._receives[number] = call
        call.on_cancel = lambda: self._cancel(number)
        self._agent.post(events.PostReceive(number, source, tag))

    def _cancel(self, number: int) -> bool:
        if not self._node.point_to_point.matching.cancel(number):
            return False
        self._receives.pop(number, None)
        return True

    def _arrived(self, effect: events.TaggedArrived) -> None:
        call = self._receives.pop(effect.number)
        payload = effect.payload
        if payload is not None and payload.ref is not None and payload.owner is None:
            try:
                payload = Payload.adopted(payload.ref)
            except SapwoodError as error:
                call.fail(error)
                return
        call.answer(plain.encode([effect.source, effect.tag, effect.body]), payload)

    def _failed(self, effect: events.ReceiveFailed) -> None:
        self._receives.pop(effect.number).fail(SapwoodError.from_record(effect.error))

    def _progressed(self, effect: events.Progressed) -> None:
        sending = self._sends.get(effect.number)
        call = sending.call if sending and effect.outgoing else self._receives.get(effect.number)
        if call is not None:
            call.progress(effect.done, effect.total)


def _shared(nbytes: int) -> Payload:
    """Return room for a payload where the runner can map it."""
    block = SharedBlock(nbytes)
    return Payload(block.view[:nbytes], block.ref(0, nbytes), block)
