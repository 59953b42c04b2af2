"""The process of an agent: a leaf that answers waves and requests by handlers.

What the handlers do belongs to the rooms above; an agent itself only knows ``echo`` (a
stream that returns what it is sent) and ``ping``.
"""

from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.groups.members import GroupMemberships
from sapwood.comm.loop import Timer
from sapwood.comm.messaging import events
from sapwood.comm.payload import Payload
from sapwood.comm.reactor import Reactor
from sapwood.contexts.plan import Main
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.shown import shown
from sapwood.session.member import (
    READDRESS,
    MemberConfiguration,
    OutgoingRequests,
    TreeMember,
    read_configuration,
)

READY = "ready"
"""Handler of the service stream: all places of the tree are there."""

JOIN = "tree.join"
"""Request that an agent take its place in a secondary tree; the answer is its process id."""

LEAVE = "tree.leave"
"""Request that it leave that tree again."""


END_AGENT = "agent.end"
"""Request that an agent which joined by an invitation ends with its session: the reason."""

LEAVE_SESSION = "agent.leave"
"""Request of such an agent that its session remove it."""


class Contribution:
    """A wave that an agent is to answer, once."""

    __slots__ = ("_agent", "arrived")

    def __init__(self, agent: "Agent", arrived: ev.WaveArrived) -> None:
        self._agent = agent
        self.arrived = arrived

    def give(self, body: bytes, payload: Payload | None, weight: float = 1.0) -> None:
        """Contribute an encoded value that stands for ``weight`` items."""
        wave = self.arrived
        self._agent.post(ev.Contribute(wave.spec.stream, wave.wave, weight, body, payload))

    def fail(self, error: SapwoodError) -> None:
        """Answer with an error in place of a contribution."""
        wave = self.arrived
        record = error.to_record()
        self._agent.post(ev.Fail(wave.spec.stream, wave.wave, record))


class IncomingRequest:
    """A request that an agent is to answer, once."""

    __slots__ = ("_agent", "asked")

    def __init__(self, agent: "Agent", asked: ev.Asked) -> None:
        self._agent = agent
        self.asked = asked

    def value(self) -> Any:
        """Return the request's argument, which must be without arrays.

        Agents hand arrays on as they are; they have no numpy.

        Raises:
            ProtocolError: It is malformed.
        """
        payload = self.asked.payload
        return plain.decode(self.asked.body, payload.view if payload is not None else None)

    def reply(self, value: Any) -> None:
        """Answer with a value without arrays."""
        self.give(plain.encode(value), None)

    def give(self, body: bytes, payload: Payload | None) -> None:
        """Answer with an encoded value."""
        self._agent.post(ev.Answer(self.asked.source, self.asked.number, body, payload))

    def fail(self, error: SapwoodError) -> None:
        """Answer with an error."""
        record = error.to_record()
        self._agent.post(ev.Answer(self.asked.source, self.asked.number, b"", None, record))


