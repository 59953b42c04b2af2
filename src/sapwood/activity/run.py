"""A run: init, then broadcast the state, map, reduce, update, until the program is done."""

import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError, wait  # noqa: A004 - the one that futures raise
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.checkpoint import (
    DISK,
    CheckpointFiles,
    CheckpointWriter,
    find_checkpoint,
    identity_of,
    read_checkpoint,
    require_same,
)
from sapwood.activity.chunked_map import GRID_REDUCTIONS, REPRODUCIBLE
from sapwood.activity.crash_site import name_crash_site
from sapwood.activity.dashboard_page import DashboardPage
from sapwood.activity.delegation import DelegationOptions, assign, moved
from sapwood.activity.notebook import LivePicture, show, show_by_itself
from sapwood.activity.offered_content import OfferedContent
from sapwood.activity.own_filter import stream_options
from sapwood.activity.progress import Progress, RunState
from sapwood.activity.rate_history import (
    FunctionHistory,
    MeasuredRate,
    RateHistory,
    key_of,
    read_history,
)
from sapwood.activity.run_participants import RunParticipants
from sapwood.activity.run_record import (
    Move,
    RecordedAgent,
    RecordedCheckpoint,
    RunRecorder,
    WorkRecord,
)
from sapwood.activity.run_watch import MakeOrder, RunWatch
from sapwood.activity.statistics import AgentStatistics, RunStatistics, added
from sapwood.code.build import Built, build_for_all
from sapwood.code.cache import BuildCache
from sapwood.code.check import check_program
from sapwood.code.crash_handler import build_crash_handlers
from sapwood.code.image import make_image
from sapwood.code.interruption import interrupt
from sapwood.code.kept_state import kept_state
from sapwood.code.nvcc import find_nvcc
from sapwood.code.pickling import check_versions
from sapwood.code.program import Program
from sapwood.code.reducers import built_in, has_reducers
from sapwood.code.run_spec import RunSpec
from sapwood.code.target import Target, host_target
from sapwood.code.user_error import user_error
from sapwood.comm.content import ContentRef
from sapwood.core import arguments, typed
from sapwood.core.arguments import whole
from sapwood.core.errors import (
    AgentLostError,
    CancelledError,
    DataValueError,
    DrainedError,
    ExecutionError,
    InputError,
    ProgramError,
    SapwoodError,
    TimeLimitError,
)
from sapwood.core.failures import new_thread
from sapwood.core.futures import CallerFuture
from sapwood.core.html_table import escaped, html_table
from sapwood.core.staying import StaysHere
from sapwood.core.topology import ROOT
from sapwood.data.dataset import Dataset
from sapwood.data.publish import Published
from sapwood.environment.logs import logger
from sapwood.environment.machine_kind import CUDA_CHOICE
from sapwood.environment.tracing import Attributes, TraceSpan, seam
from sapwood.session.port import SessionPort, StreamPort

T = TypeVar("T")

_log = logger("activity")
_BEFORE_ITERATIONS: Final = {
    RunState.BUILDING: "while its program was being built",
    RunState.PREPARING: "before its first iteration",
}
"""When a run was ended that took too long, for its states without iterations."""

MACHINE_TIME = 1.0
"""Seconds that agents get to say where they are, before the first cut."""

_numbers = itertools.count(1)

MAX_TRACED_ITERATIONS = 1000
"""Iterations of a run that get separate spans in traces."""

TOKEN_BYTES = 8
"""Random bytes by which agents tell runs of the same name apart."""


class RunSetup(msgspec.Struct, frozen=True):
    """What a run gets from its cluster, besides its options.

    Attributes:
        environment: Variables of builds.
        targets: What the agents are; empty for this machine.
        checkpoint_share: Share of the time of the run that its checkpoints may take.
        delegation: How items are given to agents.
        history: Where it is kept what agents were measured to do; None to keep and know nothing.
    """

    environment: dict[str, str] = {}
    targets: tuple[Target, ...] = ()
    checkpoint_share: float = 0.02
    delegation: DelegationOptions = DelegationOptions()
    history: RateHistory | None = None


class _Code(msgspec.Struct, frozen=True):
    """The code of a run as agents get it.

    Attributes:
        image: The encoded image.
        crash_handlers: Libraries that write a native backtrace.
        content: What both need of content.
    """

    image: bytes = b""
    crash_handlers: tuple[ContentRef, ...] = ()
    content: tuple[ContentRef, ...] = ()


