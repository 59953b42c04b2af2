"""Declared calls: messages, checks and dispatch follow from the method."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import ClosedError, ProtocolError, SapwoodError
from sapwood.head.protocol.call import HeadPart, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.protocol.framing import raw
from sapwood.head.service import ServiceServer
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.security.rights import ADMIN, CONNECT
from sapwood.session.folder import make_folder
from sapwood.session.loop_thread import LoopThread

PATIENCE = 20.0


class Shelf(msgspec.Struct, frozen=True):
    label: str
    books: tuple[bytes, ...]


class Library(HeadPart):
    """A part of a head that keeps what it was asked."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.order: list[int] = []
        self.first_may_end = threading.Event()
        self.later: Future[int] = Future()

    @call("book.lend", right=ADMIN)
    def lend(
        self, caller: ServiceCaller, title: str, days: Annotated[int, msgspec.Meta(ge=1)] = 7
    ) -> str:
        self.threads.append(threading.current_thread().name)
        return f"{title} for {days} days to {caller.number}"

    @call("shelf.show", right=CONNECT)
    def show(self, shelf: Shelf | None = None) -> list[Shelf]:
        return [] if shelf is None else [shelf]

    @call("book.await", right=CONNECT)
    def wait(self) -> Future[int]:
        return self.later

    @call("book.search", right=CONNECT, slow=True)
    def search(self) -> Future[int]:
        self.threads.append(threading.current_thread().name)
        return self.later

    @call("book.note", right=CONNECT, slow=True, in_order=True)
    def note(self, number: int) -> None:
        if number == 0:
            assert self.first_may_end.wait(PATIENCE)
        self.order.append(number)
        if number == 1:
            raise SapwoodError("no more of that")


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4, "pool") as made:
        yield made


@pytest.fixture
def client(library: Library, pool: ThreadPoolExecutor) -> Iterator[ServiceClient]:
    folder: Path = make_folder()
    thread = LoopThread("service")
    server = ServiceServer(thread, pool=pool)
    server.answer([library])
    thread.start()
    listener = thread.call(UnixTransport().listen, str(folder / "head.sock"), server, thread.loop)
    made = ServiceClient(UnixWay(str(folder / "head.sock")))
    yield made
    library.first_may_end.set()
    made.close()
    thread.call(listener.close)
    thread.call(server.close)
    thread.stop()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_a_call_takes_and_gives_what_its_signature_says(client: ServiceClient) -> None:
    assert client.call(Library.lend, "Emma", days=2) == "Emma for 2 days to 1"
    assert client.call_within(PATIENCE, Library.lend, "Emma") == "Emma for 7 days to 1"
    shelf = Shelf("a", (b"\xff", b""))
    assert client.call(Library.show, shelf) == [shelf]
    assert client.ask(Library.show).result(PATIENCE) == []


def test_the_declaration_can_be_read() -> None:
    assert [one.name for one in Library.declared()] == [
        "book.lend",
        "shelf.show",
        "book.await",
        "book.search",
        "book.note",
    ]
    assert (Library.lend.right, Library.lend.takes_caller) == (ADMIN, True)
    assert (Library.show.takes_caller, Library.show.answer) == (False, list[Shelf])
    assert Library.wait.answer is int
    assert [one.name for one in msgspec.structs.fields(Library.lend.arguments)] == ["title", "days"]


@pytest.mark.parametrize("value", [None, [], {}, {"title": 5}, {"title": "x", "days": 0}, b"\xff"])
def test_a_malformed_call_is_refused(client: ServiceClient, library: Library, value: Any) -> None:
    with pytest.raises(ProtocolError, match=r"malformed call 'book\.lend'"):
        client.call_raw("book.lend", value, PATIENCE)
    assert not library.threads


def test_a_malformed_answer_is_an_error() -> None:
    with pytest.raises(ProtocolError, match=r"malformed answer to 'shelf\.show'"):
        Library.show.read_answer(raw([5]))


def test_a_method_may_answer_later(client: ServiceClient, library: Library) -> None:
    answer, slow = client.ask(Library.wait), client.ask(Library.search)
    client.call(Library.show)
    assert not answer.done()
    library.later.set_result(3)
    assert (answer.result(PATIENCE), slow.result(PATIENCE)) == (3, 3)


def test_slow_calls_run_on_the_pool_and_others_on_the_loop(
    client: ServiceClient, library: Library
) -> None:
    library.later.set_result(1)
    client.call(Library.lend, "Emma")
    client.call(Library.search)
    loop, pool = library.threads
    assert loop == "service"
    assert pool.startswith("pool")


def test_calls_in_order_run_one_after_another(client: ServiceClient, library: Library) -> None:
    answers = [client.ask(Library.note, number) for number in range(50)]
    client.call(Library.lend, "Emma")  # the loop is free meanwhile
    assert library.order == []
    library.first_may_end.set()
    with pytest.raises(SapwoodError, match="no more of that"):
        answers[1].result(PATIENCE)
    for answer in (answers[0], *answers[2:]):
        assert answer.result(PATIENCE) is None
    assert library.order == list(range(50))


def test_a_slow_call_of_a_head_that_ends_is_over(
    client: ServiceClient, pool: ThreadPoolExecutor
) -> None:
    pool.shutdown()
    with pytest.raises(ClosedError, match="the head ends"):
        client.call(Library.search)
