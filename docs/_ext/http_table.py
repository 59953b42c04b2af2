"""The directive ``http-endpoints``: the HTTP API, from the table that makes it."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.server.api import endpoints
from sapwood.server.metrics import ServerMetrics
from sapwood.server.openapi import document


def page() -> str:
    """Return the endpoints as Markdown, each with its parameters."""
    found = document(endpoints(None, ServerMetrics), "")
    lines: list[str] = []
    for path, operations in found["paths"].items():
        for method, one in operations.items():
            lines += [f"## `{method.upper()} {path}`", "", one["summary"], "", one["description"]]
            kind, content = next(iter(one["responses"]["200"]["content"].items()))
            schema = content["schema"].get("$ref", "").rpartition("/")[2]
            lines += ["", f"Answer: `{kind}`" + (f", `{schema}`." if schema else "."), ""]
            if one["parameters"]:
                lines += ["| parameter | in | default | meaning |", "|---|---|---|---|"]
                lines += [
                    f"| `{each['name']}` | {each['in']} | "
                    f"{_default(each['schema'])} | {each['description']} |"
                    for each in one["parameters"]
                ]
                lines.append("")
    return "\n".join(lines)


def _default(schema: dict[str, object]) -> str:
    if "default" not in schema or schema["default"] in ("", []):
        return ""
    return f"`{str(schema['default']).lower()}`"


class HttpEndpoints(SphinxDirective):
    """Insert them."""

    def run(self) -> list[nodes.Node]:
        """Return their nodes."""
        return self.parse_text_to_nodes(page(), allow_section_headings=True)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("http-endpoints", HttpEndpoints)
    return {"version": "1", "parallel_read_safe": True}
