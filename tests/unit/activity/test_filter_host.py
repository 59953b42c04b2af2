"""Filters whose runner ends together with its zygote. The test plays the zygote."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Iterator

import msgspec
import pytest

from sapwood.activity import filter_host
from sapwood.activity.agent_requests import UserCode
from sapwood.activity.filter_host import FilterHost
from sapwood.code.runner.crash import ATTEMPTS
from sapwood.code.runner.options import RunnerOptions
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.messages import FAIL, REPLACE, FilterAt, StreamSpec
from sapwood.comm.streams.filters import Position
from sapwood.contexts.runner_factory import RunnerFactory, receive_order
from sapwood.core.errors import ResourceError

PATIENCE = 30.0
STREAM = 4
OWN = FilterAt("*", up=msgspec.msgpack.encode(UserCode("max", b"")))


class Place:
    """A place with filters, and the zygotes that it has had."""

    def __init__(self, *, outlives_zygote: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.posted: list[ev.Event] = []
        self.zygotes: list[socket.socket] = []
        self.refusals = 0
        self.filters = FilterHost(
            Position(),
            self.loop,
            RunnerOptions(),
            self._new_factory,
            self.posted.append,
            lambda _data: None,
            outlives_zygote=outlives_zygote,
        )

    def _new_factory(self) -> RunnerFactory:
        if self.refusals:
            self.refusals -= 1
            raise ResourceError("the zygote is gone")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.settimeout(PATIENCE)
        self.zygotes.append(theirs)
        return RunnerFactory(ours)

    def call(self, ticket: int, on_loss: str = REPLACE) -> None:
        spec = StreamSpec(STREAM, "echo", ((1, 2),), on_loss=on_loss)
        part = ev.PartialContribution(1, 1.0, plain.encode(5), None)
        self.filters.call(ev.FilterWanted(spec, ticket, True, 1, (part,), 1, b"", OWN, "code"))

    def fork(self) -> None:
        """Take the order for a runner, as the newest zygote does, and start none."""
        order = receive_order(self.zygotes[-1])
        assert order is not None
        for descriptor in order[1]:
            os.close(descriptor)

    def end_zygote(self) -> None:
        self.zygotes[-1].close()

    def run(self, until: Callable[[], object]) -> None:
        deadline = self.loop.time() + PATIENCE
        while not until():
            assert self.loop.time() < deadline, "it does not become so"
            self.loop.run_until_complete(asyncio.sleep(0))

    def has_noticed(self) -> bool:
        """Whether the end of the zygote was read."""
        assert self.filters._runner is not None
        descriptor = self.filters._runner._runner_factory.fileno()
        selector: selectors.BaseSelector = vars(self.loop)["_selector"]
        return descriptor not in selector.get_map()

    def errors(self) -> list[tuple[int, str]]:
        return [
            (one.ticket, one.error.what)
            for one in self.posted
            if isinstance(one, ev.Filtered) and one.error is not None
        ]

    def close(self) -> None:
        self.filters.close()
        for zygote in self.zygotes:
            zygote.close()
        self.loop.close()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with contextlib.closing(Place(outlives_zygote=request.param)) as made:
        yield made


junction = pytest.mark.parametrize("place", [False], indirect=True)
root = pytest.mark.parametrize("place", [True], indirect=True)


@junction
def test_a_junction_that_ends_with_its_zygote_answers_no_call(place: Place) -> None:
    place.call(1, on_loss=FAIL)
    place.fork()
    place.end_zygote()
    place.call(2)
    place.run(place.has_noticed)
    place.call(3)
    assert place.posted == []
    assert len(place.zygotes) == 1


@junction
def test_a_junction_whose_zygote_is_gone_before_the_first_call_answers_none(place: Place) -> None:
    place.filters._new_runner()
    place.end_zygote()
    place.call(1)
    place.call(2)
    assert place.posted == []


@root
def test_the_root_repeats_calls_with_the_next_zygote(place: Place) -> None:
    place.call(1)
    place.call(2, on_loss=FAIL)
    place.fork()
    place.refusals = 2
    place.end_zygote()
    place.run(lambda: place.refusals < 2)
    place.call(3)  # it waits for the next zygote as well
    place.run(lambda: len(place.zygotes) == 2)
    place.fork()
    assert place.errors() == [(2, "the process of the filter ended")]
    assert set(place.filters._open) == {(STREAM, 1), (STREAM, 3)}


@root
def test_the_root_gives_up_a_call_that_loses_each_zygote(place: Place) -> None:
    place.call(1)
    for number in range(1, ATTEMPTS + 1):
        place.fork()
        place.end_zygote()
        place.run(lambda number=number: len(place.zygotes) > number)  # type: ignore[misc]  # mypy cannot infer it
    assert place.errors() == [(1, "the process of the filter ended")]
    place.call(2)  # another one works
    place.fork()


@root
def test_the_root_gives_up_when_no_zygote_comes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_host, "AGAIN_PATIENCE", 0.0)
    place.call(1)
    place.filters.stage(ev.FilterStaging(STREAM, 7, OWN, "other"))
    place.fork()
    place.refusals = 1
    place.end_zygote()
    place.run(lambda: len(place.posted) == 2)
    assert place.errors() == [(1, "the zygote is gone")]
    assert isinstance(place.posted[1], ev.FilterStaged)
    place.call(2)
    place.fork()


@root
def test_staging_is_repeated_with_the_next_zygote(place: Place) -> None:
    place.filters.stage(ev.FilterStaging(STREAM, 7, OWN, "other"))
    place.fork()
    place.end_zygote()
    place.run(lambda: len(place.zygotes) == 2)
    place.fork()
    assert place.posted == []
    place.filters.stream_closed(STREAM)
    assert not place.filters._staging
