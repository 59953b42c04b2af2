"""``sapwood.local``: a cluster on this machine, inside your process."""

import resource
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from sapwood.activity.agent_requests import AgentSettings
from sapwood.activity.filter_host import FilterHost
from sapwood.client.cluster import Cluster
from sapwood.client.output import OutputPrinter
from sapwood.client.shape import agents_of_shape, tree_of_shape
from sapwood.code.runner.options import RunnerOptions
from sapwood.comm.link import LinkTiming
from sapwood.comm.streams.stream import Position
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.optional import fastpath
from sapwood.core.rankset import parse_ranks
from sapwood.core.topology import ROOT, Tree, flat, plan
from sapwood.core.whole import whole
from sapwood.environment.configuration import load_configuration
from sapwood.environment.cores import usable_cores
from sapwood.environment.logs import configure_logging
from sapwood.environment.memory import available_memory
from sapwood.environment.schema import check_settings
from sapwood.environment.settings import ClusterSettings, CommSettings, Settings
from sapwood.environment.shell import source_files
from sapwood.environment.units import format_size
from sapwood.gpu.agents import agents_by_default
from sapwood.session.embedded import EmbeddedSession, embedded
from sapwood.session.options import SessionOptions
from sapwood.session.port import SessionPort

AGENT_ENTRY = "sapwood.activity.agent_process:main"
JUNCTION_ENTRY = "sapwood.activity.filter_host:main"
RUNNER_ENTRY = "sapwood.activity.runner_procedures:main"

AGENT_MEMORY = 10 * 2**20
"""Bytes that an agent and its runner take; ``benchmarks/startup.py`` measures them."""

RUNNER_LIBRARIES = (
    "cloudpickle.cloudpickle",
    "sapwood.code.languages.registry",
    "sapwood.code.map_binding",
    "sapwood.code.shared_library",
    "tomllib",
)
"""What the first call of most runners imports; imported once, they share it."""

RUNNER_MEMORY = 64 * 2**20
"""Bytes without which a runner cannot even load the languages of programs."""

BASE_MEMORY = 64 * 2**20
"""Bytes that a cluster takes besides its agents: the zygote and the loop of the front end."""

SPARE_FILES = 48
"""Files that a cluster opens besides one for each agent, with room for builds and runs."""


