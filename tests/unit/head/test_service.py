"""Clients that are slow, silent, hostile or many, and heads that do not answer."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sapwood.comm.framing import FRAME_VERSION, MAGIC, PREFIX, framed
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.head import service
from sapwood.head.protocol import caller, framing
from sapwood.head.protocol.call import HeadPart, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.protocol.framing import ServiceCall, packed
from sapwood.head.protocol.framing import raw as raw_value
from sapwood.head.service import ServiceServer
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.security.rights import CONNECT
from sapwood.session.folder import make_folder
from sapwood.session.loop_thread import LoopThread

PATIENCE = 20.0


class Echo(HeadPart):
    """Calls that say what they were given, or nothing yet, or much."""

    def __init__(self) -> None:
        self.waiting: list[Future[Any]] = []
        self.gone = threading.Event()

    @call("echo", right=CONNECT)
    def echo(self, caller: ServiceCaller, value: Any) -> Any:
        caller.when_gone(self.gone.set)
        return value

    @call("odd", right=CONNECT)
    def odd(self) -> Any:
        return 2**70

    @call("wait", right=CONNECT)
    def wait(self) -> Future[Any]:
        self.waiting.append(Future())
        return self.waiting[-1]

    @call("much", right=CONNECT)
    def much(self, caller: ServiceCaller, size: int) -> bytes:
        caller.when_gone(self.gone.set)
        return bytes(size)


class Served:
    """A server at its own socket."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "head.sock")
        self.part = Echo()
        self.waiting, self.gone = self.part.waiting, self.part.gone
        self.thread = LoopThread("service")
        self.serves = True
        self.server = ServiceServer(self.thread, serves=lambda: self.serves)
        self.server.answer([self.part])
        self.thread.start()
        self.listener = self.thread.call(
            UnixTransport().listen, self.path, self.server, self.thread.loop
        )

    def raw(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE)
        made.connect(self.path)
        return made

    def close(self) -> None:
        self.thread.call(self.listener.close)
        self.thread.call(self.server.close)
        self.thread.stop()


@pytest.fixture
def folder() -> Iterator[Path]:
    made = make_folder()
    yield made
    for path in made.iterdir():
        path.unlink()
    made.rmdir()


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    made = Served(folder)
    yield made
    made.close()


@pytest.fixture
def client(served: Served) -> Iterator[ServiceClient]:
    made = ServiceClient(UnixWay(served.path))
    yield made
    made.close()


def message(name: str, value: Any = None, number: int = 1) -> bytes:
    return b"".join(packed(ServiceCall(number, name, raw_value(value))))


def test_calls_are_answered(client: ServiceClient) -> None:
    assert client.call_within(PATIENCE, Echo.echo, [1, "two", b"three"]) == [1, "two", b"three"]
    with pytest.raises(SapwoodError, match="knows no 'other'"):
        client.call_raw("other", None, PATIENCE)


def test_a_head_that_does_not_serve_answers_nobody(client: ServiceClient, served: Served) -> None:
    assert client.call_within(PATIENCE, Echo.echo, 1) == 1
    served.serves = False
    with pytest.raises(CommunicationError, match="gone"):
        client.call_within(PATIENCE, Echo.echo, 2)


def test_a_head_that_is_silent_can_be_left(served: Served) -> None:
    ended: list[str] = []
    client = ServiceClient(UnixWay(served.path), ended=ended.append)
    try:
        waiting = client.ask(Echo.wait)
        client.cut("another one serves")
        with pytest.raises(CommunicationError, match="another one serves"):
            waiting.result(PATIENCE)
        assert ended == ["another one serves"]
    finally:
        client.close()


@pytest.mark.slow
def test_an_answer_that_cannot_be_written_becomes_an_error(client: ServiceClient) -> None:
    with pytest.raises(SapwoodError, match="cannot be written"):
        client.call_within(PATIENCE, Echo.odd)
    with pytest.raises(SapwoodError, match="more than"):
        client.call_within(PATIENCE, Echo.much, framing.MAX_MESSAGE + 1)
    assert client.call_within(PATIENCE, Echo.echo, 1) == 1


