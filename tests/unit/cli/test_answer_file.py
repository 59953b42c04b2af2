"""The answer of a detached run while its folder cannot be written."""

import errno
import sys
from pathlib import Path

import pytest

from sapwood.cli import answer_file
from sapwood.cli.answer_file import AnswerFile, answering, replace_file
from sapwood.cli.present import print_json
from sapwood.head.runs import ANSWER, PROGRESS


def fail_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Have the first attempts to write find a full disk; return the list of attempts."""
    attempts: list[int] = []

    def replace(file: Path, data: bytes) -> None:
        attempts.append(len(data))
        if len(attempts) <= times:
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        replace_file(file, data)

    monkeypatch.setattr(answer_file, "PAUSE", 0.0)
    monkeypatch.setattr(answer_file, "replace_file", replace)
    return attempts


def test_an_answer_is_written_again_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = fail_first(monkeypatch, 3)
    before = sys.stdout
    with answering(tmp_path):
        print_json({"n": 1}, one_line=True)
    assert sys.stdout is before
    assert (tmp_path / ANSWER).read_bytes() == b'{"n":1}\n'
    assert len(attempts) == 4


def test_the_progress_of_an_answer_replaces_what_a_full_disk_has_left(tmp_path: Path) -> None:
    (tmp_path / PROGRESS).write_bytes(b'{"state":"running","iteration":3}')

    def drive() -> None:
        with answering(tmp_path):
            print_json({"progress": {"state": "done", "iteration": 14}}, one_line=True)
            raise SystemExit(0)

    with pytest.raises(SystemExit):
        drive()
    assert (tmp_path / PROGRESS).read_bytes() == b'{"state":"done","iteration":14}'
    with answering(tmp_path):
        print_json({"error": {"code": "SW1"}}, one_line=True)
    assert (tmp_path / PROGRESS).read_bytes() == b'{"state":"done","iteration":14}'


def test_after_its_patience_each_attempt_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = fail_first(monkeypatch, 10)
    monkeypatch.setattr(answer_file, "ANSWER_PATIENCE", -1.0)
    stream = AnswerFile(tmp_path / ANSWER)
    stream.write(b"{}")
    for count in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            stream.flush()
        assert len(attempts) == count
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_leaves_the_former_file(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    file.write_bytes(b"former")
    (tmp_path / "progress.half").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["progress.json"]
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"