def local(
    agents: int | None = None,
    *,
    fanout: int | None = None,
    shape: str | None = None,
    transport: str | None = None,
    settings: Settings | None = None,
) -> Cluster:
    """Start a cluster on this machine.

    Args:
        agents: Number of agents; by default ``cluster.agents``, or else one for each GPU where
            there are several, or one for each core that this process may use.
        fanout: Children of each junction; by default ``cluster.fanout``; 0 for no junctions.
        shape: Of the tree, instead of ``fanout``: ``flat``, ``kary:K``, ``knomial:K`` or
            ``file:PATH``; by default ``cluster.shape``.
        transport: The name of an installed transport, which then links all processes and carries
            everything, arrays as well; by default ``comm.transport``, and Unix sockets with shared
            memory beside them if that is empty.
        settings: All settings; by default those of configuration files and variables.

    Raises:
        ConfigurationError: A number or a setting is out of range, or the transport does not work.
        ResourceError: The machine has not enough memory or processes for the agents.

    Example:
        ::

            with sapwood.local(agents=4) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = load_configuration().settings if settings is None else check_settings(settings)
    count = chosen.cluster.agents if agents is None else whole(agents, "agents", ConfigurationError)
    text = (chosen.cluster.shape if fanout is None else "") if shape is None else shape
    if agents is None and count == 0:
        count = agents_of_shape(text) or agents_by_default()
    _check_count(count, chosen)
    if shape is not None and fanout is not None:
        raise ConfigurationError("fanout and shape are both given", hint="leave one of them out")
    width = chosen.cluster.fanout if fanout is None else whole(fanout, "fanout", ConfigurationError)
    spares = chosen.cluster.spares
    linked_by = chosen.comm.transport if transport is None else transport
    if linked_by == "unix":
        linked_by = ""
    if linked_by:
        comm = msgspec.structs.replace(chosen.comm, fastpath=False, shared_memory=False)
        chosen = msgspec.structs.replace(chosen, comm=comm)
    exports = site_variables(chosen)
    runners = runner_options(count, chosen, usable_cores())
    tree = tree_of_shape(text, count, spares=spares) if text else plan(count, width, spares=spares)
    options = msgspec.structs.replace(
        session_options(chosen, exports),
        tree=tree,
        interpreters=_interpreters(chosen.cluster, tree.size),
        spin=0.0 if linked_by else chosen.limits.spin,
        fastpath=chosen.comm.fastpath,
        transport=linked_by,
        extra=agent_settings(runners, chosen),
    )

    def new_session(shape: Tree, lender: SessionPort | None) -> EmbeddedSession:
        return EmbeddedSession(
            msgspec.structs.replace(options, tree=shape),
            None if lender is None else embedded(lender),
        )

    return new_cluster(chosen, exports, tree, runners, new_session)


def agent_settings(runners: RunnerOptions, settings: Settings) -> bytes:
    """Return what agents need of the settings, encoded."""
    cluster = settings.cluster
    return msgspec.msgpack.encode(
        AgentSettings(runners, cluster.content_folder, cluster.content_cache)
    )


def session_options(settings: Settings, exports: dict[str, str]) -> SessionOptions:
    """Return what the sessions of a cluster have in common, wherever they are.

    Args:
        settings: All settings.
        exports: What the shell files of the configuration export.
    """
    return SessionOptions(
        tree=flat(1),
        agent_entry=AGENT_ENTRY,
        junction_entry=JUNCTION_ENTRY,
        runner_entry=RUNNER_ENTRY,
        runner_modules=(RUNNER_ENTRY.partition(":")[0], *RUNNER_LIBRARIES),
        interpreter=_command(settings.cluster.interpreter, "cluster.interpreter"),
        ready_timeout=settings.cluster.ready_timeout,
        join_timeout=settings.cluster.join_timeout,
        timing=_timing(settings.comm),
        inline_limit=settings.comm.inline_limit,
        shared_memory=settings.comm.shared_memory,
        backlog=settings.comm.backlog,
        restart=settings.restart,
        environment=exports,
        lost_nodes=settings.cluster.lost_nodes,
        node_patience=settings.cluster.node_patience,
        node_listen=settings.nodes.node_listen,
    )


def new_cluster(
    settings: Settings,
    exports: dict[str, str],
    tree: Tree,
    runners: RunnerOptions,
    new_session: Callable[[Tree, SessionPort | None], EmbeddedSession],
) -> Cluster:
    """Start a cluster.

    Args:
        settings: All settings.
        exports: What the shell files of the configuration export.
        tree: Its tree.
        runners: How its runners are made.
        new_session: Returns a session over a tree, with own agents or with those of another one.

    Raises:
        ResourceError: Processes cannot be started.
    """
    output = configure_logging(settings.log)
    printer = OutputPrinter(tree.agents)

    def new_tree(shape: Tree, lender: SessionPort | None) -> EmbeddedSession:
        """Return a session over this tree, with own agents or with those of another session."""
        session = new_session(shape, lender)
        session.host_filters(
            lambda loop, runner_factory, post: FilterHost(
                Position(), loop, runners, runner_factory, post, partial(printer.take, ROOT)
            )
        )
        return session

    try:
        session = new_tree(tree, None)
        session.start()
    except BaseException:
        output.close()
        raise
    shortcuts = fastpath("activation") if session.options.fastpath else None
    if shortcuts is not None:
        shortcuts.Activation(session)
    return Cluster(session, settings, exports, output, printer, new_tree)


def site_variables(settings: Settings) -> dict[str, str]:
    """Return what the shell files of the configuration export, for builds and runners."""
    chosen = settings.environment
    if not chosen.source:
        return {}
    return source_files(chosen.source, time_limit=chosen.source_timeout)


def runner_options(agents: int, settings: Settings, cores: int) -> RunnerOptions:
    """Return how the runners of a machine are made.

    Args:
        agents: Agents on the machine.
        settings: All settings.
        cores: Cores of the machine that may be used.

    Raises:
        ConfigurationError: A limit is too small.
    """
    if 0 < settings.limits.memory < RUNNER_MEMORY:
        raise ConfigurationError(
            f"a runner needs more memory than {format_size(settings.limits.memory)} before it runs "
            "anything",
            where="limits.memory",
            hint=f"give at least {RUNNER_MEMORY // 2**20} MiB, or 0 for no limit",
        )
    return RunnerOptions(
        memory=settings.limits.memory,
        output=settings.limits.output,
        idle=settings.limits.idle,
        keep=settings.limits.keep,
        threads=max(1, cores // agents),
        check_memory=settings.limits.check_memory,
        spin=settings.limits.spin if cores > 1 else 0.0,
        fastpath=settings.comm.fastpath,
        bound_agents=agents if settings.limits.bind else 0,
    )


def _interpreters(cluster: ClusterSettings, size: int) -> dict[int, tuple[str, ...]]:
    """Return the command that starts Python for the places that have one of their own."""
    found: dict[int, tuple[str, ...]] = {}
    for text, place in cluster.places.items():
        command = place.interpreter
        ranks = parse_ranks(text)
        if not ranks or not command or min(ranks) <= ROOT or max(ranks) >= size:
            raise ConfigurationError(
                f"{text!r} = {command} gives no place of this tree an interpreter",
                where=f"cluster.places.{text}",
                hint=f'write ranks from 1 to {size - 1}, for example "1-2,4", and a command',
            )
        found |= dict.fromkeys(ranks, _command(command, f"cluster.places.{text}.interpreter"))
    return found


def _command(words: Sequence[str], where: str) -> tuple[str, ...]:
    """Return a command whose program is there."""
    if words and shutil.which(words[0]) is None:
        raise ConfigurationError(
            f"{words[0]} is no program that can be started",
            where=where,
            hint="name the program that starts Python, by its path or as on PATH",
        )
    return tuple(words)


def _check_count(agents: int, settings: Settings) -> None:
    if agents < 1:
        raise ConfigurationError("a cluster needs at least one agent", where=f"agents={agents}")
    if agents > settings.limits.agents:
        raise ConfigurationError(
            f"{agents} agents are more than the limit of {settings.limits.agents}",
            hint="raise limits.agents if this is meant",
        )
    available = available_memory()
    needed = BASE_MEMORY + agents * AGENT_MEMORY
    if needed > available:
        fit = max(0, available - BASE_MEMORY) // AGENT_MEMORY
        raise ResourceError(
            f"{agents} agents need about {needed / 2**20:,.0f} MiB of memory, "
            f"{available / 2**20:,.0f} MiB are free",
            hint=f"use at most {fit} agents" if fit else "end something else first",
        )
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = len(list(Path("/proc/self/fd").iterdir())) + agents + SPARE_FILES
    if files > limit:
        raise ResourceError(
            f"{agents} agents need {files} open files, this process may have {limit}",
            hint=f"use fewer agents, or raise the limit: ulimit -n {files}"
            + (f" (an administrator must raise the hard limit of {hard})" if files > hard else ""),
        )


def _timing(comm: CommSettings) -> LinkTiming:
    return LinkTiming(comm.heartbeat, comm.failure_after, comm.grace, comm.window, comm.max_message)
