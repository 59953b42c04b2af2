from pathlib import Path

import pytest

from sapwood.core.errors import ProgramError, ResourceError
from sapwood_lizard import store as module
from sapwood_lizard.registration import Registration, checksum_of
from sapwood_lizard.store import ProgramStore, default_folder


def registration(text: str) -> Registration:
    return Registration(name=text, data=text, checksum=checksum_of(text))


def test_programs_are_kept_by_checksum(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path / "new" / "folder")
    assert store.all() == []
    for text in ("b", "a", "a"):
        store.add(registration(text))
    assert [each.name for each in store.all()] == ["a", "b"]
    assert store.get(checksum_of("a").upper()).data == "a"
    store.remove(checksum_of("a"))
    with pytest.raises(ProgramError, match="no program is registered"):
        store.get(checksum_of("a"))
    with pytest.raises(ProgramError, match="no program is registered"):
        store.remove(checksum_of("a"))


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"name":"a","data":"b","checksum":"c"}'])
def test_a_damaged_program_is_told_and_not_listed(tmp_path: Path, damage: bytes) -> None:
    store = ProgramStore(tmp_path)
    store.add(registration("a"))
    (tmp_path / f"{checksum_of('a')}.json").write_bytes(damage)
    with pytest.raises(ProgramError, match="damaged"):
        store.get(checksum_of("a"))
    assert store.all() == []


def test_there_is_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PROGRAMS", 2)
    store = ProgramStore(tmp_path)
    store.add(registration("a"))
    store.add(registration("b"))
    with pytest.raises(ResourceError, match="registered already"):
        store.add(registration("c"))
    store.add(registration("a"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="cannot be kept"):
        ProgramStore(tmp_path / "file" / "x").add(registration("a"))


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "sapwood" / "lizard"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "share" / "sapwood" / "lizard"
