"""Outboxes and inboxes with everything between them that can go wrong."""

from __future__ import annotations

import itertools
import random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm.messaging import ordering
from sapwood.comm.messaging.ordering import (
    ARRIVALS,
    EPOCH_SHIFT,
    Action,
    Posted,
    ReceiveWindow,
    SendWindow,
    SequenceOrder,
)
from sapwood.core.errors import CommunicationError

EPOCH = 1 << EPOCH_SHIFT
T = TypeVar("T")


class Wire:
    """An outbox and an inbox; messages and acknowledgements between them go astray by chance."""

    def __init__(self, seed: int, window: int, *, lossy: bool) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self.outbox: SendWindow[int] = SendWindow(1, window, 1.0)
        self.inbox: ReceiveWindow[int] = ReceiveWindow()
        self.lossy = lossy
        self.now = 0.0
        self.messages: list[tuple[int, int, int]] = []
        self.receipts: list[tuple[int, int, tuple[int, ...]]] = []
        self.got: list[int] = []
        self.acknowledged: list[int] = []
        self.reader_takes = True

    def _copies(self) -> int:
        return self.chance.choice([0, 1, 1, 1, 2]) if self.lossy else 1

    def transmit(self, posted: list[Posted[int]]) -> None:
        for one in posted:
            self.messages += [(self.outbox.epoch, one.number, one.item)] * self._copies()

    def post(self, item: int) -> None:
        number = self.outbox.post(self.now, item)
        if number:
            self.messages += [(self.outbox.epoch, number, item)] * self._copies()

    def receipt(self, missing: tuple[int, ...]) -> None:
        entry = (self.inbox.epoch, self.inbox.acknowledged(), missing)
        self.receipts += [entry] * self._copies()

    def take(self) -> None:
        if self.reader_takes:
            self.got += self.inbox.take_all()

    def step(self) -> None:
        """Let one thing arrive, in any order, or time pass."""
        kind = self.chance.randrange(3)
        if kind == 0 and self.messages:
            epoch, number, item = self._draw(self.messages)
            action = self.inbox.arrive(epoch, number, item)
            self.take()
            if action is not Action.DROP:
                again = action is Action.REPEAT
                self.receipt(self.inbox.missing(again=again))
        elif kind == 1 and self.receipts:
            epoch, upto, missing = self._draw(self.receipts)
            done, again_ = self.outbox.acknowledge(self.now, epoch, 1, upto, missing)
            self.acknowledged += [one.item for one in done]
            self.transmit(again_)
        else:
            self.now += 0.5
            self.transmit(self.outbox.overdue(self.now))

    def _draw(self, things: list[T]) -> T:
        return things.pop(self.chance.randrange(len(things)) if self.lossy else 0)

    def settle(self) -> None:
        for _ in range(100_000):
            if not self.outbox and not self.messages:
                return
            self.step()
        raise AssertionError("it does not come to rest")


@pytest.mark.row("C2-ORDER")
@settings(deadline=None)  # other processes share the machine
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(1, 20))
@pytest.mark.slow
def test_what_is_posted_comes_out_once_and_in_order(seed: int, count: int, window: int) -> None:
    wire = Wire(seed, window, lossy=True)
    for item in range(count):
        wire.post(item)
        for _ in range(wire.chance.randrange(4)):
            wire.step()
        assert wire.got == list(range(len(wire.got)))
        assert wire.acknowledged == wire.got[: len(wire.acknowledged)]
    wire.settle()
    assert wire.got == wire.acknowledged == list(range(count))


@settings(deadline=None)  # other processes share the machine
@given(st.integers(0, 2**32), st.integers(1, 20))
@pytest.mark.slow
def test_no_more_is_on_its_way_than_the_window_allows(seed: int, window: int) -> None:
    wire = Wire(seed, window, lossy=False)
    for item in range(100):
        wire.post(item)
        assert len(wire.messages) <= window
    while wire.outbox:
        wire.step()
        arrived = len(wire.acknowledged)
        assert len({number for _, number, _ in wire.messages if number > arrived}) <= window


@settings(deadline=None)  # other processes share the machine
@given(st.integers(0, 2**32), st.integers(1, 10))
@pytest.mark.slow
def test_a_reader_that_does_not_take_stops_the_sender(seed: int, window: int) -> None:
    wire = Wire(seed, window, lossy=True)
    wire.reader_takes = False
    for item in range(50):
        wire.post(item)
    for _ in range(500):
        wire.step()
    assert wire.got == wire.acknowledged == []
    assert len(wire.outbox) == 50
    wire.reader_takes = True
    wire.take()
    wire.settle()
    assert wire.got == list(range(50))


