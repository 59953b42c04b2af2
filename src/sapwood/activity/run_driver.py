"""Drives the iterations of a run: broadcast the state, map, reduce, update, until it is done."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

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
from sapwood.activity.crash_site import name_crash_site
from sapwood.activity.cutter import Cutter, agent_machines
from sapwood.activity.own_filter import stream_options
from sapwood.activity.program_calls import (
    ProgramCalls,
    checked_state,
    nothing_returned,
    wanted_fields,
)
from sapwood.activity.run_job import RunJob
from sapwood.activity.run_life import RunStep
from sapwood.activity.run_participants import RunParticipants
from sapwood.activity.run_record import RecordedAgent, RecordedCheckpoint
from sapwood.activity.speculation import MakeOrder, WatchedCut
from sapwood.activity.statistics import RunStatistics
from sapwood.code.build import Built, build_for_all
from sapwood.code.check import check_program
from sapwood.code.machine_kind import CUDA_CHOICE
from sapwood.code.nvcc import find_nvcc
from sapwood.code.pickling import check_versions
from sapwood.code.program import Program
from sapwood.code.reducers import built_in
from sapwood.code.target import Target, host_target
from sapwood.core.errors import (
    AgentLostError,
    DataValueError,
    DrainedError,
    ExecutionError,
    InputError,
    SapwoodError,
)
from sapwood.data.publish import Published
from sapwood.environment.logs import logger
from sapwood.environment.tracing import seam
from sapwood.session.interface import StreamInterface

MAX_TRACED_ITERATIONS = 1000
"""Iterations of a run that get separate spans in traces."""

_log = logger("activity")


class RunPosition(msgspec.Struct):
    """How far the iterations of a run are.

    Attributes:
        state: The state after the last iteration.
        iterated: Iterations that are over.
        resumed: The iteration of the checkpoint that the run continues from; None without one.
        begun: Whether ``init`` was called.
        cut_short: Whether the run ended because it was given no more iterations.
        unnoted: The last iteration, its state, and when it began and ended, while the progress of
            the run does not say so yet.
    """

    state: dict[str, Any] = {}
    iterated: int = 0
    resumed: int | None = None
    begun: bool = False
    cut_short: bool = False
    unnoted: tuple[int, dict[str, Any], float, float] | None = None


class RunDriver:
    """Drives one run; all on the run's thread, but for :meth:`fail`.

    Args:
        job: The run.

    Attributes:
        files: Where checkpoints are stored.
        position: How far the iterations are.
        statistics: What the run cost; complete when it has ended.
    """

    files: CheckpointFiles = DISK

    def __init__(self, job: RunJob) -> None:
        self._job = job
        self._calls = ProgramCalls(job.program)
        self._cutter = Cutter(job)
        self._most = job.spec.max_iterations or 0
        self.position = RunPosition()
        self._participants: RunParticipants | None = None
        self._built: Built | None = None
        self._checkpoints: CheckpointWriter | None = None
        self._loop_began = 0.0
        self._cut_at = 0.0
        self._update_seconds = 0.0
        self.statistics = RunStatistics(program=job.program.name)

    def fail(self, error: SapwoodError) -> None:
        """End the run of its agents with an error; from any thread."""
        if self._participants is not None:
            self._participants.fail(error)

    def name_crash_site(self, error: SapwoodError) -> None:
        """Name the line of the program where a runner crashed."""
        if self._built is not None:
            name_crash_site(error, self._built.debug_files)

    def execute(self) -> Any:
        """Run the program to its end, and return its result."""
        program = self._job.program
        targets, variables = self._targets()
        built = self._built = build_for_all(
            program, targets, cache=self._job.cache, environment=variables
        )
        _log.debug(
            "built", run=self._job.name, cached=built.cached, seconds=round(built.seconds, 3)
        )
        self._job.life.step(RunStep.BUILT)
        for each in (built, *built.others):
            check_program(program, each)
        self._cutter.begin()
        fields = wanted_fields(program, self._job.data)
        finite = not (self._job.spec.allow_nan or program.allow_nan)
        published = self._job.data.published_for(fields, finite=finite)
        with published:
            self._find_checkpoint()
            self._cutter.guess_rates()
            try:
                while not self._goes_through(built, published):
                    pass  # data are cut anew
            finally:
                self._cutter.close()
                self._note_statistics(built)
            self._cutter.keep_rates()
            prepared = self._loop_began - self._job.life.began
            self.statistics = msgspec.structs.replace(self.statistics, prepare_seconds=prepared)
        return self._calls.result(self.position.state)

    def _targets(self) -> tuple[tuple[Target, ...], dict[str, str]]:
        """Return what is built for, and the environment of builds.

        Where some agents run CUDA sources on a GPU and others do not, that is both.
        """
        targets = self._job.setup.targets or (host_target(),)
        variables = dict(self._job.setup.environment or os.environ)
        has_cuda = any(name.endswith(".cu") for name in self._job.program.bundle.sources)
        if variables.get(CUDA_CHOICE) or not has_cuda:
            return targets, variables
        kinds = {machine.gpu for machine in agent_machines(self._job.session).values()}
        if len(kinds) < 2:
            return targets, variables
        if find_nvcc(variables) is None:
            _log.warning("GPUs are not used: this machine has no nvcc", run=self._job.name)
            return targets, {**variables, CUDA_CHOICE: "cpu"}
        both = [msgspec.structs.replace(one, gpu=gpu) for one in targets for gpu in ("", "cuda")]
        return tuple(both), {**variables, CUDA_CHOICE: "cpu"}

    def _find_checkpoint(self) -> None:
        """Load the state of a checkpoint, if the run resumes from one; prepare to write some.

        Raises:
            DataError: There is none, it is damaged, or of something else.
            InputError: None can be written.
        """
        spec = self._job.spec
        allow_nan = spec.allow_nan or self._job.program.allow_nan
        identity = None
        where = str((spec.checkpoint if spec.auto_resume else spec.resume) or "")
        if spec.auto_resume:
            found = find_checkpoint(Path(where), self.files)
        else:
            found = read_checkpoint(Path(where), self.files) if where else None
        if found is not None:
            identity = identity_of(self._job.program, self._job.data, allow_nan=allow_nan)
            require_same(found.identity, identity, where)
            if 0 < self._most <= found.iteration:
                raise InputError(
                    f"the checkpoint is of iteration {found.iteration}, and the run is to end "
                    f"after {self._most}",
                    where=where,
                    hint="allow more iterations",
                )
            self.position.state, self.position.iterated = found.state, found.iteration
            self.position.resumed = found.iteration
            _log.info("run resumes", run=self._job.name, iteration=found.iteration)
        if not spec.checkpoint:
            return
        try:
            self._checkpoints = CheckpointWriter(
                Path(spec.checkpoint),
                self._job.setup.checkpoint_share,
                lambda: (
                    identity or identity_of(self._job.program, self._job.data, allow_nan=allow_nan)
                ),
                0 if identity is not None else self._job.data.hashed_bytes,
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
        slices = self._cutter.cut(self.position.iterated)
        participants = None
        try:
            participants, order = self._cutter.gather(built, published, slices)
            self._participants = participants
            participants.open()
            if not self.position.begun:
                # Also when the run resumes, because init may set attributes of the program.
                first = self._calls.init(self._job.data)
                self._check_first_state(built, first)
                if self.position.resumed is None:
                    self.position.state = first
                self.position.begun = True
            participants.wait_ready()
            if not self._iterate(participants, slices, order):
                return False
        except AgentLostError:
            others = self._job.session.tree.agents > 0
            if self._job.life.stopped is not None or participants is None or not others:
                raise
            if self._job.spec.on_agent_loss == "fail" or not participants.some_left:
                raise
            _log.info("agents left the run", run=self._job.name)
            return False
        finally:
            if participants is not None and not self._job.session.closed:
                self._cutter.release(participants, slices)
        return True

    def _check_first_state(self, built: Built, state: Any) -> None:
        """Find what the map will not get before any agent does."""
        data = self._job.data
        inputs = self._job.program.inputs if data.fields else ()
        arrays = {name: data.prototype(name) for name in inputs}
        check_program(self._job.program, built, state=state, arrays=arrays, fields=data.fields)

    def _begin(
        self, participants: RunParticipants, slices: dict[int, range], order: MakeOrder
    ) -> StreamInterface:
        """Open the stream of the next iterations, and watch its agents from now on."""
        program = self._job.program
        options = stream_options(
            program, self._job.spec.time_limit or 0.0, *msgspec.structs.astuple(self._cutter.code)
        )
        for each in options.filters:
            check_versions(each.up, f"the filter of {program.name}", self._job.session.pythons)
        stream = self._job.session.open_stream(
            agent_requests.MAP,
            built_in(program.reduce),
            participants.ranks,
            self._cutter.context,
            options,
        )
        participants.serve(stream)
        life = self._job.life
        life.step(
            RunStep.ITERATES,
            iterations=bounded(self._calls.iterations(), self._most),
            agents=len(participants.ranks),
        )
        self._job.recorder.place(
            RecordedAgent(
                agent=rank,
                node=participants.opened(rank).node,
                kind=participants.opened(rank).kind,
                start=opening.start,
                stop=opening.stop,
            )
            for rank, opening in participants.orders
        )
        self._cutter.watch.begin(
            WatchedCut(
                run=self._cutter.context,
                given=slices,
                after=self.position.iterated,
                order=order,
                planned=life.progress.iterations,
                chunk=self._job.spec.chunk or 1,
            )
        )
        return stream

    def _iterate(
        self, participants: RunParticipants, slices: dict[int, range], order: MakeOrder
    ) -> bool:
        """Iterate until the program is done or data are to be cut anew: return which of the two."""
        program, watch, position = self._job.program, self._cutter.watch, self.position
        state, life = position.state, self._job.life
        stream = self._begin(participants, slices, order)
        ended = time.perf_counter()
        self._loop_began = self._loop_began or ended
        if self._cut_at:
            watch.cut_took(ended - self._cut_at)
            self._cut_at = 0.0
        try:
            for iteration in itertools.count(position.iterated + 1):
                life.must_go_on()
                watch.speculation.wave_begins(iteration, state, ended)
                total = self._total_of(stream, state)
                begin = time.perf_counter()
                what = "update"
                try:  # as ProgramCalls, in fewer functions: nothing of them is in a cache by now
                    state = program.update(state, total)
                    if type(state) is not dict:
                        state = checked_state(program, what, state)
                    what = "done"
                    done = program.done(state)
                    if done is None:
                        raise nothing_returned(program, what, "True or False")
                    done = bool(done)
                except SapwoodError:
                    raise
                except (Exception, SystemExit) as error:
                    raise self._calls.error_of(what, error) from error
                started, ended = ended, time.perf_counter()
                self._update_seconds += ended - begin
                position.state, position.iterated = state, iteration
                position.unnoted = iteration, state, started, ended
                if done:
                    break
                if iteration == self._most:
                    position.cut_short = True
                    break
                watch.look(iteration, ended - started)
                if watch.wanted is not None:
                    self._cut_at = ended
                    return False
        finally:
            watch.end()
            stream.close()
            self._note_iteration()
        return True

    def _total_of(self, stream: StreamInterface, state: dict[str, Any]) -> Any:
        """Have the agents map the state, and return what all items together gave."""
        if self._job.life.draining and self.position.iterated > (self.position.resumed or 0):
            raise self._drained()
        try:
            result = stream.exchange(state, meanwhile=self._meanwhile)
        except DataValueError as error:
            error.where = error.where or f"the state of {self._job.program.name}"
            raise
        speculation = self._cutter.watch.speculation
        if speculation.helping:
            speculation.wave_over()
        if result.weight != len(self._job.data):
            raise _not_all(result.weight, len(self._job.data))
        return result.total

    def _meanwhile(self) -> None:
        """Note the last iteration and keep its state, while the agents have the next one."""
        iterated = self.position.unnoted is not None
        self._note_iteration()
        if iterated and self._checkpoints is not None:
            before = self._checkpoints.count, self._checkpoints.seconds
            self._checkpoints.offer(self.position.iterated, self.position.state)
            if self._checkpoints.count > before[0]:
                self._job.recorder.checkpoint(
                    RecordedCheckpoint(
                        at=time.perf_counter() - self._job.life.began,
                        iteration=self.position.iterated,
                        seconds=self._checkpoints.seconds - before[1],
                    )
                )

    def _drained(self) -> DrainedError:
        """Keep the state between two iterations, and return what says so."""
        wrong = "it writes no checkpoints"
        if self._checkpoints is not None:
            wrong = self._checkpoints.write(self.position.iterated, self.position.state)
        what = (
            f"the run stopped after iteration {self.position.iterated}: {self._job.life.draining}"
        )
        if wrong:
            return DrainedError(f"{what}; its state is lost: {wrong}", where=self._job.program.name)
        file = str(self._job.spec.checkpoint)
        return DrainedError(what, where=file, hint=f"continue on other machines: --resume {file}")

    def _note_iteration(self) -> None:
        """Note how far the run has come; done while the agents have the next wave to work on."""
        if self.position.unnoted is None:
            return
        (iteration, state, started, ended), self.position.unnoted = self.position.unnoted, None
        self._job.recorder.iteration(iteration, started - self._job.life.began, ended - started)
        self._trace_iteration(iteration, started, ended)
        now = time.perf_counter()
        elapsed = now - self._loop_began
        made = iteration - (self.position.resumed or 0)
        items = len(self._job.data)
        planned = self._job.life.progress.iterations
        self._job.life.note(
            iteration=iteration,
            iterations=None if planned is not None and iteration > planned else planned,
            seconds_per_iteration=elapsed / made,
            items_per_second=made * items / elapsed if elapsed else 0.0,
            metrics=self._calls.metrics(state),
        )

    def _trace_iteration(self, iteration: int, started: float, ended: float) -> None:
        number = iteration - (self.position.resumed or 0)
        if (
            self._job.span is not None
            and seam.tracer is not None
            and number <= MAX_TRACED_ITERATIONS
        ):
            since = time.time() - time.perf_counter()
            about = {"sapwood.iteration": iteration}
            when = (since + started, since + ended)
            seam.tracer.record("iteration", self._job.span, when, about)

    def _note_statistics(self, built: Built) -> None:
        agents = self._cutter.statistics
        self.statistics = RunStatistics(
            program=self._job.program.name,
            iterations=self._job.life.progress.iteration,
            cut_short=self.position.cut_short,
            seconds=self._job.life.seconds,
            build_seconds=built.seconds,
            update_seconds=self._update_seconds,
            replaced_agents=self._cutter.replaced,
            resumed_from=self.position.resumed,
            checkpoints=0 if self._checkpoints is None else self._checkpoints.count,
            checkpoint_seconds=0.0 if self._checkpoints is None else self._checkpoints.seconds,
            agents=tuple(agents[rank] for rank in sorted(agents)),
        )


def _not_all(weight: float, items: int) -> ExecutionError:
    return ExecutionError(
        f"an iteration counted {weight:g} items, and the data have {items}",
        hint="its result was not used; tell the authors of Sapwood, with the log",
    )


def planned_iterations(program: Program, most: int) -> int | None:
    """Return what a program plans, no more than ``most`` unless that is 0.

    It is asked again after ``init``, which it may need for that.
    """
    try:
        return bounded(program.iterations(), most)
    except Exception:  # noqa: BLE001 - the next call raises it again
        return None


def bounded(planned: int | None, most: int) -> int | None:
    """Return how many iterations there will be, as far as that is known."""
    if planned is None or not most:
        return planned or most or None
    return min(planned, most)
