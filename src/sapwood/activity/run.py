"""A run: init, then broadcast the state, map, reduce, update, until the program is done."""

import itertools
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import TimeoutError  # noqa: A004 - the one that futures raise
from typing import Any, Final

from sapwood.activity.dashboard_page import DashboardPage
from sapwood.activity.notebook import LivePicture, show, show_by_itself
from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.run_driver import RunDriver, planned_iterations
from sapwood.activity.run_job import RunJob, RunSetup
from sapwood.activity.run_life import RunLife
from sapwood.activity.run_record import RunRecorder, WorkStatistics
from sapwood.activity.statistics import RunStatistics
from sapwood.code.cache import BuildCache
from sapwood.code.interruption import interrupt
from sapwood.code.program import Program
from sapwood.code.run_spec import RunSpec
from sapwood.core import arguments
from sapwood.core.errors import CancelledError, SapwoodError, TimeLimitError
from sapwood.core.failures import new_thread
from sapwood.core.futures import CallerFuture
from sapwood.core.html_table import escaped, html_table
from sapwood.core.staying import StaysHere
from sapwood.data.dataset import Dataset
from sapwood.environment.logs import logger
from sapwood.environment.tracing import Attributes, TraceSpan, seam
from sapwood.session.interface import SessionInterface

_log = logger("activity")

_numbers = itertools.count(1)

