"""Staging with simulated nodes: which node sends which part, also when a node fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code import locked_packages
from sapwood.code.cache import BuildCache
from sapwood.content import messages as sm
from sapwood.content.file_trees import FileTree, read_tree
from sapwood.content.pull import WINDOW
from sapwood.content.staged import StageStore
from sapwood.core.errors import (
    AgentLostError,
    CommunicationError,
    DataMissingError,
    InputError,
    NodeLostError,
    ResourceError,
    SapwoodError,
)
from sapwood.head import calls
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.staging import UNDER_WAY, Staging, folded, sources_of, staged_files
from sapwood.nodes import messages
from sapwood.nodes.node_facts import NodeFacts

Refuse = Callable[[int, str], SapwoodError | None]


def machine(architecture: str) -> NodeFacts:
    """Return what a machine with glibc 2.31 says of itself."""
    return NodeFacts(
        name="x",
        pid=1,
        user="0",
        python="3.11.4",
        architecture=architecture,
        cores=1,
        clock=0.0,
        c_library="glibc 2.31",
    )


class MadeUpHead:
    """A head whose nodes are folders of this process; each answer is there at once.

    Attributes:
        asked: What the nodes were asked: number and name.
        refuse: Returns what goes wrong with a question, if something does.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.records = [
            calls.NodeRecord(
                host=host,
                name=f"n{host}",
                node=f"n{host}.x",
                state="ready",
                facts=machine("x86_64" if host % 2 else "aarch64"),
            )
            for host in range(1, nodes + 1)
        ]
        self.folder = folder
        self.stores = {one.host: StageStore(folder / one.name) for one in self.records}
        self.asked: list[tuple[int, str]] = []
        self.refuse: Refuse = lambda _host, _name: None
        self.listeners: list[Callable[[str, Any], None]] = []

    @property
    def known(self) -> MadeUpHead:
        return self

    @property
    def for_commands(self) -> list[calls.NodeRecord]:
        return [one for one in self.records if one.takes_commands]

    def subscribe(self, listener: Callable[[str, Any], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        self.asked.append((host, handler))
        answer: Future[Any] = Future()
        try:
            if (error := self.refuse(host, handler)) is not None:
                raise error
            answer.set_result(self._answer(host, handler, value))
        except SapwoodError as error:
            answer.set_exception(error)
        return answer

    def _answer(self, host: int, handler: str, value: Any) -> Any:
        store = self.stores[host]

        def write() -> None:
            for piece in messages.from_value(value, sm.StagePieces).pieces:
                store.write(piece)

        def read() -> bytes:
            wanted = messages.from_value(value, sm.ReadPiece)
            inner = store.names / wanted.inner.decode()
            return inner.read_bytes()[wanted.offset : wanted.offset + wanted.nbytes]

        def tree() -> FileTree:
            return messages.from_value(value, FileTree)

        to_value = messages.to_value
        answers: dict[str, Callable[[], Any]] = {
            sm.LOOK: lambda: to_value(sm.MissingContent(store.look(tree()))),
            sm.WRITE: write,
            sm.KEEP: lambda: to_value(store.keep(tree())),
            sm.SERVE: lambda: [f"h{host}:1"],
            sm.FETCH: lambda: to_value(sm.ContentFetched(self._fetch(host, value))),
            sm.LIST: lambda: to_value(store.facts()),
            sm.REMOVE: lambda: store.remove(value),
            sm.FIND: lambda: to_value(
                read_tree(store.names / messages.from_value(value, sm.FindFiles).path)
            ),
            sm.READ: read,
        }
        return answers[handler]()

    def _fetch(self, host: int, value: Any) -> int:
        """Copy from the other node; it has all of it, as each answer is there at once."""
        wanted = messages.from_value(value, sm.FetchContent)
        source = self.stores[int(wanted.address.rpartition("@h")[2].partition(":")[0])]
        came = 0
        for part in wanted.parts:
            offset = part.offset
            while offset < part.nbytes:
                data = source.wait_for(part.sha256, part.nbytes, offset, 0.0)
                if not data:
                    raise CommunicationError("it sends no more")
                self.stores[host].write(sm.StagePiece(part.sha256, part.nbytes, offset, data))
                offset += len(data)
                came += len(data)
        return came


@pytest.fixture
def head(tmp_path: Path) -> Iterator[MadeUpHead]:
    """Four nodes."""
    made = MadeUpHead(tmp_path / "nodes", 4)
    yield made
    for store in made.stores.values():
        store.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that is not sent to all nodes from here."""
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * 12_000)
    return path


def staging_of(head: MadeUpHead) -> Staging:
    return Staging(cast("HeadAccess", head))


def content(head: MadeUpHead, host: int, name: str) -> bytes:
    return (head.folder / f"n{host}" / "names" / name).read_bytes()


@given(
    st.lists(st.integers(1, 40), unique=True),
    st.sets(st.integers(41, 50)),
    st.sets(st.integers(1, 50)),
    st.integers(1, 5),
)
@pytest.mark.slow
def test_each_node_has_a_source_that_leads_to_one_that_has_it(
    wanting: list[int], having: set[int], leaves: set[int], fan_out: int
) -> None:
    found = sources_of(wanting, sorted(having), leaves, fan_out)
    assert sorted(found) == sorted(wanting)
    for node in wanting:
        seen, source = {node}, node
        while source in found:
            source = found[source]
            assert source not in seen | leaves
            seen.add(source)
        assert source == 0 or source in having
    counts = list(found.values())
    assert all(counts.count(one) <= fan_out for one in set(counts) - {0})
    if not leaves and wanting:
        assert counts.count(0) <= (0 if having else 1)


def test_content_leaves_here_once(head: MadeUpHead, large: Path) -> None:
    (report,), failed = staging_of(head).put([large])
    size = large.stat().st_size
    assert not failed
    assert (report.sent, report.passed_on) == (size, 3 * size)
    assert all(content(head, host, "large") == large.read_bytes() for host in head.stores)
    (again,), _ = staging_of(head).put([large], name="other")
    assert (again.sent, again.passed_on) == (0, 0)


def test_a_node_that_cannot_listen_gets_content_and_passes_nothing_on(
    head: MadeUpHead, large: Path
) -> None:
    refused = CommunicationError("the port is taken")
    head.refuse = lambda host, name: refused if (host, name) == (1, sm.SERVE) else None
    (report,), failed = staging_of(head).put([large])
    assert not failed
    assert len(report.nodes) == 4
    assert report.sent == 2 * large.stat().st_size


def test_when_a_source_is_lost_its_source_is_taken_and_at_last_this_side(
    head: MadeUpHead, large: Path
) -> None:
    lost = CommunicationError("it sends no more")
    head.refuse = lambda host, name: lost if (host, name) == (3, sm.FETCH) else None
    (report,), failed = staging_of(head).put([large])
    assert not failed
    assert len(report.nodes) == 4
    assert report.sent == 2 * large.stat().st_size  # the third node got it from here


def test_a_node_whose_disk_is_full_fails_alone(head: MadeUpHead, large: Path) -> None:
    full = ResourceError("the disk for staged files is full", where="/x")
    head.refuse = lambda host, name: full if (host, name) == (2, sm.FETCH) else None
    (report,), failed = staging_of(head).put([large])
    assert failed == {"n2": full}
    assert sorted(report.nodes) == ["n1", "n3", "n4"]
    assert "n2: /x" in folded(failed).where


def test_a_node_that_is_lost_fails_alone_and_the_head_is_told_of(
    head: MadeUpHead, large: Path
) -> None:
    def refuse(host: int, name: str) -> SapwoodError | None:
        if (host, name) == (1, sm.WRITE):
            gone = calls.NodeRecord(host=1, name="n1", node="n1.x", state="lost")
            told = calls.NodesChanged([gone], gone=True, reason="killed")
            for listener in head.listeners:
                listener(calls.NODES_CHANGED, told)
        return None

    head.refuse = refuse
    (report,), failed = staging_of(head).put([large])
    assert isinstance(failed["n1"], NodeLostError)
    assert "killed" in failed["n1"].what
    assert sorted(report.nodes) == ["n2", "n3", "n4"]


def test_a_node_is_told_of_as_a_node(head: MadeUpHead, large: Path) -> None:
    gone = AgentLostError("agent 2 ended: nothing heard for 4 s")
    head.refuse = lambda host, name: gone if (host, name) == (2, sm.FETCH) else None
    _, failed = staging_of(head).put([large])
    assert failed["n2"].what == "the node is gone: nothing heard for 4 s"
    assert isinstance(failed["n2"], NodeLostError)


def test_many_small_files_come_in_few_messages(head: MadeUpHead, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    for number in range(50):
        (folder / str(number)).write_text(f"file {number}")
    (report,), _ = staging_of(head).put([folder], nodes="n1")
    assert report.files == 50
    assert head.asked.count((1, sm.WRITE)) == 1
    assert WINDOW <= UNDER_WAY


def test_a_file_that_changes_meanwhile_is_refused(head: MadeUpHead, large: Path) -> None:
    def refuse(host: int, name: str) -> None:
        if name == sm.LOOK:
            large.write_bytes(b"other" * 100_000)

    head.refuse = refuse
    (report,), failed = staging_of(head).put([large], nodes="n1")
    assert report.nodes == []
    assert "n1" in failed


def test_what_cannot_be_staged_is_refused_before_anything_is_sent(
    head: MadeUpHead, large: Path, tmp_path: Path
) -> None:
    for paths, name, kind in (
        ([large, tmp_path / "none"], "", DataMissingError),
        ([large, large], "", InputError),
        ([large], "../x", InputError),
        ([large, tmp_path], "x", InputError),
        ([Path("/dev/null")], "", InputError),
    ):
        with pytest.raises(kind):
            staging_of(head).put(paths, name=name)
    with pytest.raises(InputError, match="node n9 does not exist"):
        staging_of(head).put([large], nodes="n9")
    assert not head.asked


def test_equal_files_are_collected_once_and_a_damaged_one_is_found(
    head: MadeUpHead, large: Path, tmp_path: Path
) -> None:
    staging_of(head).put([large], name="f")
    head.asked.clear()
    (found,), failed = staging_of(head).get("f", tmp_path / "out")
    assert (found.nodes, failed) == (["n1", "n2", "n3", "n4"], {})
    assert Path(found.path).read_bytes() == large.read_bytes()
    assert {host for host, name in head.asked if name == sm.READ} == {1}

    def refuse(host: int, name: str) -> SapwoodError | None:
        return NodeLostError("gone") if (host, name) == (1, sm.READ) else None

    head.refuse = refuse  # then from another one
    _, failed = staging_of(head).get("f", tmp_path / "again")
    assert not failed
    digest = hashlib.sha256((tmp_path / "again/f").read_bytes()).hexdigest()
    assert digest == hashlib.sha256(large.read_bytes()).hexdigest()


def test_lists_are_folded_over_nodes_and_removal_says_where(head: MadeUpHead, large: Path) -> None:
    made = staging_of(head)
    made.put([large], nodes="n[1-2]")
    facts, _ = made.facts()
    assert [(one.name, one.nodes) for one in staged_files(facts)] == [("large", ["n1", "n2"])]
    assert made.remove("large") == (["n1", "n2"], {})


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock, and what stands for uv: it notes for which platform it is run."""
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\nfor platform; do :; done\nmkdir -p "$4"; echo "$*" >>"$0.runs"\n'
        'case "$*" in *aarch64*) echo arm;; *) echo x86;; esac >"$4/acorn.py"\n'
    )
    uv.chmod(0o755)
    monkeypatch.setattr(locked_packages, "find_uv", lambda: str(uv))
    path = tmp_path / "grove.lock"
    path.write_text("acorn==1.0 --hash=sha256:00\n")
    return path


def runs(lock: Path) -> int:
    """Return how often uv was run."""
    noted = lock.with_name("uv.runs")
    return len(noted.read_text().splitlines()) if noted.exists() else 0


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


def test_each_kind_of_nodes_gets_packages_of_its_own_once(
    head: MadeUpHead, lock: Path, cache: BuildCache
) -> None:
    reports, failed = staging_of(head).environment(lock, cache)
    assert not failed
    assert [(one.platform, one.nodes, one.installed) for one in reports] == [
        ("aarch64-manylinux_2_31", ["n2", "n4"], True),
        ("x86_64-manylinux_2_31", ["n1", "n3"], True),
    ]
    found = [content(head, host, "grove/acorn.py") for host in (1, 2, 3, 4)]
    assert found == [b"x86\n", b"arm\n", b"x86\n", b"arm\n"]
    assert runs(lock) == 2
    again, _ = staging_of(head).environment(lock, cache)
    assert [(one.installed, one.sent, one.passed_on) for one in again] == [(False, 0, 0)] * 2
    assert runs(lock) == 2
    listed = staged_files(staging_of(head).facts()[0])
    assert [(one.name, one.kind, one.nodes) for one in listed] == [
        ("grove", "environment", ["n1", "n3"]),
        ("grove", "environment", ["n2", "n4"]),
    ]


@pytest.mark.slow
def test_an_environment_takes_no_name_of_something_else(
    head: MadeUpHead, lock: Path, cache: BuildCache, large: Path
) -> None:
    staging_of(head).put([large], "n[2-3]", name="grove")
    with pytest.raises(
        InputError, match="'grove' is the name of something that is not an env"
    ) as caught:
        staging_of(head).environment(lock, cache)
    assert caught.value.where == "n[2-3]"
    assert not runs(lock)
    staging_of(head).environment(lock, cache, "n[1,4]")
    staging_of(head).environment(lock, cache, name="other")
    lock.write_text("acorn==2.0 --hash=sha256:00\n")
    (made, _), _ = staging_of(head).environment(lock, cache, name="other")
    assert made.installed  # another one of the same name takes its place


def test_a_node_that_is_not_known_well_enough_is_named(
    head: MadeUpHead, lock: Path, cache: BuildCache
) -> None:
    head.records[2] = calls.NodeRecord(
        host=3, name="n3", node="x", state="ready", facts=machine("riscv64")
    )
    with pytest.raises(InputError, match=r"packages cannot be chosen .* riscv64") as caught:
        staging_of(head).environment(lock, cache)
    assert caught.value.where == "n3"
    head.records[2] = calls.NodeRecord(host=3, name="n3", node="x", state="ready")
    with pytest.raises(InputError, match="has not said what machine it is"):
        staging_of(head).environment(lock, cache)
    assert not runs(lock)


def test_a_node_that_has_no_room_for_packages_fails_alone(
    head: MadeUpHead, lock: Path, cache: BuildCache
) -> None:
    full = ResourceError("the disk for staged files is full")
    head.refuse = lambda host, name: full if (host, name) == (3, sm.LOOK) else None
    reports, failed = staging_of(head).environment(lock, cache)
    assert [one.nodes for one in reports] == [["n2", "n4"], ["n1"]]
    assert failed == {"n3": full}
    gone = AgentLostError("rank 1 was lost: its link is gone")
    head.refuse = lambda host, name: gone if (host, name) == (1, sm.LIST) else None
    _, failed = staging_of(head).environment(lock, cache)
    assert list(failed) == ["n1"]
