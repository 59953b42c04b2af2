"""Staged content from node to node, over TLS on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.unit.nodes.conftest import credentials_of

from sapwood.comm.transport.tls_identity import connecting_context
from sapwood.content.file_trees import FileEntry, FileTree
from sapwood.content.messages import MissingPart, StagePiece
from sapwood.content.peers import STAGE_PROTOCOL, StageFetch, StageServer
from sapwood.content.refs import CHUNK
from sapwood.content.staged import StageStore
from sapwood.core.errors import CommunicationError, ProtocolError, SapwoodError
from sapwood.nodes.port import NodePort
from sapwood.security.authority import Authority
from sapwood.session.shared_reactor import SharedReactor

PATIENCE = 20.0
Ended = SimpleQueue[tuple[int, SapwoodError | None]]


class Node:
    """A node that serves what it has."""

    def __init__(self, folder: Path, authority: Authority, name: str) -> None:
        self.store = StageStore(folder / name)
        self.credentials = credentials_of(authority, name)
        self.loop = SharedReactor()
        self.port = NodePort("127.0.0.1:0", self.loop, self.credentials)
        self.server = StageServer(self.store, lambda: self.credentials)
        self.end = self.port.hand_over(STAGE_PROTOCOL, self.server.take)
        self.address = f"tls://{self.credentials.node}@{self.port.addresses[0]}"
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def fetch(
        self, source: Node, parts: list[MissingPart], ended: Ended, *others: Node
    ) -> StageFetch:
        return StageFetch(
            self.store,
            [source.address, *(one.address for one in others)],
            parts,
            self.credentials,
            lambda nbytes, problem: ended.put((nbytes, problem)),
        )

    def close(self) -> None:
        self.store.close()
        self.server.close()
        self.server.wait_closed()
        self.loop.call_soon_threadsafe(self.port.close)
        self.loop.call_soon_threadsafe(self.loop.call_later, 0.05, self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("grove")


@pytest.fixture
def three(tmp_path: Path, authority: Authority) -> Iterator[list[Node]]:
    """Three nodes."""
    made = [Node(tmp_path, authority, f"n{number}") for number in (1, 2, 3)]
    yield made
    for node in made:
        node.close()


@contextlib.contextmanager
def connected(node: Node, source: Node) -> Iterator[ssl.SSLSocket]:
    """Connect one node with another, as a fetch does."""
    host, _, port = source.address.rpartition("@")[2].partition(":")
    context = connecting_context(node.credentials)
    context.set_alpn_protocols([STAGE_PROTOCOL])
    with (
        socket.create_connection((host, int(port)), PATIENCE) as raw,
        context.wrap_socket(raw, server_hostname=source.credentials.node) as way,
    ):
        yield way


def announced(node: Node, data: bytes) -> list[MissingPart]:
    name = hashlib.sha256(data).hexdigest()
    return node.store.look(FileTree("f", [FileEntry(b"f", "file", len(data), name)]))


def give(node: Node, data: bytes, start: int, end: int) -> None:
    piece = StagePiece(hashlib.sha256(data).hexdigest(), len(data), start, data[start:end])
    node.store.write(piece)


@pytest.mark.slow
def test_content_goes_down_a_chain_while_it_comes(three: list[Node]) -> None:
    first, second, third = three
    data, ended = os.urandom(3_000_000), Ended()
    parts = [announced(node, data) for node in three]
    third.fetch(second, parts[2], ended)
    second.fetch(first, parts[1], ended)
    give(first, data, 0, 2_000_000)
    name = hashlib.sha256(data).hexdigest()
    assert (
        third.store.wait_for(name, len(data), 0, PATIENCE) == data[: 2**20]
    )  # the first has not all yet
    give(first, data, 2_000_000, 3_000_000)
    for _ in range(2):
        assert ended.get(timeout=PATIENCE) == (3_000_000, None)
    assert [announced(node, data) for node in three] == [[], [], []]


def test_a_source_that_ends_is_told_of_and_what_came_stays(three: list[Node]) -> None:
    first, second, _ = three
    data, ended = os.urandom(2_500_000), Ended()
    announced(first, data)
    second.fetch(first, announced(second, data), ended)
    give(first, data, 0, 2_000_000)
    name = hashlib.sha256(data).hexdigest()
    assert second.store.wait_for(name, len(data), 0, PATIENCE)
    first.store.close()
    first.server.close()
    came, problem = ended.get(timeout=PATIENCE)
    assert type(problem) is CommunicationError
    (left,) = announced(second, data)
    assert came == left.offset > 0


@pytest.mark.slow
def test_a_node_continues_at_the_next_source_from_the_same_byte(three: list[Node]) -> None:
    first, second, third = three
    data, ended = os.urandom(5_000_000), Ended()
    for node in (first, second):
        announced(node, data)
    give(first, data, 0, len(data))
    give(second, data, 0, 2_000_000)
    third.fetch(second, announced(third, data), ended, first)
    name = hashlib.sha256(data).hexdigest()
    assert third.store.wait_for(name, len(data), 0, PATIENCE)
    second.store.close()
    second.server.close()
    assert ended.get(timeout=PATIENCE) == (len(data), None)  # no byte came twice
    assert announced(third, data) == []


@pytest.mark.slow
def test_a_node_that_stops_reading_delays_no_other_node(three: list[Node]) -> None:
    first, second, third = three
    data, ended = os.urandom(8 * CHUNK), Ended()
    announced(first, data)
    give(first, data, 0, len(data))
    name = hashlib.sha256(data).hexdigest().encode()
    with connected(second, first) as way:
        for offset in range(0, len(data), CHUNK):
            way.sendall(struct.pack("<64sQQQ", name, len(data), offset, CHUNK))
        third.fetch(first, announced(third, data), ended)
        assert ended.get(timeout=PATIENCE) == (len(data), None)


@pytest.mark.parametrize(("offset", "count"), [(0, CHUNK + 1), (0, 0), (1, 10), (2**63, 1)])
@pytest.mark.slow
def test_chunks_that_cannot_be_are_refused(three: list[Node], offset: int, count: int) -> None:
    first, second, _ = three
    data = b"0123456789"
    announced(first, data)
    give(first, data, 0, len(data))
    name = hashlib.sha256(data).hexdigest().encode()
    with connected(second, first) as way:
        way.sendall(struct.pack("<64sQQQ", name, len(data), offset, count))
        assert way.recv(1) == b""


def test_what_is_not_there_and_who_does_not_serve_are_told(three: list[Node]) -> None:
    first, second, _ = three
    ended = Ended()
    data = b"no node has this"
    parts = announced(second, data)
    second.fetch(first, parts, ended)
    assert "sends no more" in str(ended.get(timeout=PATIENCE)[1])
    first.end()
    second.fetch(first, parts, ended)
    problem = ended.get(timeout=PATIENCE)[1]
    assert isinstance(problem, CommunicationError | ProtocolError)


def test_who_is_of_another_cluster_gets_nothing(three: list[Node], tmp_path: Path) -> None:
    first = three[0]
    data, ended = b"ours", Ended()
    announced(first, data)
    give(first, data, 0, 4)
    stranger = Node(tmp_path, Authority.create("other"), "n9")
    try:
        stranger.fetch(first, announced(stranger, data), ended)
        assert isinstance(ended.get(timeout=PATIENCE)[1], CommunicationError)
        assert announced(stranger, data) != []
    finally:
        stranger.close()


def test_a_fetch_that_is_cancelled_ends(three: list[Node]) -> None:
    first, second, _ = three
    data, ended = os.urandom(1000), Ended()
    announced(first, data)  # it never comes
    fetch = second.fetch(first, announced(second, data), ended)
    fetch.cancel()
    fetch.wait_closed()
    assert isinstance(ended.get(timeout=PATIENCE)[1], CommunicationError)
