"""How the sessions of clusters are made: from settings and machines to options.

A session is made the same way in a user's process and in a separate process.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sapwood.activity.agent_requests import AgentSettings
from sapwood.activity.filter_host import FilterHost
from sapwood.code.runner.options import RunnerOptions
from sapwood.code.runner.packages import packages_variables
from sapwood.comm.link import LinkTiming
from sapwood.comm.streams.filters import Position
from sapwood.core.arguments import whole
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.host_tree import parse_shape, read_host_tree, shaped
from sapwood.core.rankset import parse_ranks
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT, by_host, flat, plan
from sapwood.environment.configuration import load_configuration
from sapwood.environment.cores import usable_cores
from sapwood.environment.folders import expand_user
from sapwood.environment.memory import available_memory
from sapwood.environment.schema import check_settings
from sapwood.environment.settings import ClusterSettings, CommSettings, Settings
from sapwood.environment.shell import source_files
from sapwood.environment.units import format_size
from sapwood.gpu.agents import agents_by_default
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.options import SessionOptions
from sapwood.session_server.shape import agents_of_shape, tree_of_shape

if TYPE_CHECKING:
    from sapwood.nodes.processes import NodePool
    from sapwood.session.interface import AgentEvent, HostedInvitations

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
"""Bytes that a cluster takes besides its agents: the zygote and the loop of the client."""

SPARE_FILES = 48
"""Files that a cluster opens besides one for each agent, with room for builds and runs."""


class SessionPlan(msgspec.Struct, frozen=True):
    """How a session is to be made.

    Attributes:
        options: Of the session itself.
        runners: How its runners are made.
        exports: What the shell files of the configuration export.
    """

    options: SessionOptions
    runners: RunnerOptions
    exports: dict[str, str]


def linked_by(settings: Settings, transport: str | None) -> Settings:
    """Return settings with which a transport links all processes of a machine.

    Args:
        settings: All settings.
        transport: Its name; None for the one that the settings name.
    """
    name = settings.comm.transport if transport is None else transport
    if name in {"", "unix"}:
        comm = msgspec.structs.replace(settings.comm, transport="")
    else:
        comm = msgspec.structs.replace(
            settings.comm, transport=name, fastpath=False, shared_memory=False
        )
    return msgspec.structs.replace(settings, comm=comm)


def plan_here(
    settings: Settings,
    agents: int | None = None,
    fanout: int | None = None,
    shape: str | None = None,
) -> SessionPlan:
    """Return how a session on this machine is made; see :func:`sapwood.local`.

    Raises:
        ConfigurationError: A number or a setting is out of range.
        ResourceError: The machine has not enough memory or processes for the agents.
    """
    count = (
        settings.cluster.agents if agents is None else whole(agents, "agents", ConfigurationError)
    )
    text = (settings.cluster.shape if fanout is None else "") if shape is None else shape
    if agents is None and count == 0:
        count = agents_of_shape(text) or agents_by_default()
    _check_count(count, settings)
    if shape is not None and fanout is not None:
        raise ConfigurationError("fanout and shape are both given", hint="leave one of them out")
    width = (
        settings.cluster.fanout if fanout is None else whole(fanout, "fanout", ConfigurationError)
    )
    if settings.environment.packages:
        raise ConfigurationError(
            "environments are staged on nodes of a head, and these agents are not there",
            where=f"environment.packages = {settings.environment.packages}",
            hint="write --on head, or install the packages beside Sapwood",
        )
    exports = site_variables(settings)
    runners = runner_options(count, settings, usable_cores())
    spares, transport = settings.cluster.spares, settings.comm.transport
    tree = tree_of_shape(text, count, spares=spares) if text else plan(count, width, spares=spares)
    options = msgspec.structs.replace(
        session_options(settings, exports),
        tree=tree,
        interpreters=_interpreters(settings.cluster, tree.size),
        most_agents=settings.limits.agents,
        spin=0.0 if transport else settings.limits.spin,
        fastpath=settings.comm.fastpath,
        transport=transport,
        extra=agent_settings(runners, settings),
    )
    return SessionPlan(options, runners, exports)


def plan_over(
    nodes: NodePool,
    settings: Settings,
    agents: int | None = None,
    agents_per_node: int | None = None,
) -> SessionPlan:
    """Return how a session over nodes is made.

    Args:
        nodes: The nodes that are there now.
        settings: All settings.
        agents: Agents altogether, as evenly on the nodes as may be.
        agents_per_node: The same for each node.

    Raises:
        ConfigurationError: A number or a setting is out of range, or no node is available.
    """
    exports = site_variables(settings)
    shares = _shares(nodes, agents, agents_per_node, settings)
    name_of = {node.host: node.name for node in nodes.nodes}
    names = [name_of.get(host, f"node {host}") for host in range(1, len(shares) + 1)]
    tree, hosts = by_host(shares, machines_above(shares, names, settings.nodes.topology))
    runners = runner_options(max(shares), settings, usable_cores())
    options = msgspec.structs.replace(
        session_options(settings, exports | packages_variables(settings.environment.packages)),
        tree=tree,
        hosts=hosts,
        most_agents=settings.limits.agents,
        fastpath=settings.comm.fastpath,
        spin=0.0,
        extra=agent_settings(runners, settings),
    )
    return SessionPlan(options, runners, exports)


def on_loopback(settings: Settings) -> Settings:
    """Return settings by which the head listens for this machine only."""
    here = msgspec.structs.replace(settings.nodes, listen="127.0.0.1:0", node_listen="127.0.0.1:0")
    return msgspec.structs.replace(settings, nodes=here)


def host_filters(
    session: EmbeddedSession, runners: RunnerOptions, take: Callable[[int, bytes], None]
) -> None:
    """Have own filters of the root called in a runner beside it.

    Args:
        session: Not started yet.
        runners: How runners are made.
        take: Given what they print, with the rank of the root.
    """
    session.host_filters(
        lambda loop, runner_factory, post: FilterHost(
            Position(),
            loop,
            runners,
            runner_factory,
            post,
            partial(take, ROOT),
            outlives_zygote=True,
        )
    )


def let_agents_join(
    session: EmbeddedSession,
    settings: Settings,
    name: str = "",
    on_event: Callable[[AgentEvent], None] = lambda _event: None,
) -> None:
    """Admit invited processes as agents.

    Args:
        session: The session.
        settings: All settings.
        name: What users call the session.
        on_event: Told on the session's loop what happens to such agents.
    """

    def make() -> HostedInvitations:
        from sapwood.nodes.invitations import (  # noqa: PLC0415 - it needs cryptography
            Invitations,
        )

        return Invitations(session, settings.nodes.listen, settings.limits.agents, name, on_event)

    session.let_join(make)


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


def site_variables(settings: Settings) -> dict[str, str]:
    """Return the variables of the configuration for builds and runners.

    Raises:
        ConfigurationError: A shell file fails, or a variable cannot be called so.
    """
    chosen = settings.environment
    for name, value in chosen.variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigurationError(
                f"{shown(name)} cannot be an environment variable",
                where="environment.variables",
                hint="a name has no '=', and neither name nor value a NUL character",
            )
    if not chosen.source:
        return chosen.variables
    return source_files(chosen.source, time_limit=chosen.source_timeout) | chosen.variables


def chosen_settings(
    settings: Settings | None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of a cluster.

    Args:
        settings: All settings; by default those of configuration files and variables.
        environment: More environment variables of its agents.

    Raises:
        ConfigurationError: A setting is wrong.

    Example:
        >>> chosen_settings(Settings(), {"MODE": "test"}).environment.variables
        {'MODE': 'test'}
    """
    chosen = load_configuration().settings if settings is None else check_settings(settings)
    if not environment:
        return chosen
    variables = chosen.environment.variables | dict(environment)
    own = msgspec.structs.replace(chosen.environment, variables=variables)
    return check_settings(msgspec.structs.replace(chosen, environment=own))


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


