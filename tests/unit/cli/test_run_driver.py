"""The driver of a detached run: what it leaves, and whose session it takes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.cli import run_driver
from sapwood.cli.failures import EXIT_INTERRUPTED
from sapwood.code.run_spec import RunSpec
from sapwood.head import calls, session_records
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.head.runs import ANSWER, CHECKPOINT, LOCK

PROGRAM = """
import numpy as np
import sapwood


class Count(sapwood.Program):
    reduce = {"n": "sum"}
    inputs = ("x",)

    def default_data(self):
        return {"x": np.arange(10.0)}

    def map(self, data, state):
        return {"n": len(data["x"])}
"""


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The folder of a run that a head called lab keeps, with what a driver has written."""
    folder = tmp_path / "heads" / "lab" / "runs" / "a2938a05"
    folder.mkdir(parents=True)
    for name in (CHECKPOINT, f"{CHECKPOINT}.previous", f".{CHECKPOINT}.half", "output.log"):
        (folder / name).touch()
    return folder


@pytest.fixture
def wanted(tmp_path: Path) -> calls.CreateRun:
    file = tmp_path / "count.py"
    file.write_text(PROGRAM)
    return calls.CreateRun(spec=RunSpec(str(file)), settings={"cluster.on": "session:day"})


@pytest.mark.parametrize("code", [0, EXIT_INTERRUPTED])
def test_checkpoints_go_when_the_run_is_done_and_the_session_is_that_of_its_head(
    monkeypatch: pytest.MonkeyPatch, record: Path, wanted: calls.CreateRun, code: int
) -> None:
    asked: list[tuple[str, ...]] = []

    def find(cluster: str, _seconds: float, call: HeadCall[..., Any], handle: str) -> Any:
        asked.append((cluster, call.name, handle))
        return session_records.SessionRecord(
            id="1", name="day", state="ready", on="head", created=0.0
        )

    @contextlib.contextmanager
    def attach(handle: str, *, cluster: str, **_options: Any) -> Iterator[None]:
        asked.append((cluster, "attach", handle))
        yield

    monkeypatch.setattr(run_driver, "asked_head", find)
    monkeypatch.setattr(run_driver, "attach", attach)
    monkeypatch.setattr(run_driver, "run_once", lambda *_words: code)
    assert run_driver.drive(wanted, record) == code
    assert asked == [("lab", Sessions.find.name, "day"), ("lab", "attach", "day")]
    left = sorted(one.name for one in record.iterdir())
    kept = [f".{CHECKPOINT}.half", CHECKPOINT, f"{CHECKPOINT}.previous"] if code else []
    assert left == [*kept, LOCK, "output.log"]


HOLDER = """
import sys
from pathlib import Path
from sapwood.cli.run_driver import only_driver

lock = only_driver(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_driver_that_nobody_knows_ends_when_the_next_one_begins(record: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(record)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as former:
        assert former.stdout is not None
        assert former.stdout.readline() == b"held\n"
        with run_driver.only_driver(record):
            assert former.wait(30) == -signal.SIGKILL


def test_an_answer_of_the_driver_before_stays(record: Path, wanted: calls.CreateRun) -> None:
    (record / ANSWER).write_text('{"n": 1}')
    assert run_driver.drive(wanted, record) == 0
    assert (record / ANSWER).read_text() == '{"n": 1}'
