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
        "List the clusters that are announced on this network; announcements are not verified.",
    ),
    "list": LazyEntry("sapwood.cli.node:show_all", "List the nodes of a cluster that is up."),
    "show": LazyEntry("sapwood.cli.node:show", "Show all that is known of a node."),
    "status": LazyEntry(
        "sapwood.cli.node:status",
        "Show what runs on the nodes of a cluster, and the components of the nodes and the head.",
    ),
    "start": LazyEntry(
        "sapwood.cli.node:start",
        "Start a component of nodes that was stopped, or given up after it had died.",
    ),
    "stop": LazyEntry(
        "sapwood.cli.node:stop", "Stop a component of nodes; what it does there ends with it."
    ),
    "restart": LazyEntry(
        "sapwood.cli.node:restart", "Stop a component of nodes and start it again."
    ),
    "remove": LazyEntry(
        "sapwood.cli.node:remove", "End a node, and all that runs on it, for good."
    ),
    "drain": LazyEntry(
        "sapwood.cli.node:drain",
        "Begin nothing more on a node, wait until nothing runs there, then remove it.",
    ),
}
"""The commands, with their lines in ``sapwood node --help``."""


class NodeGroup(LazyGroup):
    """The commands of ``sapwood node``."""

    entries = COMMANDS


app = typer.Typer(cls=NodeGroup, no_args_is_help=True)
