"""How a session is made, and what it tells of changes in its tree."""

import msgspec

from sapwood.comm.link import LinkTiming
from sapwood.core.rankset import MAX_RANKS
from sapwood.core.topology import Tree
from sapwood.environment.settings import RestartSettings
from sapwood.session.back_pressure import DEFAULT_BACKLOG


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is made; times in seconds.

    Attributes:
        tree: Shape of the tree.
        agent_entry: ``module:function`` that every agent runs.
        junction_entry: ``module:function`` that every junction runs.
        runner_entry: ``module:function`` that every runner runs; empty if there are none.
        runner_modules: What runners need imported.
        interpreter: The command that starts Python for all processes; empty for this one.
        interpreters: The same for single places, by rank.
        ready_timeout: How long the processes may take to become ready.
        join_timeout: How long one may take from its fork to its place in the tree; 0 for ever.
        timing: When links speak and worry.
        inline_limit: Bytes up to which arrays travel in the message.
        shared_memory: Whether the places may map each other's memory, as on one machine.
        spin: Seconds for which whoever waits for the last answers to a wave looks for them before
            it sleeps.
        fastpath: Whether waves may be exchanged by a library.
        backlog: Bytes that callers may have under way in one stream; in requests, four times
            as many.
        restart: When processes that end are replaced.
        environment: Variables for all processes.
        extra: Settings for the agents, encoded.
        hosts: The machine of each place, by rank, 0 for the root's; none for one machine.
        zygote: Whether there is a zygote on the root's machine though no place is there.
        attach_timeout: How long a place that was cut off may take, for each level of the tree,
            until it is attached again; 0 for twice the silence after which a neighbour is lost.
        search_timeout: How long a place that was cut off looks for one that takes it, before it
            ends; 0 for ``ready_timeout``.
        lost_nodes: What becomes of places whose node is gone: ``move``, ``leave`` or ``fail``.
        node_patience: How long they wait for one that may come back; 0 for ever.
        node_listen: Where nodes listen for places of other nodes below theirs, ``host:port``.
        transport: What links the places of a machine; empty for Unix sockets.
        most_agents: Agents that it may have; with more it is not expanded.
        agents_here: Whether agents may be added on the machine of the root.
    """

    tree: Tree
    agent_entry: str
    junction_entry: str = "sapwood.session.junction:main"
    runner_entry: str = ""
    runner_modules: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ()
    interpreters: dict[int, tuple[str, ...]] = {}
    ready_timeout: float = 30.0
    join_timeout: float = 30.0
    timing: LinkTiming = LinkTiming()
    inline_limit: int = 64 * 1024
    shared_memory: bool = True
    spin: float = 0.0
    fastpath: bool = True
    backlog: int = DEFAULT_BACKLOG
    restart: RestartSettings = RestartSettings()
    environment: dict[str, str] = {}
    extra: bytes = b""
    hosts: tuple[int, ...] = ()
    zygote: bool = True
    attach_timeout: float = 0.0
    search_timeout: float = 0.0
    lost_nodes: str = "move"
    node_patience: float = 10.0
    node_listen: str = ""
    transport: str = ""
    most_agents: int = MAX_RANKS
    agents_here: bool = True


class PlacesChanged(msgspec.Struct, frozen=True):
    """Told to listeners: places were lost, or are back.

    Attributes:
        ranks: The places.
        agents: Agents among them.
        back: Whether they are back; else they are gone.
        reason: Why they are gone.
        disconnected: Whether only the way to them was lost: their processes are the same as before.
        for_good: Whether they will not be back: the restart policy has given them up, or they
            were removed.
        added: Whether they came to the tree while it was running, and are there for the first time.
        removed: Whether the tree does not have them any more; their ranks are never used again.
        epoch: Of the tree.
    """

    ranks: tuple[int, ...]
    agents: tuple[int, ...]
    back: bool
    reason: str = ""
    disconnected: bool = False
    for_good: bool = False
    added: bool = False
    removed: bool = False
    epoch: int = 0
