"""Programs that use a cluster while their standard streams are closed, full or slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import sapwood

def talk(value):
    print("line", value, "x" * 2_000, flush=True)
    print("line", value, "x" * 2_000, file=sys.stderr, flush=True)
    return value

class Talk(sapwood.Program):
    reduce = {"n": "sum"}

    def map(self, slice, state):
        talk(0)
        return {"n": len(slice)}

found = {}
with sapwood.local(2) as cluster:
    found["task"] = cluster.submit(talk, 3).result(60)
    found["map"] = list(cluster.map(talk, range(100), timeout=60))[-1]
    found["run"] = cluster.run(Talk, data=range(10)).result(60)["n"]
    with cluster.stream(talk, reduce="max") as stream:
        found["wave"] = [stream.exchange(wave, 60).total for wave in range(50)][-1]
    cluster.submit(talk, 1).add_done_callback(print)
    try:
        cluster.submit(abs, "x").result(60)
    except TypeError as error:
        found["error"] = type(error).__name__
with open("found.json", "w") as file:
    json.dump(found, file)
"""
FOUND = {"task": 3, "map": 99, "run": 10, "wave": 49, "error": "UserCodeError"}
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


CASES = ("<&- >&- 2>&-", ">/dev/full 2>&1", "2>&1 | head -n 1", "2>&1 | (sleep 3; cat >/dev/null)")
NIGHTLY = (
    ">&-",
    "2>&-",
    ">/dev/full",
    "2>/dev/full",
    "| head -n 1",
    "2>&1 >/dev/null | (sleep 3; exec 0<&-; sleep 1)",
)


@pytest.mark.parametrize(
    "redirection", [*CASES, *(pytest.param(one, marks=pytest.mark.nightly) for one in NIGHTLY)]
)
def test_results_are_right_whatever_the_streams_are(tmp_path: Path, redirection: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" program.py {redirection}'],
        cwd=tmp_path,
        env=BUFFERED,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert (tmp_path / "found.json").exists(), done
    assert json.loads((tmp_path / "found.json").read_text()) == FOUND
