from __future__ import annotations

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sapwood.code.cache import BuildCache, CacheEntry, Fill
from sapwood.core.errors import BuildError, ResourceError, SecurityError


def writes(text: str) -> Fill:
    def fill(entry: Path, scratch: Path) -> dict[str, str]:
        (scratch / "object").write_text("temporary")
        (entry / "library").write_text(text)
        return {"sources": text}

    return fill


def never(entry: Path, scratch: Path) -> dict[str, str]:
    raise AssertionError("must not be built")


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


def test_the_second_request_builds_nothing(cache: BuildCache) -> None:
    first = cache.get_or_build("k1", writes("a"))
    second = BuildCache(cache.folder).get_or_build("k1", never)
    assert second.path("library").read_text() == "a"
    assert (first.built, second.built) == (True, False)
    assert (cache.counters.builds, cache.counters.hits) == (1, 0)
    assert not list((cache.folder / "building").iterdir())
    assert not list((cache.folder / "locks").iterdir())


def test_threads_that_ask_at_once_share_one_build(cache: BuildCache) -> None:
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda _: cache.get_or_build("k1", writes("a")), range(32)))
    assert sum(entry.built for entry in entries) == 1


def test_a_failed_build_leaves_nothing_and_is_tried_again(cache: BuildCache) -> None:
    def fails(entry: Path, scratch: Path) -> dict[str, str]:
        (entry / "half").touch()
        raise BuildError("does not compile")

    with pytest.raises(BuildError):
        cache.get_or_build("k1", fails)
    assert not list((cache.folder / "building").iterdir())
    assert cache.get_or_build("k1", writes("a")).built


@pytest.mark.parametrize("damage", ["change", "remove", "manifest"])
def test_a_damaged_entry_is_built_again(cache: BuildCache, damage: str) -> None:
    entry = cache.get_or_build("k1", writes("a"))
    path = entry.path("manifest.json" if damage == "manifest" else "library")
    entry.close()
    path.unlink() if damage == "remove" else path.write_text("{")
    again = cache.get_or_build("k1", writes("a"))
    assert again.built
    assert again.path("library").read_text() == "a"
    assert cache.counters.damaged == 1


def test_files_of_folders_count_and_are_looked_at(cache: BuildCache) -> None:
    def fill(entry: Path, scratch: Path) -> dict[str, str]:
        (scratch / "unused").touch()
        (entry / "a" / "b").mkdir(parents=True)
        (entry / "a" / "b" / "deep").write_text("12345")
        return {}

    entry = cache.get_or_build("k1", fill)
    assert list(entry.manifest.files) == ["a/b/deep"]
    assert cache.entries()[0].bytes == 5
    entry.close()
    entry.path("a/b/deep").write_text("54321")
    assert cache.get_or_build("k1", fill).built


def test_a_damaged_entry_is_replaced_even_while_it_is_in_use(cache: BuildCache) -> None:
    entry = cache.get_or_build("k1", writes("a"))
    entry.path("library").write_text("b")
    assert cache.get_or_build("k1", writes("a")).path("library").read_text() == "a"


def test_what_a_killed_build_left_is_removed(cache: BuildCache) -> None:
    left = cache.folder / "building" / "k2" / "entry"
    left.mkdir(parents=True)
    (left / "half").touch()
    cache.get_or_build("k1", writes("a"))
    assert not (cache.folder / "building" / "k2").exists()
    left.mkdir(parents=True)
    assert cache.get_or_build("k2", writes("b")).path("library").read_text() == "b"


def used_at(entry: CacheEntry, seconds: int) -> None:
    os.utime(entry.path("manifest.json"), (seconds, seconds))
    entry.close()


def test_the_least_recently_used_entries_are_evicted(cache: BuildCache) -> None:
    for age, key in enumerate(["k1", "k2", "k3"]):
        used_at(cache.get_or_build(key, writes("x" * 100)), age)
    used_at(cache.get_or_build("k1", never), 10)
    cache.size_limit = 250
    assert cache.prune() == 1
    assert [entry.key for entry in cache.entries()] == ["k3", "k1"]
    assert not list((cache.folder / "trash").iterdir())


def test_an_entry_in_use_is_not_evicted(cache: BuildCache) -> None:
    entry = cache.get_or_build("k1", writes("a"))
    assert cache.prune(0) == 0
    assert entry.path("library").exists()
    entry.close()
    assert cache.prune(0) == 1
    assert not entry.path("library").exists()


def test_building_prunes_by_itself(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, size_limit=150)
    used_at(cache.get_or_build("k1", writes("x" * 100)), 1)
    cache.get_or_build("k2", writes("x" * 100))
    assert [entry.key for entry in cache.entries()] == ["k2"]
    assert cache.counters.evictions == 1


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/proc/no/where"])
def test_a_folder_in_a_place_without_files_is_a_resource_error(folder: str) -> None:
    with pytest.raises(ResourceError, match="cannot be written") as caught:
        BuildCache(Path(folder)).get_or_build("k1", never)
    assert caught.value.where is not None
    assert caught.value.where.startswith("/proc/no")


def test_a_file_that_a_build_misses_is_not_the_cache(cache: BuildCache, tmp_path: Path) -> None:
    def reads(_entry: Path, _scratch: Path) -> dict[str, str]:
        return {"sources": (tmp_path / "missing.c").read_text()}

    with pytest.raises(FileNotFoundError):
        cache.get_or_build("k1", reads)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_folder_without_locks_is_a_resource_error_that_names_it(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As on NFS without a lock daemon."""

    def refused(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(ResourceError, match="cannot be locked") as caught:
        cache.get_or_build("k1", lambda _entry, _scratch: {})
    assert caught.value.where == str(cache.folder)
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_full_disk_is_a_resource_error(cache: BuildCache) -> None:
    def full(entry: Path, scratch: Path) -> dict[str, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ResourceError, match="full"):
        cache.get_or_build("k1", full)


def test_a_folder_that_cannot_be_made_is_a_resource_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError) as caught:
        BuildCache(tmp_path / "file" / "cache").get_or_build("k1", writes("a"))
    assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.parametrize("lax", ["file", "folder", "folder of entries"])
def test_what_others_may_write_to_is_not_loaded(tmp_path: Path, lax: str) -> None:
    """The hashes of an entry are stored in it: they say nothing about who wrote it."""
    cache, made = BuildCache(tmp_path / "cache"), 0

    def fill(entry: Path, scratch: Path) -> dict[str, str]:
        nonlocal made
        made += 1
        (entry / "sub").mkdir()
        (entry / "sub" / "lib.so").write_bytes(b"code")
        del scratch
        return {}

    before = os.umask(0)
    try:
        entry = cache.get_or_build("ab", fill)
    finally:
        os.umask(before)
    for one in (entry.folder, entry.path("sub"), entry.path("sub/lib.so"), entry.folder.parent):
        assert not one.stat().st_mode & 0o022
    changed = {"file": entry.path("sub/lib.so"), "folder": entry.folder}
    changed.get(lax, entry.folder.parent).chmod(0o777)
    entry.close()
    if lax == "folder of entries":
        with pytest.raises(SecurityError, match="other users may write"):
            cache.get_or_build("ab", fill)
    else:
        cache.get_or_build("ab", fill).close()
        assert made == 2
