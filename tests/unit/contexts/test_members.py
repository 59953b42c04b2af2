"""What a process closes when it is forked, and what its zygote closes."""

import socket

import pytest

from sapwood.contexts import orders
from sapwood.contexts.members import FIRST_FD, LAST_FD, Draft, Tree
from sapwood.contexts.plan import Assembled


class File:
    """Something that was opened."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.closed = False

    def fileno(self) -> int:
        return self._fd

    def abort(self) -> None:
        self.closed = True


def draft(theirs: socket.socket, *opened: File) -> Draft:
    ours, control = socket.socketpair()
    spec = orders.ProcessSpec("", 1, 1)
    with ours, control:
        return Draft(Tree(control), spec, ours, theirs, Assembled(lambda: None, opened))


def is_strange(made: Draft, fd: int) -> bool:
    return any(first <= fd < last for first, last in made.strange)


@pytest.mark.parametrize("beside", [-1, 1, 2, 300])
def test_a_process_closes_all_but_its_own(beside: int) -> None:
    other, theirs = socket.socketpair()
    with other, theirs:
        own = {theirs.fileno(), theirs.fileno() + beside}
        made = draft(theirs, File(theirs.fileno() + beside))
        closed = {fd for fd in range(1000) if is_strange(made, fd)}
        assert closed == set(range(FIRST_FD, 1000)) - own
        assert is_strange(made, LAST_FD - 1)


def test_the_zygote_closes_what_its_process_has() -> None:
    other, theirs = socket.socketpair()
    file = File(200)
    with other:
        draft(theirs, file).close()
        assert theirs.fileno() == -1
        assert other.recv(1) == b""
    assert file.closed
