"""The store in SQLite against the conformance suite, and the suite against bad stores."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.store.base import Store
from sapwood.store.sqlite import SqliteStore
from sapwood.testing.stores import CHECKS, Check, Ground, follows_a_model


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
    follows_a_model(ground)
