"""The directive ``capability-tables``: what Sapwood can do, and the tests that show it."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

ROOT = Path(__file__).parents[2]
DECLARED = ROOT / "docs" / "reference" / "capabilities.toml"
FOLDERS = ("tests", "extras", "simulation")

_MARK = re.compile(r"mark\.row\(([^)]*)\)")


def declared() -> dict[str, dict[str, str]]:
    """Return the capabilities of each section by their ids."""
    return tomllib.loads(DECLARED.read_text(encoding="utf-8"))


def marked() -> dict[str, list[str]]:
    """Return for each id of a mark the files with tests that have it, once for each mark."""
    found = defaultdict(list)
    for path in sorted(one for folder in FOLDERS for one in (ROOT / folder).rglob("test_*.py")):
        for ids in _MARK.findall(path.read_text(encoding="utf-8")):
            for one in re.findall(r'"([^"]+)"', ids):
                found[one].append(path.relative_to(ROOT).as_posix())
    return dict(found)


def tables() -> str:
    """Return a section with a table for each section of the file, as Markdown."""
    tests = marked()
    lines = []
    for section, capabilities in declared().items():
        lines += [f"## {section}", "", "| id | capability | tests |", "|---|---|---|"]
        for name, text in capabilities.items():
            files = tests[name]
            lines.append(f"| {name} | {text} | {len(files)}, for example `{files[0]}` |")
        lines.append("")
    return "\n".join(lines)


class CapabilityTables(SphinxDirective):
    """Insert the sections."""

    def run(self) -> list[nodes.Node]:
        """Return the sections' nodes."""
        self.env.note_dependency(str(DECLARED))
        return self.parse_text_to_nodes(tables(), allow_section_headings=True)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("capability-tables", CapabilityTables)
    return {"version": "1", "parallel_read_safe": True}
