"""What a head keeps of rates: bounds, also after a restart, and keys that are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood.core.errors import ProtocolError
from sapwood.head.parts import rates
from sapwood.head.parts.rates import MAX_BYTES, PREFIX, RunRates
from sapwood.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path) as opened:
        yield opened


def key(number: int) -> str:
    return f"{number:064x}"


def test_what_was_kept_is_there_when_the_head_begins_again(store: SqliteStore) -> None:
    RunRates(lambda: store).write(key(1), b"rates")
    assert RunRates(lambda: store).read(key(1)) == b"rates"
    assert RunRates(lambda: store).read(key(2)) is None


def test_what_was_written_longest_ago_is_forgotten(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "MAX_KEPT", 2)
    keeper = RunRates(lambda: store)
    for number in (1, 2, 1, 3):
        keeper.write(key(number), b"rates")
    assert [one.key for one in store.entries(PREFIX)] == [PREFIX + key(1), PREFIX + key(3)]
    RunRates(lambda: store).write(key(4), b"rates")
    assert [one.key for one in store.entries(PREFIX)] == [PREFIX + key(3), PREFIX + key(4)]


@pytest.mark.parametrize("wrong", ["", "f", "../../tokens", key(1).upper() + "F", key(1) + "\n"])
def test_what_is_no_key_is_refused(store: SqliteStore, wrong: str) -> None:
    keeper = RunRates(lambda: store)
    with pytest.raises(ProtocolError, match="SHA-256"):
        keeper.write(wrong, b"")
    with pytest.raises(ProtocolError, match="SHA-256"):
        keeper.read(wrong)


def test_too_much_is_refused(store: SqliteStore) -> None:
    with pytest.raises(ProtocolError, match="at most"):
        RunRates(lambda: store).write(key(1), bytes(MAX_BYTES + 1))


def test_each_owner_has_entries_of_its_own(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "MAX_KEPT", 2)
    keeper = RunRates(lambda: store)
    keeper.write(key(1), b"of the head's user")
    keeper.write(key(1), b"of ann", "ann")
    for number in range(2, 9):
        keeper.write(key(number), b"of bob", "bob")
    assert keeper.read(key(1)) == b"of the head's user"
    assert keeper.read(key(1), "ann") == b"of ann"
    assert keeper.read(key(1), "bob") is None
    assert keeper.read(key(8), "bob") == b"of bob"
    again = RunRates(lambda: store)
    again.write(key(9), b"of bob", "bob")
    assert (again.read(key(7), "bob"), again.read(key(8), "bob")) == (None, b"of bob")


def test_the_owner_who_wrote_longest_ago_is_forgotten(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "MAX_OWNERS", 2)
    keeper = RunRates(lambda: store)
    for owner in ("ann", "bob", "ann", "carl"):
        keeper.write(key(1), owner.encode(), owner)
    found = [keeper.read(key(1), owner) for owner in ("ann", "bob", "carl")]
    assert found == [b"ann", None, b"carl"]
