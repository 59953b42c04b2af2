"""What agents push: at the root, each counts once and in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm.messages import Up
from sapwood.comm.streams.contributors import Arrivals
from sapwood.comm.streams.push import PushContributions
from sapwood.comm.streams.stream import Counters


def test_what_comes_again_is_counted_as_repeated_and_told_again() -> None:
    unused: Any = None
    push = PushContributions(unused, {}, unused)
    stream: Any = SimpleNamespace(arrivals=Arrivals(), counters=Counters())

    def takes(number: int) -> bool:
        return push.is_next(stream, Up(1, 0, number, ((3, 4),), 1.0, b""))

    assert [takes(1), takes(2)] == [True, True]
    heard = stream.arrivals.pushed[3]
    heard.told = 2
    assert not takes(4)  # the third is still to come
    assert (stream.counters.repeated, heard.told) == (1, 2)
    assert not takes(2)
    assert (stream.counters.repeated, heard.told) == (2, 0)
    assert takes(3)
    assert stream.counters.repeated == 2


def test_a_read_of_an_agent_that_has_pushed_nothing_changes_nothing() -> None:
    unused: Any = None
    stream: Any = SimpleNamespace(arrivals=Arrivals(), counters=Counters())
    push = PushContributions(unused, {1: stream}, unused)
    assert push.read(0.0, ev.Read(1, 3, 5)) == []  # the client may have read what was merged
    assert push.read(0.0, ev.Read(2, 3, 5)) == []  # the stream was closed meanwhile
    assert not stream.arrivals.pushed
