"""``sapwood.local``: a cluster on this machine, inside your process."""

from collections.abc import Callable, Mapping

import msgspec

from sapwood.client.cluster import Cluster
from sapwood.client.output import OutputPrinter
from sapwood.core.optional import fastpath
from sapwood.core.topology import Tree
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings
from sapwood.session.embedded import EmbeddedSession, embedded
from sapwood.session.interface import SessionInterface
from sapwood.session_server.making import (
    SessionPlan,
    chosen_settings,
    host_filters,
    let_agents_join,
    linked_by,
    plan_here,
)


def local(
    agents: int | None = None,
    *,
    fanout: int | None = None,
    shape: str | None = None,
    transport: str | None = None,
    settings: Settings | None = None,
    environment: Mapping[str, str] | None = None,
    in_process: bool = False,
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
        environment: Environment variables for the agents, in addition to their own.
        in_process: Whether agents take turns in your process, for debuggers, coverage and
            unit tests. ``run``, ``submit`` and streams then return when the work is
            done. Time limits are not kept, and a crash of native code ends your process.

    Raises:
        ConfigurationError: A number or a setting is out of range, or the transport does not work.
        ResourceError: The machine has not enough memory or processes for the agents.

    Example:
        ::

            with sapwood.local(agents=4) as cluster:
                print(cluster.submit(pow, 2, 10).result())
    """
    chosen = chosen_settings(settings, environment)
    if in_process:
        from sapwood.client.in_process import (  # noqa: PLC0415 - few programs need it
            in_process_cluster,
        )

        options = {
            "fanout": fanout,
            "shape": shape,
            "transport": transport,
            "environment": environment,
        }
        return in_process_cluster(chosen, agents, options)
    chosen = linked_by(chosen, transport)
    planned = plan_here(chosen, agents, fanout, shape)

    def new_session(shape: Tree, lender: SessionInterface | None) -> EmbeddedSession:
        return EmbeddedSession(
            msgspec.structs.replace(planned.options, tree=shape),
            None if lender is None else embedded(lender),
        )

    return new_cluster(chosen, planned, new_session)


def new_cluster(
    settings: Settings,
    planned: SessionPlan,
    new_session: Callable[[Tree, SessionInterface | None], EmbeddedSession],
) -> Cluster:
    """Start a cluster whose root is in this process.

    Args:
        settings: All settings.
        planned: How its sessions are made.
        new_session: Returns a session over a tree, with own agents or another session's.

    Raises:
        ResourceError: Processes cannot be started.
    """
    output = configure_logging(settings.log)
    tree = planned.options.tree
    printer = OutputPrinter(tree.agents)

    def new_tree(shape: Tree, lender: SessionInterface | None) -> EmbeddedSession:
        """Return a session over this tree, with own agents or another session's."""
        session = new_session(shape, lender)
        host_filters(session, planned.runners, printer.take)
        return session

    try:
        session = new_tree(tree, None)
        let_agents_join(session, settings)
        session.start()
    except BaseException:
        output.close()
        raise
    shortcuts = fastpath("activation") if session.options.fastpath else None
    if shortcuts is not None:
        shortcuts.Activation(session)
    return Cluster(session, settings, planned.exports, output, printer, new_tree)
