"""Every interpreter that Sapwood starts is isolated from the current folder."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.environment import interpreter
from sapwood.environment.interpreter import python_command

SOURCES = sorted(Path(sapwood.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("options", [{}, {"site": False}, {"site": False, "variables": False}])
@pytest.mark.slow
def test_a_module_in_the_current_folder_is_not_imported(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    (tmp_path / "their_tool.py").write_text("raise SystemExit('started from the current folder')")
    for words in (["-c", "import json; json.loads"], ["-m", "their_tool"]):
        done = subprocess.run(
            python_command(*words, **options),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "from the current folder" not in done.stderr


def commands_in(tree: ast.AST) -> Iterator[int]:
    """Yield the lines with a list or tuple that begins with ``sys.executable``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            first = node.elts[0]
            if isinstance(first, ast.Attribute) and ast.unparse(first) == "sys.executable":
                yield node.lineno


@pytest.mark.slow
def test_no_other_module_makes_a_command_of_an_interpreter() -> None:
    assert list(commands_in(ast.parse("[sys.executable, '-c', 'pass']"))) == [1]
    found = [
        f"{path}:{line}"
        for path in SOURCES
        if path != Path(interpreter.__file__) and "sys.executable" in path.read_text("utf-8")
        for line in commands_in(ast.parse(path.read_text("utf-8")))
    ]
    # A name that is only tried; its options come from python_command.
    assert [one for one in found if "nodes/starting.py" not in one] == []


def test_the_words_come_behind_the_options() -> None:
    assert python_command("x.py", site=False, variables=False) == [
        sys.executable,
        "-I",
        "-S",
        "x.py",
    ]
    assert python_command("-m", "x", interpreter=["qemu", "py"]) == ["qemu", "py", "-P", "-m", "x"]
