"""The store in etcd against the conformance suite, with a real etcd."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest
from tests.integration.store.members import Member, address, members, wait_for, why_no_etcd

from sapwood.store.base import Store
from sapwood.store.etcd import EtcdStore
from sapwood.store.opening import open_store
from sapwood.testing.stores import CHECKS, Check, Ground, follows_a_model

pytestmark = pytest.mark.skipif(bool(why_no_etcd()), reason=why_no_etcd())


@pytest.fixture(scope="module")
def etcd(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Member]]:
    del nothing_is_left_behind_by_all  # it looks when these have ended
    with members(tmp_path_factory.mktemp("etcd"), 1) as running:
        wait_for(address(running, "ready"))
        yield running


def forget(store: Store, revision: int) -> None:
    assert isinstance(store, EtcdStore)
    store.forget(revision)


@pytest.fixture
def ground(etcd: list[Member]) -> Callable[[], Ground]:
    def make() -> Ground:
        where = address(etcd, secrets.token_hex(4))
        return Ground(lambda: open_store(where), forget)

    return make


@pytest.mark.row("C4-STORE")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, ground: Callable[[], Ground]) -> None:
    check(ground())


@pytest.mark.row("C4-STORE")
def test_it_follows_a_model(ground: Callable[[], Ground]) -> None:
    follows_a_model(ground, examples=8)  # each call is a round trip
