"""Directives that insert which role may make which call, order or HTTP request."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.head.role_table import call_table, order_table
from sapwood.server.role_table import endpoint_table
from sapwood.session_server.rights import NEED_OF_CALL, CallNeed


class CallRoles(SphinxDirective):
    """Insert the table of calls."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(call_table())


class OrderRoles(SphinxDirective):
    """Insert the table of orders."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(order_table())


class EndpointRoles(SphinxDirective):
    """Insert the table of HTTP endpoints."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(endpoint_table())


NEEDS = {
    CallNeed.ATTACHED: "any role",
    CallNeed.CONTENT: "owner, user, or a session that this one is merged into",
    CallNeed.WORKING: "owner or user",
    CallNeed.INVITING: "any role, with a credential that lets its holder own the session",
    CallNeed.OWNING: "owner or user, with a credential that lets its holder own the session",
    CallNeed.OWNER: "owner",
}


class SessionCalls(SphinxDirective):
    """Insert the table of calls of a session."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        lines = ["| call | who may make it |", "|---|---|"]
        lines += [f"| `{call}` | {NEEDS[need]} |" for call, need in sorted(NEED_OF_CALL.items())]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_directive("call-roles", CallRoles)
    app.add_directive("order-roles", OrderRoles)
    app.add_directive("endpoint-roles", EndpointRoles)
    app.add_directive("session-calls", SessionCalls)
    return {"version": "1", "parallel_read_safe": True}
