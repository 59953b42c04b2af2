"""The folder of content: room, locks, and what users and processes may do with it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sapwood.content.fetch import CACHE_TEXTS
from sapwood.content.refs import CHUNK
from sapwood.content.store import COUNT, PART, ContentStore, PartialContent
from sapwood.core.errors import DataValueError, ResourceError

NOBODY = 65534


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def data_of(number: int) -> bytes:
    return bytes([number]) * (50 * number)


def store_in(folder: Path, limit: int = 0) -> ContentStore:
    made = ContentStore(folder / "content", limit, CACHE_TEXTS)
    made.make()
    return made


def put(store: ContentStore, data: bytes) -> int:
    """Write content; return its locked descriptor."""
    part = store.lead(sha256(data), len(data))
    assert part is not None
    try:
        assert store.reserve(part)
    except ResourceError:
        part.abandon()
        raise
    part.append(data)
    fd = part.finish()
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


LIMIT = 1000
NUMBERS = st.integers(1, 9)


class Folder(RuleBasedStateMachine):
    """Processes that use one folder: each has its own descriptors, as each content has here."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sapwood-test-"))
        self.store = store_in(self.folder, LIMIT)
        self.held: dict[int, int] = {}
        self.linked: set[int] = set()
        self.parts: dict[int, PartialContent] = {}

    def teardown(self) -> None:
        for fd in self.held.values():
            os.close(fd)
        for part in self.parts.values():
            part.close()
        shutil.rmtree(self.folder)

    def needed(self) -> int:
        """Return how many bytes must stay."""
        whole = sum(len(data_of(one)) for one in {*self.held, *self.linked})
        return whole + sum(len(data_of(one)) + COUNT.size for one in self.parts)

    @rule(number=NUMBERS)
    def use(self, number: int) -> None:
        data = data_of(number)
        if number in self.held or number in self.parts:
            return
        fd = self.store.hold(sha256(data), len(data))
        try:
            self.held[number] = put(self.store, data) if fd is None else fd
        except ResourceError:
            assert self.needed() + len(data) > LIMIT

    @rule(number=NUMBERS)
    def release(self, number: int) -> None:
        if number in self.held:
            os.close(self.held.pop(number))

    @rule(number=NUMBERS)
    def begin(self, number: int) -> None:
        data = data_of(number)
        if number in self.held or number in self.parts:
            return
        part = self.store.lead(sha256(data), len(data))
        assert part is not None
        try:
            self.store.reserve(part)
        except ResourceError:
            part.abandon()
            assert self.needed() + len(data) > LIMIT
        else:
            self.parts[number] = part

    @rule(number=NUMBERS)
    def kill(self, number: int) -> None:
        if number in self.parts:
            self.parts.pop(number).close()

    @rule(number=NUMBERS)
    def link(self, number: int) -> None:
        if number in self.held and number not in self.linked:
            os.link(self.store.path_of(sha256(data_of(number))), self.folder / str(number))
            self.linked.add(number)

    @invariant()
    def what_is_in_use_stays(self) -> None:
        names = {file.name for file in self.store.files()}
        assert {sha256(data_of(one)) for one in {*self.held, *self.linked}} <= names
        assert {sha256(data_of(one)) + PART for one in self.parts} <= names

    @invariant()
    def the_bound_holds(self) -> None:
        files = self.store.files()
        assert sum(file.nbytes for file in files) <= LIMIT + COUNT.size * len(files)


TestFolder = Folder.TestCase
TestFolder.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder in which another user may write."""
    folder = Path(tempfile.mkdtemp(prefix="sapwood-test-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_user_other_than_root_can_make_room(open_folder: Path) -> None:
    """Whole content is read-only; to lock it exclusively it must be opened for writing."""
    child = os.fork()
    if not child:
        if not os.getuid():
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        try:
            store = store_in(open_folder, 1000)
            os.close(put(store, b"x" * 800))
            os.close(put(store, b"y" * 900))
            names = {file.name for file in store.files()}
            os._exit(0 if names == {sha256(b"y" * 900)} else 1)
        except BaseException:  # noqa: BLE001 - the status says it
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_program_that_runs_is_in_use(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    program = Path("/bin/sleep").read_bytes()
    os.close(put(store, program))
    path = store.path_of(sha256(program))
    path.chmod(0o555)
    with subprocess.Popen([path, "60"]) as running:
        assert not store.remove_oldest()
        running.kill()
    assert store.remove_oldest()


def test_a_partial_file_is_continued_and_damage_is_found(tmp_path: Path) -> None:
    data = os.urandom(CHUNK + 10)
    store = store_in(tmp_path)
    part = store.lead(sha256(data), len(data))
    assert part is not None
    assert store.lead(sha256(data), len(data)) is None  # one at a time
    assert store.reserve(part)
    part.append(data[: CHUNK + 1])
    assert store.arrived(sha256(data), len(data)) == CHUNK + 1
    assert store.read(sha256(data), len(data), CHUNK) == data[CHUNK : CHUNK + 1]
    assert store.read(sha256(data), len(data), CHUNK + 1) == b""
    assert store.arrived(sha256(b"other"), 5) is None
    assert store.read(sha256(b"other"), 5, 0) is None
    part.close()
    for spoilt in (False, True):
        if spoilt:
            with store.path_of(sha256(data), PART).open("r+b") as file:
                file.write(b"other")
        again = store.lead(sha256(data), len(data))
        assert again is not None
        while again.resume():
            pass
        assert again.written == CHUNK + 1
        if spoilt:
            again.append(data[CHUNK + 1 :])
            with pytest.raises(DataValueError, match="differ from the announced"):
                again.finish()
        again.close()
    assert store.files() == []


def test_a_partial_file_of_another_size_begins_anew(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    part = store.lead(sha256(b"abc"), 100)
    assert part is not None
    assert store.reserve(part)
    part.append(b"x" * 50)
    part.close()
    part = store.lead(sha256(b"abc"), 3)
    assert part is not None
    assert not part.resume()
    assert store.reserve(part)
    part.append(b"abc")
    os.close(part.finish())
    assert store.path_of(sha256(b"abc")).read_bytes() == b"abc"
