"""The directives ``protocol-messages`` and ``protocol-structures``: tables of the protocol."""

from __future__ import annotations

from docutils import nodes
from protocol_text import message_table, structure_table, tags_of
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata


class ProtocolMessages(SphinxDirective):
    """Insert the table of the messages with some tags."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(message_table(tags_of(self.arguments[0])))


class ProtocolStructures(SphinxDirective):
    """Insert the table of the structures with some names."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(structure_table(self.arguments[0].split()))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_directive("protocol-messages", ProtocolMessages)
    app.add_directive("protocol-structures", ProtocolStructures)
    return {"version": "1", "parallel_read_safe": True}
