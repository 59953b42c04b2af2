"""The library that exchanges waves, over sockets with TLS: what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import ALIVE, CREDIT, HANDED, OWNER, Encrypted, Front, down, gather, up, without

RECORD = 16 * 1024
"""Bytes of a TLS record at most."""

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


class StruckError(BaseException):
    """What a handler of signals raises."""


@pytest.fixture(scope="session")
def contexts() -> Contexts:
    """Contexts of both sides, as nodes have them."""
    authority = trustme.CA()
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    server.num_tickets = 0
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    authority.issue_cert("child").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.fixture
def encrypted(contexts: Contexts) -> Encrypted:
    """Shake hands over pairs of sockets."""
    server, client = contexts

    def shake(own: socket.socket, child: socket.socket) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
        far = server.wrap_socket(child, server_side=True, do_handshake_on_connect=False)
        near = client.wrap_socket(own, server_hostname="child", do_handshake_on_connect=False)
        thread = threading.Thread(target=far.do_handshake)
        thread.start()
        near.do_handshake()
        thread.join()
        return near, far

    return shake


@pytest.fixture
def front(encrypted: Encrypted) -> Iterator[Front]:
    front = Front(encrypted)
    yield front
    front.close()


def test_waves_are_sent_and_gathered(front: Front) -> None:
    library = front.library
    for size in (0, RECORD - 100, RECORD, 60_000):
        assert front.begin(b"w" * size) == 1
        assert [whole(child, down(b"w" * size)) for child in front.children] == [True] * 3
        answers = [up(1), up(2, b"x" * 100), up(3, b"y" * size)]
        front.answer(*answers)
        assert gather(library) == 3
        assert [library.answer(number) for number in range(3)] == answers
        assert library.commit(OWNER) > 0


def whole(child: socket.socket, frame: bytes) -> bool:
    """Read a frame, and return whether it is the expected one."""
    found = b""
    while len(found) < len(frame):
        found += child.recv(RECORD)
    return found == frame


def test_records_that_come_together_are_all_taken(front: Front) -> None:
    library = front.library
    front.begin()
    front.children[0].sendall(CREDIT)
    front.children[0].sendall(ALIVE)
    front.answer(up(1), CREDIT + up(2), up(3) + ALIVE)
    assert gather(library) == 3
    assert library.commit(OWNER)
    assert library.take_back()
    aside = sorted(library.aside())
    assert aside == sorted([(0, CREDIT), (0, ALIVE), (1, CREDIT), (2, ALIVE)])


@pytest.mark.parametrize("ends", ["politely", "at once"])
def test_a_child_that_ends_is_the_event_loops(front: Front, ends: str) -> None:
    front.begin()
    child = front.children[2]
    assert isinstance(child, ssl.SSLSocket)
    if ends == "politely":
        child.setblocking(False)
        with contextlib.suppress(ssl.SSLError):  # it does not wait for the answer
            child.unwrap()
    child.close()
    assert gather(front.library) == -1
    assert front.is_woken()
    assert not front.library.memory.peers[2].tls.lost


def test_what_was_not_sent_can_be_sent_again(front: Front) -> None:
    library = front.library
    front.own[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    body = b"f" * 60_000
    frame = down(body)
    waves = 0
    while front.begin(body) == 1:
        waves += 1
        assert whole(front.children[0], frame)
        assert whole(front.children[2], frame)
        front.answer(up(1), up(2), up(3))
        assert gather(library) == 3
        assert library.commit(OWNER)
    assert library.take_back()
    assert [peer.sent for peer in library.memory.peers[:3]] == [len(frame), 0, 0]
    assert not any(peer.tls.lost for peer in library.memory.peers[:3])
    child, found = front.children[1], bytearray()

    def read() -> None:
        while len(found) < (waves + 1) * len(frame):
            found.extend(child.recv(RECORD))

    thread = threading.Thread(target=read)
    thread.start()
    front.own[1].setblocking(True)
    front.own[1].send(library.under_way())
    thread.join()
    assert found == frame * (waves + 1)


def test_a_signal_while_it_sends_leaves_the_connection_unknown(front: Front) -> None:
    library, known = front.library, front.functions[1]
    assert known is not None

    def write(data: bytes) -> int:
        known[1](data)
        raise StruckError

    assert library.take_back()
    front.functions[1] = known[0], write
    front.ticket = front.arm()
    with pytest.raises(StruckError):
        front.begin()
    assert library.memory.state == HANDED
    assert front.is_woken()
    assert library.take_back()
    peers = library.memory.peers[:3]
    assert [bool(peer.tls.lost) for peer in peers] == [False, True, False]
    assert [peer.sent for peer in peers] == [len(down()), 0, 0]
    front.functions[1] = known
    front.ticket = front.arm()
    assert not library.memory.peers[1].tls.lost


def test_a_signal_while_it_reads_leaves_the_connection_unknown(front: Front) -> None:
    library, known = front.library, front.functions[0]
    assert known is not None

    def read(size: int) -> bytes:
        known[0](size)
        raise StruckError

    assert library.take_back()
    front.functions[0] = read, known[1]
    front.ticket = front.arm()
    front.begin()
    front.answer(b"", up(2))
    assert library.wait(OWNER, -1) == 1
    front.answer(up(1))
    with pytest.raises(StruckError):
        gather(library)
    assert library.take_back()
    assert [bool(peer.tls.lost) for peer in library.memory.peers[:3]] == [True, False, False]
    assert [library.answer(number) for number in range(3)] == [b"", up(2), b""]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is missing")
@pytest.mark.slow
def test_keys_may_be_renewed_meanwhile(front: Front, tmp_path: Path) -> None:
    library, authority, context = front.library, trustme.CA(), ssl.create_default_context()
    chain, path = tmp_path / "child.pem", tmp_path / "child.sock"
    authority.issue_cert("child").private_key_and_cert_chain_pem.write_to_path(chain)
    authority.configure_trust(context)
    names = f"-cert {chain.name} -key {chain.name} -unix {path.name}"
    command = f"openssl s_server {names} -num_tickets 0 -naccept 1"
    child = subprocess.Popen(
        command.split(),
        bufsize=0,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    front.own[0].close()
    try:
        near = front.own[0] = context.wrap_socket(connected(path), server_hostname="child")
        near.setblocking(False)
        front.main.register(near.fileno(), select.EPOLLIN)
        for turn in range(6):  # first new keys, then bytes under them
            says = b"K\n" if turn % 2 == 0 else b"this is not a frame %d\n" % turn
            assert library.take_back()
            front.functions[0] = near.read, near.write
            front.ticket = front.arm()
            body = b"to the child %d\n" % turn
            assert front.begin(body) == 1
            said = b""
            while body not in said:  # after what it says of the connection
                more = child.stdout.read(RECORD)
                assert more, said
                said += more
            child.stdin.write(says)
            assert gather(library) == -1
            os.eventfd_read(front.bell)
            assert library.answer(0) == (b"" if turn % 2 == 0 else says)
    finally:
        child.kill()
        child.communicate()


def connected(path: Path) -> socket.socket:
    """Connect to a socket once a process listens there."""
    own = socket.socket(socket.AF_UNIX)
    until = time.monotonic() + 60
    while own.connect_ex(str(path)):
        assert time.monotonic() < until
        time.sleep(0.01)
    return own


class Fitful:
    """A socket whose bytes come in records as they are drawn, and sometimes not yet.

    Args:
        data: The bytes that come.
        draw: Draws a number up to another one.
    """

    def __init__(self, data: bytes, draw: Callable[[int], int]) -> None:
        self.left = data
        self.draw = draw
        self.given = b""

    def read(self, size: int) -> bytes:
        """Return one record."""
        if not self.left or not self.draw(4):
            raise ssl.SSLWantReadError
        data = self.left[: 1 + self.draw(min(size, len(self.left)) - 1)]
        self.left = self.left[len(data) :]
        self.given += data
        return data


@given(st.data(), st.lists(st.sampled_from([CREDIT, ALIVE, up(1), up(1, b"z" * 40_000)])))
@settings(max_examples=200)
@pytest.mark.slow
def test_all_that_was_read_is_there(data: st.DataObject, frames: list[bytes]) -> None:
    front = Front()
    try:
        library = front.library
        child = Fitful(
            b"".join(frames), lambda most: data.draw(st.integers(0, most)) if most else 0
        )
        front.functions[0] = child.read, len
        assert library.take_back()
        front.ticket = front.arm()
        assert front.begin() == 1
        front.answer(b"ready", up(2), up(3))  # its socket can be read all the time
        while library.memory.state != HANDED and library.memory.left:
            library.wait(OWNER, 0)
        assert library.take_back()
        aside = [frame for number, frame in library.aside() if number == 0]
        assert without(child.given, aside) == library.answer(0)
    finally:
        front.close()
