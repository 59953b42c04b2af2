"""Runs whose machines go before they are done: they stop in time and continue on others."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.paused_means import PAUSED_MEANS
from typer.testing import CliRunner

import sapwood
from sapwood.activity.progress import RunState
from sapwood.cli.main import app
from sapwood.client.allocation_end import AllocationEnd
from sapwood.environment.settings import NodeSettings

pytestmark = pytest.mark.row("D-10")


def called(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), prog_name="sapwood")


def written(folder: Path) -> tuple[Path, Path]:
    program, told = folder / "means.py", folder / "told"
    program.write_text(PAUSED_MEANS)
    return program, told


def wanted(program: Path, **names: Any) -> bytes:
    with sapwood.local(2) as cluster:
        result = cluster.run(program, parameters={"pause": 0.0, **names}).result(60)
    return np.asarray(result["table"]).tobytes()


def require_each_once(told: Path, rounds: int) -> None:
    """Check that each slice was computed once in each iteration."""
    counted = Counter(told.read_text().splitlines())
    assert counted == {f"{one} {rank}": 1 for one in range(rounds) for rank in (1, 2)}


def test_a_run_goes_on_over_the_end_of_its_machines(tmp_path: Path) -> None:
    program, told = written(tmp_path)
    limits = ("nodes.allocation_time=1.6s", "nodes.drain=0.6s", "nodes.ahead=0s")
    output = tmp_path / "result.npz"
    words = [word for limit in limits for word in ("--set", limit)]
    done = called(
        *("run", str(program), "-p", f"told={told}", "-p", "rounds=8", "-p", "pause=0.2"),
        *(
            "--on",
            "nodes:2",
            "--agents",
            "2",
            "--allocations",
            "9",
            *words,
            "--json",
            "--output",
            str(output),
        ),
    )
    assert done.exit_code == 0, done.output
    assert "continuing on machines 2 of 9" in done.stderr
    statistics = json.loads(done.stdout)["statistics"]
    assert statistics["resumed_from"] > 0
    with np.load(output) as found:
        assert found["table"].tobytes() == wanted(program, rounds=8)
    require_each_once(told, 8)


def test_without_other_machines_it_stops_and_is_continued(tmp_path: Path) -> None:
    program, told = written(tmp_path)
    file, output = tmp_path / "state", tmp_path / "result.npz"
    words = ["run", str(program), "-p", f"told={told}", "--on", "nodes:2", "--agents", "2"]
    words += ("--json", "--checkpoint", str(file), "--continue", "--output", str(output))
    limits = ("--set", "nodes.allocation_time=1.5s", "--set", "nodes.drain=0.7s")
    first = called(*words, *limits)
    assert first.exit_code == 75, first.output
    error = json.loads(first.stdout)["error"]
    assert error["code"] == "SW301"
    assert error["where"] == str(file)
    assert not output.exists()
    last = called(*words)
    assert last.exit_code == 0, last.output
    assert json.loads(last.stdout)["statistics"]["resumed_from"] > 0
    with np.load(output) as found:
        assert found["table"].tobytes() == wanted(program)
    require_each_once(told, 12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--allocations", "2"), "no other machines can be had"),
        (("--continue",), "--continue resumes from the file of --checkpoint"),
        (("--allocations", "2", "--watch"), "--watch runs another program"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    program, _ = written(tmp_path)
    done = called("run", str(program), "--agents", "1", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr


def test_a_run_is_drained(tmp_path: Path) -> None:
    program, told = written(tmp_path)
    file = tmp_path / "state"
    with sapwood.local(2) as cluster:
        names = {"told": str(told), "pause": 0.05}
        run = cluster.run(program, parameters=names, checkpoint=file)
        while not told.exists():
            assert not run.wait(0.01)
        assert run.drain("it is wanted")
        error = run.exception(60)
        assert isinstance(error, sapwood.errors.DrainedError)
        assert "it is wanted" in error.what
        assert run.progress.state is RunState.DRAINED
        assert run.progress.iteration < 12
        assert not run.drain("again")
        again = cluster.run(program, parameters=names, resume=file)
        assert np.asarray(again.result(60)["table"]).tobytes() == wanted(program)
        assert again.statistics.resumed_from == run.progress.iteration
    require_each_once(told, 12)


def test_a_drained_run_without_checkpoints_says_that_its_state_is_lost(tmp_path: Path) -> None:
    program, told = written(tmp_path)
    with sapwood.local(1) as cluster:
        run = cluster.run(program, parameters={"told": str(told), "pause": 0.05})
        while not (told.exists() and len(told.read_text().splitlines()) > 1):
            assert not run.wait(0.01)
        run.drain("it is wanted")
        error = run.exception(60)
    assert isinstance(error, sapwood.errors.DrainedError)
    assert "its state is lost" in error.what


def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, told = written(tmp_path)
    file = tmp_path / "state"
    jumps = itertools.cycle([0.0, 86400.0, -86400.0, 5e8, -1e9])
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    an_hour = NodeSettings(allocation_time=3600.0, drain=60.0)
    assert 3599 < (AllocationEnd(None, an_hour).seconds_left() or 0) <= 3600
    with sapwood.local(2) as cluster:
        names = {"told": str(told), "pause": 0.0}
        settings = msgspec.structs.replace(cluster.settings.limits, checkpoints=1.0)
        cluster.settings = msgspec.structs.replace(cluster.settings, limits=settings)
        first = cluster.run(program, parameters=names, checkpoint=file)
        result = np.asarray(first.result(60)["table"]).tobytes()
        assert first.statistics.checkpoints > 5
        again = cluster.run(program, parameters=names, resume=file)
        assert np.asarray(again.result(60)["table"]).tobytes() == result
    monkeypatch.undo()
    assert result == wanted(program)
