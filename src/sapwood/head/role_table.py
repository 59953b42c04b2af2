"""Which role may make which call of a head, derived from their declarations.

The documentation shows these tables, and a test makes every call in every role.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Any, Final

from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.events import Events
from sapwood.head.parts.links import Links
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import ORDERS_OF_CALLER, RIGHT_OF_ORDER, Orders
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.parts.web import WebServer
from sapwood.head.protocol.call import HeadCall, HeadPart, Reach
from sapwood.security.rights import ADMIN, OBSERVE, ROLES, RUN

PARTS: Final[tuple[type[HeadPart], ...]] = (
    Components,
    Events,
    IssuedCredentials,
    JoinTokens,
    Links,
    Nodes,
    Orders,
    Policy,
    RunRates,
    Runs,
    Sessions,
    WebServer,
    WholeCluster,
)
"""The parts of a head."""

CALLS: Final[Mapping[str, HeadCall[..., Any]]] = {
    one.name: one for part in PARTS for one in part.declared()
}
"""The declared calls of a head, by name."""


class Permission(enum.Enum):
    """Whether a role may make a call.

    Attributes:
        NO: It may not.
        OWN: It may, about its own objects.
        ALL: It may, about all objects.
        HERE: It may, at the socket of the head.
    """

    NO = "no"
    OWN = "own"
    ALL = "yes"
    HERE = "at the head"


def access_to_call(call: str, rights: Collection[str]) -> Permission:
    """Return whether a client with these rights may make a call.

    Example:
        >>> access_to_call("session.end", ["connect", "delete"])
        <Permission.OWN: 'own'>
    """
    found = CALLS[call]
    if not _has(found.right, rights):
        return Permission.NO
    if found.reach is Reach.HEAD:
        return Permission.HERE
    watches = found is Sessions.credential and RUN not in rights
    owned = found.reach is Reach.OWNED and ADMIN not in rights and not watches
    return Permission.OWN if owned or found.reach is Reach.CALLER else Permission.ALL


def access_to_order(order: str, rights: Collection[str]) -> Permission:
    """Return whether a client with these rights may give an order to a node.

    Reserved nodes need ``admin`` besides; see ``head/reserved.py``.

    Example:
        >>> access_to_order("processes.open", ["connect", "allocate"])
        <Permission.ALL: 'yes'>
    """
    if not _has(RIGHT_OF_ORDER[order], rights):
        return Permission.NO
    return Permission.OWN if order in ORDERS_OF_CALLER else Permission.ALL


def call_table() -> str:
    """Return a Markdown table of all calls, with a column for each role."""
    rows = {call: [access_to_call(call, rights) for rights in ROLES.values()] for call in CALLS}
    return table_of_roles("call", {name: one.right for name, one in CALLS.items()}, rows)


def order_table() -> str:
    """Return a Markdown table of all orders to nodes, with a column for each role."""
    rows = {
        order: [access_to_order(order, rights) for rights in ROLES.values()]
        for order in RIGHT_OF_ORDER
    }
    return table_of_roles("order", RIGHT_OF_ORDER, rows)


def table_of_roles(
    what: str, right_of: Mapping[str, str], rows: Mapping[str, list[Permission]]
) -> str:
    """Return a Markdown table with a column for each role.

    Args:
        what: Heading of the first column.
        right_of: The right that each row needs.
        rows: The access of each role.
    """
    names = [f"`{role}`" for role in ROLES]
    lines = [f"| {what} | right | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for name, found in sorted(rows.items()):
        lines.append(f"| `{name}` | `{right_of[name]}` | {' | '.join(x.value for x in found)} |")
    return "\n".join(lines)


def _has(right: str, rights: Collection[str]) -> bool:
    return right in rights or (right == OBSERVE and ADMIN in rights)