@settings(deadline=None)  # other processes share the machine
@given(st.integers(0, 2**32), st.integers(0, 20), st.integers(1, 20))
def test_a_new_epoch_begins_without_what_was_before(seed: int, before: int, after: int) -> None:
    wire = Wire(seed, 8, lossy=True)
    for item in range(before):
        wire.post(item)
        wire.step()
    left = wire.outbox.begin_anew()
    assert left == [*range(len(wire.acknowledged), before)]
    wire.inbox = ReceiveWindow()  # another process
    old, wire.messages = wire.messages, []
    wire.got.clear()
    wire.acknowledged.clear()
    for item in range(100, 100 + after):
        wire.post(item)
    # The first item of the new epoch comes before any old item: the receiver has received it.
    epoch, number, item = wire.outbox.epoch, 1, 100
    wire.inbox.arrive(epoch, number, item)
    wire.take()
    wire.messages += old
    wire.settle()
    assert wire.got == list(range(100, 100 + after))


def test_the_table_says_what_happens() -> None:
    inbox: ReceiveWindow[str] = ReceiveWindow()
    assert inbox.arrive(EPOCH, 1, "a") is ARRIVALS[SequenceOrder.EXPECTED] is Action.DELIVER
    assert inbox.arrive(EPOCH, 1, "a") is ARRIVALS[SequenceOrder.DUPLICATE] is Action.REPEAT
    assert list(inbox.take_all()) == ["a"]
    assert inbox.arrive(EPOCH, 1, "a") is Action.REPEAT
    assert inbox.arrive(EPOCH, 4, "d") is ARRIVALS[SequenceOrder.EARLY] is Action.KEEP
    assert inbox.missing() == (2, 3)
    assert inbox.missing() == ()  # they were named
    assert inbox.missing(again=True) == (2, 3)
    beyond = 2 + ordering.MAX_WINDOW
    assert inbox.arrive(EPOCH, beyond, "z") is ARRIVALS[SequenceOrder.BEYOND] is Action.DROP
    assert inbox.arrive(EPOCH - 1, 2, "old") is Action.DROP
    assert inbox.arrive(EPOCH + 1, 1, "new") is Action.DELIVER
    assert list(inbox.take_all()) == ["new"]
    assert inbox.arrive(EPOCH, 2, "b") is Action.DROP


def test_what_passes_by_counts_as_taken() -> None:
    inbox: ReceiveWindow[str] = ReceiveWindow(EPOCH)
    assert inbox.is_next(EPOCH, 1)
    assert not inbox.is_next(EPOCH, 2)
    assert not inbox.is_next(EPOCH + 1, 1)
    assert inbox.passed() == 1
    assert inbox.passed() == 2
    assert inbox.upto == 2
    assert inbox.arrive(EPOCH, 4, "d") is Action.KEEP
    assert not inbox.is_next(EPOCH, 3)  # one waits behind it


def test_patience_grows_and_ends() -> None:
    outbox: SendWindow[str] = SendWindow(1, 4, 1.0)
    outbox.post(0.0, "a")
    due = []
    now = 0.0
    for _ in range(6):
        while not outbox.overdue(now):
            now += 0.25
        due.append(now)
    gaps = [later - sooner for sooner, later in itertools.pairwise(due)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == ordering.LONGEST_PATIENCE


def test_what_has_not_left_can_be_taken_back() -> None:
    outbox: SendWindow[str] = SendWindow(1, 1, 1.0)
    assert outbox.post(0.0, "a") == 1
    assert outbox.post(0.0, "b") == 0
    assert not outbox.cancel("a")
    assert outbox.cancel("b")
    assert len(outbox) == 1


def test_the_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "MAX_BACKLOG", 2)
    outbox: SendWindow[int] = SendWindow(1, 1, 1.0)
    for item in range(3):
        outbox.post(0.0, item)
    with pytest.raises(CommunicationError, match="more than 2 messages"):
        outbox.post(0.0, 3)


def test_receipts_of_another_epoch_are_not_looked_at() -> None:
    outbox: SendWindow[str] = SendWindow(1, 4, 1.0)
    outbox.post(0.0, "a")
    assert outbox.acknowledge(0.0, outbox.epoch + 1, 1, 1) == ([], [])
    assert len(outbox) == 1
