"""``sapwood node``: this machine, and the nodes of a cluster that is up."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli import component_command, status_tables
from sapwood.cli.failures import reporting
from sapwood.cli.node_process import nodes_of, remove_node
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.core.errors import InputError, ResourceError
from sapwood.core.shown import shown
from sapwood.environment.component import ComponentAction
from sapwood.environment.units import parse_duration
from sapwood.nodes import discovery

if TYPE_CHECKING:
    from sapwood.head.calls import NodeRecord


@reporting
def find_clusters(
    *,
    wait: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to wait for answers.")
    ] = "3s",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the clusters that are announced on this network; announcements are not verified.

    A machine joins one by `sapwood node join --find TOKEN`.
    """
    found = discovery.find_clusters(parse_duration(wait))
    if as_json:
        print_json({"clusters": found})
        return
    rows = [(one.name, one.cluster, ", ".join(one.places), one.pin) for one in found]
    write(table("", ("name", "cluster", "places", "pin"), rows, wrap="pin"))


@reporting
def show_all(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """List the nodes of a cluster that is up."""
    found = nodes_of(name)
    if as_json:
        print_json({"nodes": found})
        return
    columns = ("node", "state", "cores>", "Python", "reserved", "since", "why")
    write(table("", columns, map(_node_row, found), wrap="why"))


@reporting
def show(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which one, as list shows it.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show all that is known of a node."""
    found = [one for one in nodes_of(name) if one.name == node]
    if not found:
        raise InputError(
            f"node {shown(node)} does not exist", hint="`sapwood node list` shows them"
        )
    if as_json:
        print_json(found[-1])
        return
    rows = [row for row in _facts(found[-1]) if row[1]]
    write(table("", ("", "value"), rows, wrap="value"))


@reporting
def status(
    *,
    name: Cluster = "default",
    node: Annotated[
        str, typer.Option(metavar="SET", help="Only of these nodes, for example n1 or n[1-4].")
    ] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what runs on the nodes of a cluster, and the components of the nodes and the head."""
    found = status_tables.status_of(name)
    nodes, with_head = component_command.owners_of(found.nodes, node)
    if as_json:
        seconds = found.ready_seconds
        print_json(
            {"time": found.time, "head": found.head, "ready_seconds": seconds, "nodes": nodes}
        )
        return
    owners = [(one.record.name, one.components.components) for one in nodes if one.components]
    if with_head:
        owners.insert(0, (component_command.HEAD, found.head))
    write(
        *status_tables.activity_shown(found, nodes),
        component_command.components_shown(owners, found.time),
    )


Component = Annotated[
    str, typer.Argument(metavar="COMPONENT", help="Which one, as `node status` shows it.")
]
Where = Annotated[
    str,
    typer.Option(
        "--node", metavar="SET", help="On these nodes: n1, n[1-4], or head; by default all nodes."
    ),
]


def start(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a component of nodes that was stopped, or given up after it had died."""
    _act(ComponentAction.START, component, node, name, as_json=as_json, debug=debug)


def stop(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a component of nodes; what it does there ends with it."""
    _act(ComponentAction.STOP, component, node, name, as_json=as_json, debug=debug)


def restart(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a component of nodes and start it again."""
    _act(ComponentAction.RESTART, component, node, name, as_json=as_json, debug=debug)


@reporting
def _act(
    action: ComponentAction, component: str, node: str, name: str, *, as_json: bool, debug: bool
) -> None:
    found = component_command.act(name, component, action, node)
    if as_json:
        print_json({"components": [{"node": who, "component": view} for who, view in found]})
    else:
        write(
            component_command.components_shown([(who, [view]) for who, view in found], time.time())
        )
    wanted = "stopped" if action is ComponentAction.STOP else ""
    if any(view.state != wanted if wanted else not view.works for _, view in found):
        raise typer.Exit(ResourceError.exit_code)


@reporting
def remove(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which one, as list shows it.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End a node, and all that runs on it, for good."""
    _say_removed(remove_node(name, node, 0.0), as_json=as_json)


@reporting
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which one, as list shows it.")],
    *,
    name: Cluster = "default",
    within: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for what runs on it.")
    ] = "10min",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Begin nothing more on a node, wait until nothing runs there, then remove it."""
    _say_removed(remove_node(name, node, parse_duration(within)), as_json=as_json)


def _say_removed(record: NodeRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        typer.echo(f"{record.name} is removed.")


def _node_row(record: NodeRecord) -> tuple[str, ...]:
    facts = record.facts
    return (
        record.name,
        record.state,
        str(facts.cores) if facts else "",
        facts.python if facts else "",
        "yes" if record.reserved else "",
        _clock(record.joined),
        record.reason,
    )


def _facts(record: NodeRecord) -> list[tuple[str, str]]:
    found = [
        ("name", record.name),
        ("state", record.state),
        ("why", record.reason),
        ("certificate", record.node),
        ("joined", _clock(record.joined)),
        ("reserved", "yes" if record.reserved else ""),
    ]
    if record.facts is not None:
        facts = record.facts
        found += [
            ("cores", str(facts.cores)),
            ("processor", facts.architecture),
            ("Python", facts.python),
            ("process", str(facts.pid)),
            ("user", facts.user),
            ("clock", f"{record.skew:+.3f} s"),
        ]
    return found


def _clock(seconds: float) -> str:
    when = dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone()
    return f"{when:%Y-%m-%d %H:%M}" if seconds else ""