_BEFORE_ITERATIONS: Final = {
    RunState.BUILDING: "while its program was being built",
    RunState.PREPARING: "before its first iteration",
}
"""When a run was ended that took too long, for its states without iterations."""


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
        page: What a dashboard shows of it, or of its session.

    Raises:
        ResourceError: The machine has not enough memory for a copy of the data.
    """

    page: DashboardPage = DashboardPage()

    def __init__(
        self,
        session: SessionInterface,
        program: Program,
        data: Dataset,
        cache: BuildCache,
        spec: RunSpec,
        setup: RunSetup,
    ) -> None:
        self.name: str = f"{program.name}-{next(_numbers)}"
        self.program: Program = program
        self.data: Dataset = data
        self.spec: RunSpec = spec
        self._run_time_limit = min(spec.run_time_limit or 0.0, threading.TIMEOUT_MAX)
        self._future: CallerFuture[Any] = CallerFuture()
        self._future.set_running_or_notify_cancel()  # it is cancelled by cancel() only
        planned = planned_iterations(program, spec.max_iterations or 0)
        self._job = RunJob(
            name=self.name,
            session=session,
            program=program,
            data=_taken(program, data) if spec.copy else data,
            cache=cache,
            spec=spec,
            setup=setup,
            life=RunLife(self.name, len(data), planned),
            recorder=RunRecorder(self.name, program.name, began=time.time(), items=len(data)),
            span=self._traced(),
        )
        self._driver = self._new_driver(self._job)
        self._pictures: list[LivePicture] = []
        self._thread = new_thread(f"sapwood-{self.name}", self._work, failed=self._fail)
        self._timer = threading.Timer(self._run_time_limit, self._took_too_long)
        self._timer.daemon = True
        self._begin()

    def _begin(self) -> None:
        self._thread.start()
        if self._run_time_limit:
            self._timer.start()

    def _new_driver(self, job: RunJob) -> RunDriver:
        return RunDriver(job)

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

    def running(self) -> bool:
        """Whether the run has not ended."""
        return not self._future.done()

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
        self._job.life.draining = self._job.life.draining or reason
        return True

    def _took_too_long(self) -> None:
        if self._future.done():
            return
        progress = self.progress
        count = progress.iteration
        when = f"after {count} iteration{'' if count == 1 else 's'}"
        self._stop(
            TimeLimitError(
                f"the run took longer than {self._run_time_limit:g} s and was ended "
                + _BEFORE_ITERATIONS.get(progress.state, when),
                where=self.program.name,
                hint="raise limits.run_time (--run-time-limit), or let the program end sooner",
            )
        )

    def _stop(self, error: SapwoodError) -> None:
        """End the run with an error; the first one counts."""
        stopped = self._job.life.stop(error)
        interrupt(self._thread)
        self._driver.fail(stopped)

    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return self.progress.state is RunState.CANCELLED

    def add_done_callback(self, function: Callable[["Run"], object]) -> None:
        """Have a function called with this run when it has ended."""
        arguments.function(function, "function")
        self._future.add_done_callback(lambda _: function(self))

    @property
    def future(self) -> CallerFuture[Any]:
        """The run as a ``concurrent.futures.Future``, for ``concurrent.futures.wait``."""
        return self._future

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a coroutine for the result; cancelling the wait leaves the run alone.

        Example:
            ::

                result = await cluster.run("kmeans/", data)
        """
        try:
            return (yield from self._future.__await__())
        finally:
            for picture in tuple(self._pictures):
                picture.end()

    @property
    def progress(self) -> RunInfo:
        """How far the run has come."""
        return self._job.life.progress

    @property
    def statistics(self) -> RunStatistics:
        """What the run cost; complete when it has ended."""
        return self._driver.statistics

    @property
    def record(self) -> WorkStatistics:
        """Which agent did which work so far, and why it moved; agents are polled twice a second."""
        return self._job.recorder.record(self.progress.seconds)

    # --- traces --------------------------------------------------------------------------------

    def _traced(self) -> TraceSpan | None:
        """Begin the span of the run, in whatever span its caller is."""
        if seam.tracer is None:
            return None
        about: Attributes = {"sapwood.run": self.name, "sapwood.items": len(self.data)}
        return seam.tracer.begin(f"run {self.program.name}", about)

    # --- the thread of the run -----------------------------------------------------------------

    def _fail(self, error: SapwoodError) -> None:
        """End the future with a mistake that the thread itself could not report."""
        if not self._future.done():
            self._future.set_exception(error)

    def _work(self) -> None:
        life = self._job.life
        try:
            try:
                result = self._driver.execute()
            finally:
                self._job.data = self.data  # the copy is not needed any more
        except SapwoodError as problem:
            error = problem
            if life.stopped is not None and isinstance(error, CancelledError):
                error = life.stopped  # the interrupted call does not know why
            self._finish(error)
            self._driver.name_crash_site(error)
            self._future.set_exception(error)
        except BaseException as problem:  # noqa: BLE001 - whoever waits for the run gets it
            self._finish(problem)
            self._future.set_exception(problem)
        else:
            self._finish()
            self._future.set_result(result)

    def _finish(self, error: BaseException | None = None) -> None:
        self._timer.cancel()
        self._job.life.end(error)
        progress = self.progress
        state, iterations, seconds = progress.state, progress.iteration, progress.seconds
        _log.info("run ended", run=self.name, state=state, iterations=iterations, seconds=seconds)
        if self._job.span is not None:
            about: Attributes = {
                "sapwood.state": state.value,
                "sapwood.iterations": iterations,
                "sapwood.agents": progress.agents,
            }
            self._job.span.end(error, about)

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
        metrics = {
            "state": progress.state.value,
            "iteration": f"{progress.iteration}{planned}",
            **{name: f"{value:g}" for name, value in progress.metrics.items()},
            "seconds per iteration": f"{progress.seconds_per_iteration:.4f}",
            "items per second": f"{progress.items_per_second:,.0f}",
            "agents": str(progress.agents),
            "seconds": f"{progress.seconds:.2f}",
        }
        if self._future.done() and (error := self._future.exception()) is not None:
            metrics["why"] = str(error)
        head = f"<b>{escaped(self.name)}</b> {progress.bar()}{self.page.html()}"
        sums = self.statistics._repr_html_() if self.statistics.agents else ""
        return f"{head}{html_table([*metrics.items()], named=True)}{sums}"


def _taken(program: Program, data: Dataset) -> Dataset:
    """Return the data with copies of the fields that the program wants, as far as they exist."""
    return data.taken([name for name in program.inputs if name in data])
