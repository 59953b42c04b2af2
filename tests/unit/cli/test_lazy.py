"""The option, the setting and the command that the documentation adds: all that it promises."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from sapwood.activity import agent_requests
from sapwood.cli import main
from sapwood.cli.declared import declared
from sapwood.cli.lazy import LazyGroup
from sapwood.client.declared_arguments import with_fields
from sapwood.code import run_spec
from sapwood.core.errors import InputError
from sapwood.core.options import checked, completed, option_fields
from sapwood.environment import schema, settings

PAGE = Path(__file__).parents[3] / "docs" / "contributing" / "add-an-option.md"
OPTION, SETTING, COMMAND, ENTRY = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
)


def made(head: str, body: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of code of the page, as if it stood in a module."""
    found = dict(names)
    exec(f"{head}\n{textwrap.indent(body, '    ')}" if head else body, found)  # noqa: S102 - our page
    return found


@pytest.fixture(scope="module")
def options() -> Any:
    """The options of a run, with the one of the page."""
    head = "class Added(RunOptions, frozen=True, kw_only=True, omit_defaults=True):"
    return made(head, OPTION, vars(run_spec))["Added"]


def test_the_option_is_declared_in_five_lines() -> None:
    assert len(OPTION.splitlines()) <= 5


def test_the_option_is_an_argument_in_python(options: Any) -> None:
    class Tree:
        @with_fields(options)
        def run(self, spec: Any) -> Any:
            """Run.

            Args:
                spec: The options.

            """
            return checked(spec)

    assert "warm_up" in inspect.signature(Tree.run).parameters
    assert "warm_up: Iterations that are not measured." in (Tree.run.__doc__ or "")
    assert Tree().run(warm_up=3).warm_up == 3
    with pytest.raises(InputError, match="warm_up is -1"):
        Tree().run(warm_up=-1)


def test_the_option_is_one_of_the_command_line(options: Any) -> None:
    found: list[Any] = []

    def run(*, spec: Any) -> None:
        found.append(spec)

    run.__annotations__["spec"] = options
    app = typer.Typer()
    app.command()(declared(run))
    assert CliRunner().invoke(app, ["--warm-up", "3"]).exit_code == 0
    assert found == [options(warm_up=3)]
    assert CliRunner().invoke(app, ["--warm-up", "-1"]).exit_code == 2
    shown = re.sub(r"[│\s]+", " ", CliRunner().invoke(app, ["--help"]).stdout)
    assert "Iterations that are not measured. Default: the setting limits.iterations." in shown


def test_the_option_has_the_setting_as_default_and_reaches_agents(options: Any) -> None:
    limits = settings.LimitSettings(iterations=7)
    spec = completed(options(), settings.Settings(limits=limits))
    assert spec.warm_up == 7
    order = agent_requests.OpenRun("r", b"", b"", 0, 1, "f", options=spec)
    assert msgspec.to_builtins(order)["options"]["warm_up"] == 7
    assert [one.name for one in option_fields(options)].count("warm_up") == 1


def test_the_setting_has_a_key_and_reads_units() -> None:
    head = "class Added(Section, frozen=True):"
    kind = made(head, SETTING, vars(settings))["Added"]
    (found,) = schema._walk(kind, ("runs",))
    assert (found.key, found.default) == (("runs", "warm_up"), 0.0)
    assert found.parse("2 s", "variable") == 2.0


def test_the_command_is_loaded_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sapwood.cli.greet")
    names = made("", COMMAND, {})
    module.greet = names["greet"]  # type: ignore[attr-defined]
    entry = ast.parse("{" + ENTRY + "}", mode="eval")
    entries = eval(compile(entry, PAGE.name, "eval"), vars(main))  # noqa: S307 - our page

    class Group(LazyGroup):
        pass

    Group.entries = entries
    app = typer.Typer(cls=Group)
    app.callback()(lambda: None)
    listed = CliRunner().invoke(app, ["--help"])  # there is no such module yet
    assert "Greet a user." in listed.stdout
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert CliRunner().invoke(app, ["greet", "Ann"]).stdout == "Hello Ann.\n"
    assert (
        CliRunner().invoke(app, ["greet", "Ann", "--json"]).stdout == '{\n  "greeted": "Ann"\n}\n'
    )
    assert "Greet a user." in CliRunner().invoke(app, ["greet", "--help"]).stdout
