"""The commands of ``sapwood node``.

A node that joins hides its token from other users at once, so it imports none of the others.
"""

from __future__ import annotations

import typer

from sapwood.cli.lazy import LazyEntry, LazyGroup

COMMANDS = {
    "check": LazyEntry(
        "sapwood.cli.node_check:check",
        "Show what this machine offers and lacks, and how to get what is missing.",
    ),
    "join": LazyEntry(
        "sapwood.cli.node_joining:join",
        "Make this machine a node of a cluster, until Ctrl-C or the cluster's end.",
    ),
    "find": LazyEntry(
        "sapwood.cli.node:find_clusters",
        "List the clusters that are announced on this network.",
    ),
    "list": LazyEntry("sapwood.cli.node:show_all", "List the nodes of a cluster."),
    "show": LazyEntry("sapwood.cli.node:show", "Show the facts of a node."),
    "status": LazyEntry(
        "sapwood.cli.node:status",
        "Show what runs on nodes, and the components of nodes and head.",
    ),
    "start": LazyEntry(
        "sapwood.cli.node:start",
        "Start a component of nodes that was stopped or given up.",
    ),
    "stop": LazyEntry("sapwood.cli.node:stop", "Stop a component of nodes, and its work there."),
    "restart": LazyEntry(
        "sapwood.cli.node:restart", "Stop a component of nodes and start it again."
    ),
    "delete": LazyEntry(
        "sapwood.cli.node:delete", "Remove a node from its cluster, and stop all that runs on it."
    ),
    "drain": LazyEntry(
        "sapwood.cli.node:drain",
        "Start nothing new on a node, wait until nothing runs there, then delete it.",
    ),
}
"""The commands, with their lines in ``sapwood node --help``."""


class NodeGroup(LazyGroup):
    """The commands of ``sapwood node``."""

    entries = COMMANDS


app = typer.Typer(cls=NodeGroup, no_args_is_help=True)
