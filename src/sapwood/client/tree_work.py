"""The work in a tree: runs of programs over data, and streams."""

import abc
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from sapwood.activity.dashboard_page import DashboardPage
from sapwood.activity.delegation import DelegationOptions
from sapwood.activity.offered_content import OfferedContent
from sapwood.activity.rate_history import FileHistory, RateHistory
from sapwood.activity.run import Run
from sapwood.activity.run_job import RunSetup
from sapwood.client.allocation_end import AllocationEnd
from sapwood.client.declared_arguments import with_fields
from sapwood.client.output import OutputPrinter
from sapwood.client.persistent import PersistentDataset
from sapwood.client.stream import Stream
from sapwood.client.stream_opening import (
    FilterSource,
    Keep,
    Late,
    Loss,
    StreamRequest,
    open_stream,
)
from sapwood.client.user_code import CodeMaker
from sapwood.code.cache import BuildCache
from sapwood.code.load import load_program
from sapwood.code.program import NativeFunctionRef, Program, data_of
from sapwood.code.run_spec import RunSpec
from sapwood.code.target import Target, targets_of
from sapwood.core import arguments
from sapwood.core.errors import InputError, ParameterError
from sapwood.core.options import checked, completed
from sapwood.core.shown import shown
from sapwood.core.staying import StaysHere
from sapwood.data.dataset import Dataset
from sapwood.data.sources import load
from sapwood.environment.settings import RunSettings, Settings
from sapwood.environment.tracing import TraceSpan, inside
from sapwood.session.interface import SessionInterface


