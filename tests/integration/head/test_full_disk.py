"""A head whose disk is full: it says so, goes on, and does what it can."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood

from .conftest import Cli


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


@pytest.mark.nightly  # it starts much; that the store says so is a test of its own
def test_a_head_whose_disk_is_full_goes_on(small_state: Path, own_cli: Cli) -> None:
    head: Any = own_cli.up()
    line = own_cli.json("token", "create", "--uses", "2")["text"]
    own_cli.join(line, "one")
    large = fill(small_state)
    said = own_cli.run("token", "create", status=5)
    assert "full" in said
    assert str(small_state) in said
    assert own_cli.states() == {"one": "ready"}
    with sapwood.connect(agents=2) as cluster:
        assert list(cluster.map(abs, [-1, -2])) == [1, 2]
    assert "full" in own_cli.run("node", "remove", "one", status=5)
    assert own_cli.states() == {"one": "ready"}  # it could come again, as nothing was noted
    large.unlink()
    own_cli.join(own_cli.json("token", "create")["text"], "two")
    assert "one is removed" in own_cli.run("node", "remove", "one")
    assert own_cli.states()["two"] == "ready"
    assert own_cli.json("down")["name"] == head["name"]


@pytest.mark.nightly
def test_a_head_cannot_begin_on_a_full_disk(small_state: Path, own_cli: Cli) -> None:
    fill(small_state)
    said = own_cli.run("up", "--no-node", status=5)
    assert "No space left on device" in said or "full" in said
    assert str(small_state) in said
