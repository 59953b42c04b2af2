"""``sapwood node``: this machine, and the nodes of a cluster that is up."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import RenderableType

from sapwood.cli import status_tables
from sapwood.cli.failures import reporting
from sapwood.cli.head_access import connected
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.cli.status_tables import chosen
from sapwood.core.errors import InputError, NodeLostError, ResourceError, SapwoodError
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.core.shown import shown
from sapwood.environment.component import ComponentAction, ComponentView
from sapwood.environment.units import parse_duration
from sapwood.head import calls
from sapwood.head.parts.components import Components
from sapwood.head.parts.nodes import Nodes
from sapwood.head_client.access import HeadAccess
from sapwood.nodes import discovery, messages
from sapwood.views.words import moment_shown

if TYPE_CHECKING:
    from sapwood.head.calls import NodeRecord


HEAD = "head"
"""What the head is called where a node is named."""

SETTLE_TIMEOUT = CALL_TIMEOUT + 10.0
"""Seconds that a component may take to start or to give up."""

Outcome = tuple[str, ComponentView]
"""A node, and how its component is now."""

HEAD_COMPONENTS = frozenset({"store", "authority", "tree", "service"})
"""Components that heads have."""


@reporting
def find_clusters(
    *,
    wait: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Time to wait for answers.")
    ] = "3s",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the clusters that are announced on this network.

    Announcements are not verified. A machine joins a cluster by
    `sapwood node join --find TOKEN`.
    """
    found = discovery.find_clusters(parse_duration(wait))
    if as_json:
        print_json({"clusters": found})
        return
    rows = [(one.name, one.cluster, ", ".join(one.addresses), one.pin) for one in found]
    write(table("", ("name", "cluster", "addresses", "pin"), rows, wrap="pin"))


