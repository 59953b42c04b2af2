"""A cluster as users hold it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from html import escape
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from sapwood.activity import orders
from sapwood.activity.relay_offer import RelayOffer
from sapwood.activity.run import Run, RunOptions
from sapwood.activity.tasks import Call, TaskPool
from sapwood.client.group import AgentGroup
from sapwood.client.messages import Messaging
from sapwood.client.output import OutputPrinter
from sapwood.client.stream import Stream
from sapwood.client.stream_opening import StreamRequest, open_stream
from sapwood.client.stream_options import FilterSource, Late, Loss
from sapwood.client.user_code import CodeMaker
from sapwood.code.cache import BuildCache
from sapwood.code.load import load_program
from sapwood.code.program import NativeFunctionRef, Program, data_of
from sapwood.code.runner.grouping import checked
from sapwood.code.target import Target, targets_of
from sapwood.code.watch import Version, Watch
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
)
from sapwood.core.topology import ROOT
from sapwood.data.sources import load
from sapwood.environment.logs import LogOutput
from sapwood.environment.settings import Settings
from sapwood.session.session import Session

AgentLoss = Literal["replace", "fail"]


class AgentView(msgspec.Struct, frozen=True):
    """One agent, as it is now.

    Attributes:
        rank: Its place in the tree, from 1.
        pid: Its process id; 0 while it is being replaced.
        state: ``starting``, ``ready`` or ``lost``.
        incarnation: Counts the processes that have been this agent.
    """

    rank: int
    pid: int
    state: str
    incarnation: int


class Cluster(Messaging):
    """Agents on this machine and the tree between them and you; made by :func:`sapwood.local`.

    Use it as a context manager, or call :meth:`close`. All methods may be called from any
    thread.
    """

    def __init__(
        self,
        session: Session,
        settings: Settings,
        variables: Mapping[str, str],
        log_output: LogOutput,
        printer: OutputPrinter,
    ) -> None:
        self.settings = settings
        self._pid = os.getpid()
        self._variables = dict(variables)
        self._log_output = log_output
        self._session = session
        self._cache = BuildCache(settings.cache.path(), size_limit=settings.cache.size)
        self._tasks = TaskPool(session)
        self._runs: list[Run] = []
        self._watches: list[Watch] = []
        self._maker = CodeMaker(self._cache, self._build_environment, lambda: self.targets)
        self._printer = printer
        session.answer(orders.OUTPUT, printer.take)
        self._relay = RelayOffer(
            session, self._cache, lambda: self.target, wanted=settings.comm.relay
        )

    # --- runs ----------------------------------------------------------------------------------

    def run(
        self,
        program: Program | type[Program] | str | Path,
        data: Any = None,
        *,
        parameters: Mapping[str, Any] | None = None,
        chunk: int | None = None,
        time_limit: float | None = None,
        on_agent_loss: AgentLoss = "replace",
    ) -> Run:
        """Start a program over data and return at once.

        Args:
            program: A program, its class, or the folder or file it is in.
            data: Arrays, a dictionary of arrays, a path, a ``range`` or a dataset; without
                data the program's own ``default_data``.
            parameters: Values for the program's parameters.
            chunk: Items that stay together; by default slices as even as possible.
            time_limit: Seconds that one map call may take; by default ``limits.time``.
            on_agent_loss: ``"replace"`` goes on with a new process, ``"fail"`` ends the run.

        Raises:
            ProgramError: The program cannot be loaded.
            DataError: The data cannot be used.
            ClosedError: The cluster is closed.

        Example:
            ::

                with sapwood.local(agents=4) as cluster:
                    run = cluster.run(KMeans(colours=16), data=pixels)
                    print(run.result())
        """
        self._must_be_open()
        if on_agent_loss not in {"replace", "fail"}:
            raise ConfigurationError(
                f"on_agent_loss is {on_agent_loss!r}", hint="use 'replace' or 'fail'"
            )
        loaded = load_program(program, parameters or {})
        limit = self.settings.limits.time if time_limit is None else time_limit
        run = Run(
            self._session,
            loaded,
            load(data_of(loaded, data), fields=loaded.inputs),
            self._cache,
            RunOptions(chunk, limit, on_agent_loss, self._build_environment(), self.targets),
        )
        self._runs = [known for known in self._runs if not known.done()]
        self._runs.append(run)
        return run

    def watch(
        self,
        program: Program | type[Program] | str | Path,
        *,
        parameters: Mapping[str, Any] | None = None,
        on_version: Callable[[Version], object] | None = None,
    ) -> Watch:
        """Watch the sources of a program: an edit builds the new version in the background.

        The next run of the program finds it built, or waits for the same build; a run that
        has begun keeps its version.

        Args:
            program: A program's folder or file; of a class or program the sources are watched.
            parameters: Values for the program's parameters.
            on_version: Told each version as soon as it is built, or known not to compile, on
                a thread of the watch.

        Raises:
            ClosedError: The cluster is closed.

        Example:
            ::

                with cluster.watch("kmeans/", on_version=print) as watch:
                    watch.wait(2)  # until the first edit is built
        """
        self._must_be_open()
        watch = Watch(
            program,
            parameters=parameters or {},
            targets=lambda: self.targets,
            cache=self._cache,
            environment=self._build_environment(),
            on_version=on_version,
        )
        self._watches.append(watch)
        return watch

    # --- tasks ---------------------------------------------------------------------------------

    def submit(
        self, function: Callable[..., Any] | NativeFunctionRef, /, *args: Any, **kwargs: Any
    ) -> "Future[Any]":
        """Call a function on some agent; the future has its result.

        Args:
            function: A Python function, or a native one: ``program["name"]``.
            *args: Positional arguments.
            **kwargs: Keyword arguments.

        Raises:
            ClosedError: The cluster is closed.

        Example:
            ::

                cluster.submit(pow, 2, 10).result()  # 1024
        """
        self._must_be_open()
        return self._submit(function, self._maker.code(function), args, kwargs)

    def map(
        self, function: Callable[..., Any] | NativeFunctionRef, items: Iterable[Any]
    ) -> "list[Future[Any]]":
        """Call a function once for each item; the futures are in the order of the items."""
        self._must_be_open()
        code = self._maker.code(function)
        return [self._submit(function, code, (item,), {}) for item in items]

    def group(self, agents: Iterable[int] | None = None) -> AgentGroup:
        """Return some agents as a group, for operations that they do together.

        Args:
            agents: Their ranks; all by default.

        Raises:
            ConfigurationError: There is no such agent, or one is named twice.

        Example:
            ::

                group = cluster.group([1, 2, 4])
                group.scatter("part", numpy.array_split(data, 3))
                group.reduce("part", "sum")
        """
        self._must_be_open()
        every = range(1, self._session.tree.agents + 1)
        ranks = checked(ROOT, [ROOT, *(every if agents is None else agents)], len(every))[1:]
        return AgentGroup(tuple(ranks), self._session.groups, self._call_at)

    def _call_at(
        self, ranks: Sequence[int], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> "list[Future[Any]]":
        return self._tasks.submit_at(ranks, self._call_of(function, args, kwargs))

    def _submit(
        self,
        function: Callable[..., Any] | NativeFunctionRef,
        code: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> "Future[Any]":
        limit = self.settings.limits.time
        return self._tasks.submit(self._maker.call(function, code, args, kwargs, limit))

    def _call_of(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call:
        self._must_be_open()
        limit = self.settings.limits.time
        return self._maker.call(function, self._maker.code(function), args, kwargs, limit)

    def _build_environment(self) -> dict[str, str]:
        return {**os.environ, **self._variables}

    # --- streams -------------------------------------------------------------------------------

    def stream(  # noqa: PLR0913 - what a stream can be; all but the first by name
        self,
        what: str | Callable[..., Any] | NativeFunctionRef,
        *,
        reduce: str | Mapping[str, str] | FilterSource = "gather",
        agents: Sequence[int] | None = None,
        sync: str | float = "all",
        late: Late = "drop",
        on_loss: Loss = "replace",
        up: FilterSource | Mapping[str, FilterSource] | None = None,
        down: FilterSource | Mapping[str, FilterSource] | None = None,
        parameters: Mapping[str, Any] | None = None,
        time_limit: float | None = None,
    ) -> Stream:
        """Open a stream: values go down to agents, what they make of them is reduced up.

        Args:
            what: A Python function of one value, a native function (``program["name"]``), or
                ``"echo"`` for agents that return what they are sent. A generator function
                sends each value up by itself; it needs ``sync="none"``.
            reduce: A reduction for whole values, a dictionary of reductions by field, or an own
                filter: an associative function of two values, a :class:`sapwood.Filter`, or a
                native function ``void combine(double *into, const double *from, size_t n)``.
            agents: Ranks of the agents that take part; all by default.
            sync: ``"all"`` waits for all agents, a number waits so many milliseconds, ``"none"``
                passes on each contribution at once.
            late: Whether what comes after a time-out is dropped, or goes into the ``"next"`` wave.
            on_loss: ``"replace"`` waits for new agents, ``"partial"`` goes on without them,
                ``"fail"`` fails the waves that wait for them.
            up: Own filters on the way up, also by place: ``{"depth 1": f, "rank 9": g, "*": h}``.
            down: Own filters for what is broadcast, in the same forms.
            parameters: Of own filters; :meth:`Stream.configure` changes them.
            time_limit: Seconds that one call of a function or filter may take; by default
                ``limits.time``.

        Raises:
            ConfigurationError: What is asked for is no stream.
            ClosedError: The cluster is closed.

        Example:
            ::

                with cluster.stream(math.sqrt, reduce="sum") as stream:
                    print(stream.broadcast(9.0).result().total)  # 3.0 from each agent
        """
        self._must_be_open()
        limit = self.settings.limits.time if time_limit is None else time_limit
        request = StreamRequest(
            what, reduce, agents, sync, late, on_loss, up, down, dict(parameters or {}), limit
        )
        return open_stream(self._session, request, self._maker.for_stream, self._printer.follow)

    # --- the cluster itself --------------------------------------------------------------------

    @property
    def agents(self) -> tuple[AgentView, ...]:
        """The agents, as they are now."""
        return tuple(
            AgentView(record.rank, record.pid, record.state.value, record.incarnation)
            for record in self._session.keeper.places.agents()
        )

    @property
    def target(self) -> Target:
        """What programs are built for: what the agents' interpreter said it runs on."""
        return self.targets[0]

    @property
    def targets(self) -> tuple[Target, ...]:
        """What programs are built for where agents are of several kinds."""
        return targets_of(self._session.platforms)

    @property
    def session(self) -> Session:
        """The tree underneath: streams and requests, for tools."""
        return self._session

    @property
    def closed(self) -> bool:
        """Whether the cluster is closed."""
        return self._session.closed

    def close(self) -> None:
        """Cancel what runs, end all processes, leave nothing behind.

        A process that was forked from the cluster's owner closes nothing.
        """
        if os.getpid() != self._pid:
            return
        for watch in self._watches:
            watch.close()
        for run in self._runs:
            run.cancel()
        self._tasks.close()
        self._session.close()
        self._relay.close()
        self._log_output.close()
        for run in self._runs:
            run.wait()
        self._runs.clear()

    def _must_be_open(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError(
                f"the cluster belongs to process {self._pid}, from which this one was forked",
                hint="make one here with sapwood.local()",
            )
        if self.closed:
            raise ClosedError("the cluster is closed", hint="make a new one with sapwood.local()")
        self._printer.follow()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<Cluster: closed>"
        agents = self.agents
        ready = sum(agent.state == "ready" for agent in agents)
        running = sum(not run.done() for run in self._runs)
        junctions = len(self._session.tree.junctions)
        tree = f", {junctions} junctions" if junctions else ""
        return f"<Cluster: {ready} of {len(agents)} agents ready{tree}, {running} runs>"

    def _repr_html_(self) -> str:
        if self.closed:
            return escape(repr(self))
        rows = "".join(
            f"<tr><td>{agent.rank}</td><td>{agent.pid}</td><td>{agent.state}</td></tr>"
            for agent in self.agents
        )
        return (
            f"<details><summary>{escape(repr(self))}</summary><table>"
            f"<tr><th>agent</th><th>pid</th><th>state</th></tr>{rows}</table></details>"
        )
