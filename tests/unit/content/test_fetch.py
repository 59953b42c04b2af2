"""The content folder of a node: fetched once, whole or not at all, bounded."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import heapq
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.payload import Payload
from sapwood.comm.reactor import ReactorTimer
from sapwood.content.fetch import ContentCache, HeldContent
from sapwood.content.messages import GET, NAME
from sapwood.content.pull import WINDOW
from sapwood.content.refs import CHUNK, ContentRef, FileStamp
from sapwood.content.store import PART
from sapwood.core.errors import (
    ClosedError,
    DataValueError,
    ResourceError,
    SapwoodError,
    SecurityError,
)

PATIENCE = 30.0
LIMIT = 2**30


class Turns:
    """A loop whose time passes when there is nothing to do."""

    def __init__(self) -> None:
        self._soon: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._later: list[tuple[float, int, Any]] = []
        self._now = 0.0
        self._count = 0

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        self._count += 1
        timer = ReactorTimer(callback, args)
        heapq.heappush(self._later, (self._now + delay, self._count, timer))
        return timer

    def turn(self) -> None:
        """Do the next thing."""
        if self._soon:
            function, args = self._soon.popleft()
            function(*args)
            return
        assert self._later, "nothing will ever happen"
        self._now, _, timer = heapq.heappop(self._later)
        if timer.callback is not None:
            timer.callback(*timer.args)


class Root:
    """A client that offers some content, and the loop that its answers come by."""

    def __init__(self, folder: Path) -> None:
        self.loop: Any = Turns()
        self.folder = folder
        self.contents: dict[str, bytes] = {}
        self.sent: Counter[str] = Counter()
        self.under_way = self.most_under_way = 0
        self.answering = True
        self.changed: Callable[[bytes], bytes] = bytes

    def offer(self, data: bytes) -> ContentRef:
        sha256 = hashlib.sha256(data).hexdigest()
        self.contents[sha256] = data
        return ContentRef(sha256, len(data))

    def cache(self, limit: int = LIMIT) -> ContentCache:
        """Return the cache as one process of the node has it."""
        return ContentCache(str(self.folder), limit, self.ask, self.loop)

    def ask(
        self,
        _destination: int,
        handler: str,
        body: bytes,
        on_answer: Callable[[ev.Answered], None] | None = None,
    ) -> None:
        assert on_answer is not None
        argument = plain.decode(body)
        if handler == NAME:
            (path, _size, _time), offset, nbytes = argument
            data = Path(os.fsdecode(path)).with_suffix(".true").read_bytes()
            name = self.offer(data[offset : offset + nbytes]).sha256
            self.loop.call_soon(on_answer, ev.Answered(1, plain.encode(name), None, None))
            return
        assert handler == GET
        sha256, _, offset, nbytes = argument
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.sent[sha256] += nbytes
        if self.answering:
            self.loop.call_soon(self.answer, on_answer, sha256, offset, nbytes)

    def answer(self, on_answer: Any, sha256: str, offset: int, nbytes: int) -> None:
        self.under_way -= 1
        data = self.contents.get(sha256)
        if data is None:
            error = ClosedError("it is not offered any more").to_record()
            on_answer(ev.Answered(1, b"", None, error))
            return
        chunk = self.changed(data[offset : offset + nbytes])
        on_answer(ev.Answered(1, plain.encode(None), Payload(chunk), None))

    def run(self, until: Callable[[], object]) -> None:
        """Let the loop run until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline
            self.loop.turn()

    def fetch(self, *refs: ContentRef, limit: int = LIMIT) -> HeldContent:
        """Fetch as a process does that does nothing else."""
        got: list[HeldContent | SapwoodError] = []
        self.cache(limit).fetch(refs, got.append, got.append)
        self.run(lambda: got)
        (outcome,) = got
        if isinstance(outcome, SapwoodError):
            raise outcome
        return outcome


def unwanted(outcome: object) -> None:
    pytest.fail(f"unexpected outcome {outcome}")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "cache" / "content")


def names(root: Root) -> set[str]:
    return {path.name for path in root.folder.iterdir()} - {".room"}


def test_content_is_fetched_in_chunks_of_which_few_are_under_way(root: Root) -> None:
    ref = root.offer(os.urandom(9 * CHUNK + 17))
    held = root.fetch(ref)
    assert (root.folder / ref.sha256).read_bytes() == root.contents[ref.sha256]
    assert root.most_under_way == WINDOW
    assert root.folder.stat().st_mode & 0o777 == 0o700
    assert names(root) == {ref.sha256}
    held.close()


def test_nothing_is_content_too(root: Root) -> None:
    ref = root.offer(b"")
    root.fetch(ref).close()
    assert (root.folder / ref.sha256).read_bytes() == b""