def test_a_call_that_the_head_ends_is_over(client: ServiceClient, served: Served) -> None:
    """A call that waits for its turn when the head ends gets an answer."""
    answer = client.ask(Echo.wait)
    client.call_within(PATIENCE, Echo.echo, 1)
    (waiting,) = served.waiting
    waiting.cancel()
    with pytest.raises(SapwoodError, match="the head ends"):
        answer.result(PATIENCE)


def test_a_client_that_does_not_read_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller, "MAX_UNSENT", 2**20)
    with served.raw() as raw:
        with contextlib.suppress(BrokenPipeError):  # it may be cut off before it has said all
            for number in range(8):
                raw.sendall(message("much", {"size": 2**18}, number))
        assert served.gone.wait(PATIENCE)


@pytest.mark.parametrize(
    "said",
    [
        PREFIX.pack(MAGIC, FRAME_VERSION, 16, framing.MAX_MESSAGE + 1, 0),
        b"".join(framed(16, b"\xc1\xc1\xc1")),
        b"".join(framed(16, b"\x91" * 5000)),
        b"".join(framed(17, b"\x80")),
        struct.pack("<I", 64) + bytes(64),
    ],
    ids=["long", "garbage", "deep", "an answer", "another framing"],
)
def test_a_client_that_breaks_the_protocol_is_cut_off(served: Served, said: bytes) -> None:
    with served.raw() as raw:
        raw.sendall(said)
        assert raw.recv(1) == b""
    with served.raw() as other:
        other.sendall(message("echo", {"value": 1}))
        assert other.recv(4)


def test_open_calls_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CALLS", 10)
    with served.raw() as raw:
        raw.sendall(b"".join(message("wait", {}, number) for number in range(11)))
        assert raw.recv(1) == b""
    assert len(served.waiting) == 10


def test_clients_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CLIENTS", 1)
    with served.raw() as first:
        first.sendall(message("echo", {"value": 1}))
        assert first.recv(4)
        with served.raw() as second:
            assert second.recv(1) == b""


def test_a_message_may_come_in_pieces() -> None:
    reader = framing.reader_of_calls()
    whole = message("echo", {"value": "x" * 100}) * 3
    found = [one for byte in whole for one in reader.feed(bytes([byte]))]
    assert len(found) == 3


@pytest.fixture
def silent(folder: Path) -> Iterator[str]:
    """The path of a socket at which no process answers."""
    listening = socket.socket(socket.AF_UNIX)
    path = str(folder / "silent.sock")
    listening.bind(path)
    listening.listen(8)
    yield path
    listening.close()


def test_a_head_that_does_not_answer_is_an_error_that_says_so(silent: str) -> None:
    client = ServiceClient(UnixWay(silent))
    with pytest.raises(CommunicationError, match="did not answer within"):
        client.call_within(0.05, Echo.echo, 1)
    client.close()


def test_calls_end_with_the_connection(served: Served) -> None:
    ended: list[str] = []
    told = threading.Event()

    def note(reason: str) -> None:
        ended.append(reason)
        told.set()

    client = ServiceClient(UnixWay(served.path), None, note)
    waiting = client.ask(Echo.wait)
    client.call_within(PATIENCE, Echo.echo, 1)
    served.thread.call(served.server.close)
    with pytest.raises(CommunicationError, match="the head is gone"):
        waiting.result(PATIENCE)
    assert told.wait(PATIENCE)
    with pytest.raises(CommunicationError, match="the head is gone"):
        client.call_within(PATIENCE, Echo.echo, 1)
    client.close()


def test_many_threads_may_call(client: ServiceClient) -> None:
    numbers = itertools.count()
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(50):
            number = next(numbers)
            if client.call_within(PATIENCE, Echo.echo, number) != number:
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(8)]
    run_all(threads, [threading.Thread.start, threading.Thread.join])
    assert not wrong


def run_all(
    threads: list[threading.Thread], steps: list[Callable[[threading.Thread], None]]
) -> None:
    for step in steps:
        for thread in threads:
            step(thread)
