"""A cluster as users hold it."""

import contextlib
import os
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.agent_requests import FLUSH_TRACES
from sapwood.activity.profile_round import RATE, check_rate
from sapwood.activity.statistics import FunctionStatistics, by_function_and_node
from sapwood.activity.task_future import TaskFuture
from sapwood.activity.tasks import TaskCall, TaskPool
from sapwood.client.actors import MakesActors
from sapwood.client.autoscaling import CONTRACT_TIMEOUT, Autoscaling, ScalableCluster, bounds_of
from sapwood.client.group import AgentGroup
from sapwood.client.messages import Messaging
from sapwood.client.output import OutputPrinter
from sapwood.client.stream import Stream
from sapwood.client.submitting import Submitting
from sapwood.client.topology import Topology
from sapwood.client.tree_work import TreeWork
from sapwood.code.program import Program
from sapwood.code.runner.group_entry import members_of
from sapwood.code.watch import VersionInfo, Watch
from sapwood.comm import values
from sapwood.comm.messaging.envelope import check_places, ranks_of
from sapwood.core import typed
from sapwood.core.arguments import duration, function, text, wait_time, whole
from sapwood.core.errors import ClosedError, ConfigurationError, SapwoodError
from sapwood.core.failures import start_thread
from sapwood.core.html_table import escaped, html_table
from sapwood.core.optional import merging
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT, Tree, plan
from sapwood.environment.logs import LogOutput
from sapwood.environment.settings import Settings
from sapwood.environment.tracing import FLUSH_SECONDS, look, seam
from sapwood.session.interface import InvitationInfo, NewAgent, SessionInterface
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.merging_hook import refuse_merges
from sapwood.session_server.shape import tree_of_shape

if TYPE_CHECKING:
    from sapwood.code.profiles import ProfileResult
    from sapwood.code.stacks import StackResult
    from sapwood.merging.merged import Merged, SessionMerges

open_clusters: "weakref.WeakSet[Cluster]" = weakref.WeakSet()
"""The clusters of this process that may be open."""

DAY = 86400.0
"""Seconds for which an invitation lets processes in by default."""

NewTree = Callable[[Tree, SessionInterface], SessionInterface]
"""Makes a further tree over the agents of a session."""


def homes_for(
    tree: Tree, count: int, hosts: Sequence[int] = (), ready: Sequence[int] = ()
) -> list[NewAgent]:
    """Return where more agents have their homes, so that no place and no machine gets many.

    Args:
        tree: The tree.
        count: How many agents.
        hosts: The machine of each place, by rank; none where all are on one.
        ready: The machines on which processes can begin now, where there are several.

    Example:
        >>> [new.parent for new in homes_for(plan(4, 2), 3)]
        [5, 6, 5]
        >>> from sapwood.core.topology import by_host
        >>> tree, hosts = by_host([2, 2])
        >>> [(new.parent, new.host) for new in homes_for(tree, 3, hosts, [1, 2, 3])]
        [(0, 3), (0, 3), (5, 1)]
        >>> joined = plan(2, 0).with_agents({3: 0})  # by an invitation: on no machine of ours
        >>> [(new.parent, new.host) for new in homes_for(joined, 1, (0, 0, 0, -3))]
        [(0, 0)]
    """
    homes: list[NewAgent] = []
    at = list(hosts)
    for _ in range(count):
        if any(host > 0 for host in at):
            homes.append(_home_on_a_machine(tree, at, ready))
            at.append(homes[-1].host)
        else:
            homes.append(NewAgent(tree.parent_for_more()))
        tree = tree.with_agents({tree.size: homes[-1].parent})
    return homes