def test_what_is_here_is_not_fetched_again(root: Root) -> None:
    refs = [root.offer(b"abc"), root.offer(b"defg")]
    root.fetch(*refs).close()
    root.fetch(*refs, root.offer(b"new")).close()
    assert root.sent == {ref.sha256: ref.nbytes for ref in (*refs, root.offer(b"new"))}


def test_chunks_may_come_in_another_order(root: Root) -> None:
    ref = root.offer(os.urandom(3 * CHUNK))
    asked: list[tuple[Any, ...]] = []
    root.loop.call_soon = lambda _answer, *args: asked.append(args)
    got: list[HeldContent] = []
    root.cache().fetch([ref], got.append, unwanted)
    for args in reversed(asked):
        root.answer(*args)
    assert (root.folder / ref.sha256).read_bytes() == root.contents[ref.sha256]
    got[0].close()


def test_processes_of_a_node_fetch_the_same_content_once(root: Root) -> None:
    ref = root.offer(os.urandom(5 * CHUNK))
    got: list[HeldContent] = []
    for _ in range(4):
        root.cache().fetch([ref], got.append, unwanted)
    root.run(lambda: len(got) == 4)
    assert root.sent == {ref.sha256: ref.nbytes}
    for held in got:
        held.close()


def test_who_waits_for_a_process_that_dies_fetches_it_instead(root: Root) -> None:
    ref = root.offer(b"content")
    root.folder.mkdir(parents=True)
    (root.folder / (ref.sha256 + PART)).write_bytes(b"cont")
    holder = os.open(root.folder / (ref.sha256 + PART), os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    got: list[HeldContent] = []
    root.cache().fetch([ref], got.append, unwanted)
    assert not root.sent
    os.close(holder)  # as the kernel does for a killed process
    root.run(lambda: got)
    assert (root.folder / ref.sha256).read_bytes() == b"content"
    got[0].close()


def test_a_folder_without_locks_is_an_error_that_names_the_setting(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS without a lock daemon."""

    def refused(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    errors: list[SapwoodError] = []
    root.cache().fetch([root.offer(b"content")], unwanted, errors.append)
    root.run(lambda: errors)
    (error,) = errors
    assert isinstance(error, ResourceError)
    assert "cannot be used: No locks available" in error.what
    assert "cluster.content_folder" in error.hint


def test_an_error_of_who_fetches_is_not_that_of_who_waits(root: Root) -> None:
    ref = root.offer(b"content")
    root.answering = False
    first = root.cache().fetch([ref], unwanted, unwanted)
    got: list[HeldContent] = []
    root.cache().fetch([ref], got.append, unwanted)
    first.cancel()
    root.answering = True
    root.run(lambda: got)
    got[0].close()


def test_damage_on_the_way_is_mended_once(root: Root) -> None:
    ref = root.offer(os.urandom(2 * CHUNK))
    damaged = []

    def once(chunk: bytes) -> bytes:
        damaged.append(chunk)
        return chunk if len(damaged) > 1 else bytes(len(chunk))

    root.changed = once
    root.fetch(ref).close()
    assert root.sent[ref.sha256] == 2 * ref.nbytes
    assert (root.folder / ref.sha256).read_bytes() == root.contents[ref.sha256]


@pytest.mark.parametrize("changed", [lambda chunk: bytes(len(chunk)), lambda chunk: chunk[:-1]])
def test_lasting_damage_is_told_with_hash_and_size(
    root: Root, changed: Callable[[bytes], bytes]
) -> None:
    ref = root.offer(b"content")
    root.changed = changed
    with pytest.raises(DataValueError, match="damaged") as caught:
        root.fetch(ref)
    assert ref.sha256 in caught.value.where
    assert root.sent[ref.sha256] == 2 * ref.nbytes
    assert names(root) == set()


def test_content_that_is_not_offered_any_more(root: Root) -> None:
    ref = root.offer(b"content")
    root.contents.clear()
    with pytest.raises(ClosedError, match="not offered"):
        root.fetch(ref)
    assert names(root) == set()


@pytest.mark.parametrize("damaged", [b"cantent", b"cont", b""])
def test_what_was_damaged_on_the_disk_is_fetched_again(root: Root, damaged: bytes) -> None:
    ref = root.offer(b"content")
    root.fetch(ref).close()
    path = root.folder / ref.sha256
    path.chmod(0o600)
    path.write_bytes(damaged)
    root.fetch(ref).close()
    assert path.read_bytes() == b"content"


def test_a_process_hashes_what_it_finds_once(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = root.offer(b"content")
    root.fetch(ref).close()
    cache = root.cache()
    read = Mock(side_effect=os.pread)
    monkeypatch.setattr(os, "pread", read)
    for _ in range(3):
        got: list[HeldContent] = []
        cache.fetch([ref], got.append, unwanted)
        root.run(partial(len, got))
        got[0].close()
    assert read.call_count == 2  # the bytes, and their end


def test_what_was_not_used_for_longest_goes_first(root: Root) -> None:
    refs = [root.offer(bytes([number]) * 1000) for number in range(5)]
    for ref in refs[:3]:
        root.fetch(ref, limit=3000).close()
    root.fetch(refs[0], limit=3000).close()
    root.fetch(refs[3], limit=3000).close()
    assert names(root) == {refs[0].sha256, refs[2].sha256, refs[3].sha256}


def test_what_somebody_has_open_stays(root: Root) -> None:
    refs = [root.offer(bytes([number]) * 1000) for number in range(3)]
    held = root.fetch(refs[0], limit=2000)
    root.fetch(refs[1], limit=2000).close()
    root.fetch(refs[2], limit=2000).close()
    assert names(root) == {refs[0].sha256, refs[2].sha256}
    with pytest.raises(ResourceError, match=r"no room for 1500 bytes: 1000 of its 2000") as caught:
        root.fetch(root.offer(b"x" * 1500), limit=2000)
    assert "cluster.content_cache" in caught.value.hint
    held.close()
    root.fetch(root.offer(b"x" * 1500), limit=2000).close()


def test_what_a_killed_process_left_goes_too(root: Root) -> None:
    root.folder.mkdir(parents=True)
    (root.folder / ("0" * 64 + PART)).write_bytes(b"x" * 1000)
    ref = root.offer(b"y" * 1500)
    root.fetch(ref, limit=2000).close()
    assert names(root) == {ref.sha256}


@pytest.mark.parametrize("by", ["statvfs", "pwrite"])
def test_a_full_disk_gives_up_old_content_first(
    root: Root, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    old, new = root.offer(b"x" * 1000), root.offer(b"y" * 1000)
    root.fetch(old).close()
    fill_disk(monkeypatch, by, lambda: old.sha256 in names(root))
    root.fetch(new).close()
    assert names(root) == {new.sha256}


@pytest.mark.parametrize("by", ["statvfs", "pwrite"])
def test_a_full_disk_is_told(root: Root, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    fill_disk(monkeypatch, by, lambda: True)
    with pytest.raises(ResourceError, match="disk of the content cache is full") as caught:
        root.fetch(root.offer(b"abc"))
    assert str(root.folder) in caught.value.where
    assert names(root) == set()


def fill_disk(monkeypatch: pytest.MonkeyPatch, by: str, is_full: Callable[[], bool]) -> None:
    """Let the disk say that it is full, before anything is written to it or only then."""
    true = getattr(os, by)

    def call(*args: Any) -> Any:
        if not is_full():
            return true(*args)
        if by == "statvfs":
            return SimpleNamespace(f_bavail=0, f_frsize=4096)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, by, call)


def test_a_folder_that_others_write_to_is_refused(root: Root) -> None:
    root.folder.mkdir(parents=True)
    root.folder.chmod(0o777)
    with pytest.raises(SecurityError, match="other users may write"):
        root.fetch(root.offer(b"abc"))


def test_a_folder_that_cannot_be_made(root: Root) -> None:
    root.folder.parent.parent.mkdir(exist_ok=True)
    root.folder.parent.write_text("a file")
    with pytest.raises(ResourceError, match="cannot be used") as caught:
        root.fetch(root.offer(b"abc"))
    assert "cluster.content_folder" in caught.value.hint


def test_a_cancelled_fetch_leaves_nothing(root: Root) -> None:
    ref = root.offer(b"abc")
    root.answering = False
    fetch = root.cache().fetch([ref], unwanted, unwanted)
    assert names(root) == {ref.sha256 + PART}
    fetch.cancel()
    fetch.cancel()
    assert names(root) == set()


def test_a_file_that_is_seen_is_not_fetched(root: Root, tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    path.write_bytes(b"0123456789")
    path.with_suffix(".true").write_bytes(b"0123456789")
    ref = ContentRef("", 4, FileStamp.of(os.fsencode(path)), 3)
    held = root.fetch(ref)
    assert held.names == []
    assert not root.folder.exists()
    path.unlink()
    held = root.fetch(ref)
    sha256 = hashlib.sha256(b"3456").hexdigest()
    assert held.names == [(os.fsencode(path), 3, sha256)]
    assert (root.folder / sha256).read_bytes() == b"3456"
    held.close()


def test_another_process_that_makes_room_is_waited_for(root: Root) -> None:
    root.folder.mkdir(parents=True)
    root.folder.chmod(0o700)
    lock = os.open(root.folder / ".room", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    ref = root.offer(b"abc")
    got: list[HeldContent] = []
    root.cache().fetch([ref], got.append, unwanted)
    for _ in range(3):
        root.loop.turn()
    assert not got
    os.close(lock)
    root.run(lambda: got)
    got[0].close()
