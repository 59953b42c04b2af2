"""The directives ``error-table`` and ``exit-code-table``: all errors and exit codes."""

from __future__ import annotations

import inspect

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.cli.failures import EXIT_CODES
from sapwood.core.errors import error_classes


def table() -> str:
    """Return a Markdown table of all error classes in the order of their codes."""
    lines = ["| code | class | exit code | meaning |", "|---|---|---|---|"]
    for code, kind in sorted(error_classes().items()):
        meaning = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
        lines.append(f"| {code} | `{kind.__name__}` | {kind.exit_code} | {meaning} |")
    return "\n".join(lines)


def exit_codes() -> str:
    """Return a Markdown table of the exit codes."""
    lines = ["| exit code | meaning |", "|---|---|"]
    return "\n".join(lines + [f"| {code} | {text} |" for code, text in EXIT_CODES.items()])


class ErrorTable(SphinxDirective):
    """Insert the table."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(table())


class ExitCodeTable(SphinxDirective):
    """Insert the table."""

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        return self.parse_text_to_nodes(exit_codes())


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("error-table", ErrorTable)
    app.add_directive("exit-code-table", ExitCodeTable)
    return {"version": "1", "parallel_read_safe": True}
