"""Detached runs, parts of which are killed at random: no result is wrong, and all of them end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kills.py"


@pytest.mark.nightly
@pytest.mark.row("D-3")
@pytest.mark.parametrize("where", [("--nodes", "0"), ("--nodes", "2"), ("--machines", "4")])
def test_results_are_those_of_undisturbed_runs(where: tuple[str, str]) -> None:
    words = ["--seconds", "120", "--seed", where[1], "--stops", "0.1", *where]
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


@pytest.mark.nightly
@pytest.mark.row("D-3")
@pytest.mark.parametrize("fault", ["down", "disk", "quorum"])
def test_faults_of_whole_clusters_end_as_documented(fault: str) -> None:
    words = ["--seconds", "0", "--faults", fault]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{fault}: ")