class Agent(TreeMember):
    """A leaf of the tree.

    Attributes:
        all_ready: Whether this agent has heard that all places are there.
        waves: What to do with a wave, by the stream's handler.
        requests: What to do with a request, by its handler.
        groups: The groups that it is a member of.
        on_stream_closed: Told when a stream ends.
        on_stream_resumed: Told when a stream that was quiet moves again.
        on_released: Receives payloads of this agent that are no longer needed.
        ask: Sends a request to a place; the arguments are those of :class:`OutgoingRequests`.
        on_withdrawn: Receives the sender and number of each request that was cancelled.
        on_mail: Receives the outcomes of tagged messages.
    """

    def __init__(
        self,
        configuration: MemberConfiguration,
        rank: int,
        incarnation: int,
        loop: Reactor | None = None,
    ) -> None:
        self.groups = GroupMemberships(rank, self._post, self._later)
        outgoing = OutgoingRequests(self._post)
        self.ask = outgoing.ask
        super().__init__(
            configuration,
            rank,
            incarnation,
            {
                ev.WaveArrived: self._wave_arrived,
                ev.Asked: self._asked,
                ev.StreamClosed: self._stream_closed,
                ev.StreamResumed: self._stream_resumed,
                ev.Released: self._give_back,
                ev.Answered: outgoing.answered,
                **self.groups.handlers,
                events.RequestCancelled: self._withdrawn,
                events.TaggedArrived: self._mailed,
                events.ReceiveFailed: self._mailed,
                events.SendEnded: self._mailed,
                events.Progressed: self._mailed,
            },
            loop=loop,
            on_failure={
                ev.WaveArrived: self._wave_failed,
                ev.Asked: self._request_failed,
                **self.groups.failure_handlers,
            },
        )
        self.post = self.driver.post
        self.all_ready = False
        self.waves: dict[str, Callable[[Contribution], None]] = {
            "echo": echo,
            READY: self._note_readiness,
        }
        self.requests: dict[str, Callable[[IncomingRequest], None]] = {
            "ping": ping,
            READDRESS: self._readdressed,
        }
        self.on_stream_closed: Callable[[int], None] = _ignore
        self.on_stream_resumed: Callable[[int], None] = _ignore
        self.on_released: Callable[[Payload], None] = _not_mine
        self.on_withdrawn: Callable[[int, int], None] = _nobody_asked
        self.on_mail: Callable[[ev.Effect], None] = _no_mail

    def _post(self, event: ev.Event) -> None:
        self.driver.post(event)

    def _later(self, seconds: float, function: Callable[..., Any], *args: Any) -> Timer:
        return self.loop.call_later(seconds, function, *args)

    def _wave_arrived(self, effect: ev.WaveArrived) -> None:
        contribution = Contribution(self, effect)
        handler = self.waves.get(effect.spec.handler)
        if handler is None:
            contribution.fail(InputError(f"no wave handler {shown(effect.spec.handler)}"))
            return
        try:
            handler(contribution)
        except SapwoodError as error:
            contribution.fail(error)

    def _wave_failed(self, effect: ev.WaveArrived, error: SapwoodError) -> None:
        Contribution(self, effect).fail(error)

    def _request_failed(self, effect: ev.Asked, error: SapwoodError) -> None:
        IncomingRequest(self, effect).fail(error)

    def _asked(self, effect: ev.Asked) -> None:
        request = IncomingRequest(self, effect)
        handler = self.requests.get(effect.handler)
        if handler is None:
            request.fail(InputError(f"no request handler {shown(effect.handler)}"))
            return
        try:
            handler(request)
        except SapwoodError as error:
            request.fail(error)

    def _readdressed(self, request: IncomingRequest) -> None:
        self.readdress(request.asked)
        request.reply(None)

    def _note_readiness(self, contribution: Contribution) -> None:
        self.all_ready = True
        contribution.give(plain.encode({}), None)

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        self.on_stream_closed(effect.stream)

    def _stream_resumed(self, effect: ev.StreamResumed) -> None:
        self.on_stream_resumed(effect.stream)

    def _give_back(self, effect: ev.Released) -> None:
        self.on_released(effect.payload)

    def _withdrawn(self, effect: events.RequestCancelled) -> None:
        self.on_withdrawn(effect.source, effect.number)

    def _mailed(self, effect: ev.Effect) -> None:
        self.on_mail(effect)


def echo(contribution: Contribution) -> None:
    """Contribute what the wave has brought."""
    contribution.give(contribution.arrived.body, contribution.arrived.payload)


def ping(request: IncomingRequest) -> None:
    """Answer with what was asked."""
    request.give(request.asked.body, request.asked.payload)


def _ignore(_stream: int) -> None:
    pass


def _not_mine(_payload: Payload) -> None:
    pass


def _nobody_asked(_source: int, _number: int) -> None:
    pass


def _no_mail(_effect: ev.Effect) -> None:
    pass


def main(configuration: bytes, rank: int, incarnation: int, _runner_factory: RunnerFactory) -> Main:
    """Assemble an agent that runs no user code; entry of a forked process."""
    return Agent(read_configuration(configuration), rank, incarnation).run
