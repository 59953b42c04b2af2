"""The ledger: it returns its events, it is bounded, and a full disk does not stop it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.head import ledger as module
from sapwood.head.event_file import NAME, SCHEMA
from sapwood.head.ledger import KINDS, EventQuery, Ledger, LedgerEvent, kinds_of

PATIENCE = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def made() -> Iterator[Callable[..., Ledger]]:
    ledgers: list[Ledger] = []

    def make(folder: Path, **more: Any) -> Ledger:
        ledgers.append(Ledger(folder, **{"clock": Clock(), **more}))
        return ledgers[-1]

    yield make
    for one in ledgers:
        one.close()


def fill(ledger: Ledger, count: int) -> None:
    for number in range(count):
        ledger.note("node.joined", f"event {number}", node=f"n{number % 7}")


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        threading.Event().wait(0.01)


def test_what_is_noted_is_found_also_by_the_next_head(
    tmp_path: Path, made: Callable[..., Ledger]
) -> None:
    clock = Clock()
    ledger = made(tmp_path, clock=clock)
    ledger.note("node.joined", "it joined", node="n1", facts={"address": "10.0.0.1"})
    ledger.note("session.created", "it began", session="s1")
    found = ledger.find(EventQuery())
    assert [one.kind for one in found] == ["node.joined", "session.created"]
    assert found[0].facts == {"address": "10.0.0.1"}
    ledger.close()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    again = made(tmp_path, clock=clock)
    again.note("head.started", "again")
    assert [one.number for one in again.find(EventQuery())] == [1, 2, 3]
    assert again.find(EventQuery())[:2] == found


MANY = [f"n{number}" for number in range(3, 40)]


@given(
    st.builds(
        EventQuery,
        since=st.sampled_from([0.0, 1015.0, 2000.0]),
        after=st.integers(0, 60),
        before=st.sampled_from([0, 1, 30, 60, 61]),
        nodes=st.sampled_from([[], ["n1"], ["n1", "n5", "none"], MANY, ["none"] * 20]),
        session=st.sampled_from(["", "s1", "other"]),
        kinds=st.sampled_from([[], ["node"], ["node.lost", "policy"]]),
        limit=st.integers(1, 50),
    )
)
@pytest.mark.slow
def test_questions_find_what_fits_and_nothing_else(
    filled: tuple[Ledger, list[LedgerEvent]], query: EventQuery
) -> None:
    ledger, events = filled
    assert ledger.find(query) == [one for one in events if query.fits(one)][-query.limit :]


@pytest.fixture(scope="module")
def filled(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Ledger, list[LedgerEvent]]]:
    ledger = Ledger(tmp_path_factory.mktemp("ledger"), clock=Clock())
    events: list[LedgerEvent] = []
    ledger.subscribe(events.append)
    kinds = sorted(KINDS)
    for number in range(60):
        ledger.note(
            kinds[number % len(kinds)],
            "something",
            node="" if number % 3 else f"n{number % 9}",
            session="" if number % 4 else f"s{number % 3}",
        )
    yield ledger, events
    ledger.close()


def test_kinds_are_named_whole_or_by_how_they_begin() -> None:
    assert kinds_of(["ledger"]) == {"ledger.gap"}
    for wrong in ("nod", "node.", "nodes", ""):
        with pytest.raises(ConfigurationError, match="is not a kind of event"):
            kinds_of([wrong])
    with pytest.raises(ConfigurationError, match="is not a kind of event"):
        Ledger.find(None, EventQuery(kinds=["x"]))  # type: ignore[arg-type]  # not so far


@pytest.mark.parametrize("limit", [0, module.MAX_FOUND + 1])
def test_there_is_a_bound_to_what_one_question_finds(
    tmp_path: Path, made: Callable[..., Ledger], limit: int
) -> None:
    with pytest.raises(ConfigurationError, match="finds 1 to"):
        made(tmp_path).find(EventQuery(limit=limit))


def test_the_newest_are_kept(tmp_path: Path, made: Callable[..., Ledger]) -> None:
    limit = 100
    ledger = made(tmp_path, limit=lambda: limit)
    fill(ledger, 250)
    assert [one.number for one in ledger.find(EventQuery())] == list(range(151, 251))
    limit = 10
    fill(ledger, 1)
    assert [one.number for one in ledger.find(EventQuery())] == list(range(242, 252))


@pytest.mark.slow
def test_a_file_that_may_not_grow_any_more_loses_its_oldest_events(
    tmp_path: Path, made: Callable[..., Ledger]
) -> None:
    ledger = made(tmp_path, pages=40)
    for _ in range(40):
        fill(ledger, 50)
        found = ledger.find(EventQuery(limit=10_000))
        assert found[-1].text == "event 49"
    assert ledger.state.trouble == ""
    assert ledger.state.lost == 0
    numbers = [one.number for one in found]
    assert numbers == list(range(numbers[0], 2001))
    assert 500 < len(numbers) < 2000
    assert (tmp_path / NAME).stat().st_size <= 40 * 4096


def test_texts_of_strangers_are_bounded_and_printable(
    tmp_path: Path, made: Callable[..., Ledger]
) -> None:
    ledger = made(tmp_path)
    ledger.note("machine.refused", "\x1b[31m" + "x" * 10_000, facts={"a\n": "b\0"})
    (found,) = ledger.find(EventQuery())
    assert found.text.startswith("?[31mxxx")
    assert len(found.text) == module.MAX_TEXT
    assert found.facts == {"a?": "b?"}


def test_a_damaged_file_is_put_aside(tmp_path: Path, made: Callable[..., Ledger]) -> None:
    (tmp_path / NAME).write_bytes(b"no database at all" * 1000)
    ledger = made(tmp_path)
    fill(ledger, 1)
    assert len(ledger.find(EventQuery())) == 1
    assert ledger.state.trouble == ""
    assert (tmp_path / "events.damaged").exists()


def test_a_file_of_a_newer_version_is_left_alone(
    tmp_path: Path, made: Callable[..., Ledger]
) -> None:
    made(tmp_path).close()
    with sqlite3.connect(tmp_path / NAME) as file:
        file.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    file.close()
    before = (tmp_path / NAME).read_bytes()
    ledger = made(tmp_path)
    fill(ledger, 3)
    assert len(ledger.find(EventQuery())) == 3, "in memory"
    assert "newer version" in ledger.state.trouble
    ledger.close()
    assert (tmp_path / NAME).read_bytes() == before


def test_without_a_disk_the_last_events_are_kept_and_the_rest_is_counted(
    tmp_path: Path, made: Callable[..., Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNWRITTEN", 10)
    monkeypatch.setattr(module, "RETRY", 0.01)
    ledger = made(tmp_path)
    full = threading.Event()
    full.set()
    original = ledger._file._insert_once

    def insert(rows: Any, more_room: int) -> None:
        if full.is_set():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        original(rows, more_room)

    monkeypatch.setattr(ledger._file, "_insert_once", insert)
    fill(ledger, 25)
    until(lambda: ledger.state.trouble == "the disk is full")
    assert [one.number for one in ledger.find(EventQuery())] == list(range(16, 26))
    assert ledger.state.lost == 15
    full.clear()
    until(lambda: ledger.state.trouble == "")
    found = ledger.find(EventQuery())
    assert [one.number for one in found] == list(range(16, 27))
    assert found[-1].kind == "ledger.gap"
    assert "15 events" in found[-1].text


FULL = """
import sys
from pathlib import Path
from sapwood.head import ledger as module
from sapwood.head.ledger import EventQuery, Ledger

