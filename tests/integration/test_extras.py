"""What works without the packages of the extras, and what the rest says there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HIDE = """
import os, sys
for name in os.environ["HIDDEN_PACKAGES"].split():
    sys.modules[name] = None  # as if it were not installed
"""

Without = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def without(tmp_path: Path) -> Without:
    """Run a command in processes that cannot import some packages."""
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(HIDE)

    def run(hidden: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sapwood", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(tmp_path / "hiding"),
                "HIDDEN_PACKAGES": hidden,
                "XDG_STATE_HOME": str(tmp_path / "state"),
            },
        )

    return run


OF_EXTRAS = {
    "cluster": "cryptography psutil",
    "server": "starlette uvicorn h11",
    "watch": "watchfiles",
    "lizard": "sapwood_lizard yaml",
    "cuda-cpu": "sapwood_cuda_cpu tree_sitter_cuda clang",
}
"""What the extras bring that this package, or one of extras/, imports."""


def test_programs_run_on_this_machine_without_any_extra(without: Without) -> None:
    done = without("".join(f"{one} " for one in OF_EXTRAS.values()), "new", "line")
    assert done.returncode == 0, done.stderr
    done = without(
        "".join(f"{one} " for one in OF_EXTRAS.values()), "run", "line", "--agents", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert "result" in json.loads(done.stdout)


@pytest.mark.parametrize(
    ("hidden", "words", "what", "extra"),
    [
        ("cryptography", ["up", "--cluster", "none"], "a cluster of several nodes", "cluster"),
        ("psutil", ["exec", "--on", "nodes:1", "true"], "a cluster of several nodes", "cluster"),
        ("cryptography", ["exec", "--on", "nodes:1", "true"], "a cluster of several", "cluster"),
        ("uvicorn", ["up", "--cluster", "none", "--http", "127.0.0.1:0"], "the HTTP", "server"),
        ("h11", ["up", "--cluster", "none", "--http", "127.0.0.1:0"], "the HTTP server", "server"),
        ("watchfiles", ["run", "line", "--watch"], "a watch on sources", "watch"),
    ],
)
def test_what_needs_an_extra_says_which(
    without: Without, hidden: str, words: list[str], what: str, extra: str
) -> None:
    without("", "new", "line")
    done = without(hidden, *words)
    assert done.returncode == 2, done.stderr
    assert f"{what}" in done.stderr
    assert f"needs the package {hidden}, which is not installed" in done.stderr
    assert done.stderr.endswith(f"hint:  pip install 'sapwood[{extra}]'\n")


def test_a_cluster_without_the_server_runs_and_offers_no_dashboard(without: Without) -> None:
    up = without("starlette", "up", "--cluster", "lean", "--json")
    try:
        assert up.returncode == 0, up.stderr
        assert json.loads(up.stdout)["http"] == []
        done = without("starlette", "dashboard", "--cluster", "lean")
        assert done.returncode == 2
        assert done.stderr.endswith("hint:  pip install 'sapwood[server]'\n")
    finally:
        without("", "down", "--cluster", "lean")


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;, ]", one)[0].lower() for one in requirements}


def test_the_mandatory_dependencies_are_few() -> None:
    assert _names(PROJECT["dependencies"]) == {
        "cloudpickle",
        "msgspec",
        "numpy",
        "pyelftools",
        "rich",
        "structlog",
        "tree-sitter",
        "tree-sitter-c",
        "tree-sitter-cpp",
        "typer",
    }


def test_every_extra_that_a_text_names_is_one() -> None:
    known: dict[str, Any] = PROJECT["optional-dependencies"]
    pattern = re.compile(r"""sapwood\[([\w,-]+)\]|(?<![\w.])install\("([\w-]+)"\)""")
    folders = [ROOT / name for name in ("src", "extras", "docs", "examples")]
    for path in [ROOT / "README.md", *(one for each in folders for one in each.rglob("*"))]:
        if path.suffix in {".py", ".md"} and "_build" not in path.parts:
            for found in pattern.finditer(path.read_text(encoding="utf-8")):
                for extra in (found[1] or found[2]).split(","):
                    assert extra in known, (path, found[0])


def test_each_extra_package_has_the_version_of_this_one() -> None:
    for file in (ROOT / "extras").glob("*/pyproject.toml"):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        assert project["version"] == PROJECT["version"]
        extra = project["name"].removeprefix("sapwood-")
        exactly = f"{project['name']}=={project['version']}"
        assert PROJECT["optional-dependencies"][extra] == [exactly]
        assert any(
            re.fullmatch(rf"sapwood(\[\w+\])?=={re.escape(PROJECT['version'])}", one)
            for one in project["dependencies"]
        )
