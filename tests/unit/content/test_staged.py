"""The folder of staged files: content by hash, room, names, and what a killed daemon leaves."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.content import store as content_store
from sapwood.content.file_trees import MARK, FileEntry, FileTree, read_tree
from sapwood.content.messages import StagePiece
from sapwood.content.refs import CHUNK
from sapwood.content.room import PINNED
from sapwood.content.staged import StageStore
from sapwood.content.store import COUNT, ContentStore
from sapwood.core.errors import (
    ClosedError,
    DataMissingError,
    DataValueError,
    ProtocolError,
    ResourceError,
    SecurityError,
)


class HandClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_tree(name: str, data: bytes, *, executable: bool = False) -> FileTree:
    return FileTree(name, [FileEntry(name.encode(), "file", len(data), sha256(data), executable)])


def give(store: StageStore, data: bytes, start: int = 0, end: int | None = None) -> None:
    part = data[start:end]
    store.write(StagePiece(sha256(data), len(data), start, part))


def stage(store: StageStore, name: str, data: bytes, *, executable: bool = False) -> Path:
    tree = file_tree(name, data, executable=executable)
    if store.look(tree):
        give(store, data)
    return Path(store.keep(tree).path)


@pytest.fixture
def store(tmp_path: Path) -> StageStore:
    return StageStore(tmp_path / "stage", 1000)


names = st.sampled_from(["a", "b", "c"])
contents = st.sampled_from([bytes([number]) * (60 * number) for number in range(1, 6)])
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), names, contents, st.booleans()),
        st.tuples(st.just("remove"), names, st.just(b""), st.just(False)),
        st.tuples(st.just("begin"), names, contents, st.just(False)),
        st.tuples(st.just("restart"), st.just(""), st.just(b""), st.just(False)),
    ),
    max_size=25,
)


@given(deeds)
@pytest.mark.slow
def test_what_has_a_name_stays_and_the_bound_holds(
    done: list[tuple[str, str, bytes, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = HandClock()
        store = StageStore(Path(folder) / "stage", 700, clock)
        model: dict[str, tuple[bytes, bool]] = {}
        for deed, name, data, executable in done:
            clock.now += 2 * PINNED  # no client is about to name the unnamed ones
            if deed == "remove":
                assert store.remove(name) is (model.pop(name, None) is not None)
            elif deed == "restart":
                store.close()
                store = StageStore(Path(folder) / "stage", 700, clock)
            elif deed == "begin":
                try:
                    missing = store.look(file_tree(name, data))
                except ResourceError:
                    continue
                if missing:
                    give(store, data, missing[0].offset, len(data) // 2)
            else:
                named = sum(map(len, {one for one, _ in model.values()} - {data}))
                try:
                    stage(store, name, data, executable=executable)
                except ResourceError:
                    # A file with both modes is stored twice.
                    assert named + len(data) > 700 or store.held > named
                else:
                    model[name] = (data, executable)
            found = store.facts()
            assert [one.name for one in found.names] == sorted(model)
            for one in found.names:
                path, (wanted, can_run) = Path(one.path), model[one.name]
                assert path.read_bytes() == wanted
                assert os.access(path, os.X_OK) is can_run
        store.close()


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 100)), max_size=30))
@pytest.mark.slow
def test_pieces_in_any_order_make_the_content_or_are_refused(
    pieces: list[tuple[int, int]],
) -> None:
    data = bytes(range(100))
    with tempfile.TemporaryDirectory() as folder:
        store = StageStore(Path(folder) / "stage")
        tree, here = file_tree("a", data), 0
        store.look(tree)
        for start, end in [*pieces, (0, 100)]:
            if here < start and here < 100:
                with pytest.raises(ProtocolError):
                    give(store, data, start, end)
            else:
                give(store, data, start, end)
                here = max(here, min(end, 100)) if start <= here else here
            assert [one.offset for one in store.look(tree)] == ([here] if here < 100 else [])
        assert Path(store.keep(tree).path).read_bytes() == data
        store.close()


@pytest.mark.slow
def test_a_second_time_nothing_is_missing_and_the_rest_after_a_kill(
    store: StageStore, tmp_path: Path
) -> None:
    data = os.urandom(500)
    tree = file_tree("a", data)
    child = os.fork()
    if not child:
        store.look(tree)
        give(store, data, 0, 200)
        os._exit(0)  # it closes nothing
    os.waitpid(child, 0)
    after = StageStore(tmp_path / "stage", 1000)
    assert [one.offset for one in after.look(tree)] == [200]
    give(after, data, 200)
    after.keep(tree)
    assert after.look(file_tree("other", data)) == []
    after.close()


def test_a_folder_in_which_another_process_writes_is_an_error(
    store: StageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_store, "PATIENCE", 0.05)
    data = os.urandom(500)
    store.look(file_tree("a", data))
    give(store, data, 0, 200)
    other = StageStore(store.folder, 1000)
    with pytest.raises(ResourceError, match="cannot be used") as caught:
        other.look(file_tree("a", data))
    assert "nodes.stage_folder" in caught.value.hint
    store.close()


def test_content_that_is_whole_but_was_not_looked_at_is_taken(
    store: StageStore, tmp_path: Path
) -> None:
    data = b"whole"
    tree = file_tree("a", data)
    store.look(tree)
    part = tmp_path / "stage/objects" / f"{sha256(data)}.part"
    part.write_bytes(data + COUNT.pack(len(data)))
    assert store.look(tree) == []
    assert Path(store.keep(tree).path).read_bytes() == data


def test_content_that_is_whole_but_damaged_comes_again(store: StageStore, tmp_path: Path) -> None:
    data = b"whole"
    tree = file_tree("a", data)
    store.look(tree)
    part = tmp_path / "stage/objects" / f"{sha256(data)}.part"
    part.write_bytes(b"hole?" + COUNT.pack(len(data)))
    assert [one.offset for one in store.look(tree)] == [0]
    give(store, data)
    assert Path(store.keep(tree).path).read_bytes() == data


def test_damaged_content_is_found_and_comes_again(store: StageStore, tmp_path: Path) -> None:
    path = stage(store, "a", b"right")
    path.chmod(0o600)
    path.write_bytes(b"wrong")
    after = StageStore(tmp_path / "stage", 1000)
    assert [one.offset for one in after.look(file_tree("a", b"right"))] == [0]
    give(after, b"right")
    assert Path(after.keep(file_tree("a", b"right")).path).read_bytes() == b"right"


def test_other_bytes_than_announced_are_refused_and_leave_nothing(
    store: StageStore, tmp_path: Path
) -> None:
    store.look(file_tree("a", b"right"))
    with pytest.raises(DataValueError, match="differ from the announced"):
        store.write(StagePiece(sha256(b"right"), 5, 0, b"wrong"))
    assert list((tmp_path / "stage/objects").glob("*.part")) == []
    with pytest.raises(DataMissingError, match="is missing on this node"):
        store.keep(file_tree("a", b"right"))


def test_a_name_is_replaced_and_the_former_content_may_go(store: StageStore) -> None:
    stage(store, "a", b"x" * 600)
    with pytest.raises(ResourceError, match="no room for 500 bytes") as caught:
        store.look(file_tree("b", b"y" * 500))
    assert "sapwood stage delete" in caught.value.hint
    store.remove("a")
    stage(store, "b", b"y" * 500)
    assert store.held == 500


def test_a_folder_comes_with_links_modes_and_empty_files(store: StageStore, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "in").mkdir(parents=True)
    (source / "in/run").write_bytes(b"run")
    (source / "in/run").chmod(0o755)
    (source / "copy").write_bytes(b"run")  # the same bytes, which cannot be executed
    (source / "empty").touch()
    (source / "link").symlink_to("in/run")
    tree = read_tree(source)
    for part in store.look(tree):
        assert part.sha256 == sha256(b"run")
        give(store, b"run")
    made = Path(store.keep(tree).path)
    assert read_tree(made).entries == tree.entries
    assert store.keep(tree).files == 3
    assert store.remove("tree")
    assert not made.exists()


def test_lists_that_lead_elsewhere_are_refused(store: StageStore) -> None:
    data = FileEntry(b"t/../../x", "file", 1, sha256(b"x"))
    top = FileEntry(b"t", "folder")
    for entries in (
        [top, data],
        [FileEntry(b"u")],
        [],
        [top, top],
        [top, FileEntry(b"t/a", "link", target=b"/"), FileEntry(b"t/a/b", "folder")],
        [top, FileEntry(b"t/a/b", "folder")],
    ):
        with pytest.raises(ProtocolError):
            store.look(FileTree("t", entries))


def test_a_full_disk_is_named(store: StageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContentStore, "_free", lambda _: 10)
    with pytest.raises(ResourceError, match="disk of the folder for staged files is full"):
        store.look(file_tree("a", b"x" * 11))


def test_others_get_what_is_here_while_it_comes(store: StageStore) -> None:
    data = os.urandom(CHUNK + 100)
    roomy = StageStore(store.folder)
    tree = file_tree("a", data)
    assert roomy.wait_for(sha256(data), len(data), 0, 0.0) is None  # no node brings it
    roomy.look(tree)
    assert roomy.wait_for(sha256(data), len(data), 0, 0.0) == b""
    give(roomy, data, 0, 50)
    assert roomy.wait_for(sha256(data), len(data), 10, 0.0) == data[10:50]
    give(roomy, data, 50)
    assert roomy.wait_for(sha256(data), len(data), 0, 0.0) == data[:CHUNK]
    roomy.close()
    assert roomy.wait_for(sha256(data), len(data), 0, 0.0) is None
    with pytest.raises(ClosedError):
        give(roomy, data)


def test_a_folder_of_somebody_else_is_refused(store: StageStore) -> None:
    store.folder.mkdir()
    store.folder.chmod(0o777)
    with pytest.raises(SecurityError, match="other users may write to"):
        store.look(file_tree("a", b"x"))


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4])
@pytest.mark.slow
def test_a_folder_is_there_as_a_whole_or_not_at_all_when_the_daemon_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """It is killed after some of the links that make it, or before one of the renames."""
    folder = tmp_path / "grove"
    (folder / "acorn").mkdir(parents=True)
    for name in ("acorn/__init__.py", "acorn/oak.py", MARK):
        (folder / name).write_text(name)
    tree, link, rename = read_tree(folder), os.link, Path.rename
    made: list[object] = []

    def die_after_all(path: object) -> None:
        if len(made) == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        made.append(path)

    def link_or_die(source: Path, path: bytes) -> None:
        die_after_all(path)
        link(source, path)

    def rename_or_die(source: Path, path: Path) -> Path:
        die_after_all(path)
        return rename(source, path)

    child = os.fork()
    if not child:
        store = StageStore(tmp_path / "stage")
        store.look(tree)
        for one in tree.files:
            data = (tmp_path / os.fsdecode(one.path)).read_bytes()
            store.write(StagePiece(one.sha256, one.nbytes, 0, data))
        monkeypatch.setattr(os, "link", link_or_die)
        monkeypatch.setattr(Path, "rename", rename_or_die)
        store.keep(tree)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    store = StageStore(tmp_path / "stage")
    assert not store.facts().names
    assert not (store.names / "grove").exists()
    assert store.look(tree) == []  # the earlier bytes are kept
    assert not list((tmp_path / "stage" / "trees").iterdir())
    assert store.keep(tree).kind == "environment"
    assert (store.names / "grove/acorn/oak.py").read_text() == "acorn/oak.py"
    store.close()


def test_what_is_staged_is_a_file_a_folder_or_an_environment(tmp_path: Path) -> None:
    store = StageStore(tmp_path / "stage")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name in ("folder", "file"):
        tree = read_tree(tmp_path / name)
        assert store.look(tree) == []
        assert store.keep(tree).kind == name
    assert [one.kind for one in store.facts().names] == ["file", "folder"]
    store.close()
