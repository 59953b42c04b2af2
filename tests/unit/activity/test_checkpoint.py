"""Checkpoints: reading returns the written state, and damages are detected."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.activity import checkpoint
from sapwood.activity.checkpoint import (
    CheckpointWriter,
    RunIdentity,
    find_checkpoint,
    previous,
    read_checkpoint,
    require_same,
    write_checkpoint,
)
from sapwood.core.errors import DataMissingError, DataValueError

WHOSE = RunIdentity(program="ab", parameters={"seed": "1"}, data="cd", allow_nan=False)


def state(number: int) -> dict[str, Any]:
    return {"number": number, "centres": np.arange(12.0).reshape(3, 4) + number}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_what_was_written_comes_back(file: Path) -> None:
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    cube = np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0)
    kept: dict[str, Any] = {
        "plain": np.arange(3, dtype=">i2"),
        "inner": [columns, (cube, 1.5, None)],
        "part": np.arange(10.0)[::2],
        "empty": np.zeros((0, 3)),
        "one": np.float32(0.1),
        "text": "ä",
    }
    write_checkpoint(file, WHOSE, 7, kept)
    found = read_checkpoint(file)
    assert (found.iteration, found.identity) == (7, WHOSE)
    assert list(found.state) == list(kept)
    assert found.state["one"].dtype == np.float32
    for there, here in (
        (found.state["plain"], kept["plain"]),
        (found.state["inner"][0], columns),
        (found.state["inner"][1][0], cube),
        (found.state["part"], kept["part"]),
        (found.state["empty"], kept["empty"]),
    ):
        np.testing.assert_array_equal(there, here)
        assert there.dtype == here.dtype
        assert there.flags.writeable
        assert np.argsort(there.strides).tolist() == np.argsort(here.strides).tolist()


def test_only_its_user_may_read_it(file: Path) -> None:
    write_checkpoint(file, WHOSE, 1, state(1))
    assert file.stat().st_mode & 0o777 == 0o600


def test_there_is_none(file: Path) -> None:
    assert find_checkpoint(file) is None
    with pytest.raises(DataMissingError, match="the checkpoint does not exist"):
        read_checkpoint(file)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_what_is_torn_anywhere_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("torn") / "checkpoint"
    write_checkpoint(file, WHOSE, 1, state(1))
    whole = file.read_bytes()
    write_checkpoint(file, WHOSE, 2, state(2))
    last = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        torn = bytes(last[: data.draw(st.integers(0, len(last) - 1))])
    else:
        at = data.draw(st.integers(0, len(last) - 1))
        last[at] ^= data.draw(st.integers(1, 255))
        torn = bytes(last)
    file.write_bytes(torn)
    try:
        found = read_checkpoint(file)  # the one before it
    except DataValueError:
        pytest.fail("the checkpoint before the last one is whole")
    assert found.iteration == 1
    previous(file).write_bytes(whole[:-1])
    with pytest.raises(DataValueError):
        read_checkpoint(file)


def test_a_head_that_was_killed_between_two_renamings(file: Path) -> None:
    write_checkpoint(file, WHOSE, 1, state(1))
    file.replace(previous(file))
    found = find_checkpoint(file)
    assert found is not None
    assert found.iteration == 1


def test_all_are_damaged(file: Path) -> None:
    file.write_bytes(b"sapwood checkpoint\n")
    previous(file).write_bytes(b"")
    assert find_checkpoint(file) is None
    with pytest.raises(DataValueError, match="this is not a checkpoint"):
        read_checkpoint(file)


def test_another_version_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(file, WHOSE, 1, state(1))
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", lambda _: "9.0.1")
        with pytest.raises(DataValueError, match=r"of Sapwood .*, and this is 9\.0\.1"):
            find_checkpoint(file)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 2)
        with pytest.raises(DataValueError, match="has the format 1"):
            read_checkpoint(file)


def test_a_damaged_file_does_not_hide_one_of_another_version(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(file, WHOSE, 1, state(1))
    file.replace(previous(file))
    file.write_bytes(b"damaged")
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(DataValueError, match="has the format 1"):
        find_checkpoint(file)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"program": "x"}, "other sources"),
        ({"parameters": {"seed": "2", "more": "1"}}, "more: None then, 1 now; seed: 1 then, 2 now"),
        ({"data": "x"}, "the data are others"),
        ({"allow_nan": True}, "allow_nan"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(changed: dict[str, Any], said: str) -> None:
    require_same(WHOSE, WHOSE, "")
    with pytest.raises(DataValueError, match=said):
        require_same(WHOSE, msgspec.structs.replace(WHOSE, **changed), "file")


class Clock:
    """Time that passes when a test says so, and while something is written."""

    def __init__(self, takes: float) -> None:
        self.now = 0.0
        self.takes = takes

    def __call__(self) -> float:
        return self.now


def spent(
    file: Path, share: float, iterations: float, takes: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[CheckpointWriter, float]:
    """Offer a state every 10 ms for ten minutes; return the writer and the whole time."""
    clock = Clock(takes)

    def write(*_: Any) -> None:
        clock.now += clock.takes

    monkeypatch.setattr(checkpoint, "write_checkpoint", write)
    writer = CheckpointWriter(file, share, lambda: WHOSE, 0, clock)
    while clock.now < 600.0:
        clock.now += iterations
        writer.offer(1, state(1))
    return writer, clock.now


@pytest.mark.parametrize("takes", [0.001, 0.02, 0.5])
@pytest.mark.slow
def test_checkpoints_take_their_share_at_most(
    file: Path, takes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, whole = spent(file, 0.02, 0.01, takes, monkeypatch)
    assert 0.5 < writer.seconds / (0.02 * whole) <= 1.0
    assert writer.count == round(writer.seconds / takes)


def test_each_iteration_or_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = spent(file, 1.0, 1.0, 0.5, monkeypatch)
    assert writer.count == 400
    writer, _ = spent(file, 0.0, 1.0, 0.5, monkeypatch)
    assert writer.count == 0


def test_what_cannot_be_written_does_not_end_the_run(file: Path) -> None:
    writer = CheckpointWriter(file, 1.0, lambda: WHOSE, 0)
    writer.offer(1, state(1))
    file.unlink()
    file.mkdir()
    (file / "in the way").touch()
    previous(file).mkdir()
    (previous(file) / "too").touch()
    writer.offer(2, state(2))
    assert writer.count == 1
    assert not list(file.parent.glob(".*"))


def test_a_folder_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        CheckpointWriter(tmp_path / "missing" / "file", 1.0, lambda: WHOSE, 0)


def test_a_link_in_its_place_is_not_followed(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of another user")
    other.chmod(0o644)
    half = file.with_name(f".{file.name}.half")
    half.symlink_to(other)
    write_checkpoint(file, WHOSE, 1, state(1))
    assert read_checkpoint(file).iteration == 1
    assert not file.is_symlink()
    half.symlink_to(tmp_path / "missing")
    CheckpointWriter(file, 1.0, lambda: WHOSE, 0)
    assert not half.is_symlink()
    assert not (tmp_path / "missing").exists()
    assert other.read_text() == "of another user"
