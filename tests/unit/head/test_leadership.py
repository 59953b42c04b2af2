"""Which of several heads serves: never two, whatever their clocks and the store do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from sapwood.core.errors import (
    ConfigurationError,
    LeaseLostError,
    StoreError,
    StoreUnavailableError,
)
from sapwood.head import leadership
from sapwood.head.leadership import (
    LEADER,
    LEASE,
    LOOK,
    HeadEntry,
    Leadership,
    LeaderStore,
    Outcome,
    lease_time,
)
from sapwood.store.base import Delete, Put, StoreEntry, Unchanged
from sapwood.store.sqlite import SqliteStore

PATIENCE = 30.0


class SharedStore(SqliteStore):
    """A store that several heads of this process have open.

    Attributes:
        unanswered: Calls that are carried out, and whose answers are lost, in this order.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.unanswered: list[str] = []

    def _answer(self, call: str) -> None:
        if self.unanswered[:1] == [call]:
            del self.unanswered[0]
            raise StoreUnavailableError("no member answers")

    def get(self, key: str) -> StoreEntry | None:
        found = super().get(key)
        self._answer("get")
        return found

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        done = super().transact(changes, when=when)
        self._answer("transact")
        return done

    def grant(self, seconds: float) -> int:
        made = super().grant(seconds)
        self._answer("grant")
        return made

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()


class SteppedClock:
    """The time of a machine, which a test may move on, or hold."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.held: float | None = None

    def __call__(self) -> float:
        return (lease_time() if self.held is None else self.held) + self.ahead


class Heads:
    """Heads over one store."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self.open: list[Leadership] = []

    def begin(
        self, place: str, name: str = "lab", clock: Callable[[], float] = lease_time
    ) -> Leadership:
        entry = HeadEntry(host="h", pid=7, addresses=[place])
        made = Leadership("etcd://nowhere", name, entry, clock)
        self.open.append(made)
        return made

    def leading(self, place: str, clock: Callable[[], float] = lease_time) -> Leadership:
        made = self.begin(place, clock=clock)
        assert made.stand_by(never_told, not_stopped) is Outcome.SERVES
        return made


@pytest.fixture
def heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heads]:
    store = SharedStore(tmp_path / "store")
    monkeypatch.setattr(leadership, "open_store", lambda *_: store)
    made = Heads(store)
    yield made
    for one in made.open:
        one.close()
    store.end()


def never_told(where: str) -> None:
    raise AssertionError(where)


def not_stopped(seconds: float) -> bool:
    threading.Event().wait(seconds)
    return False


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not become so"
        threading.Event().wait(0.02)


@pytest.mark.slow
def test_the_first_head_serves_and_another_stands_by(heads: Heads) -> None:
    first, second = heads.leading("h1:1"), heads.begin("h2:2")
    told: list[str] = []
    looks = iter([False, False, True])
    assert second.stand_by(told.append, lambda _: next(looks)) is Outcome.STOPPED
    assert (first.serves, second.serves) == (True, False)
    assert told == ["process 7 on h, h1:1"]
    until(lambda: first.others == ["h2:2"])


def test_a_head_that_gives_its_lease_back_is_followed_at_once(heads: Heads) -> None:
    first, second = heads.leading("h1:1"), heads.begin("h2:2")
    first.close()
    begun = time.monotonic()
    assert second.stand_by(never_told, not_stopped) is Outcome.SERVES
    assert time.monotonic() - begun < LEASE / 2
    assert not first.serves


def test_a_head_counts_its_lease_by_its_own_clock(heads: Heads) -> None:
    """The renewals of a process that was stopped come too late."""
    clock = SteppedClock()
    first = heads.leading("h1:1", clock)
    store = LeaderStore(heads.store, first)
    assert store.put("k", b"1")
    clock.held = lease_time()
    clock.ahead = LEASE + 1
    assert not first.serves
    with pytest.raises(LeaseLostError, match="another one may serve"):
        store.put("k", b"2")
    assert heads.store.get("k").value == b"1"  # type: ignore[union-attr]


