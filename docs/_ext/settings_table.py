"""The directive ``settings-table``: every setting with its default and meaning."""

from __future__ import annotations

from itertools import groupby

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from sapwood.environment.schema import ANY, SettingField, all_settings
from sapwood.environment.settings_toml import render_value


def sections() -> str:
    """Return Markdown with one section and table for each group of settings."""
    lines: list[str] = []
    for section, settings in groupby(all_settings(), key=lambda setting: setting.key[0]):
        lines += [f"## `[{section}]`\n", "| setting | default | expected | meaning |"]
        lines += ["|---|---|---|---|", *map(_row, settings), ""]
    return "\n".join(lines)


def _row(setting: SettingField) -> str:
    name = ".".join("NAME" if part == ANY else part for part in setting.key[1:])
    known = setting.default is not None and ANY not in setting.key
    default = f"`{render_value(setting.key, setting.default)}`" if known else ""
    return f"| `{name}` | {default} | {setting.expected()} | {setting.about} |"


class SettingsTable(SphinxDirective):
    """Insert the sections."""

    def run(self) -> list[nodes.Node]:
        """Return the sections' nodes."""
        return self.parse_text_to_nodes(sections(), allow_section_headings=True)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("settings-table", SettingsTable)
    return {"version": "1", "parallel_read_safe": True}