class Run(StaysHere):
    """One execution of a program over a dataset; made by ``cluster.run``.

    It works in a separate thread; every method may be called from any thread.

    Args:
        session: Where it runs.
        program: What runs.
        data: What it runs over.
        cache: Where built libraries are kept.
        spec: Its options, complete and checked.
        setup: What it gets from its cluster.

    Attributes:
        spec: The run with all its options, including settings used as defaults.
        files: Where checkpoints lie.
        page: What a dashboard shows of it, or of its session.

    Raises:
        ResourceError: The machine has not enough memory for a copy of the data.
    """

    files: CheckpointFiles = DISK
    page: DashboardPage = DashboardPage()

    def __init__(
        self,
        session: SessionPort,
        program: Program,
        data: Dataset,
        cache: BuildCache,
        spec: RunSpec,
        setup: RunSetup,
    ) -> None:
        self.name = f"{program.name}-{next(_numbers)}"
        self._token = secrets.token_hex(TOKEN_BYTES)
        self.program = program
        self._data_of_caller, self.data = data, _taken(program, data) if spec.copy else data
        self._session = session
        self._cache = cache
        self.spec, self._setup = spec, setup
        self._run_time_limit = min(spec.run_time_limit or 0.0, threading.TIMEOUT_MAX)
        self._max_iterations = spec.max_iterations or 0
        self._future: CallerFuture[Any] = CallerFuture()
        self._future.set_running_or_notify_cancel()  # it is cancelled by cancel() only
        self._stopped: SapwoodError | None = None
        self._draining = ""
        self._stream: StreamPort | None = None
        self._participants: RunParticipants | None = None
        self._built: Built | None = None
        self._began = time.perf_counter()
        self._span = self._traced()
        self._loop_began = 0.0
        self._recorder = RunRecorder(self.name, program.name, began=time.time(), items=len(data))
        self._kept = kept_state(program) if program.movable is None else ""
        reduce = built_in(program.reduce)
        self._grid = bool(spec.chunk) and _has_grid(reduce, data, own=_has_own_code(program))
        self._watch = RunWatch(
            session,
            self._recorder,
            self._began,
            setup.delegation,
            reduce,
            own=_has_own_code(program),
            helped=program.movable is not False and not self._kept,
        )
        self._history: FunctionHistory | None = None
        self._given: dict[int, range] = {}
        self._moved_at = 0.0
        self._order: MakeOrder
        self._cuts = 0
        self._progress = Progress(
            state=RunState.BUILDING,
            iterations=_planned(program, self._max_iterations),
            items=len(data),
        )
        self._cut_short = False
        self._statistics = RunStatistics(program=program.name)
        self._update_seconds = 0.0
        self._state: dict[str, Any] = {}
        self._has_state = False
        self._iterated = 0
        self._resumed: int | None = None
        self._checkpoints: CheckpointWriter | None = None
        self._replaced = 0
        self._found: dict[int, AgentStatistics] = {}
        self._code = _Code()
        self._offered = OfferedContent(session)
        self._pictures: list[LivePicture] = []
        self._unnoted: tuple[int, dict[str, Any], float, float] | None = None
        self._thread = new_thread(f"sapwood-{self.name}", self._work, failed=self._fail)
        self._timer = threading.Timer(self._run_time_limit, self._took_too_long)
        self._timer.daemon = True
        self._thread.start()
        if self._run_time_limit:
            self._timer.start()

    # --- for users -----------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the run and return the program's result; Ctrl-C cancels the run.

        Raises:
            SapwoodError: The run failed or was cancelled.
            TimeoutError: It has not ended after ``timeout`` seconds.
        """
        try:
            self._settled(timeout)
            return self._future.result(0)
        except KeyboardInterrupt:  # at a prompt the cluster lives on, and would keep computing
            self.cancel()
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the run; return whether it has ended."""
        try:
            self._settled(timeout)
        except TimeoutError:
            return False
        return True

    def _settled(self, timeout: float | None) -> BaseException | None:
        """Wait for the end, show it in a notebook, and return the error, if any."""
        error = self._future.exception(timeout)
        for picture in tuple(self._pictures):
            picture.end()
        return error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run and return its error, if any."""
        return self._settled(timeout)

    def done(self) -> bool:
        """Whether the run has ended."""
        return self._future.done()

    def cancel(self) -> bool:
        """Stop the run; what its agents compute is killed. Returns False if it had ended."""
        if self._future.done():
            return False
        self._stop(CancelledError("the run was cancelled"))
        return True

    def drain(self, reason: str) -> bool:
        """Stop the run after the iteration that its agents work on, and keep its state.

        The state is in the file of its checkpoints, if it has one; callers that wait for the run
        get a ``DrainedError``. Agents compute nothing twice when it resumes from there. An
        iteration is finished in any case, so that a run with many short stops comes to its end.

        Args:
            reason: Why, for people.

        Returns:
            False if it had ended.
        """
        arguments.text(reason, "reason")
        if self._future.done():
            return False
        self._draining = self._draining or reason
        return True

    def _took_too_long(self) -> None:
        if self._future.done():
            return
        count = self._progress.iteration
        when = f"after {count} iteration{'' if count == 1 else 's'}"
        self._stop(
            TimeLimitError(
                f"the run took longer than {self._run_time_limit:g} s and was ended "
                + _BEFORE_ITERATIONS.get(self._progress.state, when),
                where=self.program.name,
                hint="raise limits.run_time (--run-time-limit), or let the program end sooner",
            )
        )

    def _stop(self, error: SapwoodError) -> None:
        """End the run with an error; the first one counts."""
        if self._stopped is None:
            self._stopped = error
        interrupt(self._thread)
        if self._participants is not None:
            self._participants.fail(self._stopped)

    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return self._progress.state is RunState.CANCELLED

    def add_done_callback(self, function: Callable[["Run"], object]) -> None:
        """Have a function called with this run when it has ended."""
        arguments.function(function, "function")
        self._future.add_done_callback(lambda _: function(self))

    @property
    def future(self) -> CallerFuture[Any]:
        """The run as a ``concurrent.futures.Future``; coroutines can await it."""
        return self._future

    @property
    def progress(self) -> Progress:
        """How far the run has come."""
        progress = self._progress
        if progress.state.final:
            return progress
        return msgspec.structs.replace(progress, seconds=time.perf_counter() - self._began)

    @property
    def statistics(self) -> RunStatistics:
        """What the run cost; complete when it has ended."""
        return self._statistics

    @property
    def record(self) -> WorkRecord:
        """Which agent did which work so far, and why it moved; agents are polled twice a second."""
        progress = self.progress
        return self._recorder.record(progress.seconds)

    # --- traces --------------------------------------------------------------------------------

    def _traced(self) -> TraceSpan | None:
        """Begin the span of the run, in whatever span its caller is."""
        if seam.tracer is None:
            return None
        about: Attributes = {"sapwood.run": self.name, "sapwood.items": len(self.data)}
        return seam.tracer.begin(f"run {self.program.name}", about)

    def _trace_iteration(self, iteration: int, started: float, ended: float) -> None:
        number = iteration - (self._resumed or 0)
        if self._span is not None and seam.tracer is not None and number <= MAX_TRACED_ITERATIONS:
            since = time.time() - time.perf_counter()
            about = {"sapwood.iteration": iteration}
            when = (since + started, since + ended)
            seam.tracer.record("iteration", self._span, when, about)

    # --- the thread of the run -----------------------------------------------------------------

    def _fail(self, error: SapwoodError) -> None:
        """End the future with a mistake that the thread itself could not report."""
        if not self._future.done():
            self._future.set_exception(error)

    def _work(self) -> None:
        try:
            try:
                result = self._execute()
            finally:
                self.data = self._data_of_caller  # the copy is not needed any more
        except SapwoodError as problem:
            error = problem
            if self._stopped is not None and isinstance(error, CancelledError):
                error = self._stopped  # the interrupted call does not know why
            cancelled = isinstance(self._stopped or error, CancelledError)
            drained = isinstance(error, DrainedError)
            state = RunState.CANCELLED if cancelled else RunState.FAILED
            self._finish(RunState.DRAINED if drained else state, error)
            if self._built is not None:
                name_crash_site(error, self._built.debug_files)
            self._future.set_exception(error)
        except BaseException as problem:  # noqa: BLE001 - whoever waits for the run gets it
            self._finish(RunState.FAILED, problem)
            self._future.set_exception(problem)
        else:
            self._finish(RunState.DONE)
            self._future.set_result(result)

    def _finish(self, state: RunState, error: BaseException | None = None) -> None:
        self._timer.cancel()
        seconds = time.perf_counter() - self._began
        iterations = self._progress.iteration
        _log.info("run ended", run=self.name, state=state, iterations=iterations, seconds=seconds)
        if self._span is not None:
            about: Attributes = {
                "sapwood.state": state.value,
                "sapwood.iterations": iterations,
                "sapwood.agents": self._progress.agents,
            }
            self._span.end(error, about)
        self._progress = msgspec.structs.replace(self._progress, state=state, seconds=seconds)

    def _execute(self) -> Any:
        program = self.program
        targets, variables = self._targets()
        built = self._built = build_for_all(
            program, targets, cache=self._cache, environment=variables
        )
        _log.debug("built", run=self.name, cached=built.cached, seconds=round(built.seconds, 3))
        self._progress = msgspec.structs.replace(self._progress, state=RunState.PREPARING)
        for each in (built, *built.others):
            check_program(program, each)
        self._recorder.hash = program.hash
        self._recorder.delegate = self._setup.delegation.how
        self._recorder.kept_in_place = self._why_in_place()
        self._watch.movable = not self._recorder.kept_in_place
        fields = _wanted_fields(program, self.data)
        finite = not (self.spec.allow_nan or program.allow_nan)
        published = self.data.published_for(fields, finite=finite)
        with published:
            self._find_checkpoint()
            self._guess_rates()
            try:
                while not self._goes_through(built, published):
                    self._cuts += 1
            finally:
                self._offered.close()
                self._note_statistics(built)
            self._keep_rates()
            prepared = self._loop_began - self._began
            self._statistics = msgspec.structs.replace(self._statistics, prepare_seconds=prepared)
        return self._user("result", program.result, self._state)

    def _targets(self) -> tuple[tuple[Target, ...], dict[str, str]]:
        """Return what is built for, and the environment of builds.

        Where some agents run CUDA sources on a GPU and others do not, that is both.
        """
        targets = self._setup.targets or (host_target(),)
        variables = dict(self._setup.environment or os.environ)
        has_cuda = any(name.endswith(".cu") for name in self.program.bundle.sources)
        if variables.get(CUDA_CHOICE) or not has_cuda:
            return targets, variables
        kinds = {machine.gpu for machine in self._machines().values()}
        if len(kinds) < 2:
            return targets, variables
        if find_nvcc(variables) is None:
            _log.warning("GPUs are not used: this machine has no nvcc", run=self.name)
            return targets, {**variables, CUDA_CHOICE: "cpu"}
        both = [msgspec.structs.replace(one, gpu=gpu) for one in targets for gpu in ("", "cuda")]
        return tuple(both), {**variables, CUDA_CHOICE: "cpu"}

    def _machines(self) -> dict[int, agent_requests.AgentMachine]:
        """Ask agents for their machines; those that do not answer soon are left out."""
        ranks = self._session.tree.agent_ranks
        asked = {rank: self._session.ask(rank, agent_requests.MACHINE, None) for rank in ranks}
        wait(asked.values(), MACHINE_TIME)
        return {
            rank: typed.convert(one.result(), agent_requests.AgentMachine)
            for rank, one in asked.items()
            if one.done() and not one.cancelled() and one.exception() is None
        }

    @property
    def _function(self) -> str:
        """What the map is called."""
        return self.program.map_function or f"{self.program.name}.map"

    def _guess_rates(self) -> None:
        """Take what former runs have measured for the rates of agents until they are measured."""
        history = self._setup.history
        if history is None or not self._watch.movable:
            return
        found = self._history = read_history(history, key_of(self.program.hash, self._function))
        if found is None:
            return
        machines = self._machines()
        guessed = found.guess({rank: (one.node, one.kind) for rank, one in machines.items()})
        if guessed:
            self._watch.guess(guessed)
            described = found.described(len(guessed), len(machines), history.place)
            self._recorder.first_guess = described

    def _keep_rates(self) -> None:
        """Keep what was measured for the next run of this function."""
        history, function = self._setup.history, self._function
        rates = self._watch.rates
        measured = [
            MeasuredRate(agent=one.agent, node=one.node, kind=one.kind, rate=rate)
            for one in self._recorder.agents
            for rate in rates.of([one.agent]).values()
            if rates.measured(one.agent)
        ]
        if history is None or not self._watch.movable or not measured:
            return
        known = self._history or FunctionHistory(function=function, run=self.name, written=0.0)
        kept = known.with_run(self.name, time.time(), measured)
        history.write(key_of(self.program.hash, function), msgspec.json.encode(kept))

    def _find_checkpoint(self) -> None:
        """Load the state of a checkpoint, if the run resumes from one; prepare to write some.

        Raises:
            DataError: There is none, it is damaged, or of something else.
            InputError: None can be written.
        """
        spec = self.spec
        allow_nan = spec.allow_nan or self.program.allow_nan
        identity = None
        where = str((spec.checkpoint if spec.auto_resume else spec.resume) or "")
        if spec.auto_resume:
            found = find_checkpoint(Path(where), self.files)
        else:
            found = read_checkpoint(Path(where), self.files) if where else None
        if found is not None:
            identity = identity_of(self.program, self.data, allow_nan=allow_nan)
            require_same(found.identity, identity, where)
            if 0 < self._max_iterations <= found.iteration:
                raise InputError(
                    f"the checkpoint is of iteration {found.iteration}, and the run is to end "
                    f"after {self._max_iterations}",
                    where=where,
                    hint="allow more iterations",
                )
            self._state, self._iterated = found.state, found.iteration
            self._resumed = found.iteration
            _log.info("run resumes", run=self.name, iteration=found.iteration)
        if not spec.checkpoint:
            return
        try:
            self._checkpoints = CheckpointWriter(
                Path(spec.checkpoint),
                self._setup.checkpoint_share,
                lambda: identity or identity_of(self.program, self.data, allow_nan=allow_nan),
                0 if identity is not None else self.data.hashed_bytes,
                files=self.files,
            )
        except OSError as error:
            raise InputError(
                f"no checkpoint can be written there: {error.strerror}", where=str(spec.checkpoint)
            ) from error

    def _goes_through(self, built: Built, published: Published) -> bool:
        """Go on until the program is done, or data are to be cut anew: return which of the two.

        That is where agents leave, or where others would be done sooner. The present agents then
        continue with the state after the last iteration. Agents that join later take part when data
        are cut next. Each time the agents get another name for what they have: no wave ever meets
        items of another cut.
        """
        program = self.program
        slices = self._cut()
        participants = None
        try:
            participants = self._participants = self._gather(built, published, slices)
            participants.open()
            if not self._has_state:
                # Also when the run resumes, because init may set attributes of the program.
                first = _checked_state(program, "init", self._user("init", program.init, self.data))
                self._check_first_state(built, first)
                self._state = self._state if self._resumed is not None else first
                self._has_state = True
            participants.wait_ready()
            if not self._iterate(participants, slices):
                return False
        except AgentLostError:
            others = self._session.tree.agents > 0
            if self._stopped is not None or participants is None or not others:
                raise
            if self.spec.on_agent_loss == "fail" or not participants.some_left:
                raise
            _log.info("agents left the run", run=self.name)
            return False
        finally:
            if participants is not None and not self._session.closed:
                said = participants.close()
                self._replaced += participants.replaced
                for rank, closed in said.items():
                    self._watch.heard(rank, closed.pulse)
                    self._note_agent(closed.statistics, slices[rank])
        return True

    def _cut(self) -> dict[int, range]:
        """Return which agent gets which items; agents without items have none."""
        ranks = self._session.tree.agent_ranks
        wanted, self._watch.wanted = self._watch.wanted, None
        rates = self._watch.rates.of(ranks) if self._watch.movable else {}
        if wanted is not None and wanted.given.keys() <= set(ranks):
            slices = wanted.given
        elif rates:
            slices = assign(self.data.items, rates, self.spec.chunk or 1)
        else:
            parts = self.data.split(len(ranks), self.spec.chunk)
            slices = dict(zip(ranks, parts, strict=True))
        slices = {rank: part for rank, part in slices.items() if part}
        if self._given:
            reason = "agents left or came" if wanted is None else wanted.reason
            self._recorder.move(
                Move(
                    at=self._watch.now,
                    iteration=self._iterated + 1,
                    source=source,
                    target=target,
                    items=items,
                    reason=reason,
                )
                for source, target, items in moved(self._given, slices)
            )
            _log.info("data cut anew", run=self.name, iteration=self._iterated, reason=reason)
        self._given = slices
        return slices

    def _why_in_place(self) -> str:
        """Return why items stay where they are; empty if they may move."""
        if self._setup.delegation.how != "measured":
            return "delegate is static"
        if self.program.movable is False:
            return "the program says that it is not movable"
        if self._kept:
            return f"its map seems to keep something: {self._kept}"
        if REPRODUCIBLE in self.program.reduce.values() and not self._grid:
            return f"{REPRODUCIBLE} gives the same bits after a move only with a chunk size"
        return ""

    def _note_agent(self, found: AgentStatistics | None, part: range) -> None:
        """Add what an agent did with its slice to what it did before."""
        if found is None:
            return
        before = self._found.get(found.agent)
        whole_run = found if before is None else added(before, found)
        self._found[found.agent] = msgspec.structs.replace(
            whole_run, start=part.start, stop=part.stop
        )

    def _check_first_state(self, built: Built, state: Any) -> None:
        """Find what the map will not get before any agent does."""
        data = self.data
        inputs = self.program.inputs if data.fields else ()
        arrays = {name: data.prototype(name) for name in inputs}
        check_program(self.program, built, state=state, arrays=arrays, fields=data.fields)

    def _gather(
        self, built: Built, published: Published, slices: dict[int, range]
    ) -> RunParticipants:
        context = self._context
        check_versions(self.program.bundle.pickled, self.program.name, self._session.pythons)
        image = make_image(self.program, built, self._cache)
        encoded = msgspec.msgpack.encode(image)
        function = self._function
        replace, options = self.spec.on_agent_loss == "replace", self.spec.options
        handlers = build_crash_handlers(self._cache, built)
        content = self._offered.code(image, handlers)
        at_places = encoded
        if has_reducers(self.program.reduce) and not self._session.shares_machine(ROOT):
            # The root fetches nothing: it gets the program itself, not the file that has it.
            at_places = msgspec.msgpack.encode(make_image(self.program, built))
        self._code = _Code(at_places, handlers, content)

        def order(rank: int, part: range) -> agent_requests.OpenRun:
            self._go_on()
            ref, needed = self._offered.slice(published.ref(part.start, part.stop), rank)
            return agent_requests.OpenRun(
                run=context,
                image=encoded,
                slice=msgspec.msgpack.encode(ref),
                start=part.start,
                stop=part.stop,
                function=function,
                options=options,
                crash_handlers=list(handlers),
                content=[] if self._session.shares_machine(rank) else [*content, *needed],
                reduce=built_in(self.program.reduce) if self._grid else {},
                trace=self._span.carrier if self._span is not None else {},
            )

        self._order = order
        opening = {rank: order(rank, part) for rank, part in slices.items()}
        self._go_on()
        return RunParticipants(self._session, opening, replace=replace)

    @property
    def _context(self) -> str:
        """What agents call what they have of the run.

        Other processes that use the same agents may have runs of the same name.
        """
        return f"{self.name}.{self._token}.{self._cuts}"

    def _begin(self, participants: RunParticipants, slices: dict[int, range]) -> StreamPort:
        """Open the stream of the next iterations, and watch its agents from now on."""
        program = self.program
        options = stream_options(
            program, self.spec.time_limit or 0.0, *msgspec.structs.astuple(self._code)
        )
        for each in options.filters:
            check_versions(each.up, f"the filter of {program.name}", self._session.pythons)
        stream = self._stream = self._session.open_stream(
            agent_requests.MAP,
            built_in(program.reduce),
            participants.ranks,
            self._context,
            options,
        )
        participants.serve(stream)
        self._progress = msgspec.structs.replace(
            self._progress,
            state=RunState.RUNNING,
            iterations=_bounded(self._iterations(), self._max_iterations),
            agents=len(participants.ranks),
        )
        self._recorder.place(
            RecordedAgent(
                agent=rank,
                node=participants.opened(rank).node,
                kind=participants.opened(rank).kind,
                start=order.start,
                stop=order.stop,
            )
            for rank, order in participants.orders
        )
        self._watch.begin(
            self._context,
            slices,
            self._iterated,
            self._order,
            planned=self._progress.iterations,
            chunk=self.spec.chunk or 1,
        )
        return stream

    def _iterate(self, participants: RunParticipants, slices: dict[int, range]) -> bool:
        """Iterate until the program is done or data are to be cut anew: return which of the two."""
        program, state, watch = self.program, self._state, self._watch
        stream = self._begin(participants, slices)
        ended = time.perf_counter()
        self._loop_began = self._loop_began or ended
        if self._moved_at:
            watch.cut_took(ended - self._moved_at)
            self._moved_at = 0.0
        try:
            for iteration in itertools.count(self._iterated + 1):
                self._go_on()
                watch.wave_begins(iteration, state, ended)
                total = self._total_of(stream, state)
                begin = time.perf_counter()
                what = "update"
                try:  # as _user() does, in fewer functions: nothing of them is in a cache by now
                    state = program.update(state, total)
                    if type(state) is not dict:
                        state = _checked_state(program, what, state)
                    what = "done"
                    done = program.done(state)
                    if done is None:
                        raise _nothing_returned(program, what, "True or False")
                    done = bool(done)
                except SapwoodError:
                    raise
                except (Exception, SystemExit) as error:
                    raise self._of_user(what, error) from error
                started, ended = ended, time.perf_counter()
                self._update_seconds += ended - begin
                self._state, self._iterated = state, iteration
                self._unnoted = iteration, state, started, ended
                if done:
                    break
                if iteration == self._max_iterations:
                    self._cut_short = True
                    break
                watch.look(iteration, ended - started)
                if watch.wanted is not None:
                    self._moved_at = ended
                    return False
        finally:
            watch.end()
            stream.close()
            self._note_iteration()
        return True

    def _total_of(self, stream: StreamPort, state: dict[str, Any]) -> Any:
        """Have the agents map the state, and return what all items together gave."""
        if self._draining and self._iterated > (self._resumed or 0):
            raise self._drained()
        try:
            result = stream.exchange(state, meanwhile=self._meanwhile)
        except DataValueError as error:
            error.where = error.where or f"the state of {self.program.name}"
            raise
        if self._watch.helping:
            self._watch.wave_over()
        if result.weight != len(self.data):
            raise _not_all(result.weight, len(self.data))
        return result.total

    def _meanwhile(self) -> None:
        """Note the last iteration and keep its state, while the agents have the next one."""
        iterated = self._unnoted is not None
        self._note_iteration()
        if iterated and self._checkpoints is not None:
            before = self._checkpoints.count, self._checkpoints.seconds
            self._checkpoints.offer(self._iterated, self._state)
            if self._checkpoints.count > before[0]:
                self._recorder.checkpoint(
                    RecordedCheckpoint(
                        at=time.perf_counter() - self._began,
                        iteration=self._iterated,
                        seconds=self._checkpoints.seconds - before[1],
                    )
                )

    def _drained(self) -> DrainedError:
        """Keep the state between two iterations, and return what says so."""
        wrong = "it writes no checkpoints"
        if self._checkpoints is not None:
            wrong = self._checkpoints.write(self._iterated, self._state)
        what = f"the run stopped after iteration {self._iterated}: {self._draining}"
        if wrong:
            return DrainedError(f"{what}; its state is lost: {wrong}", where=self.program.name)
        file = str(self.spec.checkpoint)
        return DrainedError(what, where=file, hint=f"continue on other machines: --resume {file}")

    def _go_on(self) -> None:
        """Raise the error with which the run was ended meanwhile, if it was."""
        if self._stopped is not None:
            raise self._stopped

    def _user(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Call a method of the program in this process; its errors say which method it was."""
        try:
            return function(*args)
        except SapwoodError:
            raise
        except (Exception, SystemExit) as error:  # an exit would end who waits for the run
            raise self._of_user(what, error) from error

    def _of_user(self, what: str, error: BaseException) -> SapwoodError:
        made = user_error(error, of_agent=False)
        made.where = f"{self.program.name}.{what}"
        return made

    def _note_iteration(self) -> None:
        """Note how far the run has come; done while the agents have the next wave to work on."""
        if self._unnoted is None:
            return
        (iteration, state, started, ended), self._unnoted = self._unnoted, None
        self._recorder.iteration(iteration, started - self._began, ended - started)
        self._trace_iteration(iteration, started, ended)
        now = time.perf_counter()
        elapsed = now - self._loop_began
        made = iteration - (self._resumed or 0)
        items = len(self.data)
        planned = self._progress.iterations
        self._progress = Progress(
            state=RunState.RUNNING,
            iteration=iteration,
            iterations=None if planned is not None and iteration > planned else planned,
            seconds=now - self._began,
            seconds_per_iteration=elapsed / made,
            items=items,
            items_per_second=made * items / elapsed if elapsed else 0.0,
            agents=self._progress.agents,
            metrics=self._metrics(state),
        )

    def _metrics(self, state: dict[str, Any]) -> dict[str, float]:
        found = self._user("metrics", self.program.metrics, state)
        if found is None:
            raise _nothing_returned(self.program, "metrics", "a dictionary of numbers")
        try:
            return {str(name): float(value) for name, value in found.items()}
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise ProgramError(
                f"metrics must be a dictionary of numbers: {error}",
                where=f"{self.program.name}.metrics",
                hint="return for example {'error': 0.5}",
            ) from error

    def _iterations(self) -> int | None:
        planned: object = self._user("iterations", self.program.iterations)
        if planned is None:
            return None
        return max(0, whole(planned, f"{self.program.name}.iterations()", ProgramError))

    def _note_statistics(self, built: Built) -> None:
        self._statistics = RunStatistics(
            program=self.program.name,
            iterations=self._progress.iteration,
            cut_short=self._cut_short,
            seconds=time.perf_counter() - self._began,
            build_seconds=built.seconds,
            update_seconds=self._update_seconds,
            replaced_agents=self._replaced,
            resumed_from=self._resumed,
            checkpoints=0 if self._checkpoints is None else self._checkpoints.count,
            checkpoint_seconds=0.0 if self._checkpoints is None else self._checkpoints.seconds,
            agents=tuple(self._found[rank] for rank in sorted(self._found)),
        )

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.progress}>"

    def show(self) -> None:
        """Show the run below this cell of a notebook, if this is one; the picture follows it."""
        picture = show_by_itself(self)
        if picture is not None:
            self._pictures.append(picture)

    def _ipython_display_(self) -> None:
        picture = show(self)
        if picture is not None:
            self._pictures.append(picture)

    def _repr_html_(self) -> str:
        progress = self.progress
        planned = f"/{progress.iterations}" if progress.iterations else ""
        figures = {
            "state": progress.state.value,
            "iteration": f"{progress.iteration}{planned}",
            **{name: f"{value:g}" for name, value in progress.metrics.items()},
            "seconds per iteration": f"{progress.seconds_per_iteration:.4f}",
            "items per second": f"{progress.items_per_second:,.0f}",
            "agents": str(progress.agents),
            "seconds": f"{progress.seconds:.2f}",
        }
        if self._future.done() and (error := self._future.exception()) is not None:
            figures["why"] = str(error)
        head = f"<b>{escaped(self.name)}</b> {progress.bar()}{self.page.html()}"
        sums = self._statistics._repr_html_() if self._statistics.agents else ""
        return f"{head}{html_table([*figures.items()], named=True)}{sums}"