def _home_on_a_machine(tree: Tree, hosts: Sequence[int], ready: Sequence[int]) -> NewAgent:
    """Return a home on the machine with the fewest agents: at its junction, if it has one."""
    machines = (hosts[rank] for rank in tree.agent_ranks)
    load = Counter(host for host in machines if host >= 0)  # others have joined by invitations
    host = min(ready or sorted(load), key=lambda one: (load[one], one))
    junctions = [rank for rank in tree.junctions if hosts[rank] == host]
    parent = min(junctions, key=lambda rank: (len(tree.children(rank)), rank), default=ROOT)
    return NewAgent(parent, host)


class AgentInfo(msgspec.Struct, frozen=True):
    """A snapshot of one agent.

    Attributes:
        rank: Its place in the tree, from 1.
        pid: Its process id; 0 while it is being replaced, and when the cluster is closed.
        state: ``starting``, ``ready``, ``disconnected`` (between two parents), ``lost`` or
            ``closed``.
        incarnation: Counts the processes that have been this agent.
        joined: Whether it joined by an invitation; the cluster has started all others.
    """

    rank: int
    pid: int
    state: str
    incarnation: int
    joined: bool = False


class Cluster(TreeWork, Messaging, MakesActors, Submitting):
    """Agents on this machine and the tree between them and you; made by :func:`sapwood.local`.

    It is a :class:`concurrent.futures.Executor`. Use it as a context manager, which waits for the
    tasks that were submitted, or call :meth:`close`, which does not. All methods may be called
    from any thread.

    Attributes:
        kept_streams: The streams that were open when the last owner left the session; their
            ``waves()`` has the waves that have arrived since.
        new_session: Starts a session at the head of this cluster; None if it has none.
    """

    def __init__(
        self,
        session: SessionInterface,
        settings: Settings,
        variables: Mapping[str, str],
        log_output: LogOutput,
        printer: OutputPrinter,
        new_tree: NewTree,
    ) -> None:
        super().__init__(session, settings, variables, printer)
        open_clusters.add(self)
        self._log_output = log_output
        self._new_tree = new_tree
        self._tasks = TaskPool(session)
        look()
        if seam.tracer is not None:
            about = {"sapwood.agents": session.tree.agents}
            self._span = seam.tracer.begin("session", about)
        self._time_limit = settings.limits.time
        self._topologies: list[Topology] = []
        self._watches: list[Watch] = []
        self._autoscaling: Autoscaling | None = None
        self.kept_streams: tuple[Stream, ...] = ()
        self.new_session: Callable[..., Cluster] | None = None
        session.answer(agent_requests.OUTPUT, printer.take)

    # --- programs ------------------------------------------------------------------------------

    def watch(
        self,
        program: Program | type[Program] | str | Path,
        *,
        parameters: Mapping[str, Any] | None = None,
        on_version: Callable[[VersionInfo], object] | None = None,
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
        if on_version is not None:
            function(on_version, "on_version")
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

    def group(self, agents: Iterable[int] | None = None) -> AgentGroup:
        """Return some agents as a group, for operations that they do together.

        Args:
            agents: Their ranks; all by default.

        Raises:
            ConfigurationError: There is no such agent, one is named twice, or none at all.

        Example:
            ::

                group = cluster.group([1, 2, 4])
                group.scatter("part", numpy.array_split(data, 3))
                group.reduce("part", "sum")
        """
        self._must_be_open()
        every = self._session.tree.agent_ranks
        ranks = members_of(every if agents is None else agents, max(every, default=0))
        check_places(ranks, every)
        if ROOT in ranks:
            raise ConfigurationError(
                "the client takes part in its groups anyway", hint="name agents only: 1, 2 …"
            )
        if not ranks:
            raise ConfigurationError("a group needs at least one agent")
        return AgentGroup(tuple(ranks), self._session, self._call_at)

    def task_statistics(self, timeout: float = 5.0) -> tuple[FunctionStatistics, ...]:
        """Return what submitted calls cost so far: the figures of each function on each machine.

        They are statistics of the running processes: a replaced agent starts from zero.
        A call that failed counts as an error, and not into the times. The statistics of a run are
        its own: ``run.statistics``.

        Args:
            timeout: Seconds that agents get to answer; others are left out.

        Raises:
            ClosedError: The cluster is closed.

        Example:
            ::

                list(cluster.map(fetch, urls))
                for one in cluster.task_statistics():
                    print(one.name, one.node, one.calls, one.errors, one.mean, one.p95)
        """
        self._must_be_open()
        timeout = wait_time(timeout) or 0.0
        asked = [
            self._session.ask(rank, agent_requests.TASK_STATISTICS, None)
            for rank in self._session.tree.agent_ranks
        ]
        wait(asked, timeout)
        return by_function_and_node(
            one
            for answer in asked
            if answer.done() and not answer.cancelled() and answer.exception() is None
            for one in typed.convert(answer.result(), list[FunctionStatistics])
        )

    def stacks(self, timeout: float = 5.0, *, agents: Iterable[int] | None = None) -> "StackResult":
        """Return where user code is now: the stacks of all runners.

        An agent answers also if its runner hangs, or executes native code that never returns. As
        text, equal stacks are shown once. Of native code, functions are shown, and lines where
        debug information of the library is on this machine.

        Args:
            timeout: Seconds that agents get to answer; others are shown as ``lost``.
            agents: Ranks of the agents; all by default.

        Raises:
            ConfigurationError: There is no such agent.
            ClosedError: The cluster is closed.

        Example:
            ::

                run = cluster.run("kmeans/", data)
                if not run.wait(60):
                    print(cluster.stacks())
        """
        from sapwood.client.stacks import read_stacks  # noqa: PLC0415 - most programs never hang

        self._must_be_open()
        timeout = wait_time(timeout) or 0.0
        return read_stacks(self._session, self._agents_of(agents), timeout)

    def profile(
        self, seconds: float = 5.0, *, rate: float = RATE, agents: Iterable[int] | None = None
    ) -> "ProfileResult":
        """Sample where user code spends its time, on all agents; return how often it was where.

        A signal has each runner write the stack of its main thread. In native code it ends sleeps
        early, as any signal does.

        Args:
            seconds: How long, up to 60 s.
            rate: Samples per second and agent, from 1 to 200.
            agents: Ranks of the agents; all by default.

        Raises:
            ConfigurationError: There is no such agent, or the time or the rate is out of bounds.
            ClosedError: The cluster is closed.

        Example:
            ::

                run = cluster.run("kmeans/", data)
                print(cluster.profile(10).folded())
        """
        from sapwood.client.profiles import profile_agents  # noqa: PLC0415 - as above

        self._must_be_open()
        seconds = wait_time(seconds) or 0.0
        return profile_agents(self._session, self._agents_of(agents), seconds, check_rate(rate))

    def _agents_of(self, agents: Iterable[int] | None) -> Sequence[int]:
        """Return the ranks of agents: all, or checked ones."""
        every = self._session.tree.agent_ranks
        ranks = every if agents is None else members_of(agents, max(every, default=0))
        check_places(ranks, every)
        if ROOT in ranks:
            raise ConfigurationError(
                "rank 0 is the client, not an agent", hint="name agents only: 1, 2 …"
            )
        return ranks

    def _call_at(
        self, ranks: Sequence[int], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> "list[TaskFuture]":
        return self._tasks.submit_at(ranks, self._call_of(function, args, kwargs))

    def _call_of(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TaskCall:
        self._must_be_open()
        code = self._maker.code(function)
        return self._maker.call(function, code, args, kwargs, self._time_limit)

    # --- the cluster itself --------------------------------------------------------------------

    def topology(self, fanout: int = 0, *, shape: str = "") -> Topology:
        """Put another tree over the same agents, beside the one that is there.

        It has its own junctions, streams and runs; agents do what both want, one call after the
        other. It ends with the cluster, or before by its own ``close``.

        Args:
            fanout: Children of each junction; 0 for no junctions.
            shape: Instead of it: ``flat``, ``kary:K``, ``knomial:K`` or ``file:PATH``.

        Raises:
            ConfigurationError: There can be no such tree.
            ResourceError: Its junctions cannot be started.
            ClosedError: The cluster is closed.

        Example:
            ::

                with sapwood.local(agents=16) as cluster, cluster.topology(fanout=4) as deep:
                    with cluster.stream(load) as flat, deep.stream(rows, reduce="sum") as sums:
                        ...
        """
        self._must_be_open()
        fanout = whole(fanout, "fanout", ConfigurationError)
        if fanout < 0 or fanout == 1:
            raise ConfigurationError(
                f"a junction cannot have {fanout} children",
                where="fanout",
                hint="at least 2, or 0 for no junctions",
            )
        if shape and fanout:
            raise ConfigurationError(
                "fanout and shape are both given", hint="leave one of them out"
            )
        agents = self._session.tree.agents
        if self._session.tree.epoch:
            raise ConfigurationError(
                "cluster.topology() needs the agents with which the cluster started",
                hint="make it before agents are added or removed",
            )
        spares = self.settings.cluster.spares
        made = tree_of_shape(shape, agents, spares=spares) if shape else None
        tree = made or plan(agents, fanout, spares=spares)
        session = self._new_tree(tree, self._session)
        session.start()
        found = Topology(session, self.settings, self._variables, self._printer, self._must_be_open)
        self._topologies = [known for known in self._topologies if not known.closed]
        self._topologies.append(found)
        if self.closed:  # by another thread, which knew nothing of this one
            found.close()
        return found

    def expand(self, agents: int = 1) -> tuple[int, ...]:
        """Add agents while the cluster works, and wait until they are ready.

        They take tasks at once and part in what begins from now on: runs, groups, streams to all
        agents. Open streams keep their agents, unless opened with ``follow=True``. Of several
        machines, those with the fewest agents get them; also such as came after the cluster began.

        Args:
            agents: How many.

        Returns:
            Their ranks, which no other agent ever had.

        Raises:
            ConfigurationError: It is not a number of agents, or more than ``limits.agents``.
            ResourceError: They cannot be started, or are not ready in time.
            ClosedError: The cluster is closed.

        Example:
            ::

                cluster.expand(4)
                cluster.contract([2, 3])
        """
        self._must_be_open()
        count = whole(agents, "agents", ConfigurationError)
        tree = self._session.tree
        if count < 1 or tree.agents + count > self.settings.limits.agents:
            raise ConfigurationError(
                f"{tree.agents} and {count} more agents would not be between 1 and the limit of "
                f"{self.settings.limits.agents}",
                hint="raise limits.agents if this is meant",
            )
        session = self._session
        return session.expand(homes_for(tree, count, session.hosts, session.ready_hosts()))

    def contract(self, agents: Iterable[int], timeout: float = 10.0) -> None:
        """Remove agents while the cluster works; what they were asked for is done first.

        Their ranks are never used again. Work that needs them fails with a clear error, unless it
        may be partial; a stream with ``follow=True`` continues without them.

        Args:
            agents: Their ranks.
            timeout: Seconds to wait for what they were asked for.

        Raises:
            ConfigurationError: There is no such agent.
            ClosedError: The cluster is closed.
        """
        self._must_be_open()
        ranks = sorted(ranks_of(agents))
        check_places(ranks, self._session.tree.agent_ranks)
        self._session.contract(ranks, wait_time(timeout) or 0.0)

    def autoscale(self, minimum: int, maximum: int, *, idle: float = 60.0) -> Autoscaling:
        """Add agents while tasks wait for them, and remove agents that have nothing to do.

        Tasks have to wait for a second before the number of agents is at most doubled. An agent is
        only removed while no task, run, topology, persistent data or stream without ``follow=True``
        needs it, and if it was never called by rank, because functions may have left state there.

        Args:
            minimum: The fewest agents; they are started at once.
            maximum: The most agents.
            idle: Seconds after which an agent without tasks is removed.

        Returns:
            What stops it. A second call of this method stops the first.

        Raises:
            ConfigurationError: They are no such numbers, or more than ``limits.agents``.
            ClosedError: The cluster is closed.

        Example:
            ::

                cluster.autoscale(2, 16)
                results = list(cluster.map(simulate, range(10_000)))
        """
        self._must_be_open()
        bounds = bounds_of(
            whole(minimum, "minimum", ConfigurationError),
            whole(maximum, "maximum", ConfigurationError),
            duration(idle, "idle"),
            self.settings.limits.agents,
        )
        if self._autoscaling is not None:
            self._autoscaling.stop()
        self._autoscaling = Autoscaling(
            ScalableCluster(
                self._tasks.demand, self._must_keep_agents, self.expand, self._remove_idle
            ),
            bounds,
        )
        return self._autoscaling

    def _must_keep_agents(self) -> bool:
        """Whether more than tasks needs the agents that are there."""
        self._topologies = [one for one in self._topologies if not one.closed]
        return bool(self._topologies) or self._needs_agents()

    def _remove_idle(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Remove those agents that have nothing to do; return their ranks."""
        retired = self._tasks.retire(ranks)
        if not retired:
            return ()
        try:
            self.contract(retired, CONTRACT_TIMEOUT)
        except BaseException:
            self._tasks.reinstate(retired)
            raise
        return tuple(retired)

    def invite(self, agents: int = 1, *, lifetime: float = DAY, listen: str = "") -> list[str]:
        """Invite other processes to become agents.

        Each line that this returns lets in one agent at a time: ``sapwood agent join LINE`` on any
        machine that reaches this one, or :func:`join_as_agent` in a program. What begins then has
        it as one more agent, as after :meth:`expand`. If it ends, its place is removed, and the
        line admits another process, which gets a separate rank.

        Args:
            agents: How many lines.
            lifetime: Seconds for which they admit processes; admitted ones stay.
            listen: Where processes reach this machine, ``host:port``; port 0 takes a free one. By
                default ``nodes.listen``. The first call decides.

        Returns:
            A line for each, which is a secret.

        Raises:
            ConfigurationError: There cannot be so many, or the place is another one than before.
            CommunicationError: This machine cannot listen there.
            ClosedError: The cluster is closed.

        Example:
            ::

                for line in cluster.invite(2):
                    subprocess.Popen(["srun", "sapwood", "agent", "join", line])
        """
        self._must_be_open()
        count = whole(agents, "agents", ConfigurationError)
        seconds = duration(lifetime, "lifetime")
        return self._session.invitations.create(count, seconds, text(listen, "listen"))

    @property
    def invitations(self) -> tuple[InvitationInfo, ...]:
        """Snapshots of the invitations, and the agents that joined by them."""
        self._must_be_open()
        return tuple(self._session.invitations.views())

    def revoke_invitation(self, invitation: str) -> None:
        """Revoke an invitation; an agent that joined by it stays.

        Args:
            invitation: Its id, which is the second part of the line.

        Raises:
            ConfigurationError: There is no such invitation, or it was revoked before.
            ClosedError: The cluster is closed.
        """
        self._must_be_open()
        if not self._session.invitations.revoke(text(invitation, "invitation")):
            raise ConfigurationError(
                f"unknown invitation {shown(invitation)}",
                hint=f"name it by its id, as {self._session.invitations.listed_by} shows it",
            )

    @property
    def agents(self) -> tuple[AgentInfo, ...]:
        """Snapshots of the agents."""
        records = self._session.processes()
        if self.closed:
            return tuple(
                AgentInfo(one.rank, 0, "closed", one.incarnation, one.joined) for one in records
            )
        return tuple(
            AgentInfo(one.rank, one.pid, one.state.shown, one.incarnation, one.joined)
            for one in records
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as executors have it
        """Take no more tasks, do those that were submitted, then close the cluster.

        Args:
            wait: Whether to return when that has happened, or at once.
            cancel_futures: Whether to cancel the tasks that no agent has begun.
        """
        if self._session.thread.in_forked_child or self.closed:
            return
        self._tasks.refuse(cancel=cancel_futures)
        if wait:
            self._tasks.wait()
            self.close()
        else:
            start_thread("sapwood-shutdown", self.shutdown, daemon=None)

    def __exit__(self, *exc: object) -> None:
        """Wait for the tasks, then close; after an exception close at once."""
        if exc[0] is None:
            self.shutdown()
        else:
            self.close()

    async def __aenter__(self) -> Self:
        """Return the cluster: it was started when it was made, which may have blocked the loop."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Do as at the end of ``with``, without blocking the loop."""
        import asyncio  # noqa: PLC0415 - few programs have a loop

        await asyncio.to_thread(self.__exit__, *exc)

    def close(self) -> None:
        """Cancel what runs, end all processes, leave nothing behind.

        A process that was forked from the cluster's owner closes nothing.

        Raises:
            SapwoodError: This is the cluster's own thread, which cannot wait for it; or a session
                at a head may still be running: the hint is the command that ends it.
        """
        if self._session.thread.in_forked_child:
            return
        if self._session.thread.is_current:
            raise SapwoodError(
                "the cluster's own thread cannot close the cluster",
                hint="close it outside of callbacks of futures and runs",
            )
        if self.allocation is not None:
            self.allocation.close()
        if self._autoscaling is not None:
            self._autoscaling.stop(wait=False)
        for watch in self._watches:
            watch.close()
        for topology in self._topologies:
            topology.close()
        self._cancel_runs()
        if self._span is not None:
            self._flush_runners()
        self._tasks.close()
        try:
            self._session.close()
        finally:
            if self._autoscaling is not None:
                self._autoscaling.stop()  # what it waits for has ended with the session
            self._printer.close()
            self._log_output.close()
            self._wait_for_runs()
            if self._span is not None and seam.tracer is not None:
                self._span.end()
                seam.tracer.flush()

    def _flush_runners(self) -> None:
        """Have runners send what user code has traced, and wait a little for that."""
        call = TaskCall(FLUSH_TRACES, FLUSH_TRACES, values.encode(None))
        with contextlib.suppress(SapwoodError):  # it is closed
            ranks = [one.rank for one in self._session.processes() if one.is_ready]
            wait(self._tasks.ask(ranks, call).values(), FLUSH_SECONDS)

    def create_session(
        self, agents: int | None = None, *, name: str = "", **options: Any
    ) -> "Cluster":
        """Start a separate session on the nodes of the same head; deprecated.

        Use :meth:`ClusterHead.create_session <sapwood.types.ClusterHead.create_session>`. This
        method works until version 0.2.

        Args:
            agents: Agents altogether; by default one for each core.
            name: What to call it; by default a name is made up.
            **options: More, as the method of ``ClusterHead`` has them.

        Raises:
            ConfigurationError: This cluster has no head.
            ResourceError: Its processes cannot be started.
        """
        warnings.warn(
            "Cluster.create_session() works until version 0.2: use "
            "sapwood.connect(NAME).create_session()",
            DeprecationWarning,
            stacklevel=2,
        )
        self._must_be_open()
        if self.new_session is None:
            raise ConfigurationError(
                "this cluster has no head that stays",
                hint="start one with `sapwood up`; sapwood.connect().create_session() makes "
                "sessions there",
            )
        return self.new_session(agents, name=name, **options)

    def detach(self) -> str:
        """Leave the session, which continues without this process; return its handle.

        Only for sessions with a session server: see
        :meth:`ClusterHead.create_session <sapwood.types.ClusterHead.create_session>`. Runs
        and tasks that this cluster has under way are cancelled.

        Returns:
            What :func:`sapwood.attach` takes, later and elsewhere: ``name#id``.

        Raises:
            ConfigurationError: The root is in this process, and ends with it.
            ClosedError: The cluster is closed.
        """
        self._must_be_open()
        session = self._session
        if not isinstance(session, AttachedSession):
            raise ConfigurationError(
                "the root of this cluster is in this process, and ends with it",
                hint="make the cluster with sapwood.connect().create_session()",
            )
        session.ends = False
        self.close()
        return f"{session.address.name}#{session.address.session}"

    def merge(
        self,
        handle: str,
        *,
        credential: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        cluster: str = "default",
    ) -> "Merged":
        """Merge another session into this one: streams over the agents of both become possible.

        Both have to agree. You do by this call, as who may own this session; the owner of the other
        one does by a credential with the right ``merge``. Sessions of the same user at heads on the
        same machine need none. The other session continues as before, with its own clients.

        Args:
            handle: The other session: its name, id or ``name#id``; of a head on another machine
                ``name#id@host:port``.
            credential: The credential, or the file with it.
            key: The key of the credential's holder, or the file with it, if it is bound to one.
            cluster: What ``sapwood up --cluster`` was given, where the other session is.

        Raises:
            ConfigurationError: There is no such session, it is this one, it is merged already, or
                one of both is merged with others in the other direction.
            SecurityError: The credential does not allow it.
            CommunicationError: The other session is not reached.
            ClosedError: It has ended, or the cluster is closed.

        Example:
            ::

                with cluster.merge("day#0c1d2e3f@10.0.0.7:7700", credential="day.cred") as merged:
                    with merged.stream(load, reduce="sum") as stream:
                        print(stream.broadcast().result().total)
        """
        return self._merges().merge(handle, credential, key, cluster)

    def split(self, handle: str, *, timeout: float = 10.0) -> None:
        """End the merge with another session, whichever of the two was merged into the other.

        Args:
            handle: The other session: its name, id or ``name#id``.
            timeout: Seconds to wait for open waves, where the other one was merged into this one;
                the owner of that other one does not wait.

        Raises:
            ConfigurationError: The two are not merged.
            ClosedError: The cluster is closed.
        """
        self._merges().split(text(handle, "handle"), wait_time(timeout) or 0.0)

    @property
    def merged(self) -> tuple["Merged", ...]:
        """The sessions that are merged into this one, by this cluster or another client.

        Raises:
            ConfigurationError: The root of this cluster is in this process.
            ClosedError: The cluster is closed.
        """
        return self._merges().current()

    def _merges(self) -> "SessionMerges":
        """Return what merges other sessions into this one.

        Raises:
            ConfigurationError: The session has no server, or this installation merges none.
        """
        session = self._attached("merges with others")
        found = merging("merged")
        if found is None:
            refuse_merges()
        made: SessionMerges = found.SessionMerges(
            session, self.settings, self._cache, self._build_environment, self._must_be_open
        )
        return made

    def _attached(self, what: str) -> AttachedSession:
        """Return the session, which has a session server.

        Raises:
            ConfigurationError: It is not.
        """
        self._must_be_open()
        if not isinstance(self._session, AttachedSession):
            raise ConfigurationError(
                f"the root of this cluster is in this process: nothing {what}",
                hint="make the cluster with sapwood.connect().create_session()",
            )
        return self._session

    def _must_be_open(self) -> None:
        self._session.thread.refuse_forked_child()
        if self.closed:
            raise ClosedError("the cluster is closed", hint="make a new one with sapwood.local()")
        self._printer.follow()

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
            return escaped(repr(self))
        rows = [(agent.rank, agent.pid, agent.state) for agent in self.agents]
        table = html_table(rows, ("agent", "pid", "state"))
        summary = f"<summary>{escaped(repr(self))}</summary>"
        return f"<details>{summary}{table}</details>{self.page.html()}"