class TreeWork(StaysHere, abc.ABC):
    """Runs and streams of one tree.

    Args:
        session: The tree.
        settings: All settings.
        variables: Variables of builds, besides this process's environment.
        printer: Shows what agents print.

    Attributes:
        settings: All settings.
        page: What the dashboard of its head shows of it; its ``url`` is empty without one.
        allocation: Until when its machines are there; None where they have no end.
        history: Where runs keep what they have measured of agents.
    """

    def __init__(
        self,
        session: SessionInterface,
        settings: Settings,
        variables: Mapping[str, str],
        printer: OutputPrinter,
    ) -> None:
        self.settings = settings
        self._session = session
        self._variables = dict(variables)
        self._printer = printer
        self._runs: list[Run] = []
        self._needing: weakref.WeakSet[Stream | PersistentDataset] = weakref.WeakSet()
        self._span: TraceSpan | None = None
        self.allocation: AllocationEnd | None = None
        self.page: DashboardPage = DashboardPage()
        self._tell_run: Callable[[Run], object] | None = None
        self.run_started: Callable[[Run], object] | None = None
        self.history: RateHistory = FileHistory(settings.cache.path() / "rates")
        self._cache = BuildCache(settings.cache.path(), size_limit=settings.cache.size)
        self._maker = self._new_maker(session)

    def _new_maker(self, session: SessionInterface) -> CodeMaker:
        return CodeMaker(
            self._cache,
            self._build_environment,
            lambda: self.targets,
            lambda: session.pythons,
            OfferedContent(session),
            pickle=self.settings.tasks.pickle,
        )

    @with_fields(RunSpec)
    def run(self, spec: RunSpec) -> Run:
        """Start a program over data and return at once.

        Arrays are copied before this returns: afterwards you may change yours.

        Args:
            spec: The run.

        Raises:
            InputError: An option is of the wrong type, or out of range. ProgramError: The program
                cannot be loaded. DataError: The data cannot be used. ClosedError: The cluster is
                closed.

        Example:
            ::

                with sapwood.local(agents=4) as cluster:
                    run = cluster.run(KMeans(colours=16), data=pixels)
                    print(run.result())
        """
        self._must_be_open()
        spec = completed(checked(spec), self.settings)
        parameters, columns = spec.parameters, spec.columns
        if parameters is not None and not isinstance(parameters, Mapping):
            raise ParameterError(
                f"parameters are {shown(parameters)}", hint="give a dictionary of values by name"
            )
        if spec.auto_resume and not spec.checkpoint:
            raise InputError("auto_resume needs a checkpoint", hint="add checkpoint=FILE")
        loaded = load_program(spec.program, parameters or {})
        if spec.data is None and columns is None:
            columns = loaded.data_columns
        loaded_data = load(data_of(loaded, spec.data), fields=loaded.inputs, columns=columns)
        setup = RunSetup(
            self._build_environment(),
            self.targets,
            checkpoint_share=self.settings.limits.checkpoints,
            delegation=_delegation(self.settings.runs, spec.delegate),
            history=self.history,
        )
        with inside(self._span):
            run = self._new_run(loaded, loaded_data, spec, setup)
        self._runs = [known for known in self._runs if not known.done()]
        self._runs.append(run)
        run.page = self.page
        run.add_done_callback(lambda _: self._printer.flush())
        if self._tell_run is not None:
            run.add_done_callback(self._tell_run)
        if self.run_started is not None:
            self.run_started(run)
        if self.allocation is not None:
            self.allocation.add(run)
        run.show()
        return run

    def _new_run(self, program: Program, data: Dataset, spec: RunSpec, setup: RunSetup) -> Run:
        return Run(self._session, program, data, self._cache, spec, setup)

    def persist(
        self,
        data: Any,
        *,
        fields: Sequence[str] = ("data",),
        columns: Sequence[str] | None = None,
        copy: bool = True,
    ) -> PersistentDataset:
        """Have data stay split on the agents from one run to the next.

        Files are read by the first run that needs them, each part by its agent, which
        keeps it until it is released. An agent that is replaced reads its part again. What lies
        in memory is copied for agents before this returns, instead of for each run.

        Args:
            data: As for :meth:`run`.
            fields: The fields that the programs want; data without names get the
                first.
            columns: The columns of a table that may be used.
            copy: Whether arrays are copied before this returns. With ``False`` they are copied by
                the first run, and you must not change them before.

        Raises:
            DataError: The data cannot be used.
            ResourceError: The machine has not enough memory.
            ClosedError: The cluster is closed.

        Example:
            ::

                with cluster.persist("points/*.parquet", fields=["x", "y"]) as points:
                    first = cluster.run(KMeans(k=8), points).result()
                    second = cluster.run(KMeans(k=16), points).result()  # nothing is read
        """
        self._must_be_open()
        loaded = load(data, fields=fields, columns=columns)
        kept = PersistentDataset(self._session, loaded, copy=copy)
        self._needing.add(kept)
        return kept

    def tell_runs(self, function: Callable[[Run], object]) -> None:
        """Have a function called with each run that begins from now on, when it has ended."""
        self._tell_run = arguments.function(function, "function")

    def stream(  # noqa: PLR0913 - what a stream can be; all but the first by name
        self,
        what: str | Callable[..., Any] | NativeFunctionRef,
        *,
        reduce: str | Mapping[str, str] | FilterSource = "gather",
        agents: Sequence[int] | None = None,
        sync: str | float = "all",
        late: Late = "drop",
        keep: Keep = "all",
        on_loss: Loss = "replace",
        up: FilterSource | Mapping[str, FilterSource] | None = None,
        down: FilterSource | Mapping[str, FilterSource] | None = None,
        parameters: Mapping[str, Any] | None = None,
        time_limit: float | None = None,
        follow: bool = False,
    ) -> Stream:
        """Open a stream: values go down to agents, what they make of them is reduced up.

        Args:
            what: A Python function of one value, a native function (``program["name"]``), or
                ``"echo"`` for agents that return what they are sent. A generator function
                sends each value alone; it needs ``sync="none"``.
            reduce: A reduction for whole values, a dictionary of reductions by field, or an own
                filter: an associative function of two values, a :class:`sapwood.Filter`, or a
                native function ``void combine(double *into, const double *from, size_t n)``.
            agents: Ranks of the agents that take part; all by default.
            sync: ``"all"`` waits for all agents, a number waits so many seconds, ``"none"``
                passes on each contribution at once.
            late: Whether what comes after a time-out is dropped, or goes into the ``"next"`` wave.
            keep: ``"all"``: agents that push values wait until they are read; ``"latest"``:
                the newest results are kept and older ones dropped.
            on_loss: ``"replace"`` waits for new agents, ``"partial"`` continues without them,
                ``"fail"`` fails the waves that wait for them.
            up: Your filters on the way up, also by place: ``{"depth 1": f, "rank 9": g, "*": h}``.
            down: Your filters for what is broadcast, in the same forms.
            parameters: Of your filters; :meth:`.Stream.configure` changes them.
            time_limit: Seconds that one call of a function or filter may take; by default
                ``limits.time``.
            follow: Whether agents that :meth:`.Cluster.expand` adds take part from the next wave
                on, and the stream continues without agents that :meth:`.Cluster.contract` removes.

        Raises:
            ConfigurationError: The options do not describe a stream.
            ClosedError: The cluster is closed.

        Example:
            ::

                with cluster.stream(math.sqrt, reduce="sum") as stream:
                    print(stream.broadcast(9.0).result().total)  # 3.0 from each agent
        """
        self._must_be_open()
        limit = self.settings.limits.time if time_limit is None else time_limit
        own = dict(parameters or {})
        request = StreamRequest(
            what, reduce, agents, sync, late, keep, on_loss, up, down, own, limit, follow
        )
        opened = open_stream(self._session, request, self._maker.for_stream, self._printer.follow)
        if not follow:
            self._needing.add(opened)
        return opened

    @property
    def target(self) -> Target:
        """The target of builds, as the agents' interpreter reported it."""
        return self.targets[0]

    @property
    def targets(self) -> tuple[Target, ...]:
        """What programs are built for where agents are of several kinds."""
        return targets_of(self._session.platforms)

    @property
    def session(self) -> SessionInterface:
        """The tree underneath, with streams and requests for tools."""
        return self._session

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._session.closed

    def _needs_agents(self) -> bool:
        """Whether a run, a stream or persistent data need the agents that are there."""
        return any(not run.done() for run in self._runs) or any(
            not (one.released if isinstance(one, PersistentDataset) else one.closed)
            for one in set(self._needing)
        )

    def _cancel_runs(self) -> None:
        for run in self._runs:
            run.cancel()

    def _wait_for_runs(self) -> None:
        for run in self._runs:
            run.wait()
        self._runs.clear()

    def _build_environment(self) -> dict[str, str]:
        return {**os.environ, **self._variables}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Cancel what runs, and end the tree."""

    @abc.abstractmethod
    def _must_be_open(self) -> None:
        """Raise ClosedError if it cannot be used any more."""


def _delegation(settings: RunSettings, how: str | None) -> DelegationOptions:
    return DelegationOptions(
        how=how or settings.delegate,
        least_gain=settings.gain,
        late_factor=settings.late_factor,
        late_after=settings.late_after,
    )
