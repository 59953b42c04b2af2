"""What an agent does for runs and tasks: hands them to its runner and answers."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from sapwood.activity import orders
from sapwood.activity.measure import FunctionMeter, PassedCall
from sapwood.activity.statistics import AgentStatistics
from sapwood.activity.stream_calls import StreamCalls
from sapwood.code.runner.binding import Binding
from sapwood.code.runner.host import RunnerHost
from sapwood.code.runner.jobs import Job, Lease, Outcome, Preparation
from sapwood.code.transfers import NOTHING, Transfers
from sapwood.comm import plain
from sapwood.comm.payload import Payload
from sapwood.core import typed
from sapwood.core.errors import CancelledError, SapwoodError
from sapwood.session.agent import Agent, Contribution, IncomingRequest


class OpenedRun:
    """A run that this agent takes part in."""

    def __init__(self, order: orders.OpenRun) -> None:
        self.order = order
        self.meter = FunctionMeter(order.function)
        self.repeated = 0
        self.wait_seconds = 0.0
        self.answered_at = 0.0
        self.transfers: Transfers | None = None

    def asked(self, now: float) -> None:
        """Note that a contribution is wanted, and how long that took."""
        if self.answered_at:
            self.wait_seconds += now - self.answered_at


class Worker:
    """Does what one tree wants of an agent.

    Args:
        agent: The agent's place in that tree.
        runner: The agent's runner.
        binding: Keeps the agent on its core while a run is open.
        tree: Goes before the names of tasks and streams, as the runner may know several trees.

    Attributes:
        relayed: Returns how many waves of a run passed without this process, and forgets it.
    """

    def __init__(self, agent: Agent, runner: RunnerHost, binding: Binding, tree: str = "") -> None:
        self.relayed: Callable[[str], int] = _none
        self._agent = agent
        self._runner = runner
        self._binding = binding
        self._tree = tree
        self._runs: dict[str, OpenedRun] = {}
        self._early: dict[int, list[Contribution]] = {}
        self._streams: dict[int, str] = {}
        self._tasks: set[str] = set()
        self._meters: dict[str, FunctionMeter] = {}
        self._stream_calls = StreamCalls(agent, runner, tree)
        agent.waves[orders.MAP] = self._map
        agent.requests[orders.OPEN_RUN] = self._open_run
        agent.requests[orders.CLOSE_RUN] = self._close_run
        agent.requests[orders.CALL_TASK] = self._call_task
        agent.requests[orders.GIVE_BACK_TASK] = self._give_back_task
        agent.on_stream_closed = self._stream_closed
        agent.on_released = self._released
        agent.on_withdrawn = self._withdrawn

    def close(self) -> None:
        """Drop all that is done: the tree wants nothing any more."""
        for name in list(self._runs):
            self._forget_run(name)
            self._runner.cancel(name)
        self._stream_calls.close()
        for name in list(self._tasks):
            self._runner.cancel(name)

    # --- runs ----------------------------------------------------------------------------------

    def _open_run(self, question: IncomingRequest) -> None:
        order = typed.convert(question.value(), orders.OpenRun)
        names = ("image", "slice", "crash_handlers")
        body = plain.encode({name: getattr(order, name) for name in names})
        self._runs[order.run] = OpenedRun(order)
        self._binding.hold(order.run)
        self._runner.prepare(order.run, Preparation("open", body, None, order.function))
        # Opening at once shows mistakes before the first iteration, on all agents in parallel.
        self._runner.submit(
            Job(
                "ready",
                order.run,
                plain.encode(None),
                None,
                lambda _outcome: question.reply({"pid": os.getpid(), "runner": self._runner.pid}),
                question.fail,
                needs=order.run,
                function=f"opening {order.function}",
                attempts=order.attempts,
            )
        )
        for stream in list(self._early):
            if self._early[stream][0].arrived.spec.context == order.run:
                for contribution in self._early.pop(stream):
                    self._map(contribution)

    def _map(self, contribution: Contribution) -> None:
        arrived = contribution.arrived
        run = self._runs.get(arrived.spec.context)
        if run is None:
            # A process that is new at its place hears of waves before it hears of their run.
            self._early.setdefault(arrived.spec.stream, []).append(contribution)
            return
        self._streams[arrived.spec.stream] = arrived.spec.context
        run.asked(self._agent.loop.time())
        bytes_in = len(arrived.body) + (arrived.payload.nbytes if arrived.payload else 0)

        def done(outcome: Outcome) -> None:
            bytes_out = len(outcome.body) + (outcome.payload.nbytes if outcome.payload else 0)
            run.meter.succeeded(outcome.seconds, bytes_in, bytes_out)
            run.repeated += job.kills
            run.answered_at = self._agent.loop.time()
            self._binding.weigh(run.order.run, bytes_out)
            if outcome.transfers is not None:
                run.transfers = (run.transfers or NOTHING) + outcome.transfers
            contribution.give(outcome.body, outcome.payload, float(run.order.items))

        def failed(error: SapwoodError) -> None:
            run.meter.failed()
            order = run.order
            contribution.fail(error.located(f"{order.function}, items {order.start}:{order.stop}"))

        job = Job(
            "map",
            arrived.spec.context,
            arrived.body,
            arrived.payload,
            done,
            failed,
            time_limit=run.order.time_limit,
            needs=arrived.spec.context,
            function=run.order.function,
            attempts=run.order.attempts,
        )
        self._runner.submit(job)

    def _close_run(self, question: IncomingRequest) -> None:
        name = str(question.value())
        run = self._forget_run(name)
        question.reply(None if run is None else msgspec.to_builtins(self._statistics(run)))

    def _forget_run(self, name: str) -> OpenedRun | None:
        run = self._runs.pop(name, None)
        self._binding.release(name)
        self._runner.forget(name)
        if run is not None and self._runner.pid:
            self._runner.submit(Job("close", name, plain.encode(None), None, _nothing, _nothing))
        return run

    def _statistics(self, run: OpenedRun) -> AgentStatistics:
        meter = run.meter.statistics()
        items = run.order.items
        good = meter.calls - meter.errors
        return AgentStatistics(
            agent=self._agent.rank,
            pid=os.getpid(),
            items=items,
            calls=meter.calls,
            errors=meter.errors,
            repeated=run.repeated,
            map_seconds=meter.total,
            wait_seconds=run.wait_seconds,
            items_per_second=good * items / meter.total if meter.total else 0.0,
            functions=(meter,),
            device=run.transfers,
            relayed=self.relayed(run.order.run),
        )

    def _stream_closed(self, stream: int) -> None:
        self._stream_calls.stream_closed(stream)
        self._early.pop(stream, None)
        name = self._streams.pop(stream, None)
        if name is not None:
            self._runner.cancel(name)

    def passed(self, context: str, call: PassedCall) -> None:
        """Note a call that was made without this process."""
        run = self._runs.get(context)
        if run is not None:
            run.asked(call.asked)
            run.meter.succeeded(call.seconds, call.bytes_in, call.bytes_out)
            run.answered_at = call.answered

    def order_of(self, context: str) -> orders.OpenRun | None:
        """Return how a run was opened; None if it is none of this tree."""
        run = self._runs.get(context)
        return run.order if run is not None else None

    # --- tasks ---------------------------------------------------------------------------------

    def _call_task(self, question: IncomingRequest) -> None:
        asked = question.asked
        order = typed.convert(question.value(), orders.CallTask)
        meter = self._meters.setdefault(order.function, FunctionMeter(order.function))
        bytes_in = len(asked.body) + (asked.payload.nbytes if asked.payload else 0)
        name = self._task(asked.source, asked.number)
        self._tasks.add(name)

        def done(outcome: Outcome) -> None:
            self._tasks.discard(name)
            bytes_out = len(outcome.body) + (outcome.payload.nbytes if outcome.payload else 0)
            meter.succeeded(outcome.seconds, bytes_in, bytes_out)
            question.give(outcome.body, outcome.payload)

        def failed(error: SapwoodError) -> None:
            self._tasks.discard(name)
            if orders.GIVEN_BACK not in error.details:
                meter.failed()
            if "agent " not in error.where:  # that may be the one whose value did not fit
                error.located_in(order.function).located(f"agent {self._agent.rank}")
            question.fail(error)

        self._runner.submit(
            Job(
                order.procedure,
                name,
                order.argument,
                asked.payload,
                done,
                failed,
                time_limit=order.time_limit,
                function=order.function,
                attempts=order.attempts,
            )
        )

    def _give_back_task(self, question: IncomingRequest) -> None:
        name = self._task(question.asked.source, int(question.value()))
        reason = CancelledError("the task was given back", details={orders.GIVEN_BACK: name})
        question.reply(self._runner.drop(name, reason))

    def _withdrawn(self, source: int, number: int) -> None:
        self._runner.cancel(self._task(source, number))

    def _task(self, source: int, number: int) -> str:
        return f"{self._tree}task {number} of {source}"

    # --- memory --------------------------------------------------------------------------------

    def _released(self, payload: Payload) -> None:
        if isinstance(payload.owner, Lease):
            self._runner.give_back(payload.owner)


def _nothing(_outcome: object) -> None:
    pass


def _none(_run: str) -> int:
    return 0
