"""The store in SQLite against the conformance suite, and the suite against bad stores."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sapwood.core.errors import SapwoodError
from sapwood.store.base import Change, Delete, Page, Put, Store, StoreEntry, Unchanged
from sapwood.store.sqlite import SqliteStore
from sapwood.testing.stores import (
    CHECKS,
    Check,
    Ground,
    begins_empty,
    clears_what_a_lease_held,
    compares_before_it_sets,
    deletes,
    does_all_or_nothing,
    follows_a_model,
    is_closed_twice,
    keeps_it_over_a_new_start,
    keeps_what_was_put,
    lets_a_lease_live,
    lists_in_order_and_in_pages,
    refuses_what_is_too_long,
    says_what_it_has_forgotten,
    tells_a_watch_what_changed,
)


def forget(store: Store, revision: int) -> None:
    assert isinstance(store, SqliteStore)
    store.forget(revision)


@pytest.fixture
def ground(tmp_path: Path) -> Callable[[], Ground]:
    numbers = itertools.count()

    def make() -> Ground:
        folder = tmp_path / f"{next(numbers)}"
        return Ground(lambda: SqliteStore(folder), forget)

    return make


@pytest.mark.row("C4-STORE")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, ground: Callable[[], Ground]) -> None:
    check(ground())


@pytest.mark.row("C4-STORE")
def test_it_follows_a_model(ground: Callable[[], Ground]) -> None:
    follows_a_model(ground, examples=20)


class Unconditional(SqliteStore):
    """Does not look at conditions."""

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        return super().transact(changes)


class InPieces(SqliteStore):
    """Makes each change a separate revision."""

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        done = None
        for change in changes:
            done = super().transact([change], when=when)
            when = ()
        return done


class Reversed(SqliteStore):
    """Lists keys from the last to the first."""

    def range(self, prefix: str, *, after: str = "", limit: int = 512) -> Page:
        page = super().range(prefix, after=after, limit=limit)
        return Page(page.entries[::-1], page.revision, page.more)


class Endless(SqliteStore):
    """Says that there is more where there is nothing."""

    def range(self, prefix: str, *, after: str = "", limit: int = 512) -> Page:
        page = super().range(prefix, after=after, limit=limit)
        return Page(page.entries, page.revision, more=True)


class Undying(SqliteStore):
    """Does not end leases."""

    def grant(self, seconds: float) -> int:
        super().grant(seconds)
        return super().grant(86_400)


class Deaf(SqliteStore):
    """Does not hear that a lease is kept alive."""

    def keep_alive(self, lease: int) -> None:
        del lease


class Unbound(SqliteStore):
    """Forgets which lease a key has."""

    def get(self, key: str) -> StoreEntry | None:
        found = super().get(key)
        return found and StoreEntry(found.key, found.value, found.created, found.modified)


class Older(SqliteStore):
    """Gives the revision that made a key as the one that wrote it."""

    def get(self, key: str) -> StoreEntry | None:
        found = super().get(key)
        return found and StoreEntry(found.key, found.value, found.created, found.created)


class Remembering(SqliteStore):
    """Starts a watch with the entries that it has, and does not report the deleted ones."""

    def _check_kept(self, after: int) -> None:
        del after


class Mixing(SqliteStore):
    """Tells a watch what is below other prefixes, too."""

    def _change_after(self, position: int, prefix: bytes) -> Change | None:
        del prefix
        return super()._change_after(position, b"")


class Volatile(SqliteStore):
    """Loses what it has when it is closed."""

    def close(self) -> None:
        if not self._closed:
            for entry in list(self.entries("")):
                self.delete(entry.key)
        super().close()


class Busy(SqliteStore):
    """Deletes what is not there."""

    def delete(self, key: str, *, revision: int | None = None) -> bool:
        super().delete(key, revision=revision)
        return True


class Generous(SqliteStore):
    """Cuts what is too long."""

    def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        return super().put(key[:500] or "empty", value[: 2**20], lease=lease)


class Open(SqliteStore):
    """Can be used after it was closed."""

    def revoke(self, lease: int) -> None:
        del lease


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("bad", "check"),
    [
        (Unconditional, compares_before_it_sets),
        (InPieces, does_all_or_nothing),
        (Reversed, lists_in_order_and_in_pages),
        (Endless, begins_empty),
        (Undying, lets_a_lease_live),
        (Deaf, lets_a_lease_live),
        (Unbound, clears_what_a_lease_held),
        (Older, keeps_what_was_put),
        (Remembering, says_what_it_has_forgotten),
        (Mixing, tells_a_watch_what_changed),
        (Volatile, keeps_it_over_a_new_start),
        (Busy, deletes),
        (Generous, refuses_what_is_too_long),
        (Open, is_closed_twice),
    ],
)
def test_a_bad_store_is_found(
    bad: type[SqliteStore], check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.testing.stores.PATIENCE", 4.0)
    with pytest.raises((AssertionError, SapwoodError, pytest.fail.Exception)):
        check(Ground(lambda: bad(tmp_path / "bad"), forget))
