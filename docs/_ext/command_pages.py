"""The directive ``command-pages``: every command with its arguments and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata
from typer.main import get_command

from sapwood.cli.main import app as sapwood_app


def pages() -> str:
    """Return Markdown with one section for each command."""
    return "\n".join(_command(["sapwood"], get_command(sapwood_app)))


def _command(path: list[str], command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children or len(path) == 1:
        yield f"## {' '.join(path)}\n"
        yield _plain(inspect.cleandoc(command.help or "")) + "\n"
        yield from _parameters(command)
    for name, child in children.items():
        if not child.hidden:
            yield from _command([*path, name], child)


def _parameters(command: Any) -> Iterator[str]:
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    for parameter in shown:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = parameter.metavar or parameter.name.upper()
        elif not parameter.is_flag:
            names += f" {parameter.metavar}"
        yield f"`{names}`\n: {_plain(parameter.help or '')}\n"


def _plain(text: str) -> str:
    """Return help text without the markup of rich and without click's layout marks."""
    return re.sub(r"\[/?(?:bold|dim|cyan)\]", "", text.replace("\b", ""))


class CommandPages(SphinxDirective):
    """Insert the sections."""

    def run(self) -> list[nodes.Node]:
        """Return the sections' nodes."""
        return self.parse_text_to_nodes(pages(), allow_section_headings=True)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("command-pages", CommandPages)
    return {"version": "1", "parallel_read_safe": True}
