"""The directive ``stability-table``: states of names, commands, protocols and formats."""

from __future__ import annotations

import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.cli.old_names import OLD_COMMANDS, OLD_OPTIONS
from sapwood.old_names import MOVED, REPLACED

DECLARED = Path(__file__).parents[1] / "reference" / "stability.toml"


def declared() -> dict[str, Any]:
    """Return what the file declares: for each section the names of each state."""
    return tomllib.loads(DECLARED.read_text(encoding="utf-8"))


def table(section: str) -> str:
    """Return one section as Markdown: ``names``, ``commands``, ``http``, ``protocols``, ..."""
    if section == "deprecated":
        return deprecated()
    found = declared()[section]
    if section == "names":
        lines = ["| module | state | names |", "|---|---|---|"]
        for module, states in found.items():
            lines += [
                f"| `{module}` | {state} | {code(names)} |" for state, names in states.items()
            ]
    elif section in {"commands", "http"}:
        lines = ["| state | names |", "|---|---|"]
        lines += [f"| {state} | {code(names)} |" for state, names in found.items()]
    else:
        lines = ["| what | version now | state |", "|---|---|---|"]
        for state, items in found.items():
            lines += [f"| {what} | {version(constant)} | {state} |" for what, constant in items]
    return "\n".join(lines)


def deprecated() -> str:
    """Return the old names with those to use instead."""
    lines = ["| deprecated | use |", "|---|---|"]
    lines += [f"| `sapwood.{old}` | `sapwood.{new}` |" for old, new in sorted(MOVED.items())]
    lines += [f"| `sapwood.{old}` | `{new}` |" for old, (_, new) in sorted(REPLACED.items())]
    lines += [f"| `sapwood {old}` | `sapwood {new}` |" for old, new in OLD_COMMANDS.items()]
    for command, options in OLD_OPTIONS.items():
        words = f"sapwood {command}".strip()
        lines += [f"| `{words} {old}` | `{words} {new}` |" for old, new in options.items()]
    return "\n".join(lines)


def code(names: list[str]) -> str:
    """Return names as Markdown, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def version(constant: str) -> str:
    """Return the version that a constant has, as Markdown; nothing for no constant."""
    if not constant:
        return ""
    return f"`{str(resolve_name(constant)).rstrip('.')}`"


class StabilityTable(SphinxDirective):
    """Insert a table; the argument names its section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table's nodes."""
        self.env.note_dependency(str(DECLARED))
        return self.parse_text_to_nodes(table(self.arguments[0]))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("stability-table", StabilityTable)
    return {"version": "1", "parallel_read_safe": True}