@reporting
def show_all(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """List the nodes of a cluster."""
    found = asked_head(name, CALL_TIMEOUT, Nodes.every)
    if as_json:
        print_json({"nodes": found})
        return
    columns = ("node", "state", "cores>", "Python", "reserved", "since", "why")
    write(table("", columns, map(_node_row, found), wrap="why"))


@reporting
def show(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the facts of a node."""
    found = [one for one in asked_head(name, CALL_TIMEOUT, Nodes.every) if one.name == node]
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
        str,
        typer.Option("--nodes", metavar="SET", help="Only these nodes, for example n1 or n[1-4]."),
    ] = "",
    links: Annotated[
        bool, typer.Option("--links", help="Show how each node is reached, and why one is not.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what runs on nodes, and the components of nodes and head.

    With --links, the round trip (rtt) comes from heartbeats and contains the time that both
    processes take. The clock of a node is compared with the clock of the head: ±1 ms means that
    they agree as far as that can be measured. A queue is what is written and not yet sent, or not
    yet taken by the node.
    """
    found = status_tables.status_of(name)
    nodes, with_head = owners_of(found.nodes, node)
    if links:
        shown = msgspec.structs.replace(found, nodes=nodes)
        if as_json:
            print_json(shown)
        else:
            write(*status_tables.links_shown(shown))
        return
    if as_json:
        seconds = found.ready_seconds
        print_json(
            {"time": found.time, "head": found.head, "ready_seconds": seconds, "nodes": nodes}
        )
        return
    owners = [(one.record.name, one.components.components) for one in nodes if one.components]
    if with_head:
        owners.insert(0, (HEAD, found.head))
    write(
        *status_tables.activity_shown(found, nodes),
        components_shown(owners, found.time),
    )


Component = Annotated[
    str, typer.Argument(metavar="COMPONENT", help="Component, as `sapwood node status` shows it.")
]
Where = Annotated[
    str,
    typer.Option(
        "--nodes", metavar="SET", help="These nodes: n1, n[1-4] or head; default: all nodes."
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
    """Start a component of nodes that was stopped or given up."""
    _act(ComponentAction.START, component, node, name, as_json=as_json, debug=debug)


def stop(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a component of nodes, and its work there."""
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
    found = act(name, component, action, node)
    if as_json:
        print_json({"components": [{"node": who, "component": view} for who, view in found]})
    else:
        write(components_shown([(who, [view]) for who, view in found], time.time()))
    wanted = "stopped" if action is ComponentAction.STOP else ""
    if any(view.state != wanted if wanted else not view.works for _, view in found):
        raise typer.Exit(ResourceError.exit_code)


@reporting
def delete(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove a node from its cluster, and stop all that runs on it."""
    _remove(name, node, 0.0, as_json=as_json)


@reporting
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    *,
    name: Cluster = "default",
    within: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Time to wait for what runs on the node."),
    ] = "10min",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start nothing new on a node, wait until nothing runs there, then delete it."""
    _remove(name, node, parse_duration(within), as_json=as_json)


def _remove(name: str, node: str, seconds: float, *, as_json: bool) -> None:
    with connected(name) as head:
        record = head.client.call(Nodes.remove, node, seconds)
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


def owners_of(nodes: Sequence[calls.NodeStatus], names: str) -> tuple[list[calls.NodeStatus], bool]:
    """Return the nodes of a set of names, and whether the head is one of them.

    Raises:
        InputError: There is no such node.
    """
    wanted = expand_hosts(names)
    others = [one for one in wanted if one != HEAD]
    if wanted and not others:
        return [], True
    return chosen(nodes, ",".join(others)), not wanted or HEAD in wanted


def act(name: str, component: str, action: ComponentAction, nodes: str) -> list[Outcome]:
    """Do something with a component of nodes.

    Args:
        name: Of the cluster.
        component: Which one.
        action: What.
        nodes: Where: a set of names, ``head`` among them, or nothing for all nodes.

    Raises:
        InputError: There is no such component or node.
        ConfigurationError: This component may not be stopped, or not be restarted.
        NodeLostError: A node is not there.
    """
    with connected(name) as head:
        order = messages.ComponentOrder(component, action)
        asked = {who: _ask(head, host, order) for who, host in _hosts(head, nodes).items()}
        found: list[Outcome] = []
        failed: dict[str, SapwoodError] = {}
        for who, answer in asked.items():
            try:
                view = answer.result(SETTLE_TIMEOUT)
            except SapwoodError as error:
                failed[who] = error
            except TimeoutError:
                failed[who] = NodeLostError(f"no answer within {SETTLE_TIMEOUT:g} s")
            else:
                found.append((who, view))
    if failed:
        raise _explained(failed, component)
    return found


def _hosts(head: HeadAccess, nodes: str) -> dict[str, int]:
    """Return the numbers of nodes by their names; 0 is the head."""
    there = {one.name: one for one in head.known.records if one.state != "removed"}
    if not nodes:
        wanted = [name for name, one in there.items() if one.can_be_asked]
        if not wanted:
            raise InputError(
                "the cluster has no node that is there",
                hint=f"--nodes {HEAD} names the head itself; `sapwood node list` shows nodes",
            )
        return {name: there[name].host for name in wanted}
    chosen = expand_hosts(nodes)
    unknown = [name for name in chosen if name != HEAD and name not in there]
    if unknown:
        raise InputError(
            f"node {fold_hosts(unknown)} does not exist", hint="`sapwood node list` shows them"
        )
    away = [name for name in chosen if name in there and not there[name].can_be_asked]
    if away:
        one = there[away[0]]
        raise NodeLostError(
            f"not connected to the head: {fold_hosts(away)}",
            where=f"{one.name} is {one.state}" + (f": {one.reason}" if one.reason else ""),
        )
    return {name: there[name].host if name in there else 0 for name in chosen}


def _ask(head: HeadAccess, host: int, order: messages.ComponentOrder) -> Future[ComponentView]:
    return head.client.ask(Components.act, host, order)


def _explained(failed: dict[str, SapwoodError], component: str) -> SapwoodError:
    """Return the first error, with all nodes that it happened on, and the others."""
    first = next(iter(failed.values()))
    same = [who for who, error in failed.items() if error.what == first.what]
    rest = {who: error.what for who, error in failed.items() if error.what != first.what}
    details = {"elsewhere": "\n".join(f"{who}: {what}" for who, what in rest.items())}
    hint = first.hint
    if HEAD not in failed and component in HEAD_COMPONENTS:
        hint = f"that is a component of the head: add --nodes {HEAD}"
    return type(first)(
        first.what, where=fold_hosts(same), hint=hint, details=details if rest else {}
    )


def components_shown(
    owners: Iterable[tuple[str, Sequence[ComponentView]]], now: float
) -> RenderableType:
    """Return a table of components; nodes whose component is in the same state share a line."""
    names: dict[tuple[str, str, str], list[str]] = {}
    since: dict[tuple[str, str, str], float] = {}
    restarts: dict[tuple[str, str, str], int] = {}
    for owner, views in owners:
        for view in views:
            key = (view.name, view.state, view.reason)
            names.setdefault(key, []).append(owner)
            since[key] = max(since.get(key, 0.0), view.since)
            restarts[key] = restarts.get(key, 0) + view.restarts
    rows = [
        (
            fold_hosts(owners_of),
            key[0],
            key[1],
            moment_shown(since[key], now) if since[key] else "",
            str(restarts[key] or ""),
            key[2],
        )
        for key, owners_of in names.items()
    ]
    return table("", ("node", "component", "state", "since", "restarts>", "why"), rows, wrap="why")
