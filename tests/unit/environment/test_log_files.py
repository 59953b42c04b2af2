"""Log files: read while they grow, merged by time, and what is wanted of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.environment.log_files import LogFile, LogLine, Wanted, merged


def line(second: float, event: str, **fields: object) -> bytes:
    """Return a line as it is written."""
    known = {"level": "info", "component": "comm", "node": "a", "pid": 7}
    stamp = f"2026-11-22T09:45:{second:09.6f}Z"
    return msgspec.json.encode({"timestamp": stamp, "event": event, **known, **fields}) + b"\n"


def read(path: Path, wanted: Wanted = Wanted()) -> list[LogLine]:  # noqa: B008 - frozen
    """Return what is wanted of a file."""
    with closing(LogFile(path)) as file:
        return list(merged([file], wanted))


def events(lines: Iterator[LogLine]) -> list[str]:
    return [each.event for each in lines]


@pytest.mark.row("A-LOG-1")
def test_files_are_merged_by_time(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(line(1, "one") + line(3, "three") + line(3, "also three"))
    (tmp_path / "b").write_bytes(line(2, "two") + line(4, "four"))
    files = [LogFile(tmp_path / name) for name in ("a", "b")]
    assert events(merged(files, Wanted())) == ["one", "two", "three", "also three", "four"]
    assert events(merged(files, Wanted())) == []  # each line once
    for file in files:
        file.close()


def test_a_line_says_what_was_logged(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(line(1.5, "ready", agents=4, exception="Traceback"))
    (found,) = read(path)
    assert (found.timestamp, found.level) == ("2026-11-22T09:45:01.500000Z", "info")
    assert (found.component, found.event, found.node, found.pid) == ("comm", "ready", "a", 7)
    assert (found.exception, found.fields) == ("Traceback", {"agents": 4})
    assert found.raw == path.read_bytes().rstrip()


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    path, whole = tmp_path / "log", line(1, "whole")
    path.write_bytes(line(0, "first") + whole[:20])
    file = LogFile(path)
    assert events(file.lines()) == ["first"]
    with path.open("ab") as more:
        more.write(whole[20:30])
        more.flush()
        assert events(file.lines()) == []
        more.write(whole[30:])
    assert events(file.lines()) == ["whole"]
    file.close()


def test_a_file_that_is_replaced_or_cut_off_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(line(1, "one") + line(2, "two"))
    file = LogFile(path)
    assert events(file.lines()) == ["one", "two"]
    path.write_bytes(line(3, "cut off"))
    assert events(file.lines()) == ["cut off"]
    (tmp_path / "new").write_bytes(line(4, "another"))
    os.replace(tmp_path / "new", path)  # noqa: PTH105 - what log rotation does
    assert events(file.lines()) == ["another"]
    path.unlink()
    assert events(file.lines()) == []
    path.write_bytes(line(5, "new"))
    assert events(file.lines()) == ["new"]
    file.close()


@pytest.mark.parametrize("odd", [b"not JSON", b"[1]", b"{}", b'{"timestamp": 1, "pid": "x"}'])
def test_what_is_no_log_line_keeps_its_place(tmp_path: Path, odd: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(line(1, "one") + odd + b"\n\n" + line(2, "two"))
    found = read(path)
    assert [each.event for each in found] == ["one", odd.decode(), "two"]
    assert found[1].timestamp == found[0].timestamp
    assert found[1].level == ""


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), "abc"),
        (Wanted(("comm",)), "ab"),
        (Wanted(("comm.link", "session")), "bc"),
        (Wanted(level="warning"), "bc"),
        (Wanted(level="off"), ""),
        (Wanted(nodes=("two",)), "c"),
        (Wanted(("comm",), "warning", ("one",)), "b"),
    ],
)
def test_only_what_is_wanted_is_there(tmp_path: Path, wanted: Wanted, found: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        line(1, "a", node="one")
        + line(2, "b", component="comm.link", level="warning", node="one")
        + line(3, "c", component="session", level="error", node="two")
    )
    assert "".join(each.event for each in read(path, wanted)) == found


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        LogFile(tmp_path / "none")
