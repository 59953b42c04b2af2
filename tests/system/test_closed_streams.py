"""Standard streams that are closed, full or a pipe without a reader."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TALK = """
import sapwood

class Talk(sapwood.Program):
    reduce = {"n": "sum"}

    def init(self, data):
        return {"k": 0}

    def map(self, slice, state):
        print("line", state["k"], "x" * 200, flush=True)
        return {"n": len(slice)}

    def update(self, state, total):
        return {"k": state["k"] + 1}

    def done(self, state):
        return state["k"] == 200
"""

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
SAPWOOD = str(Path(sys.executable).with_name("sapwood"))


def run(tmp_path: Path, redirection: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "talk.py").write_text(TALK)
    (tmp_path / "x.csv").write_text("\n".join(map(str, range(100))))
    command = f'"{SAPWOOD}" run talk.py --data x.csv --agents 2 --output r.json {redirection}'
    return subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        env=BUFFERED,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&- >&- 2>&-", "2> >(head -n 2)"])
def test_a_run_ends_with_its_result_whatever_standard_error_is(
    tmp_path: Path, redirection: str
) -> None:
    done = run(tmp_path, redirection)
    assert done.returncode == 0, done
    assert json.loads((tmp_path / "r.json").read_text())["k"] == 200


def test_a_run_into_a_pipe_that_nobody_reads_ends(tmp_path: Path) -> None:
    done = run(tmp_path, "2>&1 | head -n 2")
    assert done.returncode == 0, done  # that of head
    assert "Traceback" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["k"] == 200


@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("--verbose 2>/dev/full", 0),
        ("| true", 0),  # the result is in its file; only the text is lost
        (">/dev/full", 5),
    ],
)
def test_the_exit_code_is_that_of_the_run(tmp_path: Path, redirection: str, code: int) -> None:
    done = run(tmp_path, f"{redirection}; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["k"] == 200


def test_help_on_a_full_disk_is_an_error_with_its_code() -> None:
    done = subprocess.run(
        ["bash", "-c", f'"{SAPWOOD}" --help >/dev/full'],
        capture_output=True,
        env=BUFFERED,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 5, done
    assert "error SW300: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
