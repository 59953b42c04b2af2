"""Detached runs, parts of which are killed at random: no result is wrong, and all of them end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kills.py"


@pytest.mark.nightly
@pytest.mark.parametrize("nodes", [0, 2])
def test_results_are_those_of_undisturbed_runs(nodes: int) -> None:
    words = ["--seconds", "120", "--seed", str(nodes), "--nodes", str(nodes)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no result was wrong" in done.stdout
