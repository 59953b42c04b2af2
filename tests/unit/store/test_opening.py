"""Which store an address is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.store import opening
from sapwood.store.etcd_calls import EtcdAddress
from sapwood.store.opening import is_shared, open_store
from sapwood.store.sqlite import SqliteStore


@pytest.mark.parametrize("form", [str, lambda path: f"sqlite://{path}", Path])
def test_a_folder_is_a_store_in_sqlite(tmp_path: Path, form: Callable[[Path], str | Path]) -> None:
    folder = tmp_path / "a folder"
    with open_store(form(folder)) as store:
        assert isinstance(store, SqliteStore)
    assert (folder / "store.db").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "empty"),
        ("etd://host", "did you mean etcd"),
        ("http://host", "known: etcd, etcds, sqlite"),
        ("sqlite://folder", "three slashes"),
        ("sqlite:///folder?mode=ro", "three slashes"),
        ("etcd://", "no host"),
        ("etcd://n1,,n2", "no host"),
        ("etcd://n1:port", "not HOST:PORT"),
        ("etcd://n1:99999", "not HOST:PORT"),
        ("etcd://me:secret@n1", "user"),
        ("etcd://n1?ca=x", "etcds"),
        ("etcds://n1?certs=x", "did you mean cert"),
        ("etcds://n1?key=x", "cert"),
        ("etcd://n1/" + "x" * 200, "too long"),
        ("etcd://" + ",".join(f"n{n}" for n in range(40)), "more than 32"),
    ],
)
@pytest.mark.slow
def test_anything_else_is_refused_with_what_would_do(address: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(address)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_address_of_etcd_is_read() -> None:
    found = EtcdAddress.parse("etcds://n1,[::1]:99,n1/a/b?ca=/c&cert=/d&key=/e")
    assert found == EtcdAddress((("n1", 2379), ("::1", 99)), "a/b", True, "/c", "/d", "/e")
    assert str(found) == "etcds://n1:2379,[::1]:99/a/b"
    assert EtcdAddress.parse("etcd://n1").name == "sapwood"


@pytest.mark.parametrize(
    ("address", "shared"),
    [
        ("etcd://n1", True),
        ("ETCDS://n1", True),
        ("own://x", True),
        ("", False),
        ("/a", False),
        ("sqlite:///a", False),
        ("./a:b", False),
    ],
)
def test_several_heads_may_share_what_is_no_file(address: str, *, shared: bool) -> None:
    assert is_shared(address) is shared


def test_a_plug_in_is_found_by_its_scheme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class StoreEntry:
        name = "mine"

        def load(self) -> Callable[[str], SqliteStore]:
            return lambda address: SqliteStore(tmp_path / address.removeprefix("mine:"))

    monkeypatch.setattr(
        opening, "entry_points", lambda group: [StoreEntry()] * (group == "sapwood.stores")
    )
    with open_store("mine:x") as store:
        assert store.url.endswith("/x")
