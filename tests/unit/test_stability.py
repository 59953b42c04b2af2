"""The page *Stability* has all that is public, and nothing else."""

from __future__ import annotations

import ast
import pkgutil
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import sapwood
import sapwood.joblib
from sapwood import plugins
from sapwood.cli.main import app
from sapwood.cli.old_names import OLD_COMMANDS
from sapwood.old_names import MOVED, REPLACED
from sapwood.server.api import endpoints
from sapwood.server.metrics import ServerMetrics
from sapwood.server.openapi import document

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "docs/reference/stability.toml").read_text(encoding="utf-8"))
STATES = {"stable", "experimental", "internal"}

# Constants of such names that are not versions of Sapwood.
OTHERS = {
    "sapwood.activity.checkpoint.MAGIC",  # its version is FORMAT
    "sapwood.code.installed_tools._VERSION",  # a pattern
    "sapwood.comm.framing.MAGIC",  # its version is FRAME_VERSION
    "sapwood.contexts.launchers.slurm.FORMAT",  # what squeue prints
    "sapwood.data.codecs.npy.MAGIC",  # NumPy's
    "sapwood.data.formats.arrow.MAGIC",  # Apache's
    "sapwood.data.formats.parquet.MAGIC",
}


def names(section: dict[str, list[Any]]) -> list[Any]:
    assert section.keys() <= STATES
    return [name for state in section.values() for name in state]


def commands(path: str, command: Any) -> list[str]:
    if not hasattr(command, "commands"):
        return [] if command.hidden else [path]
    return [
        one
        for name, child in command.commands.items()
        for one in commands(f"{path} {name}".strip(), child)
    ]


@pytest.mark.parametrize(
    ("module", "public"),
    [
        ("sapwood", sapwood.__all__),
        ("sapwood.types", sapwood.types.__all__),
        ("sapwood.errors", sapwood.errors.__all__),
        ("sapwood.joblib", sapwood.joblib.__all__),
        ("sapwood.plugins", [one.name for one in pkgutil.iter_modules(plugins.__path__)]),
    ],
)
def test_each_public_name_has_a_state(module: str, public: list[str]) -> None:
    assert sorted(names(DECLARED["names"][module])) == sorted(public)


def test_each_module_of_plugins_lists_what_is_public() -> None:
    for one in pkgutil.iter_modules(plugins.__path__):
        assert import_module(f"sapwood.plugins.{one.name}").__all__, one.name


@pytest.mark.slow
def test_each_command_has_a_state() -> None:
    assert sorted(names(DECLARED["commands"])) == sorted(commands("", get_command(app)))


def test_each_endpoint_has_a_state() -> None:
    found = document(endpoints(None, ServerMetrics), "")["paths"]
    assert sorted(names(DECLARED["http"])) == sorted(
        f"{method.upper()} {path}" for path, methods in found.items() for method in methods
    )


@pytest.mark.slow
def test_each_version_of_a_protocol_or_format_has_a_state() -> None:
    is_version = re.compile(r"_?(\w+_)?(VERSION|FORMAT|MAGIC)$")
    found = {
        ".".join([*path.relative_to(ROOT / "src").with_suffix("").parts, target.id])
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.parse(path.read_bytes()).body
        for target in targets(node)
        if is_version.match(target.id)
    }
    listed = names(DECLARED["protocols"]) + names(DECLARED["files"])
    constants = {constant for _, constant in listed if constant}
    known = {one.replace(".__init__.", ".") for one in found} - OTHERS
    if not (ROOT / "src/sapwood/fastpath").is_dir():
        constants = {one for one in constants if not one.startswith("sapwood.fastpath.")}
    assert known <= constants
    for constant in constants:
        assert pkgutil.resolve_name(constant)


def targets(node: ast.stmt) -> list[ast.Name]:
    if isinstance(node, ast.Assign):
        return [one for one in node.targets if isinstance(one, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target]
    return []


def test_what_is_deprecated_is_not_public_any_more() -> None:
    assert not {*MOVED, *REPLACED} & set(sapwood.__all__)
    assert not set(OLD_COMMANDS) & set(names(DECLARED["commands"]))
