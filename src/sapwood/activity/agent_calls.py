"""Calls of user code at an agent: it hands those of runs, tasks and streams to its runner.

The runner's side is ``runner_procedures.py``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.agent_metrics import AgentMetrics
from sapwood.activity.delegation import FirstContribution
from sapwood.activity.measure import FunctionMeter, PassedCall
from sapwood.activity.needed_content import NeededContent
from sapwood.activity.statistics import AgentStatistics
from sapwood.code.machine_kind import has_cuda_gpu, machine_kind
from sapwood.code.runner.affinity import CoreAffinity
from sapwood.code.runner.crash import ATTEMPTS
from sapwood.code.runner.leases import Lease
from sapwood.code.runner.runner_host import Job, JobOutcome, Preparation, RunnerHost
from sapwood.code.transfers import NOTHING, DeviceTransfers
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.messages import FAIL, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.streams.push import is_full
from sapwood.core import typed
from sapwood.core.errors import CancelledError, SapwoodError
from sapwood.session.agent import Agent, Contribution, IncomingRequest

if TYPE_CHECKING:
    from sapwood.content.fetch import HeldContent


class SteadyCall(NamedTuple):
    """What the calls for the waves of a stream have in common, where nothing else is to be done.

    Attributes:
        procedure: The runner's procedure.
        context: What the calls belong to, and need.
        weight: Items that each result stands for.
    """

    procedure: str
    context: str
    weight: float


class StreamCalls:
    """The streams of one agent whose waves call user code.

    Args:
        agent: The agent.
        runner: Its runner.
        content: Fetches what code needs.
        tree: Goes before the names of streams, as the runner may know those of several trees.
    """

    def __init__(
        self, agent: Agent, runner: RunnerHost, content: NeededContent, tree: str = ""
    ) -> None:
        self._agent = agent
        self._tree = tree
        self._runner = runner
        self._content = content
        self._codes: dict[int, agent_requests.UserCode] = {}
        self._waiting: dict[int, list[Contribution]] = {}
        self._paused: dict[int, list[Generating]] = {}
        agent.waves[agent_requests.CALL] = self._wave
        agent.on_stream_resumed = self._resumed

    def stream_closed(self, stream: int) -> None:
        """Drop what is done for a stream."""
        self._paused.pop(stream, None)
        self._waiting.pop(stream, None)
        if self._codes.pop(stream, None) is None:
            return
        name = self._name(stream)
        self._content.drop(name)
        self._runner.forget(name)
        self._agent.loop.call_later(agent_requests.CLOSE_GRACE, self._end_calls, stream)
        if self._runner.pid:
            self._runner.submit(
                Job(agent_requests.CLOSE, name, plain.encode(None), None, _nothing, _nothing)
            )

    def _end_calls(self, stream: int) -> None:
        if stream not in self._codes:  # else it was opened again meanwhile
            self._runner.cancel(self._name(stream))

    def close(self) -> None:
        """Drop what is done for all streams: their tree is no longer there."""
        for stream in list(self._codes):
            self.stream_closed(stream)

    def steady(self, stream: int) -> SteadyCall | None:
        """Return what the calls of a stream have in common; None for a limit or a generator."""
        code = self._codes.get(stream)
        if code is None or code.steps or code.time_limit or stream in self._waiting:
            return None
        return SteadyCall(agent_requests.CALL_ONCE, self._name(stream), 1.0)

    def step(self, generating: Generating) -> None:
        """Continue a generator, or do so later if its stream is paused or full."""
        number = generating.contribution.arrived.spec.stream
        stream = self._agent.driver.node.streams.get(number)
        if stream is None:
            return
        if is_full(stream):
            self._paused.setdefault(number, []).append(generating)
            return
        self._submit(
            number,
            agent_requests.NEXT,
            generating.body,
            None,
            generating.came,
            generating.contribution,
        )

    def emit(self, stream: int, outcome: JobOutcome) -> None:
        """Send a value up that no wave asked for."""
        payload = outcome.payload
        if payload is not None and payload.ref is not None:
            # It is kept until the root has it; the runner's memory is free at once.
            copy = Payload(bytes(payload.view))
            if isinstance(payload.owner, Lease):
                self._runner.give_back(payload.owner)
            payload = copy
        self._agent.post(ev.Emit(stream, 1.0, outcome.body, payload))

    def _wave(self, contribution: Contribution) -> None:
        arrived = contribution.arrived
        number = arrived.spec.stream
        code = self._codes.get(number)
        if code is None:
            code = self._codes[number] = agent_requests.decode_code(arrived.spec.code)
            if code.content:
                self._fetch_code(contribution, code)
                return
            self._prepare(arrived.spec, code)
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.append(contribution)
            return

        def done(outcome: JobOutcome) -> None:
            if code.steps:
                self.step(Generating(self, contribution, outcome.body))
            else:
                contribution.give(outcome.body, outcome.payload)

        self._submit(
            number, agent_requests.CALL_ONCE, arrived.body, arrived.payload, done, contribution
        )

    def _submit(
        self,
        stream: int,
        procedure: str,
        body: bytes,
        payload: Payload | None,
        done: Callable[[JobOutcome], None],
        contribution: Contribution,
    ) -> None:
        code = self._codes[stream]
        name = self._name(stream)
        # A generator ends with its runner, and a part of its values is on its way.
        again = procedure != agent_requests.NEXT and contribution.arrived.spec.on_loss != FAIL

        def failed(error: SapwoodError) -> None:
            contribution.fail(error.located_in(code.function))

        self._runner.submit(
            Job(
                procedure,
                name,
                body,
                payload,
                done,
                failed,
                time_limit=code.time_limit,
                needs=name,
                function=code.function,
                attempts=ATTEMPTS if again else 1,
            )
        )

    def _prepare(self, spec: StreamSpec, code: agent_requests.UserCode) -> None:
        preparation = Preparation(agent_requests.OPEN, plain.encode(spec.code), None, code.function)
        self._runner.prepare(self._name(spec.stream), preparation)

    def _fetch_code(self, first: Contribution, code: agent_requests.UserCode) -> None:
        """Fetch what the code of a stream needs; its waves wait meanwhile."""
        spec = first.arrived.spec
        number = spec.stream
        self._waiting[number] = [first]

        def done(_held: HeldContent) -> None:
            self._prepare(spec, code)
            for contribution in self._waiting.pop(number):
                self._wave(contribution)

        def failed(error: SapwoodError) -> None:
            del self._codes[number]  # the next wave may find what it needs
            for contribution in self._waiting.pop(number):
                contribution.fail(error.located_in(code.function))

        self._content.fetch(self._name(number), code.content, done, failed)

    def _name(self, stream: int) -> str:
        return f"{self._tree}stream {stream}"

    def _resumed(self, stream: int) -> None:
        for generating in self._paused.pop(stream, []):
            self.step(generating)


class Generating:
    """A generator of the user that runs step by step, with other calls in between.

    Args:
        calls: The streams of its agent.
        contribution: The wave that began it.
        body: What the runner calls it, encoded.
    """

    __slots__ = ("_calls", "body", "contribution")

    def __init__(self, calls: StreamCalls, contribution: Contribution, body: bytes) -> None:
        self._calls = calls
        self.contribution = contribution
        self.body = body

    def came(self, outcome: JobOutcome) -> None:
        """Send a value on and ask for the next one; at the end, answer the wave."""
        if outcome.body == agent_requests.END_BODY:
            self.contribution.give(b"", None)
            return
        self._calls.emit(self.contribution.arrived.spec.stream, outcome)
        self._calls.step(self)


MAP_PROCEDURE = "map"
"""What a runner is asked to do for a wave of a run."""

MAX_METERS = 256
"""Functions of tasks of which an agent has statistics."""

OTHERS = "others"
"""What all further ones are called together."""

RECENT_CALLS = 32
"""Maps of a run that an agent remembers one by one."""


class OpenedRun:
    """A run that this agent takes part in.

    Attributes:
        wave: The last wave that was wanted.
        asked_at: When it was; 0 once it is answered.
        first: Decides which answer to a wave counts.
        pending: The contributions of waves that have no answer yet.
    """

    def __init__(self, order: agent_requests.OpenRun, metrics: AgentMetrics) -> None:
        self.order = order
        self.wave = 0
        self.asked_at = 0.0
        self.first = FirstContribution()
        self.pending: dict[int, Contribution] = {}
        self._waited = 0.0
        self._recent: deque[agent_requests.RecentCall] = deque(maxlen=RECENT_CALLS)
        self.meter = FunctionMeter(order.function, metrics)
        self.repeated = 0
        self.wait_seconds = 0.0
        self.answered_at = 0.0
        self.transfers: DeviceTransfers | None = None
        self.read_bytes = 0

    def asked(self, wave: int, now: float) -> None:
        """Note that a contribution is wanted, and how long that took."""
        self.wave = wave
        self.asked_at = now
        self._waited = now - self.answered_at if self.answered_at else 0.0
        self.wait_seconds += self._waited

    def answered(
        self,
        now: float,
        seconds: float,
        bytes_in: int,
        bytes_out: int,
        transfers: DeviceTransfers | None = None,
    ) -> None:
        """Note that it was made."""
        self.meter.succeeded(seconds, bytes_in, bytes_out, transfers)
        if transfers is not None:
            self.transfers = (self.transfers or NOTHING) + transfers
        self.answered_at = now
        self.asked_at = 0.0
        items = self.order.items
        started = now - seconds
        self._recent.append(
            agent_requests.RecentCall(self.wave, started, seconds, self._waited, items, bytes_out)
        )

    def helped(self, now: float) -> None:
        """Note that others have answered a wave."""
        self.answered_at = now
        self.asked_at = 0.0

    def pulse(self, now: float) -> agent_requests.Pulse:
        """Return what this agent does in the run."""
        return agent_requests.Pulse(
            self.wave,
            now - self.asked_at if self.asked_at else -1.0,
            tuple(
                msgspec.structs.replace(one, age=now - one.age)  # it was when it started
                for one in self._recent
            ),
        )


class AgentCalls:
    """Makes the calls of runs and tasks that one tree wants of an agent, and answers.

    Args:
        agent: The agent's place in that tree.
        runner: The agent's runner.
        affinity: Keeps the agent on its core while a run is open.
        settings: What the agent needs of the settings.
        tree: Goes before the names of tasks and streams, as the runner may know several trees.

    Attributes:
        metrics: Counts the calls of this agent for that tree.
        relayed: Returns how many waves of a run passed without this process, and forgets it.
    """

    def __init__(
        self,
        agent: Agent,
        runner: RunnerHost,
        affinity: CoreAffinity,
        settings: agent_requests.AgentSettings,
        tree: str = "",
    ) -> None:
        self.relayed: Callable[[str], int] = _none
        self._agent = agent
        self._runner = runner
        self._affinity = affinity
        self._tree = tree
        self._runs: dict[str, OpenedRun] = {}
        self._opening: dict[str, IncomingRequest] = {}
        self._early: dict[int, list[Contribution]] = {}
        self._streams: dict[int, str] = {}
        self._tasks: set[str] = set()
        self._meters: dict[str, FunctionMeter] = {}
        self.metrics = AgentMetrics()
        self._content = NeededContent(agent, settings)
        self._fetching_tasks: dict[str, Callable[[SapwoodError], None]] = {}
        self._stream_calls = StreamCalls(agent, runner, self._content, tree)
        agent.waves[agent_requests.MAP] = self._map
        agent.requests[agent_requests.OPEN_RUN] = self._open_run
        agent.requests[agent_requests.CLOSE_RUN] = self._close_run
        agent.requests[agent_requests.RELEASE_DATA] = self._release_data
        agent.requests[agent_requests.PULSE] = self._pulse
        agent.requests[agent_requests.MACHINE] = _machine
        agent.requests[agent_requests.HELP] = self._help
        agent.requests[agent_requests.DELIVER] = self._deliver
        agent.requests[agent_requests.CALL_TASK] = self._call_task
        agent.requests[agent_requests.TASK_STATISTICS] = self._task_statistics
        agent.requests[agent_requests.GIVE_BACK_TASK] = self._give_back_task
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
        for name in list(self._opening):
            self._stop_opening(name)
        self._content.close()

    # --- runs ----------------------------------------------------------------------------------

    def _open_run(self, request: IncomingRequest) -> None:
        order = typed.convert(request.value(), agent_requests.OpenRun)
        self._stop_opening(order.run)
        if not order.content:
            self._begin_run(order, request, [])
            return

        def done(held: HeldContent) -> None:
            self._opening.pop(order.run, None)
            self._begin_run(order, request, held.names)

        def failed(error: SapwoodError) -> None:
            self._opening.pop(order.run, None)
            request.fail(error.located_in(order.function))

        self._opening[order.run] = request
        self._content.fetch(order.run, order.content, done, failed)

    def _stop_opening(self, name: str) -> None:
        """Drop what a run needs, whether it is here or on its way."""
        self._content.drop(name)
        request = self._opening.pop(name, None)
        if request is not None:
            request.fail(CancelledError("the run has ended"))

    def _begin_run(
        self,
        order: agent_requests.OpenRun,
        request: IncomingRequest,
        fetched: list[tuple[bytes, int, str]],
    ) -> None:
        body = opening_message(order, fetched)
        self._runs[order.run] = OpenedRun(order, self.metrics)
        self._affinity.hold(order.run)
        self._runner.prepare(order.run, Preparation("open", body, None, order.function))
        opened = self._runs[order.run]

        def ready(outcome: JobOutcome) -> None:
            opened.read_bytes = int(plain.decode(outcome.body))
            answer = agent_requests.Opened(
                os.getpid(), self._runner.pid, os.uname().nodename, machine_kind()
            )
            request.reply(msgspec.to_builtins(answer))

        # Opening at once shows mistakes before the first iteration, on all agents in parallel.
        self._runner.submit(
            Job(
                "ready",
                order.run,
                plain.encode(None),
                None,
                ready,
                request.fail,
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
        run.asked(arrived.wave, self._agent.loop.time())
        bytes_in = len(arrived.body) + (arrived.payload.nbytes if arrived.payload else 0)

        wave = arrived.wave
        run.first.wanted(wave)
        run.pending[wave] = contribution

        def done(outcome: JobOutcome) -> None:
            if not run.first.counts(wave):  # others were first
                if outcome.payload is not None:
                    self._released(outcome.payload)
                return
            del run.pending[wave]
            bytes_out = len(outcome.body) + (outcome.payload.nbytes if outcome.payload else 0)
            now = self._agent.loop.time()
            run.answered(now, outcome.seconds, bytes_in, bytes_out, outcome.transfers)
            run.repeated += job.kills
            contribution.give(outcome.body, outcome.payload, float(run.order.items))

        def failed(error: SapwoodError) -> None:
            if not run.first.counts(wave):
                return
            del run.pending[wave]
            run.meter.failed()
            order = run.order
            contribution.fail(error.located(f"{order.function}, items {order.start}:{order.stop}"))

        job = Job(
            MAP_PROCEDURE,
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

    def _deliver(self, request: IncomingRequest) -> None:
        """Contribute what others have mapped, if this agent has not answered."""
        order = typed.convert(request.value(), agent_requests.DeliverRun)
        run = self._runs.get(order.run)
        if run is None or run.wave < order.wave:
            request.reply(agent_requests.NOT_WANTED)
            return
        if not run.first.counts(order.wave):
            request.reply(agent_requests.ANSWERED)
            return
        contribution = run.pending.pop(order.wave)
        payload = request.asked.payload
        # It is kept until the root has it; the memory of the request is not.
        copy = Payload(bytes(payload.view)) if payload is not None else None
        run.helped(self._agent.loop.time())
        contribution.give(order.result, copy, float(run.order.items))
        self._runner.cancel(order.run)
        request.reply(agent_requests.USED)

    def _help(self, request: IncomingRequest) -> None:
        """Map items of an agent that is late, when this one has nothing else to do."""
        asked = request.asked
        wanted = typed.convert(request.value(), agent_requests.HelpRun)
        order, name = wanted.order, self._task(asked.source, asked.number)
        self._tasks.add(name)

        def over() -> None:
            self._tasks.discard(name)
            self._fetching_tasks.pop(name, None)
            self._content.drop(name)
            self._runner.forget(name)
            if self._runner.pid:
                body = plain.encode(None)
                self._runner.submit(Job("close", name, body, None, _nothing, _nothing))

        def done(outcome: JobOutcome) -> None:
            over()
            request.give(outcome.body, outcome.payload)

        def failed(error: SapwoodError) -> None:
            over()
            request.fail(error)

        def ready(fetched: list[tuple[bytes, int, str]]) -> None:
            self._runner.prepare(
                name, Preparation("open", opening_message(order, fetched), None, order.function)
            )
            self._runner.submit(
                Job(
                    MAP_PROCEDURE,
                    name,
                    wanted.state,
                    asked.payload,
                    done,
                    failed,
                    time_limit=order.time_limit,
                    needs=name,
                    function=order.function,
                )
            )

        if not order.content:
            ready([])
            return

        def fetched(held: HeldContent) -> None:
            del self._fetching_tasks[name]
            ready(held.names)

        self._fetching_tasks[name] = failed
        self._content.fetch(name, order.content, fetched, failed)

    def _close_run(self, request: IncomingRequest) -> None:
        name = str(request.value())
        run = self._forget_run(name)
        closed = agent_requests.ClosedRun()
        if run is not None:
            pulse = run.pulse(self._agent.loop.time())
            closed = agent_requests.ClosedRun(self._statistics(run), pulse)
        request.reply(msgspec.to_builtins(closed))

    def _release_data(self, request: IncomingRequest) -> None:
        handle = str(request.value())
        if self._runner.pid:
            job = Job("release", handle, plain.encode(None), None, _nothing, _nothing)
            self._runner.submit(job)
        request.reply(None)

    def _pulse(self, request: IncomingRequest) -> None:
        run = self._runs.get(str(request.value()))
        pulse = agent_requests.Pulse() if run is None else run.pulse(self._agent.loop.time())
        request.reply(msgspec.to_builtins(pulse))

    def _forget_run(self, name: str) -> OpenedRun | None:
        run = self._runs.pop(name, None)
        self._stop_opening(name)
        self._affinity.release(name)
        self._runner.forget(name)
        if run is not None and self._runner.pid:
            self._runner.submit(Job("close", name, plain.encode(None), None, _nothing, _nothing))
        return run

    def _statistics(self, run: OpenedRun) -> AgentStatistics:
        node = os.uname().nodename
        meter = msgspec.structs.replace(run.meter.statistics(), node=node)
        items = run.order.items
        good = meter.calls - meter.errors
        return AgentStatistics(
            agent=self._agent.rank,
            pid=os.getpid(),
            node=node,
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
            read_bytes=run.read_bytes,
        )

    def _stream_closed(self, stream: int) -> None:
        self._stream_calls.stream_closed(stream)
        self._early.pop(stream, None)
        name = self._streams.pop(stream, None)
        if name is not None:
            self._runner.cancel(name)
            run = self._runs.get(name)
            self._agent.loop.call_later(agent_requests.RUN_GRACE, self._forget_left, name, run)

    def _forget_left(self, name: str, run: OpenedRun | None) -> None:
        """Forget a run that was not closed."""
        if run is not None and self._runs.get(name) is run:
            self._forget_run(name)

    def passed(self, context: str, call: PassedCall) -> None:
        """Note a call that was made without this process."""
        run = self._runs.get(context)
        if run is not None:
            run.asked(run.wave + 1, call.asked)
            run.answered(call.answered, call.seconds, call.bytes_in, call.bytes_out)

    def steady(self, spec: StreamSpec) -> SteadyCall | None:
        """Return what the calls for the waves of a stream have in common.

        Returns:
            None where the agent itself has to watch each call, or makes none.
        """
        if spec.handler == agent_requests.CALL:
            return self._stream_calls.steady(spec.stream)
        run = self._runs.get(spec.context)
        if spec.handler != agent_requests.MAP or run is None or run.order.time_limit:
            return None
        return SteadyCall(MAP_PROCEDURE, spec.context, float(run.order.items))

    # --- tasks ---------------------------------------------------------------------------------

    def _call_task(self, request: IncomingRequest) -> None:
        asked = request.asked
        order = typed.convert(request.value(), agent_requests.CallTask)
        meter = self._meter_of(order.function)
        bytes_in = len(asked.body) + (asked.payload.nbytes if asked.payload else 0)
        name = self._task(asked.source, asked.number)
        self._tasks.add(name)

        def done(outcome: JobOutcome) -> None:
            self._tasks.discard(name)
            if order.content:
                self._content.drop(name)
            bytes_out = len(outcome.body) + (outcome.payload.nbytes if outcome.payload else 0)
            meter.succeeded(outcome.seconds, bytes_in, bytes_out, outcome.transfers)
            request.give(outcome.body, outcome.payload)

        def failed(error: SapwoodError) -> None:
            self._tasks.discard(name)
            if order.content:
                self._fetching_tasks.pop(name, None)
                self._content.drop(name)
            if agent_requests.GIVEN_BACK not in error.details:
                meter.failed()
            if "agent " not in error.where:  # that may be the one whose value did not fit
                error.located_in(order.function).located(f"agent {self._agent.rank}")
            request.fail(error)

        job = Job(
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
        if not order.content:
            self._runner.submit(job)
            return

        def fetched(_held: HeldContent) -> None:
            del self._fetching_tasks[name]
            self._runner.submit(job)

        self._fetching_tasks[name] = failed
        self._content.fetch(name, order.content, fetched, failed)

    def _meter_of(self, function: str) -> FunctionMeter:
        if function not in self._meters and len(self._meters) >= MAX_METERS:
            function = OTHERS
        return self._meters.setdefault(function, FunctionMeter(function, self.metrics))

    def _task_statistics(self, request: IncomingRequest) -> None:
        node = os.uname().nodename
        found = (one.statistics() for one in self._meters.values())
        statistics = [msgspec.structs.replace(one, node=node) for one in found]
        request.reply(msgspec.to_builtins(statistics))

    def _drop_fetch(self, name: str, reason: SapwoodError) -> bool:
        """End a task that has not begun as what it needs is being fetched."""
        failed = self._fetching_tasks.get(name)
        if failed is not None:
            failed(reason)
        return failed is not None

    def _give_back_task(self, request: IncomingRequest) -> None:
        name = self._task(request.asked.source, int(request.value()))
        reason = CancelledError(
            "the task was given back", details={agent_requests.GIVEN_BACK: name}
        )
        request.reply(self._drop_fetch(name, reason) or self._runner.drop(name, reason))

    def _withdrawn(self, source: int, number: int) -> None:
        name = self._task(source, number)
        if not self._drop_fetch(name, CancelledError("the task was cancelled")):
            self._runner.cancel(name)

    def _task(self, source: int, number: int) -> str:
        return f"{self._tree}task {number} of {source}"

    # --- memory --------------------------------------------------------------------------------

    def _released(self, payload: Payload) -> None:
        if isinstance(payload.owner, Lease):
            self._runner.give_back(payload.owner)


def _machine(request: IncomingRequest) -> None:
    gpu = has_cuda_gpu(os.environ)
    where = agent_requests.AgentMachine(os.uname().nodename, machine_kind(), gpu)
    request.reply(msgspec.to_builtins(where))


def opening_message(order: agent_requests.OpenRun, fetched: list[tuple[bytes, int, str]]) -> bytes:
    """Return the message that makes a runner open a program and its items."""
    return plain.encode(
        {
            "image": order.image,
            "slice": order.slice,
            "crash_handlers": order.crash_handlers,
            "fetched": fetched,
            "chunk": order.chunk,
            "reduce": order.reduce,
            "trace": order.trace,
        }
    )


def _nothing(_outcome: object) -> None:
    pass


def _none(_run: str) -> int:
    return 0
