"""A head whose disk is full: it says so, keeps running, and does what it can."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood

from .conftest import Cli, Until


@pytest.fixture
def small_state(tmp_path: Path) -> Iterator[Path]:
    """The folder of what heads keep, with little room."""
    folder = tmp_path / "state"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this machine lets us mount no file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room in a folder; return the file that takes it."""
    path = folder / "large"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


@pytest.mark.nightly  # it starts much; another test covers the report of the store
def test_a_head_whose_disk_is_full_goes_on(small_state: Path, own_cli: Cli) -> None:
    head: Any = own_cli.up()
    line = own_cli.json("token", "create", "--uses", "2")["text"]
    own_cli.join(line, "one")
    large = fill(small_state)
    said = own_cli.run("token", "create", status=5)
    assert "full" in said
    assert str(small_state) in said
    assert own_cli.states() == {"one": "ready"}
    with sapwood.connect().start(agents=2) as cluster:
        assert list(cluster.map(abs, [-1, -2])) == [1, 2]
    assert "full" in own_cli.run("node", "delete", "one", status=5)
    assert own_cli.states() == {"one": "ready"}  # it could come again, because nothing was recorded
    large.unlink()
    own_cli.join(own_cli.json("token", "create")["text"], "two")
    assert "one is removed" in own_cli.run("node", "delete", "one")
    assert own_cli.states()["two"] == "ready"
    assert own_cli.json("down")["name"] == head["name"]


@pytest.mark.nightly
def test_a_head_cannot_begin_on_a_full_disk(small_state: Path, own_cli: Cli) -> None:
    fill(small_state)
    said = own_cli.run("up", "--no-node", status=5)
    assert "No space left on device" in said or "full" in said
    assert str(small_state) in said


PROGRAM = """
import os, sapwood

class Ticker(sapwood.Program):
    reduce = {"n": "sum"}
    gate: str = sapwood.parameter("")

    def init(self, data): return {"k": 0}
    def map(self, slice, state):
        print("tick", state["k"], flush=True)
        while state["k"] == 1 and not os.path.exists(self.gate):
            pass
        return {"n": len(slice)}
    def update(self, state, total): return {"k": state["k"] + 1}
    def done(self, state): return state["k"] == 20
    def result(self, state):
        open(self.gate + ".over", "w").close()
        return state
"""


@pytest.mark.nightly
def test_a_detached_run_outlives_a_full_disk(
    small_state: Path, own_cli: Cli, until: Until, tmp_path: Path
) -> None:
    program = tmp_path / "ticker.py"
    program.write_text(PROGRAM)
    (tmp_path / "x.csv").write_text("1\n2\n3\n")
    gate = tmp_path / "gate"
    own_cli.up()
    words = [str(program), "--data", str(tmp_path / "x.csv"), "--agents", "1", "--detach"]
    run = own_cli.json("run", *words, "-p", f"gate={gate}")["id"]
    folder = Path(own_cli.json("run", "show", run)["folder"])
    until(lambda: b"tick 1\n" in (folder / "output.log").read_bytes())
    large = fill(small_state)
    gate.touch()
    until(lambda: Path(f"{gate}.over").exists())
    large.unlink()
    own_cli.run("run", "follow", run)
    found = own_cli.json("run", "show", run)
    assert (found["state"], found["answer"]["result"]["k"]) == ("done", 20)
    own_cli.run("down")
