"""Detached runs as their head keeps them: how they end, and what is restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.cli.failures import EXIT_INTERRUPTED
from sapwood.code.run_spec import RunSpec
from sapwood.comm.machine import machine_id
from sapwood.core.errors import StoreError
from sapwood.environment.settings import PolicySettings
from sapwood.head import calls, runs
from sapwood.head.run_ends import INTERRUPTED, SESSION_LOST
from sapwood.head.runs import (
    ANSWER,
    CANCELLED,
    CHECKPOINT,
    DONE,
    RUNNING,
    HeadRuns,
)
from sapwood.head.watched import started
from sapwood.session.loop_thread import LoopThread
from sapwood.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "store") as made:
        yield made


@pytest.fixture
def kept(tmp_path: Path, store: SqliteStore) -> Iterator[HeadRuns]:
    """The detached runs of a head."""
    thread = LoopThread("test")
    thread.start()
    with ThreadPoolExecutor(1) as pool:
        yield HeadRuns(lambda: store, tmp_path, thread, pool, _note, PolicySettings)
    thread.stop()


def _note(*_words: Any, **_facts: Any) -> None:
    pass


def record(folder: Path, number: int = 0, **others: Any) -> calls.RunRecord:
    there = folder / f"run{number}"
    there.mkdir()
    return calls.RunRecord(
        id=f"run{number}",
        program="pi",
        session="",
        state=RUNNING,
        created=float(number),
        folder=str(there),
        machine=machine_id(),
        **others,
    )


def exited(code: int) -> int:
    """Return what ``waitpid`` says of a process that has ended with a code."""
    return code << 8


@pytest.fixture
def begun(
    kept: HeadRuns, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that were begun for runs, which wait."""
    made: list[subprocess.Popen[bytes]] = []

    def start(wanted: calls.RunRecord) -> calls.RunRecord:
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
            )
        )
        return msgspec.structs.replace(wanted, pid=made[-1].pid, started=started(made[-1].pid))

    monkeypatch.setattr(runs, "_started", start)
    yield made
    for watched in kept._watched.values():
        watched.forget()  # else the run is restarted
    for one in made:
        one.kill()
        one.communicate()


def test_what_ended_last_is_kept_however_early_it_began(
    kept: HeadRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_OVER", 2)
    long, *short = [record(tmp_path, number) for number in range(4)]
    for one in (*short, long):
        (Path(one.folder) / ANSWER).write_text("{}" if one is long else '{"n": 1}')
        kept._gone(one, exited(0))
    assert [one.id for one in kept.records()] == ["run0", "run3"]
    assert not Path(short[0].folder).exists()


def test_a_run_that_is_gone_is_cancelled_without_a_word(kept: HeadRuns, tmp_path: Path) -> None:
    gone = record(tmp_path)
    assert kept._cancel(gone) == gone


@pytest.mark.parametrize("code", [SESSION_LOST, INTERRUPTED])
def test_a_driver_that_somebody_ended_is_begun_again(
    kept: HeadRuns, tmp_path: Path, begun: list[subprocess.Popen[bytes]], code: int
) -> None:
    kept._gone(record(tmp_path), exited(code))
    (one,) = kept.records()
    assert (one.state, one.pid, len(one.restarts)) == (RUNNING, begun[0].pid, 1)


def test_a_cancelled_run_is_not_begun_again(
    kept: HeadRuns, tmp_path: Path, begun: list[subprocess.Popen[bytes]]
) -> None:
    one = record(tmp_path, cancelled=True)
    (Path(one.folder) / CHECKPOINT).touch()
    kept._gone(one, exited(INTERRUPTED))
    assert [one.state for one in kept.records()] == [CANCELLED]
    assert not list(Path(one.folder).iterdir())
    assert not begun


def test_the_exit_code_of_a_driver_is_that_of_the_command_line() -> None:
    assert INTERRUPTED == EXIT_INTERRUPTED


def test_no_driver_goes_on_that_the_store_does_not_know(
    kept: HeadRuns,
    tmp_path: Path,
    store: SqliteStore,
    begun: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = record(tmp_path, pid=4, started=5)
    kept._keep(old)

    def put(*_words: Any, **_options: Any) -> None:
        raise StoreError("there is no room")

    with monkeypatch.context() as broken:
        broken.setattr(store, "put", put)
        kept._gone(old, signal.SIGKILL)
        with pytest.raises(StoreError):
            kept.create(calls.CreateRun(spec=RunSpec("pi")))
    assert len(begun) == 2
    for one in begun:
        with pytest.raises(ProcessLookupError):  # it was waited for
            os.kill(one.pid, 0)
    assert kept.records() == [old]
    assert not list((tmp_path / "runs").iterdir())
    kept.start()  # as the next head does
    (again,) = kept.records()
    assert (again.pid, len(again.restarts)) == (begun[2].pid, 1)


def test_a_run_that_answered_is_done(kept: HeadRuns, tmp_path: Path) -> None:
    one = record(tmp_path)
    (Path(one.folder) / ANSWER).write_text('{"n": 1}')
    kept._gone(one, exited(0))
    assert [one.state for one in kept.records()] == [DONE]


def test_a_run_ends_while_the_store_is_gone_and_the_next_head_knows(
    kept: HeadRuns, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = record(tmp_path, pid=2**22 + 1)
    kept._keep(one)
    (Path(one.folder) / ANSWER).write_text('{"n": 1}')

    def put(*_words: Any, **_options: Any) -> None:
        raise StoreError("it does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(store, "put", put)
        kept._gone(one, exited(0))
    assert [found.state for found in kept.records()] == [DONE]
    kept._records.clear()
    kept.start()  # as the next head does: the store has it as running still
    assert [found.state for found in kept.records()] == [DONE]


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("", exited(5), "its process ended with exit code 5"),
        ('{"error": {"code": "SW201", "what": "ValueError: 7"}}', exited(4), "ValueError: 7"),
        ('{"error": {"what": "%s"}}' % ("x" * 1000), exited(4), "x" * runs.MAX_REASON),
        ('{"n": 1}', exited(0), ""),
    ],
)
def test_why_a_run_failed_is_kept(
    kept: HeadRuns, tmp_path: Path, answer: str, status: int, reason: str
) -> None:
    one = record(tmp_path)
    (Path(one.folder) / ANSWER).write_text(answer)
    kept._gone(one, status)
    assert [found.reason for found in kept.records()] == [reason]
