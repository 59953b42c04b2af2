"""Directives that insert which role may make which call, order or HTTP request."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.head.role_table import call_table, order_table
from sapwood.server.role_table import endpoint_table


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


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_directive("call-roles", CallRoles)
    app.add_directive("order-roles", OrderRoles)
    app.add_directive("endpoint-roles", EndpointRoles)
    return {"version": "1", "parallel_read_safe": True}
