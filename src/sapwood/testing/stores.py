"""What every store must do: a suite that any implementation can be put through.

::

    def ground() -> Ground:
        name = secrets.token_hex(4)  # each check gets a separate, empty store
        return Ground(lambda: MyStore(name), forget=MyStore.compact)

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check: Check) -> None:
        check(ground())

    def test_my_store_against_a_model() -> None:
        follows_a_model(ground)

The checks open a store once at a time, so that a store for one process passes. They wait for
conditions, at most :data:`PATIENCE`; those of leases wait until the shortest lease has ended.
:func:`write_until_killed` and :func:`is_whole` are for tests that kill a process while it writes.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from sapwood.core.errors import ClosedError, HistoryGoneError, InputError, LeaseLostError
from sapwood.store.base import (
    MAX_CHANGES,
    MAX_KEY,
    MAX_LEASE,
    MAX_PAGE,
    MAX_PAGE_BYTES,
    MAX_TRANSACTION,
    MAX_VALUE,
    MIN_LEASE,
    Change,
    Delete,
    Put,
    Store,
    StoreWatch,
    Unchanged,
)

PATIENCE = 30.0
"""Seconds after which something that did not happen counts as never happening."""

SOON = 0.2
"""Seconds to see that nothing happens."""


@dataclasses.dataclass(frozen=True)
class Ground:
    """Where a check finds its store.

    Attributes:
        open: Opens the store, the same one each time; it begins empty.
        forget: Lets an open store drop its history up to a revision.
    """

    open: Callable[[], Store]
    forget: Callable[[Store, int], None]


Check = Callable[[Ground], None]


def seen(watch: StoreWatch) -> Change:
    """Return the next change of a watch, which must come.

    Raises:
        AssertionError: None comes.
    """
    change = watch.next(PATIENCE)
    assert change is not None, "a change does not reach the watch"
    return change


def told(change: Change) -> dict[str, bytes | None]:
    """Return what a change says of each key: its value, None where it is gone."""
    return {event.key: event.entry.value if event.entry else None for event in change.events}


def begins_empty(ground: Ground) -> None:
    """Nothing is there, and asking for it is not an error."""
    with ground.open() as store:
        assert store.url
        assert store.get("a") is None
        page = store.range("")
        assert (page.entries, page.more) == ((), False)
        assert store.delete("a") is False
        assert store.range("").revision == page.revision, "a deletion of nothing is a revision"


def keeps_what_was_put(ground: Ground) -> None:
    """Values are any bytes, and each key knows which revisions made and wrote it."""
    values = [b"", bytes(range(256)), b"x" * MAX_VALUE]
    with ground.open() as store:
        before = store.range("").revision
        revisions = [store.put("nodes/n1", value) for value in values]
        assert before < revisions[0] < revisions[1] < revisions[2], "revisions do not grow"
        entry = store.get("nodes/n1")
        assert entry is not None
        assert (entry.key, entry.value, entry.lease) == ("nodes/n1", values[-1], 0)
        assert (entry.created, entry.modified) == (revisions[0], revisions[2])
        again = store.put("nodes/n1", values[-1])
        assert again > revisions[2], "the same value a second time is not a revision"


def keeps_it_over_a_new_start(ground: Ground) -> None:
    """Acknowledged writes survive when the store is opened again, and revisions continue."""
    with ground.open() as store:
        last = store.put("b", b"2")
        first = store.put("a", b"1")
    with ground.open() as store:
        found = [(entry.key, entry.value, entry.modified) for entry in store.entries("")]
        assert found == [("a", b"1", first), ("b", b"2", last)]
        assert store.put("a", b"3") > max(first, last), "a revision comes again"


def lists_in_order_and_in_pages(ground: Ground) -> None:
    """The order is bytewise, pages follow each other, and prefixes are exact."""
    keys = ["a", "a/1", "a/10", "a/2", "a0", "b", "é/x", "日本", "\U0010ffff", "a/\U0010ffff"]
    ordered = sorted(keys, key=str.encode)
    with ground.open() as store:
        for key in keys:
            store.put(key, key.encode())
        assert [entry.key for entry in store.entries("")] == ordered
        wanted = [key for key in ordered if key.startswith("a/")]
        assert [entry.key for entry in store.range("a/").entries] == wanted
        assert [entry.key for entry in store.range("é").entries] == ["é/x"]
        after = ""
        found = []
        for turn in itertools.count():
            page = store.range("", after=after, limit=3)
            assert len(page.entries) <= 3
            found += [entry.key for entry in page.entries]
            if not page.more:
                break
            assert turn < len(keys), "pages do not end"
            after = page.entries[-1].key
        assert found == ordered
        assert store.range("a/", after="a/2").entries[0].key == wanted[-1]
        assert store.range("b", after="c").entries == ()
        assert len(store.range("b", after="a").entries) == 1, "`after` before the prefix hides keys"


def bounds_its_pages(ground: Ground) -> None:
    """A page has a bounded number of entries and of bytes, and nothing is lost between pages."""
    with ground.open() as store:
        count = MAX_PAGE_BYTES // MAX_VALUE + 2
        for number in range(count):
            store.put(f"large/{number:04}", bytes([number]) * MAX_VALUE)
        page = store.range("large/")
        assert page.more
        assert 1 <= len(page.entries) <= MAX_PAGE_BYTES // MAX_VALUE
        found = [(entry.key, entry.value[0]) for entry in store.entries("large/")]
        assert found == [(f"large/{number:04}", number) for number in range(count)]
        for begin in range(0, MAX_PAGE + 1, MAX_CHANGES):
            end = min(begin + MAX_CHANGES, MAX_PAGE + 1)
            store.transact([Put(f"many/{number:04}", b"") for number in range(begin, end)])
        page = store.range("many/")
        assert (len(page.entries), page.more) == (MAX_PAGE, True)
        for limit in (0, -1, MAX_PAGE + 1):
            with pytest.raises(InputError):
                store.range("", limit=limit)


def compares_before_it_sets(ground: Ground) -> None:
    """A key is written if the revision is the one that wrote it last; 0 means it is not there."""
    with ground.open() as store:
        assert store.compare_and_set("k", b"no", 1) is None
        assert store.get("k") is None
        first = store.compare_and_set("k", b"1", 0)
        assert first is not None
        assert store.compare_and_set("k", b"2", 0) is None
        second = store.compare_and_set("k", b"2", first)
        assert second is not None
        assert second > first
        assert store.compare_and_set("k", b"3", first) is None
        entry = store.get("k")
        assert entry is not None
        assert (entry.value, entry.created, entry.modified) == (b"2", first, second)


def deletes(ground: Ground) -> None:
    """A key is deleted, always or if it is unchanged, and comes again as a new one."""
    with ground.open() as store:
        first = store.put("k", b"1")
        store.put("kk", b"stays")
        second = store.put("k", b"2")
        assert store.delete("k", revision=first) is False
        assert store.delete("k", revision=0) is False
        assert store.delete("k", revision=second) is True
        assert store.get("k") is None
        third = store.put("k", b"3")
        entry = store.get("k")
        assert entry is not None
        assert entry.created == third, "a key that was deleted remembers when it was made"
        assert store.delete("k") is True
        assert store.delete("k") is False
        assert [entry.key for entry in store.entries("")] == ["kk"]


def does_all_or_nothing(ground: Ground) -> None:
    """A transaction is one revision, or no trace."""
    with ground.open() as store:
        a, b = store.put("a", b"1"), store.put("b", b"1")
        changes: list[Put | Delete] = [Put("a", b"2"), Delete("b"), Put("c", b"2")]
        for when in (
            [Unchanged("a", a), Unchanged("b", a)],
            [Unchanged("a", a), Unchanged("c", b)],
            [Unchanged("nothing", 1), Unchanged("a", a)],
        ):
            assert store.transact(changes, when=when) is None
            assert {entry.key: entry.value for entry in store.entries("")} == {
                "a": b"1",
                "b": b"1",
            }
        when = [Unchanged("a", a), Unchanged("b", b), Unchanged("c", 0)]
        done = store.transact(changes, when=when)
        assert done is not None
        assert done > b
        found = {entry.key: (entry.value, entry.modified) for entry in store.entries("")}
        assert found == {"a": (b"2", done), "c": (b"2", done)}
        with store.watch("", after=done) as watch:
            again = store.transact([Delete("nothing")])
            assert again is not None
            assert again >= done
            assert watch.next(SOON) is None, "the watch tells of a deletion of nothing"
        many = store.transact([Put(f"m/{number}", b"") for number in range(MAX_CHANGES)])
        assert {entry.modified for entry in store.entries("m/")} == {many}


def refuses_what_is_too_long(ground: Ground) -> None:
    """Values of the largest size are accepted; larger ones are refused, and nothing is written."""
    long = "k" * MAX_KEY
    with ground.open() as store:
        store.put(long, b"x" * MAX_VALUE)
        begun = store.range("").revision
        tries: list[Callable[[], object]] = [
            lambda: store.put("", b""),
            lambda: store.get(""),
            lambda: store.get(long + "k"),
            lambda: store.put("é" * (MAX_KEY // 2) + "k", b""),
            lambda: store.put("\ud800", b""),
            lambda: store.put("a\nb", b""),
            lambda: store.put("a\0", b""),
            lambda: store.put("k", b"x" * (MAX_VALUE + 1)),
            lambda: store.range(long + "k"),
            lambda: store.watch(long + "k"),
            lambda: store.transact([]),
            lambda: store.transact([Put("k", b""), Delete("k")]),
            lambda: store.transact([Put(f"{n}", b"") for n in range(MAX_CHANGES + 1)]),
            lambda: store.transact([Put("a", b"x" * MAX_VALUE), Put("b", b"x" * MAX_VALUE)]),
            lambda: store.transact(
                [Put("k", b"")], when=[Unchanged(f"{n}", 0) for n in range(MAX_CHANGES + 1)]
            ),
            lambda: store.grant(MIN_LEASE / 2),
            lambda: store.grant(MAX_LEASE * 2),
            lambda: store.grant(float("nan")),
        ]
        for attempt in tries:
            with pytest.raises(InputError) as caught:
                attempt()
            assert len(str(caught.value)) < 1000, "the error quotes what is too long"
        assert store.range("").revision == begun
        half = (MAX_TRANSACTION - 2) // 2
        store.transact([Put("a", b"x" * half), Put("b", b"x" * half)])


def serves_several_threads(ground: Ground) -> None:
    """Threads that count by compare-and-set lose no step."""
    steps, threads = 12, 4
    faults: list[BaseException] = []
    with ground.open() as store:

        def count() -> None:
            try:
                for _ in range(steps):
                    done = None
                    while done is None:
                        entry = store.get("n")
                        value, revision = (entry.value, entry.modified) if entry else (b"0", 0)
                        done = store.compare_and_set("n", b"%d" % (int(value) + 1), revision)
            except BaseException as error:  # noqa: BLE001 - told below
                faults.append(error)

        running = [threading.Thread(target=count) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(PATIENCE)
        assert not faults
        entry = store.get("n")
        assert entry is not None
        assert entry.value == b"%d" % (steps * threads)


def tells_a_watch_what_changed(ground: Ground) -> None:
    """A watch tells what is behind its revision and below its prefix, a revision at a time."""
    with ground.open() as store:
        first = store.put("w/a", b"1")
        store.put("x", b"not watched")
        with store.watch("w/") as now, store.watch("w/", after=first) as behind:
            done = store.transact([Put("w/c", b"2"), Delete("w/a"), Put("v", b""), Put("w/b", b"")])
            store.put("ww", b"not watched")
            gone = store.transact([Delete("w/b")])
            for watch in (now, behind):
                change = seen(watch)
                assert change.revision == done
                assert list(told(change).items()) == [("w/a", None), ("w/b", b""), ("w/c", b"2")]
                entry = change.events[2].entry
                assert entry is not None
                assert (entry.key, entry.created, entry.modified) == ("w/c", done, done)
                change = seen(watch)
                assert (change.revision, told(change)) == (gone, {"w/b": None})
                begun = time.monotonic()
                assert watch.next(SOON) is None
                assert time.monotonic() - begun >= SOON * 0.9, "it did not wait"
        with store.watch("", after=first) as everything:
            assert told(seen(everything)) == {"x": b"not watched"}


def resumes_a_watch(ground: Ground) -> None:
    """A watch that resumes behind the last handled change loses and repeats nothing."""
    choose = random.Random(7)  # noqa: S311 - no secret
    revisions = []
    position = 0
    found: list[int] = []
    for _ in range(4):
        with ground.open() as store:
            for _ in range(6):
                key = f"k/{choose.randrange(3)}"
                done = store.transact([Put(key, b"x"), Put("k/all", b"y")])
                assert done is not None
                revisions.append(done)
            for _ in range(choose.randrange(6)):
                with store.watch("k/", after=position) as watch:
                    change = seen(watch)
                assert "k/all" in told(change)
                position = change.revision
                found.append(position)
    with ground.open() as store, store.watch("k/", after=position) as watch:
        while len(found) < len(revisions):
            found.append(seen(watch).revision)
        assert watch.next(SOON) is None
    assert found == revisions


def wakes_a_watch(ground: Ground) -> None:
    """A reader that waits gets the change, and one that iterates ends when the watch is closed."""
    with ground.open() as store:
        watch = store.watch("w/")
        found: list[Change] = []
        first = threading.Event()

        def read() -> None:
            for change in watch:
                found.append(change)
                first.set()

        reader = threading.Thread(target=read)
        reader.start()
        done = store.put("w/1", b"")
        assert first.wait(PATIENCE), "the reader was not woken"
        watch.close()
        reader.join(PATIENCE)
        assert not reader.is_alive(), "a closed watch keeps its reader"
        assert [change.revision for change in found] == [done]
        watch.close()
        with pytest.raises(ClosedError):
            watch.next(0)


def says_what_it_has_forgotten(ground: Ground) -> None:
    """A watch from before the kept history gets an error; one from the present works."""
    with ground.open() as store:
        first = store.put("k", b"0")
        for number in range(5):
            last = store.put("k", b"%d" % number)
        ground.forget(store, last)

        def late() -> None:
            with store.watch("k", after=first) as watch:
                watch.next(PATIENCE)

        with pytest.raises(HistoryGoneError, match="revision"):
            late()
        with store.watch("k", after=store.range("k").revision) as watch:
            done = store.put("k", b"new")
            assert seen(watch).revision == done
        assert [entry.value for entry in store.entries("")] == [b"new"]


def clears_what_a_lease_held(ground: Ground) -> None:
    """When a lease expires its keys vanish, together, and nothing else does."""
    with ground.open() as store:
        lease, other = store.grant(MIN_LEASE * 2), store.grant(MAX_LEASE)
        assert lease > 0
        assert other not in (0, lease)
        store.transact([Put("a", b"", lease), Put("b", b"", lease), Put("c", b"", other)])
        store.put("d", b"", lease=lease)
        last = store.put("d", b"")  # no longer bound
        entry = store.get("a")
        assert entry is not None
        assert entry.lease == lease
        with store.watch("", after=last) as watch:
            assert told(seen(watch)) == {"a": None, "b": None}
        assert [entry.key for entry in store.entries("")] == ["c", "d"]
        tries: list[Callable[[], object]] = [
            lambda: store.keep_alive(lease),
            lambda: store.put("a", b"", lease=lease),
            lambda: store.transact([Delete("d"), Put("a", b"", lease)]),
        ]
        for attempt in tries:
            with pytest.raises(LeaseLostError):
                attempt()
        assert [entry.key for entry in store.entries("")] == ["c", "d"]
        store.revoke(lease)
        store.revoke(other)
        assert [entry.key for entry in store.entries("")] == ["d"]


def lets_a_lease_live(ground: Ground) -> None:
    """A lease that is kept alive lives longer than its time."""
    with ground.open() as store:
        lease, unkept = store.grant(MIN_LEASE * 2), store.grant(MIN_LEASE * 2)
        granted = time.monotonic()
        store.transact([Put("kept", b"", lease), Put("unkept", b"", unkept)])
        with store.watch("unkept") as watch:
            while not watch.next(SOON):
                store.keep_alive(lease)
                assert time.monotonic() < granted + PATIENCE, "a lease does not end"
        assert time.monotonic() >= granted + MIN_LEASE * 2, "a lease ends too early"
        assert [entry.key for entry in store.entries("")] == ["kept"]
        store.keep_alive(lease)
        store.revoke(lease)
        assert store.get("kept") is None


def ends_leases_of_the_dead(ground: Ground) -> None:
    """A lease outlives the store that granted it: it can be kept alive, and else it ends."""
    with ground.open() as store:
        lease, dead = store.grant(MIN_LEASE * 2), store.grant(MIN_LEASE)
        store.put("alive", b"", lease=lease)
        store.put("dead", b"", lease=dead)
    with ground.open() as store:
        store.keep_alive(lease)
        deadline = time.monotonic() + PATIENCE
        while store.get("dead"):
            assert time.monotonic() < deadline, "what the dead held stays"
            store.keep_alive(lease)
            threading.Event().wait(0.05)
        assert store.get("alive")


def bounds_its_watches(ground: Ground) -> None:
    """A closed watch makes room; a store that is closed ends all its watches."""
    store = ground.open()
    try:
        for _ in range(40):
            with store.watch("w"):
                pass
        watches = [store.watch("w") for _ in range(20)]
    finally:
        store.close()
    for watch in watches:
        assert list(watch) == [], "a change comes from a store that is closed"
        with pytest.raises(ClosedError):
            watch.next(PATIENCE)
        watch.close()


def is_closed_twice(ground: Ground) -> None:
    """Closing what is closed does nothing, and nothing else can be done with it."""
    store = ground.open()
    store.close()
    store.close()
    tries: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.range(""),
        lambda: store.put("a", b""),
        lambda: store.delete("a"),
        lambda: store.watch(""),
        lambda: store.grant(MIN_LEASE),
        lambda: store.keep_alive(1),
        lambda: store.revoke(1),
    ]
    for attempt in tries:
        with pytest.raises(ClosedError):
            attempt()


CHECKS: Sequence[Check] = (
    begins_empty,
    keeps_what_was_put,
    keeps_it_over_a_new_start,
    lists_in_order_and_in_pages,
    bounds_its_pages,
    compares_before_it_sets,
    deletes,
    does_all_or_nothing,
    refuses_what_is_too_long,
    serves_several_threads,
    tells_a_watch_what_changed,
    resumes_a_watch,
    wakes_a_watch,
    says_what_it_has_forgotten,
    clears_what_a_lease_held,
    lets_a_lease_live,
    ends_leases_of_the_dead,
    bounds_its_watches,
    is_closed_twice,
)
"""Everything that a store must do."""


# --- against a model -----------------------------------------------------------------------

KEYS = st.sampled_from(["a", "a/b", "a/c", "b", "é"])
VALUES = st.binary(max_size=8)


class StoreModel(RuleBasedStateMachine):
    """A store beside a dictionary with the same writes; a watch reports every change once."""

    ground: Callable[[], Ground]

    def __init__(self) -> None:
        super().__init__()
        self.place = type(self).ground()
        self.store = self.place.open()
        self.entries: dict[str, tuple[bytes, int, int]] = {}
        self.revision = self.store.range("").revision
        self.unread: list[tuple[int, dict[str, bytes | None]]] = []
        self.position = self.revision
        self.leases: dict[int, set[str]] = {}

    def changed(self, revision: int | None, events: dict[str, bytes | None]) -> None:
        """Note what a transaction did; at revision 0 if that is not known."""
        assert revision is not None
        events = {
            key: value for key, value in events.items() if value is not None or key in self.entries
        }
        if revision:
            assert revision >= self.revision + bool(events)
            self.revision = revision
        if not events:
            return
        for key, value in events.items():
            for bound in self.leases.values():
                bound.discard(key)
            if value is None:
                del self.entries[key]
            else:
                created = self.entries[key][1] if key in self.entries else revision
                self.entries[key] = (value, created, revision)
        self.unread.append((revision, events))

    @rule(key=KEYS, value=VALUES)
    def put(self, key: str, value: bytes) -> None:
        self.changed(self.store.put(key, value), {key: value})

    @rule(key=KEYS, value=VALUES, right=st.booleans())
    def set_if(self, key: str, value: bytes, right: bool) -> None:  # noqa: FBT001 - drawn
        known = self.entries[key][2] if key in self.entries else 0
        done = self.store.compare_and_set(key, value, known if right else known + 1)
        if right:
            self.changed(done, {key: value})
        else:
            assert done is None

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        there = key in self.entries
        assert self.store.delete(key) is there
        if there:
            self.changed(0, {key: None})

    @rule(
        events=st.dictionaries(KEYS, st.none() | VALUES, min_size=1),
        conditions=st.sets(KEYS),
        wrong=st.none() | KEYS,
    )
    def transact(
        self, events: dict[str, bytes | None], conditions: set[str], wrong: str | None
    ) -> None:
        when = [
            Unchanged(key, self.entries[key][2] if key in self.entries else 0)
            for key in sorted(conditions)
        ]
        if wrong is not None:
            when.append(Unchanged(wrong, self.revision + 10**6))
        changes = [
            Delete(key) if value is None else Put(key, value) for key, value in events.items()
        ]
        done = self.store.transact(changes, when=when)
        if wrong is None:
            self.changed(done, events)
        else:
            assert done is None

    @rule(keys=st.sets(KEYS, min_size=1))
    def bind(self, keys: set[str]) -> None:
        lease = self.store.grant(MAX_LEASE)
        done = self.store.transact([Put(key, b"bound", lease) for key in sorted(keys)])
        self.changed(done, dict.fromkeys(keys, b"bound"))
        self.leases[lease] = keys

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(sorted(self.leases)))
        keys = self.leases.pop(lease)
        self.store.keep_alive(lease)
        self.store.revoke(lease)
        self.changed(0, dict.fromkeys(keys))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.place.open()

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def watch(self, data: st.DataObject) -> None:
        with self.store.watch("", after=self.position) as watch:
            for _ in range(data.draw(st.integers(1, len(self.unread)))):
                change = seen(watch)
                revision, events = self.unread.pop(0)
                assert revision in (0, change.revision)
                assert change.revision > self.position
                assert told(change) == events
                self.position = change.revision

    @invariant()
    def has_the_same(self) -> None:
        found = {e.key: (e.value, e.created, e.modified) for e in self.store.entries("")}
        assert found == self.entries
        assert list(found) == sorted(found, key=str.encode)

    def teardown(self) -> None:
        self.store.close()


def follows_a_model(ground: Callable[[], Ground], *, examples: int | None = None) -> None:
    """Do what hypothesis thinks of with stores and with a dictionary, and compare.

    Args:
        ground: Makes a separate location for each example.
        examples: How many; None for as many as the profile of hypothesis says.
    """
    machine = type("StoreModelOnGround", (StoreModel,), {"ground": staticmethod(ground)})
    run_machine(machine, settings=settings(max_examples=examples) if examples else None)


# --- killed while it writes ----------------------------------------------------------------

WRITTEN_KEYS = 7
"""Keys that :func:`write_until_killed` writes, a part of them in each transaction."""


def write_until_killed(store: Store, acknowledge: Callable[[int], None], seed: int) -> None:
    """Do random transactions without end; the reader of the acknowledgements kills the process.

    Transaction ``n`` writes ``n`` to a part of the keys and deletes another part; ``n`` is written
    to the key ``n`` in each of them.

    Args:
        store: The store.
        acknowledge: Tells outside of the process that a transaction was acknowledged.
        seed: Of what is chosen.
    """
    entry = store.get("n")
    begin = int(entry.value) + 1 if entry else 1
    for number in itertools.count(begin):
        store.transact(killed_changes(number, seed))
        acknowledge(number)


def killed_changes(number: int, seed: int) -> list[Put | Delete]:
    """Return what transaction ``number`` of :func:`write_until_killed` does."""
    choose = random.Random(f"{seed}:{number}")  # noqa: S311 - no secret
    changes: list[Put | Delete] = [Put("n", b"%d" % number)]
    for key in range(WRITTEN_KEYS):
        match choose.randrange(4):
            case 0:
                changes.append(Delete(f"k/{key}"))
            case 1:
                changes.append(Put(f"k/{key}", b"%d" % number))
            case 2:
                changes.append(Put(f"k/{key}", b"%d " % number + bytes(choose.randrange(9000))))
            case _:
                pass
    return changes


def is_whole(store: Store, acknowledged: int, seed: int) -> int:
    """Check that each transaction is there wholly or not at all, and all acknowledged ones are.

    Args:
        store: What the killed process wrote, opened again.
        acknowledged: The last number that it acknowledged; 0 for none.
        seed: That of the process.

    Returns:
        The number of the last transaction that is there: at most one more than was acknowledged.

    Raises:
        AssertionError: A transaction is there in part, or one that was acknowledged is gone.
    """
    entry = store.get("n")
    last = int(entry.value) if entry else 0
    assert acknowledged <= last <= acknowledged + 1, "an acknowledged write is gone"
    expected: dict[str, bytes] = {}
    for number in range(1, last + 1):
        for change in killed_changes(number, seed):
            if isinstance(change, Put):
                expected[change.key] = change.value
            else:
                expected.pop(change.key, None)
    assert {entry.key: entry.value for entry in store.entries("")} == expected
    return last
