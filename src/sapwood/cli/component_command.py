"""What ``sapwood node start``, ``stop`` and ``restart`` do, and how components are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from rich.console import RenderableType

from sapwood.cli.head_access import connected
from sapwood.cli.present import table
from sapwood.cli.status_tables import chosen
from sapwood.core.errors import InputError, NodeLostError, SapwoodError
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.environment.component import ComponentAction, ComponentView
from sapwood.head import calls
from sapwood.head.parts.components import Components
from sapwood.head_client.access import CALL_TIMEOUT, HeadAccess
from sapwood.nodes import messages
from sapwood.views.words import moment_shown

HEAD = "head"
"""What the head is called where a node is named."""

SETTLE_TIMEOUT = CALL_TIMEOUT + 10.0
"""Seconds that a component may take to start or to give up."""

Outcome = tuple[str, ComponentView]
"""A node, and how its component is now."""


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
    there = {one.name: one for one in head.records if one.state != "removed"}
    if not nodes:
        wanted = [name for name, one in there.items() if one.can_be_asked]
        if not wanted:
            raise InputError(
                "the cluster has no node that is there",
                hint=f"--node {HEAD} names the head itself; `sapwood node list` shows nodes",
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
            f"the node {fold_hosts(away)} cannot be asked",
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
        hint = f"that is a component of the head: add --node {HEAD}"
    return type(first)(
        first.what, where=fold_hosts(same), hint=hint, details=details if rest else {}
    )


HEAD_COMPONENTS = frozenset({"store", "authority", "tree", "service"})
"""Components that heads have."""


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
