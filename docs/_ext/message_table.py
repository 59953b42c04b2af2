"""The directive ``message-table``: every message of the protocol with tag and fields."""

from __future__ import annotations

import inspect
from typing import get_args

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.comm.messages import AnyMessage


def table() -> str:
    """Return a Markdown table of all messages in the order of their tags."""
    lines = ["| tag | message | fields in order | meaning |", "|---|---|---|---|"]
    for kind in sorted(get_args(AnyMessage), key=lambda one: one.__struct_config__.tag):
        fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind)) or "none"
        meaning = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
        meaning = meaning.replace(":class:", "")
        lines.append(f"| {kind.__struct_config__.tag} | `{kind.__name__}` | {fields} | {meaning} |")
    return "\n".join(lines)


class MessageTable(SphinxDirective):
    """Insert the table."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(table())


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("message-table", MessageTable)
    return {"version": "1", "parallel_read_safe": True}
