"""Every command that a hint names can be typed: its options exist and its arguments fit."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import sapwood
from sapwood.cli.main import app
from sapwood.cli.run_commands import RunGroup
from sapwood.core.hints import WITHOUT_CLUSTER, command_line

SOURCES = Path(sapwood.__file__).parent
VALUE = "\x00"
"""Stands for a value that the program fills in."""

EXAMPLES = {
    "NODE": "n1",
    "N": "2",
    "TIME": "1h",
    "HOST:PORT": "127.0.0.1:7700",
    "ACTION": "start",
}

CHOSEN = {
    "cli/head_process.py": {"PROGRAM"},
    "cli/options.py": {"NAME", "RUN", "SESSION", "VARIABLE"},
    "cli/policy.py": {"VALUE"},
    "cli/session_work.py": {"PROGRAM"},
    "code/native_binding.py": {"SOURCE"},
    "data/checks.py": {"PROGRAM"},
    "data/row_reader.py": {"PROGRAM"},
    "head/components.py": {"NODE"},
    "head/authorizer.py": {"COMMAND"},
    "head_client/remote.py": {"NAME"},
    "nodes/stage.py": {"COMMAND"},
    "content/staged.py": {"NAME"},
    "nodes/staged_use.py": {"LOCK"},
    "security/rights.py": {"FILE"},
    "session_server/session_credential.py": {"SESSION"},
}
"""Words that a user replaces, by module: the code that gives these hints does not know the value.

A hint about a session, node or value that the code knows has the value.
"""

_REPLACED = re.compile(r"[A-Z][A-Z_:]+")

HELP = {"Option", "Argument", "Typer", "about", "option", "LazyEntry"}

_QUOTED = re.compile(r"`sapwood (?P<words>[^`]+)`")
_ON_PAGES = re.compile(r'(?:command\(|empty\("[^"]*", )"([^"]+)"\)')
_BARE = re.compile(r"(?<![\w`-])sapwood (?P<verb>[a-z]+)\b")


@functools.cache
def root() -> TyperGroup:
    found = typer.main.get_command(app)
    assert isinstance(found, TyperGroup)
    return found


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Return all commands with their words."""
    for name, one in group.commands.items():
        if isinstance(one, TyperGroup):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return the texts of a module with their lines, without its docstrings."""
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [getattr(part, "value", None) for part in node.values]
            yield node.lineno, "".join(p if isinstance(p, str) else VALUE for p in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def references(tree: ast.Module) -> set[int]:
    """Return the lines of help texts, which refer to commands and need no arguments."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in HELP
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def made(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return what a module gives to ``command`` and ``command_line``."""
    for node in ast.walk(tree):
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in {"command", "command_line"}:
            words = [getattr(word, "value", "x") for word in node.args]
            if words and not isinstance(node.args[-1], ast.Starred):
                yield (
                    node.lineno,
                    shlex.join(word if isinstance(word, str) else "x" for word in words),
                )


@functools.cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (str(file.relative_to(SOURCES)), ast.parse(text))
        for file in sorted(SOURCES.rglob("*.py"))
        if file.name != "hints.py"
        and ("sapwood " in (text := file.read_text()) or "command" in text)
    ]


def parsed(words: list[str]) -> None:
    """Parse a command as the shell would give it; its callback is not called."""
    command: Any = root()
    context = typer.Context(command, info_name="sapwood")
    while isinstance(command, TyperGroup):
        if not words and command.invoke_without_command:
            return
        words = command.named(words) if isinstance(command, RunGroup) else words
        assert words, f"a verb is missing after '{context.command_path}'"
        found = command.get_command(context, words[0])
        assert found is not None, f"'{context.command_path}' has no '{words[0]}'"
        command, words = found, words[1:]
        context = typer.Context(command, info_name=found.name, parent=context)
    command.make_context(command.name, [EXAMPLES.get(word, word) for word in words], context.parent)


def test_each_command_of_a_hint_can_be_typed() -> None:
    wrong = []
    count = 0
    for name, tree in modules():
        quoted = (
            (line, found["words"].replace("'" + VALUE + "'", VALUE))
            for line, text in texts(tree)
            for found in _QUOTED.finditer(text)
        )
        helped = references(tree)
        for line, text in itertools.chain(quoted, made(tree)):
            count += 1
            if VALUE in text:
                wrong.append(f"{name}:{line}: form it with command(): {text!r}")
                continue
            try:
                parsed(shlex.split(text))
                parsed(shlex.split(command_line(*shlex.split(text), cluster="nw"))[1:])
            except Exception as error:  # noqa: BLE001 - the parser's exceptions are not public
                said = getattr(error, "format_message", error.__str__)()
                if not (line in helped and said.startswith("Missing argument")):
                    wrong.append(f"{name}:{line}: `sapwood {text}`: {said}")
    assert count > 80
    assert not wrong, "\n".join(wrong)


def test_a_hint_has_words_to_replace_only_where_the_value_is_not_known() -> None:
    found: dict[str, set[str]] = {}
    for name, tree in modules():
        helped = references(tree)
        quoted = (
            (line, one["words"]) for line, text in texts(tree) for one in _QUOTED.finditer(text)
        )
        for line, words in itertools.chain(quoted, made(tree)):
            replaced = {word for word in words.split() if _REPLACED.fullmatch(word)}
            if replaced and line not in helped:
                found.setdefault(name, set()).update(replaced)
    assert found == CHOSEN


def test_each_command_on_a_page_of_the_dashboard_can_be_typed() -> None:
    scripts = [*(SOURCES / "views/static").glob("*.js")]
    found = [one for file in scripts for one in _ON_PAGES.findall(file.read_text())]
    assert {"top", "dashboard", "token create"} <= {*found}
    for words in found:
        parsed(shlex.split(command_line(*words.split(), cluster="nw"))[1:])
    plain = [file.name for file in scripts if re.search(r'["`]sapwood [a-z]', file.read_text())]
    assert plain == []  # command() adds the name of the cluster


def test_commands_in_texts_are_in_backquotes() -> None:
    verbs = set(root().commands)
    bare = [
        f"{name}:{line}: {text[:60]!r}"
        for name, tree in modules()
        for line, text in texts(tree)
        for found in _BARE.finditer(_QUOTED.sub("", text))
        if found["verb"] in verbs and "\n[" not in text  # the text of a settings file
    ]
    assert not bare, "\n".join(bare)


def has_cluster(command: Any) -> bool:
    return any("--cluster" in parameter.opts for parameter in command.params)


def test_hints_name_the_cluster_in_each_command_that_has_its_option() -> None:
    without = {words for words, one in commands(root()) if not has_cluster(one)}
    groups = {words.split()[0] for words in without} - {
        words.split()[0] for words, one in commands(root()) if has_cluster(one)
    }
    assert without | groups >= WITHOUT_CLUSTER


@pytest.mark.parametrize("name", ["nw", "sapwood://h1:7700"])
def test_a_command_with_the_cluster_can_be_typed(name: str) -> None:
    for words, one in commands(root()):
        if has_cluster(one):
            needed = ["x"] * sum(p.required for p in one.params if p.param_type_name == "argument")
            line = command_line(*words.split(), *needed, cluster=name)
            given = shlex.split(line)[1:]
            if words != "up" or name == "nw":
                assert given[-2:] == ["--cluster", name]
            parsed(given)
