"""The line to the server of another session, without that root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.core.topology import Tree, flat, kary
from sapwood.merging import line as merge_line
from sapwood.merging.line import MergeLine
from sapwood.session.options import PlacesChanged
from sapwood.session_server import wire
from sapwood.session_server.server_link import SessionAddress

pytestmark = pytest.mark.row("C3-SESS-4")


LIMIT = 2**16
"""Bytes of the largest message of the other root."""


class Due:
    """Something that is due; also a loop whose time passes by hand, and a connection."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []
        self.written: list[bytes] = []
        self.aborted = False

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Due:
        self.due.append((self.now + delay, callback, args))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and min(self.due)[0] <= end:
            first = min(self.due, key=lambda one: one[0])
            self.due.remove(first)
            self.now = first[0]
            first[1](*first[2])
        self.now = end

    def write(self, buffers: list[bytes]) -> None:
        self.written.append(b"".join(buffers))

    def abort(self) -> None:
        self.aborted = True

    close = abort


class Line:
    """A line, and what it tells."""

    def __init__(self) -> None:
        self.loop = Due()
        self.over: list[SapwoodError] = []
        self.ready = 0
        self.line = MergeLine(
            SessionAddress(session="b", name="day"),
            self._connect,
            self.loop,
            "night#a",
            self._is_ready,
            self.over.append,
            LIMIT,
        )
        self.line.begin()

    def _is_ready(self) -> None:
        self.ready += 1

    def _connect(self, handler: Any, loop: Any, failed: Any) -> None:
        del loop, failed
        handler.connection_opened(self.loop, initiator=True)

    def hears(self, message: Any) -> None:
        self.line.bytes_received(0, b"".join(wire.pack(message, sharing=False)))

    def is_let_in(self, tree: Tree | None = None, session: str = "b", name: str = "day") -> None:
        self.hears(
            wire.Admitted(
                session=session,
                name=name,
                tree=tree or flat(2),
                platforms=(),
                processes=(),
                hosts=(),
                shares_memory=False,
            )
        )


def test_a_root_that_says_nothing_at_first() -> None:
    line = Line()
    line.loop.pass_time(merge_line.ANSWER_TIMEOUT + 1)
    (error,) = line.over
    assert "did not answer" in error.what
    line.is_let_in()  # too late
    assert (line.ready, len(line.over)) == (0, 1)


def test_a_root_that_falls_silent() -> None:
    line = Line()
    line.is_let_in()
    for number in range(1, 20):
        line.loop.pass_time(merge_line.LOOK_INTERVAL)
        line.hears(wire.SessionAnswer(number))
    assert not line.over
    line.loop.pass_time(merge_line.SILENCE + 3 * merge_line.LOOK_INTERVAL)
    (error,) = line.over
    assert isinstance(error, CommunicationError)
    assert "has not answered" in error.what
    assert line.loop.aborted


@pytest.mark.parametrize("said", [wire.SessionEnds("it is over"), b"\xff" * 20, None])
def test_a_root_that_ends_the_line(said: Any) -> None:
    line = Line()
    line.is_let_in()
    if said is None:
        line.is_let_in()  # twice
    elif isinstance(said, bytes):
        line.line.bytes_received(0, said)
    else:
        line.hears(said)
    assert len(line.over) == 1
    line.line.connection_closed(0, "gone")
    assert len(line.over) == 1
    written = len(line.loop.written)
    line.line.close()
    line.line.tell("status", None)
    assert len(line.loop.written) == written


IMPOSSIBLE = [
    Tree(10**12, (-1, 0)),
    Tree(-1, (-1, 0)),
    Tree(0, ()),
    Tree(1, (-1, 0), added=(10**12,), epoch=1),
    Tree(1, (-1, 0), added=(1,) * 3, epoch=1),
    Tree(1, (-1, 0), removed=(-5,), epoch=1),
    Tree(1, (-1, 0), removed=(0,), epoch=1),
    Tree(1, (-1, 0), spares=(7,)),
]


@pytest.mark.parametrize("tree", IMPOSSIBLE)
def test_a_tree_that_cannot_be_ends_the_line(tree: Tree) -> None:
    line = Line()
    line.is_let_in(tree)
    assert line.ready == 0
    assert "broke the protocol: its tree" in line.over[0].what
    line = Line()
    line.is_let_in()
    news = PlacesChanged((1,), (1,), back=False)
    line.hears(wire.TreeNews(news, kary(4, 2, spares=True).without([1]), ()))
    assert list(line.line.tree.agent_ranks) == [2, 3, 4]
    line.hears(wire.TreeNews(news, None, ()))
    assert not line.over
    line.hears(wire.TreeNews(news, tree, ()))
    assert "broke the protocol: its tree" in line.over[0].what


def test_a_tree_of_too_many_places_ends_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_line, "MAX_RANKS", 3)
    line = Line()
    line.is_let_in(flat(2))
    assert line.ready == 1
    line = Line()
    line.is_let_in(flat(3))
    assert (line.ready, len(line.over)) == (0, 1)


def test_a_root_of_another_session_or_with_too_much_to_say() -> None:
    line = Line()
    line.is_let_in(session="c\x1b")
    assert line.over[0].what.endswith("it is the session c?")
    line = Line()
    line.is_let_in(name="day\x1b]0;x\a")
    assert line.line.facts is not None
    assert line.line.facts.name == "day?]0;x?"
    line.hears(wire.SessionAnswer(1, "x" * LIMIT))
    assert f"over the limit of {LIMIT}" in line.over[0].what