def machines_above(shares: Sequence[int], names: Sequence[str], shape: str) -> list[int]:
    """Return the machine above each, by number; those without agents are below the root.

    Args:
        shares: How many agents each machine has.
        names: What the machines are called.
        shape: How they are to be below each other, as ``nodes.topology`` has it.

    Raises:
        ConfigurationError: There is no such shape, or its file is wrong.
    """
    if shape.startswith("file:"):
        path = expand_user(parse_shape(shape)[1])
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"the file of the topology cannot be read: {error}", where=str(path)
            ) from error
        return read_host_tree(text, names, str(path))
    used = [host for host, share in enumerate(shares, start=1) if share]
    above = [0] * len(shares)
    for host, parent in zip(used, shaped(shape, len(used)), strict=True):
        above[host - 1] = used[parent - 1] if parent else 0
    return above


def _shares(
    control: NodePool, agents: int | None, agents_per_node: int | None, settings: Settings
) -> list[int]:
    """Return how many agents each node gets, by its number; none of those that have left."""
    nodes = control.nodes
    count = len(nodes)
    if not count:
        raise ConfigurationError("the cluster has no nodes", hint="let machines join it first")
    if agents is not None and agents_per_node is not None:
        raise ConfigurationError(
            "agents and agents_per_node are both given", hint="leave one of them out"
        )
    if agents_per_node is not None:
        shares = [whole(agents_per_node, "agents_per_node", ConfigurationError)] * count
    elif agents is not None or settings.cluster.agents:
        total = whole(
            settings.cluster.agents if agents is None else agents, "agents", ConfigurationError
        )
        shares = [total // count + (number < total % count) for number in range(count)]
    else:
        shares = [1 if node.facts is None else node.facts.cores for node in nodes]
    share_of = dict(zip((node.host for node in nodes), shares, strict=True))
    shares = [share_of.get(host, 0) for host in range(1, max(share_of) + 1)]
    if sum(shares) < 1 or min(shares) < 0:
        raise ConfigurationError("a cluster needs at least one agent", where=f"agents={agents}")
    if sum(shares) > settings.limits.agents:
        raise ConfigurationError(
            f"{sum(shares)} agents are more than the limit of {settings.limits.agents}",
            hint="raise limits.agents if this is meant",
        )
    return shares


def _interpreters(cluster: ClusterSettings, size: int) -> dict[int, tuple[str, ...]]:
    """Return the command that starts Python for places with a different one."""
    found: dict[int, tuple[str, ...]] = {}
    for text, place in cluster.places.items():
        command = place.interpreter
        ranks = parse_ranks(text)
        if not ranks or not command or min(ranks) <= ROOT or max(ranks) >= size:
            raise ConfigurationError(
                f"{shown(text)} = {command} gives no place of this tree an interpreter",
                where=f"cluster.places.{text}",
                hint=f'write ranks from 1 to {size - 1}, for example "1-2,4", and a command',
            )
        found |= dict.fromkeys(ranks, _command(command, f"cluster.places.{text}.interpreter"))
    return found


def _command(words: Sequence[str], where: str) -> tuple[str, ...]:
    """Return a command whose program is there."""
    if words and shutil.which(words[0]) is None:
        raise ConfigurationError(
            f"{words[0]} is not a program that can be started",
            where=where,
            hint="name the program that starts Python, by its path or as on PATH",
        )
    return tuple(words)


def _check_count(agents: int, settings: Settings) -> None:
    whole(agents, "agents", ConfigurationError)
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
