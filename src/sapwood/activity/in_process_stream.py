"""A stream over agents in the client's process: each wave is over when its method returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sapwood.activity import agent_requests
from sapwood.activity.in_process_agent import InProcessAgent
from sapwood.activity.in_process_runner import InProcessRunner, alone, encoded_payload
from sapwood.code.runner.runner_host import Job, Preparation
from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.messages import NO_WAIT, FilterAt, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import gathering
from sapwood.comm.streams import control
from sapwood.comm.streams.filters import OwnFilters, Position, StreamFilters
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.futures import CallerFuture
from sapwood.core.rankset import from_ranges
from sapwood.session.interface import SweepResult, WaveResult
from sapwood.session.streams import check_parameters, decoded

_ALL = -1
"""The value of a filter is for all children."""

E = TypeVar("E", bound=BaseException)

_Sent = tuple[bytes, Payload | None]


class InProcessStream:
    """An open stream; what a :class:`StreamHandle` is over a real tree.

    Args:
        spec: What the stream is.
        agents: All agents, by rank.
        root: Makes the calls of own filters.
        turn: Held while agents work, as they take turns.

    Attributes:
        on_contribution: Receives each contribution to a stream that does not wait.
        explain: Receives each error of a wave before it is reported, to add to it.
        new_future: Makes the future of a wave.
    """

    open_waves = 0

    def __init__(
        self,
        spec: StreamSpec,
        agents: Mapping[int, InProcessAgent],
        root: InProcessRunner,
        turn: AbstractContextManager[Any],
    ) -> None:
        self.spec = spec
        self.on_contribution: Callable[[WaveResult | SapwoodError], None] = _nothing
        self.explain: Callable[[SapwoodError], None] = _nothing
        self.new_future: Callable[[], CallerFuture[WaveResult]] = CallerFuture
        self.waves_begun = 0
        self.closed: SapwoodError | None = None
        self._agents = {rank: agents[rank] for rank in sorted(from_ranges(spec.members))}
        self._root = root
        self._turn = turn
        self._filters = StreamFilters(spec, Position())
        self._gathering = gathering()

    def broadcast(self, value: Any) -> CallerFuture[WaveResult]:
        """Have all members answer, one after the other; the future is done.

        Raises:
            DataValueError: The value cannot travel.
            ClosedError: The stream is closed.
        """
        encoded = values.encode(value)
        future = self.new_future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(self._wave(encoded))
        except SapwoodError as error:
            future.set_exception(error)
            if self.spec.sync.kind == NO_WAIT:
                self.on_contribution(error)
        return future

    def exchange(
        self,
        value: Any,
        timeout: float | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> WaveResult:
        """Have all members answer, one after the other, and return the reduction.

        Raises:
            DataValueError: The value cannot travel.
            SapwoodError: The wave failed.
            ClosedError: The stream is closed.
        """
        del timeout  # a debugger takes any time
        encoded = values.encode(value)
        meanwhile()
        return self._wave(encoded)

    def sweep(self, action: str, filters: tuple[FilterAt, ...] = ()) -> Future[SweepResult]:
        """Do what can be done at once: everything that was sent has arrived already."""
        future: Future[SweepResult] = CallerFuture()
        future.set_running_or_notify_cancel()
        try:
            if action == control.QUIESCE:
                raise alone("quiet streams")
            if action == control.STAGE:
                self._stage(filters)
        except SapwoodError as error:
            future.set_exception(error)
        else:
            future.set_result(SweepResult(self.spec.members, ()))
        return future

    def read(self, counts: dict[int, int]) -> None:
        """Do nothing: no agent waits for its values to be read."""

    def configure(self, parameters: bytes, code: str = "") -> None:
        """Give the filters other parameters, or staged code, from the next wave on.

        Raises:
            DataValueError: The parameters are too large.
        """
        check_parameters(parameters)
        version = self._filters.version + 1
        self.spec, unused = self._filters.configure(self.spec, version, parameters, version, code)
        for name in unused:
            self._root.forget(self._named(name))

    def close(self, reason: SapwoodError | None = None) -> None:
        """Close the stream."""
        if self.closed is None:
            self.closed = reason or ClosedError("the stream was closed")
            for agent in self._agents.values():
                agent.on_stream_closed(self.spec.stream)
            self.on_contribution(self.closed)

    # --- one wave --------------------------------------------------------------------------------

    def _wave(self, encoded: values.Encoded) -> WaveResult:
        if self.closed is not None:
            raise self.closed
        with self._turn:
            return self._answered(encoded)

    def _answered(self, encoded: values.Encoded) -> WaveResult:
        self.waves_begun += 1
        wave, version = self.waves_begun, self._filters.version
        sent = self._sent((encoded.body, encoded_payload(encoded)), wave)
        parts = [self._contributed(rank, wave, *sent[rank]) for rank in self._agents]
        weight = sum(part.weight for part in parts)
        if self.spec.sync.kind == NO_WAIT:
            for part in parts:
                self._pass_on(part, wave)
            return WaveResult(None, self.spec.members, weight, wave, version=version)
        total = self._total([part for part in parts if part.body], wave)
        return WaveResult(total, self.spec.members, weight, wave, version=version)

    def _sent(self, value: _Sent, wave: int) -> dict[int, _Sent]:
        """Return what goes down to each member."""
        if not self._filters.down:
            return dict.fromkeys(self._agents, value)
        part = ev.PartialContribution(0, 0.0, *value)
        if self._filters.at(self._filters.version).at.per_child:
            return {
                rank: self._filtered([part], wave, child=rank, upward=False)
                for rank in self._agents
            }
        return dict.fromkeys(self._agents, self._filtered([part], wave, upward=False))

    def _contributed(
        self, rank: int, wave: int, body: bytes, payload: Payload | None
    ) -> ev.PartialContribution:
        agent = self._agents[rank]
        agent.runner.problem = None
        made = agent.contribute(self.spec, wave, body, payload)
        if isinstance(made, ev.Fail):
            error = SapwoodError.from_record(made.error)
            raise self._explained(error, f"agent {rank}", agent.runner)
        return ev.PartialContribution(rank, made.weight, made.body, made.payload)

    def _total(self, parts: list[ev.PartialContribution], wave: int) -> Any:
        if self._filters.up and parts:
            body, payload = self._filtered(parts, wave)
            return decoded(body, payload) if body else None
        if not self.spec.reduce:
            return None
        gathered = self._gathering(self.spec.reduce)
        for part in parts:
            gathered.add(part.body, part.payload, part.rank, part.weight)
        return gathered.total()

    def _pass_on(self, part: ev.PartialContribution, wave: int) -> None:
        """Give a contribution to a stream that does not wait to its user."""
        body, payload = part.body, part.payload
        if self._filters.up and body:
            body, payload = self._filtered([part], wave)
        if body:
            ranks = ((part.rank, part.rank + 1),)
            self.on_contribution(WaveResult(decoded(body, payload), ranks, part.weight, wave))

    # --- own filters of the root -----------------------------------------------------------------

    def _filtered(
        self,
        parts: list[ev.PartialContribution],
        wave: int,
        *,
        upward: bool = True,
        child: int = _ALL,
    ) -> _Sent:
        version = self._filters.version
        call = agent_requests.FilterCall(
            upward,
            wave,
            version,
            self.spec.parameters.get(version, b""),
            child,
            [(one.body, bytes(one.payload.view) if one.payload else b"", b"") for one in parts],
            [one.rank for one in parts],
            [one.weight for one in parts],
        )
        name = self._prepared(self._filters.at(version))
        return self._call(agent_requests.FILTER, name, agent_requests.encode(call))

    def _stage(self, filters: tuple[FilterAt, ...]) -> None:
        self.spec, _ = self._filters.stage(self.spec, filters)
        own = self._filters.staged(self.spec)
        if own is not None:
            self._call(agent_requests.STAGE_FILTER, self._prepared(own), plain.encode(None))

    def _prepared(self, own: OwnFilters) -> str:
        """Prepare the runner for filters; return their name there."""
        name, at = self._named(own.code), own.at
        argument = {"up": at.up, "down": at.down, "per_child": at.per_child, "rank": 0, "depth": 0}
        self._root.prepare(
            name,
            Preparation(agent_requests.OPEN_FILTER, plain.encode(argument), None, "the filter"),
        )
        return name

    def _named(self, code: str) -> str:
        return f"filter {self.spec.stream} {code}"

    def _call(self, procedure: str, name: str, body: bytes) -> _Sent:
        self._root.problem = None
        job = Job(procedure, name, body, None, _nothing, _nothing, needs=name)
        try:
            outcome = self._root.run(job)
        except SapwoodError as problem:
            error = SapwoodError.from_record(problem.to_record())
        else:
            empty = outcome.body == agent_requests.END_BODY
            return b"" if empty else outcome.body, outcome.payload
        raise self._explained(error, "the client's filter", self._root)

    def _explained(self, error: SapwoodError, where: str, runner: InProcessRunner) -> SapwoodError:
        """Return the error of a wave, which also shows where the user's code raised it."""
        error = error.located(where)
        self.explain(error)
        return raised_by(error, runner.problem)


def raised_by(error: E, problem: BaseException | None) -> E:
    """Give an error its cause, and let a post-mortem debugger begin where that was raised."""
    if problem is not None and error is not problem:
        error.__cause__ = problem
        error.__traceback__ = problem.__traceback__
    return error


def _nothing(_value: object) -> None:
    """Do nothing."""
