from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app

Sapwood = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with a build cache and a configuration of the test's own."""
    own = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }
    return {**os.environ, **own}


@pytest.fixture
def sapwood(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Sapwood:
    """Run the command line to its end, in this process and in the test's own folder."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        for name, value in {**environment, **variables}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        answer = CliRunner().invoke(app, arguments, prog_name="sapwood")
        return subprocess.CompletedProcess(
            arguments, answer.exit_code, answer.stdout, answer.stderr
        )

    return run


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """A program in a folder: C sums the squares of its numbers, several times over."""
    folder = tmp_path / "squares"
    folder.mkdir()
    (folder / "program.toml").write_text(PROGRAM)
    (folder / "squares.py").write_text(METHODS)
    (folder / "squares.c").write_text(SOURCE)
    return folder


PROGRAM = """
[program]
description = "Sums of squares"
python = "squares.py"
sources = ["squares.c"]
inputs = ["x"]

[parameters.rounds]
default = 3
minimum = 1
maximum = 1000000
help = "iterations to run"

[parameters.power]
default = 2.0
help = "not used by the C part"

[map]
function = "squares"

[reduce]
total = "sum"
"""

METHODS = """
import numpy as np

def default_data(program):
    return {"x": np.arange(1000.0)}

def init(program, data):
    return {"round": 0, "total": np.zeros(1)}

def update(program, state, total):
    return {"round": state["round"] + 1, "total": total["total"]}

def done(program, state):
    return state["round"] >= program.rounds

def iterations(program):
    return program.rounds

def metrics(program, state):
    return {"total": float(state["total"][0])}

def result(program, state):
    return {"total": float(state["total"][0])}
"""

SOURCE = """
#include <stdint.h>

/* Sums the squares of some numbers.
 *
 * @array x[n]
 * @array total[1]
 */
void squares(const double *x, int64_t n, double *total) {
    *total = 0;
    for (int64_t i = 0; i < n; i++) *total += x[i] * x[i];
}
"""
