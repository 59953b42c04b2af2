"""The folder of a store in SQLite: its owner, and damages."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.integration.store.writer import writer

from sapwood.core.clock import VirtualClock
from sapwood.core.errors import (
    HistoryGoneError,
    LeaseLostError,
    StoreError,
    StoreFullError,
    StoreInUseError,
)
from sapwood.store import sqlite
from sapwood.store.base import MAX_LEASE, Put
from sapwood.store.opening import open_store
from sapwood.store.sqlite import SCHEMA, SqliteStore
from sapwood.testing.stores import is_whole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "head"


def filled(folder: Path) -> Path:
    with SqliteStore(folder) as store:
        for number in range(50):
            store.put(f"k/{number}", b"x" * 1000)
    return folder / sqlite.NAME


def test_only_its_user_may_read_it(folder: Path) -> None:
    old = os.umask(0)
    try:
        with SqliteStore(folder) as store:
            store.put("k", b"")
            assert folder.stat().st_mode & 0o777 == 0o700
            for file in folder.iterdir():
                assert file.stat().st_mode & 0o777 == 0o600, file
    finally:
        os.umask(old)
    folder.chmod(0o750)
    with pytest.raises(StoreError, match=r"others may enter.*chmod 700"):
        SqliteStore(folder)


@pytest.mark.row("C4-STORE")
def test_a_second_head_is_told_who_the_first_is(folder: Path) -> None:
    with writer(str(folder), 1) as first, pytest.raises(StoreInUseError) as caught:
        SqliteStore(folder)
    assert f"process {first.pid} on {socket.gethostname()}, since 20" in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_process_does_not_take_it_from_itself(folder: Path) -> None:
    with SqliteStore(folder) as store:
        with pytest.raises(StoreInUseError, match="this process has the store open already"):
            open_store(folder)
        store.put("k", b"")
        inner = subprocess.run(
            [
                sys.executable,
                "-c",
                f"from sapwood.store.opening import open_store as o\no({str(folder)!r})",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"process {os.getpid()} on" in inner.stderr, "the refusal ended the lock"


@pytest.mark.row("C4-STORE")
@pytest.mark.parametrize("seed", range(3))
def test_what_a_killed_head_left_is_taken_over(folder: Path, seed: int) -> None:
    acknowledged = 0
    for _ in range(2):
        with writer(f"sqlite://{folder}", seed) as process:
            assert process.stdout is not None
            for line in process.stdout:
                acknowledged = int(line)
                if acknowledged % 20 == 7 + seed:
                    process.send_signal(signal.SIGKILL)
                    break
            for line in process.stdout:
                acknowledged = int(line)
        with SqliteStore(folder) as store:
            acknowledged = is_whole(store, acknowledged, seed)
        assert acknowledged >= 7


def test_a_newer_version_is_refused(folder: Path) -> None:
    file = filled(folder)
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=f"version {SCHEMA + 1}, and this Sapwood knows {SCHEMA}"):
        SqliteStore(folder)
    assert file.read_bytes() == before


@pytest.mark.parametrize("how", ["garbage", "head", "middle", "cut", "empty", "gone", "zeros"])
def test_a_damaged_file_is_named_and_left_as_it_is(folder: Path, how: str) -> None:
    file = filled(folder)
    data = file.read_bytes()
    match how:
        case "garbage":
            data = os.urandom(len(data))
        case "head":
            data = b"\xff" * 100 + data[100:]
        case "middle":
            data = data[:8192] + b"\xff" * 40_000 + data[48_192:]
        case "cut":
            data = data[: len(data) // 2]
        case "empty":
            data = b""
        case "zeros":
            data = bytes(len(data))
        case _:
            Path(f"{file}-wal").write_bytes(b"x")
            file.unlink()
    if how != "gone":
        file.write_bytes(data)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"damaged|not a store of Sapwood") as caught:
            SqliteStore(folder)
        assert str(file) in caught.value.where
        assert caught.value.hint
        assert not file.exists() if how == "gone" else file.read_bytes() == data


def test_another_file_is_no_store(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / sqlite.NAME) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    with pytest.raises(StoreError, match=r"not a store of Sapwood.*was not changed"):
        SqliteStore(folder)


@pytest.mark.parametrize("what", ["file", "under a file", "another user's"])
def test_a_folder_that_cannot_be_used_is_named(
    folder: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = folder
    if what == "another user's":
        folder.mkdir(mode=0o700)
        monkeypatch.setattr(os, "geteuid", lambda: 123_456)
    else:
        folder.write_text("")
        asked = folder / "below" if what == "under a file" else folder
    with pytest.raises(StoreError) as caught:
        SqliteStore(asked)
    assert caught.value.where == str(asked)


def test_where_other_machines_write_there_is_no_shared_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(folder) as store:
        store.put("k", b"1")
        assert (folder / "store.db-wal").exists()
    monkeypatch.setattr(sqlite, "is_local", lambda folder: False)
    with SqliteStore(folder) as store:  # also one that was moved there
        store.put("k", b"2")
        assert not (folder / "store.db-wal").exists()
        entry = store.get("k")
        assert entry is not None
        assert entry.value == b"2"


FULL = """
import sys
from sapwood.core.errors import StoreFullError
from sapwood.store.opening import open_store
with open_store(sys.argv[1] + "/store") as store:
    store.put("first", b"1")
    done = 0
    try:
        while True:
            store.put(f"k/{done}", bytes(9000))
            done += 1
    except StoreFullError as error:
        assert "free space" in str(error), error
    assert done
    for _ in range(3):
        assert store.get("first").value == b"1"
        assert len(list(store.entries("k/"))) == done
        try:
            store.put("k/large", bytes(100_000))
            raise SystemExit("it was not full")
        except StoreFullError:
            pass
