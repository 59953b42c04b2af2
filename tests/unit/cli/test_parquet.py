"""Events and runs as Parquet files."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow.parquet as pq
import pytest

from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.run_record import (
    AgentShare,
    RecordedAgent,
    RecordedIteration,
    WorkStatistics,
)
from sapwood.cli import events as command
from sapwood.cli.events import _pages
from sapwood.cli.parquet import check_only_parquet, write_events, write_runs
from sapwood.client.detached_runs import DetachedRun
from sapwood.code.run_spec import RunSpec
from sapwood.core.errors import ConfigurationError, DataError, InputError
from sapwood.head.calls import CreateRun, RunRecord
from sapwood.head.ledger import EventQuery, Ledger, LedgerEvent
from sapwood.head.parts.events import EventPage
from sapwood.head.runs import PROGRESS, WORK
from sapwood.head_client.connection import ServiceClient

pytestmark = pytest.mark.row("D-22")

FIRST = LedgerEvent(
    number=1, time=1769860800.25, kind="node.joined", text="joined", node="n1", facts={"user": "0"}
)
SECOND = LedgerEvent(number=2, time=1769860801.0, kind="session.ended", text="é", session="s")


def test_events_are_rows(tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    assert write_events(file, [[FIRST], [SECOND]]) == 2
    assert pq.read_table(file).to_pylist() == [
        {
            "number": 1,
            "time": dt.datetime(2026, 1, 31, 12, 0, 0, 250_000, dt.UTC),
            "kind": "node.joined",
            "node": "n1",
            "session": "",
            "text": "joined",
            "facts": [("user", "0")],
        },
        {
            "number": 2,
            "time": dt.datetime(2026, 1, 31, 12, 0, 1, 0, dt.UTC),
            "kind": "session.ended",
            "node": "",
            "session": "s",
            "text": "é",
            "facts": [],
        },
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "events.parquet"]


def test_without_rows_there_are_the_columns(tmp_path: Path) -> None:
    assert write_events(tmp_path / "none", []) == 0
    assert pq.read_table(tmp_path / "none").column_names[:3] == ["number", "time", "kind"]
    assert write_runs(tmp_path / "none", []) == 0
    assert pq.read_table(tmp_path / "none").column_names[:2] == ["id", "program"]


def test_runs_are_rows_with_the_calls_of_their_agents(tmp_path: Path) -> None:
    spec = RunSpec("k", parameters={"colours": 8})
    record = RunRecord(
        id="60e6",
        program="quantize",
        session="night",
        state="done",
        created=1000.0,
        ended=1019.5,
        folder=str(tmp_path),
        wanted=CreateRun(spec=spec),
        restarts=(1003.0,),
    )
    info = RunInfo(
        state=RunState.DONE, iteration=4, iterations=4, items=90, agents=2, metrics={"inertia": 1.5}
    )
    share = AgentShare(agent=2, started=0.5, seconds=0.25, waited=0.0, items=45, bytes_up=378)
    work = WorkStatistics(
        run="r",
        program="quantize",
        hash="a",
        began=1000.0,
        agents=(RecordedAgent(agent=2, node="n2"),),
        iterations=(
            RecordedIteration(iteration=1, started=0.5, seconds=0.3, agents=(share,)),
            RecordedIteration(iteration=2, started=0.8, seconds=0.3),
        ),
    )
    (tmp_path / PROGRESS).write_bytes(msgspec.json.encode(info))
    (tmp_path / WORK).write_bytes(msgspec.json.encode(work))
    run = DetachedRun(record, cast("Any", None), "default")
    file = tmp_path / "runs.parquet"
    assert write_runs(file, [run]) == 1
    (row,) = pq.read_table(file).to_pylist()
    assert row == {
        "id": "60e6",
        "program": "quantize",
        "session": "night",
        "state": "done",
        "reason": "",
        "began": dt.datetime.fromtimestamp(1000.0, dt.UTC),
        "ended": dt.datetime.fromtimestamp(1019.5, dt.UTC),
        "seconds": 19.5,
        "restarts": 1,
        "iterations": 4,
        "items": 90,
        "agents": 2,
        "parameters": '{"colours":8}',
        "metrics": [("inertia", 1.5)],
        "calls": [
            {
                "iteration": 1,
                "agent": 2,
                "node": "n2",
                "started": 0.5,
                "seconds": 0.25,
                "waited": 0.0,
                "items": 45,
                "bytes_up": 378,
            }
        ],
    }


def test_a_run_that_has_said_nothing_yet_has_no_figures(tmp_path: Path) -> None:
    record = RunRecord(id="1", program="p", session="", state="running", created=1000.0)
    write_runs(tmp_path / "runs", [DetachedRun(record, cast("Any", None), "default")])
    (row,) = pq.read_table(tmp_path / "runs").to_pylist()
    assert (row["ended"], row["iterations"], row["calls"], row["seconds"] > 0) == (
        None,
        None,
        [],
        True,
    )


class Client:
    """Asks a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.asked: list[int] = []

    def call(self, _call: object, query: EventQuery) -> EventPage:
        self.asked.append(query.limit)
        return EventPage(events=self._ledger.find(query), state=self._ledger.state)


@pytest.mark.parametrize(
    ("limit", "numbers", "asked"),
    [
        (None, [[21, 22, 23, 24, 25], [16, 17, 18, 19, 20], [11, 12, 13, 14, 15]], 6),
        (7, [[21, 22, 23, 24, 25], [19, 20]], 2),
        (5, [[21, 22, 23, 24, 25]], 1),
    ],
)
def test_many_events_come_in_parts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    numbers: list[list[int]],
    asked: int,
) -> None:
    monkeypatch.setattr(command, "MAX_FOUND", 5)
    ledger = Ledger(tmp_path)
    for number in range(25):
        ledger.note("node.joined", f"event {number}")
    client = Client(ledger)
    pages = list(_pages(cast("ServiceClient", client), EventQuery(limit=1), limit))
    ledger.close()
    assert [[one.number for one in page] for page in pages][:3] == numbers
    assert len(client.asked) == asked


def disk_full(_part: object, _schema: object) -> Any:
    raise OSError(28, "ignored")


@pytest.mark.parametrize(
    ("name", "spoil", "text"),
    [
        ("none/events.parquet", None, "No such file or directory"),
        (".", None, "exists and is not a regular file"),
        ("events.parquet", disk_full, "No space left on device"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_and_the_former_one_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    spoil: Callable[..., Any] | None,
    text: str,
) -> None:
    (tmp_path / "events.parquet").write_text("former")
    if spoil is not None:
        monkeypatch.setattr(pq, "ParquetWriter", spoil)
    with pytest.raises(InputError, match=text):
        write_events(tmp_path / name, [[FIRST]])
    assert list(tmp_path.iterdir()) == [tmp_path / "events.parquet"]
    assert (tmp_path / "events.parquet").read_text() == "former"


def test_other_forms_beside_it_are_refused() -> None:
    check_only_parquet(None, json=True)
    check_only_parquet(Path("x"), json=False)
    with pytest.raises(ConfigurationError, match="--parquet and --follow are both given"):
        check_only_parquet(Path("x"), json=False, follow=True)


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"sapwood\[parquet\]"):
        write_events(tmp_path / "x", [])