def test_a_write_of_a_head_that_was_replaced_does_nothing(heads: Heads) -> None:
    """Its clock stands still, so by that it serves: the store knows better."""
    clock = SteppedClock()
    first = heads.leading("h1:1", clock)
    kept = LeaderStore(heads.store, first)
    clock.held = lease_time()
    heads.store.put(LEADER, b"another head")
    served = [first.serves]
    with pytest.raises(LeaseLostError, match="another one may serve"):
        kept.put("k", b"old")
    assert [*served, first.serves] == [True, False]
    assert heads.store.get("k") is None


def test_a_condition_of_its_own_is_told_from_a_lost_lease(heads: Heads) -> None:
    first = heads.leading("h1:1")
    store = LeaderStore(heads.store, first)
    written = store.put("k", b"1")
    assert store.compare_and_set("k", b"2", written - 1) is None
    assert store.compare_and_set("k", b"2", written) is not None
    assert store.transact([Put("a", b"")], when=[Unchanged("k", written)]) is None
    assert first.serves


@pytest.mark.slow
def test_a_head_whose_key_somebody_deletes_serves_no_more(heads: Heads) -> None:
    first = heads.leading("h1:1")
    heads.store.delete(LEADER)
    until(lambda: not first.serves)


def test_heads_that_stand_by_end_with_their_cluster(heads: Heads) -> None:
    first, second = heads.leading("h1:1"), heads.begin("h2:2")
    first.end_cluster()
    assert second.stand_by(never_told, not_stopped) is Outcome.ENDED
    first.close()
    assert heads.leading("h3:3").serves  # the next `sapwood up` begins it again


def test_a_head_may_serve_again(heads: Heads) -> None:
    first = heads.leading("h1:1")
    first.lose()
    heads.store.delete(LEADER)
    assert first.stand_by(never_told, not_stopped) is Outcome.SERVES
    assert first.serves
    assert LEASE > 3 * LOOK


def test_a_head_takes_the_key_again_that_its_own_lease_holds(heads: Heads) -> None:
    """Its lease outlived the time that the head counted: the store was away, and its leases too."""
    first, second = heads.leading("h1:1"), heads.begin("h2:2")
    former = first.mark
    first.lose()
    assert second.stand_by(lambda _: None, lambda _: True) is Outcome.STOPPED
    assert first.stand_by(never_told, not_stopped) is Outcome.SERVES
    assert (first.serves, second.serves) == (True, False)
    assert heads.store.transact([Put("k", b"late")], when=[former]) is None
    assert LeaderStore(heads.store, first).put("k", b"new")


def test_a_head_whose_write_was_not_answered_serves(heads: Heads) -> None:
    first = heads.begin("h1:1")
    heads.store.unanswered = ["transact", "get"]
    assert first.stand_by(never_told, not_stopped) is Outcome.SERVES
    assert heads.store.unanswered == []


@pytest.mark.slow
def test_a_lease_that_ends_while_the_store_is_away_is_replaced_when_it_is_back(
    heads: Heads,
) -> None:
    first = heads.begin("h1:1")
    (own,) = heads.store.range("heads/").entries
    heads.store.revoke(own.lease)
    heads.store.unanswered = ["grant", "grant"]
    assert first.stand_by(never_told, not_stopped) is Outcome.SERVES
    assert heads.store.unanswered == []


def test_a_store_of_another_cluster_is_refused(heads: Heads) -> None:
    heads.begin("h1:1")
    with pytest.raises(ConfigurationError, match="belongs to the cluster 'lab', not to 'den'"):
        heads.begin("h2:2", "den")


def test_a_store_with_something_else_in_it_is_refused(heads: Heads) -> None:
    heads.store.put("recipes/cake", b"")
    with pytest.raises(StoreError, match="not a cluster's"):
        heads.begin("h1:1")


def test_an_entry_of_another_version_is_no_reason_to_fail(heads: Heads) -> None:
    heads.begin("h1:1").close()
    heads.store.put(LEADER, msgspec.msgpack.encode("new"))
    told: list[str] = []
    assert heads.begin("h2:2").stand_by(told.append, lambda _: True) is Outcome.STOPPED
    assert told == ["another head"]
