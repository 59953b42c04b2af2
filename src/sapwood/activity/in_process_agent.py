"""An agent without a process: the production code that handles its waves and requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, cast

from sapwood.activity.agent_calls import AgentCalls
from sapwood.activity.agent_requests import AgentSettings
from sapwood.activity.in_process_runner import InProcessContext, InProcessRunner, LiveCode, alone
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.runner_host import RunnerHost
from sapwood.comm import events as ev
from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.shown import shown
from sapwood.session.agent import Agent, Contribution, IncomingRequest, echo, ping


class _NoLoop:
    """The clock of an agent without an event loop."""

    def time(self) -> float:
        """Return the time of a clock that never goes back, seconds."""
        return time.monotonic()

    def call_later(self, _seconds: float, _function: Callable[..., Any], *_args: Any) -> None:
        """Do nothing: what agents do later is to end what was left."""


class InProcessAgent:
    """An agent in the client's process, for :class:`AgentCalls` what an :class:`Agent` is.

    Args:
        rank: Its place in the tree.
        ranks: All agents.
        code: The functions and programs of this process.

    Attributes:
        runner: Makes its calls.
    """

    def __init__(self, rank: int, ranks: Sequence[int], code: LiveCode) -> None:
        self.rank = rank
        self.loop = _NoLoop()
        self.driver = SimpleNamespace(node=SimpleNamespace(streams={}))
        self.runner = InProcessRunner(code, InProcessContext(rank, ranks))
        self.waves: dict[str, Callable[[Contribution], None]] = {"echo": echo}
        self.requests: dict[str, Callable[[IncomingRequest], None]] = {"ping": ping}
        self.on_stream_closed: Callable[[int], None] = _nothing
        host, place = cast("RunnerHost", self.runner), cast("Agent", self)
        self._calls = AgentCalls(place, host, CoreAffinity(0, 0), AgentSettings())

    def ask(self, *_request: Any) -> NoReturn:
        """Refuse: nothing has to be fetched."""
        raise alone("requests to the client")

    def content_sources(self) -> tuple[int, ...]:
        """Return no place: everything is here."""
        return ()

    def answer(self, handler: str, number: int, body: bytes, payload: Payload | None) -> ev.Answer:
        """Have a handler called and return its answer."""
        reply = _Reply()
        asked = ev.Asked(0, handler, number, body, payload)
        request = IncomingRequest(cast("Agent", reply), asked)
        function = self.requests.get(handler)
        try:
            if function is None:
                raise InputError(f"no request handler {shown(handler)}")
            function(request)
        except SapwoodError as error:
            request.fail(error)
        return cast("ev.Answer", reply.events[0])

    def contribute(
        self, spec: StreamSpec, wave: int, body: bytes, payload: Payload | None
    ) -> ev.Contribute | ev.Fail:
        """Return the contribution to a wave."""
        reply = _Reply()
        arrived = ev.WaveArrived(spec, wave, 1, body, payload)
        contribution = Contribution(cast("Agent", reply), arrived)
        handler = self.waves.get(spec.handler)
        try:
            if handler is None:
                raise InputError(f"no wave handler {shown(spec.handler)}")
            handler(contribution)
        except SapwoodError as error:
            contribution.fail(error)
        return cast("ev.Contribute | ev.Fail", reply.events[0])

    def close(self) -> None:
        """Drop all that is done."""
        self._calls.close()


class _Reply:
    """Takes the answer to one request or wave; several threads may ask the same agent."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []

    def post(self, event: ev.Event) -> None:
        """Take it."""
        self.events.append(event)


def _nothing(_stream: int) -> None:
    """Do nothing: no stream is open."""
