"""The directive ``state-diagram``: a table of states of the code as a drawing and as a table."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata
from state_drawing import draw, table


class StateDiagram(SphinxDirective):
    """Insert the drawing of a table, and the table."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        name = self.arguments[0]
        drawing = nodes.raw("", draw(name), format="html")
        return [drawing, *self.parse_text_to_nodes(table(name))]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("state-diagram", StateDiagram)
    return {"version": "1", "parallel_read_safe": True}
