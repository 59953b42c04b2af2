"""Histories of rates: whose rates count for whom, bounds, damage, and what cannot be."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.activity import rate_history
from sapwood.activity.delegation import Rates, assign
from sapwood.activity.rate_history import (
    MAX_AGENTS,
    MAX_BYTES,
    MAX_RATIO,
    FileHistory,
    FunctionHistory,
    MeasuredRate,
    key_of,
    read_history,
)

KEY = key_of("hash", "f.map")


def measured(agent: int, rate: float, node: str = "n1", kind: str = "old") -> MeasuredRate:
    return MeasuredRate(agent=agent, node=node, kind=kind, rate=rate)


def history(*agents: MeasuredRate) -> FunctionHistory:
    return FunctionHistory(function="f.map", run="f-1", written=1e9, agents=agents)


def test_the_place_counts_more_than_the_machine_and_that_more_than_its_kind() -> None:
    known = history(measured(1, 10.0), measured(2, 30.0), measured(3, 90.0, "n2", "new"))
    guessed = known.guess(
        {1: ("n1", "old"), 5: ("n1", "old"), 6: ("n3", "old"), 7: ("n4", "new"), 8: ("n5", "?")}
    )
    assert guessed == {1: 10.0, 5: 20.0, 6: 20.0, 7: 90.0}


def test_the_newest_run_counts_and_others_are_kept() -> None:
    known = history(measured(1, 10.0), measured(2, 30.0))
    after = known.with_run("f-2", 2e9, [measured(1, 50.0)])
    assert (after.run, after.written) == ("f-2", 2e9)
    assert after.guess({1: ("n1", "old"), 2: ("n1", "old")}) == {1: 50.0, 2: 30.0}


def test_a_history_knows_so_many_agents_and_no_more() -> None:
    many = [measured(agent, 1.0) for agent in range(MAX_AGENTS + 10)]
    known = history(*many).with_run("f-2", 2e9, [measured(9999, 2.0)])
    assert len(known.agents) == MAX_AGENTS
    assert known.agents[0].agent == 9999
    assert len(msgspec.json.encode(known)) < MAX_BYTES


@given(
    rates=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8),
    count=st.integers(0, 10**5),
)
def test_whatever_a_history_says_each_item_is_given_once(rates: list[float], count: int) -> None:
    agents = [measured(agent, rate) for agent, rate in enumerate(rates, start=1)]
    where = {one.agent: (one.node, one.kind) for one in agents}
    guessed = history(*agents).guess(where)
    assert all(math.isfinite(one) and one > 0 for one in guessed.values())
    known = Rates(guessed).of(list(where))
    if known:
        parts = assign(range(count), known)
        ends = [0, *(part.stop for part in parts.values())]
        assert [part.start for part in parts.values()] == ends[:-1]
        assert ends[-1] == count


def test_nobody_is_guessed_to_be_a_million_times_as_fast() -> None:
    known = history(measured(1, 1.0), measured(2, 1.0), measured(3, 1e12))
    assert known.guess({3: ("n1", "old")}) == {3: MAX_RATIO}


def test_what_is_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    files = FileHistory(tmp_path / "rates")
    assert read_history(files, KEY) is None
    files.write(KEY, msgspec.json.encode(history(measured(1, 10.0))))
    assert read_history(FileHistory(tmp_path / "rates"), KEY) == history(measured(1, 10.0))
    assert [one.name for one in (tmp_path / "rates").iterdir()] == [f"{KEY}.json"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b'{"version":1}', "missing required field"),
        (b"\0" * 100, "malformed"),
        (msgspec.json.encode(history())[:-9], "truncated"),
        (msgspec.json.encode({"version": 2, "function": "f", "run": "", "written": 0}), "layout 2"),
        (msgspec.json.encode({"function": "f", "run": "", "written": 1e99}), "out of range"),
        (b" " * (MAX_BYTES + 9), "bytes"),
        (b'{"function":"f","run":"","written":0,"agents":[{"rate":"x"}]}', "float"),
    ],
)
def test_a_damaged_history_is_not_used_and_told_of(
    tmp_path: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{KEY}.json").write_bytes(content)
    with caplog.at_level("WARNING", logger="sapwood.activity"):
        assert read_history(FileHistory(tmp_path), KEY) is None
    assert "history of rates not used" in caplog.text
    assert reason in str([vars(one) for one in caplog.records])


def test_the_oldest_histories_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_history, "MAX_FUNCTIONS", 3)
    files = FileHistory(tmp_path)
    keys = [key_of("hash", str(number)) for number in range(5)]
    for number, key in enumerate(keys):
        files.write(key, b"{}")
        os.utime(tmp_path / f"{key}.json", (number, number))
    assert {one.name for one in tmp_path.iterdir()} == {f"{key}.json" for key in keys[2:]}


def test_a_folder_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = FileHistory(tmp_path / "file" / "rates")
    files.write(KEY, b"{}")
    assert files.read(KEY) is None


def test_writers_at_once_leave_one_whole_history(tmp_path: Path) -> None:
    files = FileHistory(tmp_path)
    texts = [msgspec.json.encode(history(*[measured(1, float(n + 1))] * 200)) for n in range(4)]
    threads = [threading.Thread(target=files.write, args=(KEY, text)) for text in texts * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.read(KEY) in texts
    assert len(list(tmp_path.iterdir())) == 1
