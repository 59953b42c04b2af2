"""The library that relays waves: answers that a parent with TLS does not take are left."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator

import pytest

from sapwood.comm import messages as msg
from sapwood.comm.link import MESSAGE_COST
from sapwood.fastpath.carriers import Functions
from sapwood.fastpath.relay_library import RecordKind, RelayLibrary

from .conftest import encoded

STREAM, WAVE, RANK = 3, 9, 2
DOWN = encoded(msg.Down(STREAM, WAVE, 0, b"a body", WAVE - 1), b"and a payload")
UP = encoded(msg.Up(STREAM, WAVE, 0, ((RANK, RANK + 1),), 1.0, b"a body"), b"and a payload")


class StruckError(BaseException):
    """What a handler of signals raises."""


class Parent:
    """A parent whose frames have come, and what it takes.

    Args:
        error: What sending raises; None where it takes all.
    """

    def __init__(self, error: type[BaseException] | None) -> None:
        self.error = error
        self.left = [DOWN]
        self.taken: list[bytes] = []

    def read(self, size: int) -> bytes:
        """Return one record."""
        assert size >= len(DOWN)
        if not self.left:
            raise ssl.SSLWantReadError
        return self.left.pop()

    def write(self, data: bytes) -> int:
        """Take an answer."""
        if self.error is not None:
            raise self.error
        self.taken.append(data)
        return len(data)

    @property
    def functions(self) -> Functions:
        """What the library calls."""
        return self.read, self.write


@pytest.fixture
def readable() -> Iterator[tuple[select.epoll, int]]:
    """A socket that can be read all the time, and what says so."""
    near, far = socket.socketpair()
    with near, far, select.epoll() as epoll:
        far.sendall(b"something")
        epoll.register(near.fileno(), select.EPOLLIN)
        yield epoll, near.fileno()


def relayed(readable: tuple[select.epoll, int], parent: Parent) -> RelayLibrary:
    """Return the library when it has relayed what there was."""
    library = RelayLibrary()
    memory = library.memory
    memory.epoll_fd, memory.runner_fd, memory.rank = readable[0].fileno(), -1, RANK
    memory.stream, memory.last_wave, memory.room = STREAM, WAVE - 1, 2**20
    memory.weight = 1.0
    library.use(readable[1], parent.functions)
    if parent.error is StruckError:
        with pytest.raises(StruckError):
            library.wait(-1)
    else:
        library.wait(-1)
    return library


def test_an_answer_is_sent(readable: tuple[select.epoll, int]) -> None:
    parent = Parent(None)
    library = relayed(readable, parent)  # which returns when there is nothing more to read
    assert parent.taken == [UP]
    assert (library.memory.unsent, library.memory.waves) == (0, 1)
    assert library.memory.room == 2**20 - len(UP) - MESSAGE_COST


@pytest.mark.parametrize("error", [ssl.SSLWantWriteError, ConnectionResetError, StruckError])
def test_an_answer_that_is_not_taken_is_there(
    readable: tuple[select.epoll, int], error: type[BaseException]
) -> None:
    library = relayed(readable, Parent(error))
    assert library.unsent() == UP
    found = [(record.kind, record.data) for record in library.records()]
    assert found == [(RecordKind.FRAME_IN, DOWN), (RecordKind.FRAME_OUT, UP)]
    assert bool(library.memory.tls.lost) == (error is StruckError)
