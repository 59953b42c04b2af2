"""What clients have asked of agents that leave is waited for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sapwood.comm.messages import StreamSpec
from sapwood.session_server import open_work
from sapwood.session_server.keeping import ServedStream
from sapwood.session_server.open_work import OpenWork
from sapwood.session_server.routes import EffectRoutes


class Looks:
    """Calls functions when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        self.waited: list[float] = []

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.waiting.append((seconds, function))

    def look(self) -> None:
        ((seconds, function),) = self.waiting
        self.waiting.clear()
        self.waited.append(seconds)
        function()


def routes_with(*streams: ServedStream, requests: dict[int, int]) -> EffectRoutes:
    routes = EffectRoutes()
    hearer: Any = SimpleNamespace(served=lambda mine: streams[mine])
    for mine, stream in enumerate(streams):
        routes.of_stream[stream.number] = (hearer, mine)
    routes.of_request = {number: (hearer, number, rank) for number, rank in requests.items()}
    return routes


def stream_of(number: int, first: int, stop: int, waiting: set[int]) -> ServedStream:
    made = ServedStream(number, StreamSpec(number, "x", ((first, stop),)), paced=False)
    made.waiting = waiting
    return made


def test_nothing_open_is_over_at_once() -> None:
    others = stream_of(1, 3, 5, {1, 2})
    looks = Looks()
    assert OpenWork(routes_with(others, requests={7: 3}), [1, 2], looks.later).done.done()
    assert not looks.waiting


def test_what_was_open_is_waited_for_and_what_comes_later_is_not() -> None:
    mine, closed = stream_of(1, 1, 3, {1, 2}), stream_of(2, 1, 3, {1})
    routes, looks = routes_with(mine, closed, requests={7: 1, 8: 4}), Looks()
    work = OpenWork(routes, [1], looks.later)
    mine.waiting.add(3)
    mine.waiting.discard(1)
    looks.look()
    assert not work.done.done()
    mine.waiting.discard(2)
    del routes.of_stream[2]
    looks.look()
    assert not work.done.done()
    del routes.of_request[7]
    looks.look()
    assert work.done.done()
    assert not looks.waiting


def test_nobody_looks_for_ever() -> None:
    looks = Looks()
    work = OpenWork(routes_with(requests={7: 1}), [1], looks.later)
    while not work.done.done():
        looks.look()
    assert max(looks.waited) == open_work.LONGEST_LOOK
    assert sum(looks.waited) < open_work.LONGEST + 1.0
    given_up = OpenWork(routes_with(requests={7: 1}), [1], looks.later)
    given_up.give_up()
    looks.look()
    assert not looks.waiting