with open_store(sys.argv[1] + "/store") as store:
    assert len(list(store.entries("k/"))) == done
print("reads continue")
"""


@pytest.mark.row("C4-STORE")
def test_on_a_full_disk_reading_goes_on(tmp_path: Path) -> None:
    mounted = f'mount -t tmpfs -o size=1m none "{tmp_path}" && exec "$0" -c "$1" "{tmp_path}"'
    command = ["unshare", "--mount", "sh", "-c", mounted, sys.executable, FULL]
    if (
        not shutil.which("unshare")
        or subprocess.run([*command[:2], "true"], check=False).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "reads continue\n"), done.stderr


def test_a_store_has_a_largest_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "MAX_FILE", 2**20)
    clock = VirtualClock()
    with SqliteStore(folder, clock=clock) as store:
        lease = store.grant(5)
        store.put("bound", b"", lease=lease)
        numbers = itertools.count()
        with pytest.raises(StoreFullError, match="nothing was written"):
            [store.put(f"k/{number}", bytes(9000)) for number in numbers]
        assert len(list(store.entries("k/"))) == next(numbers) - 1
        clock.advance(6)
        with pytest.raises(LeaseLostError):  # also if its keys cannot be cleared yet
            store.keep_alive(lease)
        assert store.delete("k/0")


def test_history_is_bounded_by_count_and_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "HISTORY", 40)
    monkeypatch.setattr(sqlite, "HISTORY_BYTES", 10_000)
    with SqliteStore(folder) as store, store.watch("k") as slow, store.watch("other") as idle:
        for number in range(100):
            store.transact([Put("k", b"%d" % number), Put("l", b"")])
            assert idle.next(0) is None
        with pytest.raises(HistoryGoneError):
            slow.next(0)
        store.put("k", b"x" * 50_000)
        assert idle.next(0) is None
        store.put("other", b"")
        change = idle.next(0)
        assert change is not None
        rows = sum(1 for _ in store.entries(""))
        assert rows == 3
        kept, size = store._file.execute(
            "SELECT count(*), sum(length(key) + length(value)) FROM history"
        ).fetchone()
        assert kept <= 40
        assert (kept, size) == (store._kept, store._kept_bytes)


def test_leases_follow_the_clock_that_is_given(folder: Path) -> None:
    clock = VirtualClock()
    with SqliteStore(folder, clock=clock) as store:
        lease = store.grant(MAX_LEASE)
        store.put("k", b"", lease=lease)
        clock.advance(MAX_LEASE - 1)
        store.keep_alive(lease)
        clock.advance(MAX_LEASE - 1)
        assert store.get("k")
        clock.advance(1)
        assert store.get("k") is None


def test_a_child_of_fork_is_refused(folder: Path) -> None:
    with SqliteStore(folder) as store:
        store.put("k", b"")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.get("k")
            except StoreError:
                store.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert store.get("k")


def test_another_program_that_locks_the_file_is_told_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = filled(folder)
    monkeypatch.setattr(sqlite, "_BUSY", 0.05)
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreInUseError, match="another program has locked"):
            SqliteStore(folder)
    finally:
        other.close()
    SqliteStore(folder).close()


def test_closing_wakes_readers_in_other_threads(folder: Path) -> None:
    store = SqliteStore(folder)
    watch = store.watch("")
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.extend(watch))
    reader.start()
    store.put("k", b"")
    store.close()
    reader.join(30)
    assert not reader.is_alive()
