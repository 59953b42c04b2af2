"""Every benchmark runs, checks its results and prints figures of the agreed form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"

KEYS = {"name", "agents", "bytes", "value", "unit", "floor", "ratio", "runs"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("startup", marks=pytest.mark.row("A-PERF-1")),
        "tree",
        "iterate",
        "store",
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in (
                "datasets",
                "failure",
                "hosts",
                "links",
                "messages",
                "native_code",
                "runs",
                "sessions",
                "staging",
                "topology",
            )
        ),
    ],
)
def test_quick_run(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{script}.py"), "--quick", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert figures
    for figure in figures:
        assert figure.keys() == KEYS
        assert figure["name"].startswith(script)
        assert figure["runs"] > 0