module.RETRY = 0.01
folder = Path(sys.argv[1])
ledger = Ledger(folder)
ledger.note("node.joined", "first")
assert len(ledger.find(EventQuery())) == 1
with open(folder / "filler", "wb", buffering=0) as filler:
    try:
        while filler.write(b"x" * 4096):
            pass
    except OSError:
        pass
for number in range(3000):
    ledger.note("node.joined", "x" * 400)
found = ledger.find(EventQuery(limit=10_000))
assert len(found) == 3001, len(found)
assert ledger.state.trouble, "it does not say that the disk is full"
(folder / "filler").unlink()
for number in range(3000):
    assert len(ledger.find(EventQuery(limit=10_000))) == 3001
    if not ledger.state.trouble:
        break
assert not ledger.state.trouble, ledger.state
ledger.close()
assert len(Ledger(folder).find(EventQuery(limit=10_000))) == 3001
print("kept")
"""


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path: Path) -> None:
    mounted = f'mount -t tmpfs -o size=4m none "{tmp_path}" && exec "$0" -c "$1" "{tmp_path}"'
    command = ["unshare", "--mount", "sh", "-c", mounted, sys.executable, FULL]
    if (
        not shutil.which("unshare")
        or subprocess.run([*command[:2], "true"], check=False).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.row("C4-EVENT")
def test_a_million_events_are_asked_in_a_moment(
    tmp_path: Path, made: Callable[..., Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNWRITTEN", 100_000)
    ledger = made(tmp_path)
    kinds = sorted(KINDS)
    for number in range(1_000_000):
        node, session = f"n{number % 997}", f"s{number % 499}"
        ledger.note(kinds[number % len(kinds)], "something happened", node=node, session=session)
        if number % 50_000 == 0:
            ledger.find(EventQuery(limit=1))
    for query in (
        EventQuery(),
        EventQuery(nodes=["n5"]),
        EventQuery(session="s9", kinds=["node"]),
        EventQuery(nodes=MANY),
        EventQuery(nodes=[f"none{number}" for number in range(500)]),
    ):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            ledger.find(query)
            times.append(time.perf_counter() - began)
        assert min(times) < 0.1, (times, query)


def test_listeners_get_events_in_order_from_several_threads(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    heard: list[int] = []
    begin = threading.Barrier(4)

    def listen(event: LedgerEvent) -> None:
        if not event.number % 7:
            time.sleep(0)  # another thread may note one now
        heard.append(event.number)

    def note() -> None:
        begin.wait()
        for _ in range(200):
            ledger.note("ledger.gap", "x")

    ledger.subscribe(listen)
    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    assert heard == sorted(heard)
    assert len(heard) == 800


def test_a_listener_may_note_an_event(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    heard: list[str] = []

    def listen(event: LedgerEvent) -> None:
        heard.append(event.text)
        if event.text == "first":
            ledger.note("ledger.gap", "second")

    ledger.subscribe(listen)
    ledger.note("ledger.gap", "first")
    ledger.close()
    assert heard == ["first", "second"]