def _has_grid(reduce: dict[str, str], data: Dataset, *, own: bool) -> bool:
    """Return whether the map is called for each chunk of a slice, not once with all of it."""
    wanted = REPRODUCIBLE in reduce.values() and set(reduce.values()) <= GRID_REDUCTIONS
    return wanted and not own and data.per_item


def _has_own_code(program: Program) -> bool:
    """Whether code of the program puts results together."""
    return has_reducers(program.reduce) or type(program).own_filter is not Program.own_filter


def _not_all(weight: float, items: int) -> ExecutionError:
    return ExecutionError(
        f"an iteration counted {weight:g} items, and the data have {items}",
        hint="its result was not used; tell the authors of Sapwood, with the log",
    )


def _planned(program: Program, most: int) -> int | None:
    """Return what a program plans, no more than ``most`` unless that is 0.

    It is asked again after ``init``, which it may need for that.
    """
    try:
        return _bounded(program.iterations(), most)
    except Exception:  # noqa: BLE001 - the next call raises it again
        return None


def _bounded(planned: int | None, most: int) -> int | None:
    """Return how many iterations there will be, as far as that is known."""
    if planned is None or not most:
        return planned or most or None
    return min(planned, most)


def _taken(program: Program, data: Dataset) -> Dataset:
    """Return the data with copies of the fields that the program wants, as far as they exist."""
    return data.taken([name for name in program.inputs if name in data])


def _wanted_fields(program: Program, data: Dataset) -> list[str] | None:
    """Return the fields that the agents need; None for a range, which has none."""
    if not data.fields:
        return None
    missing = [name for name in program.inputs if name not in data]
    if missing:
        raise ProgramError(
            f"the program wants the fields {', '.join(program.inputs)}, "
            f"the data have {', '.join(data.fields)}",
            where=program.name,
            hint="pass a dictionary of arrays with those names",
        )
    return list(program.inputs)


def _checked_state(program: Program, method: str, state: Any) -> dict[str, Any]:
    if state is None:
        raise _nothing_returned(program, method, "the state, a dictionary")
    if not isinstance(state, dict):
        raise ProgramError(
            f"{method} returned a value of type {type(state).__name__}, and a state must be a "
            "dictionary",
            where=f"{program.name}.{method}",
            hint='return a dictionary of arrays and numbers, as in {"centres": centres}',
        )
    return state


def _nothing_returned(program: Program, method: str, wanted: str) -> ProgramError:
    return ProgramError(
        f"{method} returned nothing",
        where=f"{program.name}.{method}",
        hint=f"end the method with a return statement: it must return {wanted}",
    )
