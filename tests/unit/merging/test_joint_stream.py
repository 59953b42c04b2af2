"""A stream over two sessions, without any session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import (
    NO_WAIT,
    PARTIAL,
    REPLACE,
    TIME_OUT,
    PlaceStatistics,
    StreamSpec,
    Synchronisation,
)
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError, ClosedError, ProtocolError, SapwoodError
from sapwood.merging.joint_stream import JointStream, StreamPart

pytestmark = pytest.mark.row("C3-SESS-4")

FIRST = 1000
LOST = AgentLostError("it is gone")


class Both:
    """A stream over two agents here and two of another session, with all that it says."""

    def __init__(self, on_loss: str = REPLACE, sync: Synchronisation | None = None) -> None:
        self.said: list[tuple[int, Any]] = []
        self.came: list[Any] = []
        members = ((1, 3), (FIRST + 1, FIRST + 3))
        kind = sync or Synchronisation()
        spec = StreamSpec(7, "echo", members, {"": "sum"}, sync=kind, on_loss=on_loss)
        self.there, self.here = (
            StreamPart(
                StreamSpec(number, "echo", ((1, 3),), {"": "sum"}),
                first,
                lambda event, number=number: self.said.append((number, event)),  # type: ignore[misc]
            )
            for number, first in ((20, FIRST), (30, 0))
        )
        self.closed: list[JointStream] = []
        self.stream = JointStream(
            spec, (self.there, self.here), self.came.append, None, self.closed.append
        )
        self.stream.open(paced=False)
        self.said.clear()

    def broadcast(self, payload: Payload | None = None) -> None:
        self.stream.take(ev.Broadcast(7, b"x", payload))

    def completes(
        self, part: StreamPart, value: Any = 1, wave: int = 1, ranks: Any = ((1, 3),), **more: Any
    ) -> None:
        body = b"" if value is None else values.encode(value).body
        done = ev.WaveCompleted(0, wave, None, ranks, 2.0, body=body, **more)
        self.stream.answered(part, done)

    def taken(self) -> list[Any]:
        found, self.came[:] = list(self.came), []
        return found


def test_a_wave_is_over_when_both_have_ended_it() -> None:
    both = Both()
    for part in (both.here, both.there):
        other = both.here if part is both.there else both.there
        both.broadcast()
        wave = 1 if part is both.here else 2
        both.completes(part, 3, wave)
        both.completes(part, 3, wave)  # a repeated wave counts once
        assert not both.came
        both.completes(other, 4, wave)
        both.completes(other, 4, wave)
        (done,) = both.taken()
        assert (done.stream, done.wave, done.total, done.weight) == (7, wave, 7, 4.0)
        assert done.ranks == ((1, 3), (FIRST + 1, FIRST + 3))
    assert [number for number, _ in both.said] == [20, 30, 20, 30]


def test_waves_end_in_any_order_and_each_by_itself() -> None:
    both = Both()
    for _ in range(3):
        both.broadcast()
    for wave in (3, 1, 2):
        both.completes(both.there, wave, wave)
    for wave in (2, 3, 1):
        both.completes(both.here, 10, wave)
    assert [(one.wave, one.total) for one in both.came] == [(2, 12), (3, 13), (1, 11)]


@pytest.mark.parametrize(
    "ranks", [((1, 4),), ((2, 2),), ((0, 1),), ((1, 2**62),), ((3, 1),), ((1, 3), (1, 3))]
)
def test_a_session_names_only_agents_that_were_asked(ranks: Any) -> None:
    both = Both()
    both.broadcast()
    with pytest.raises(ProtocolError):
        both.completes(both.there, 1, ranks=ranks)


@pytest.mark.parametrize("value", [{"sapwood:partial": 5}, "text", {"a": 1}, [[1], [1, 2]]])
def test_what_does_not_fit_fails_the_wave_alone(value: Any) -> None:
    both = Both()
    both.broadcast()
    both.completes(both.there, value)
    both.completes(both.here, 1)
    (failed,) = both.taken()
    assert isinstance(failed, ev.WaveFailed)
    both.broadcast()
    both.completes(both.there, 1, 2)
    both.completes(both.here, 1, 2)
    assert both.taken()[0].total == 2


def test_a_session_that_fails_a_wave() -> None:
    both = Both()
    both.broadcast()
    error = SapwoodError("no").to_record()
    both.stream.answered(both.there, ev.WaveFailed(0, 1, 2, error))
    both.completes(both.here, 1)
    (failed,) = both.taken()
    assert (failed.stream, failed.wave, failed.rank, failed.error) == (7, 1, FIRST + 2, error)


TIMED = Synchronisation(TIME_OUT, 1.0)


@pytest.mark.parametrize(
    ("on_loss", "sync", "goes_on"),
    [
        (REPLACE, None, False),
        ("fail", None, False),
        (PARTIAL, None, True),
        (REPLACE, TIMED, True),
        ("fail", TIMED, False),
    ],
)
def test_a_session_that_is_lost(on_loss: str, sync: Any, goes_on: bool) -> None:
    both = Both(on_loss, sync)
    for _ in range(3):
        both.broadcast()
    both.completes(both.here, 5, 1)
    both.completes(both.there, 6, 2)
    both.stream.lose(both.there, LOST)
    both.stream.lose(both.there, LOST)
    both.completes(both.here, 5, 2)
    both.completes(both.there, 6, 1)  # too late
    both.completes(both.here, 7, 3)
    shared = Payload(b"abc")
    both.broadcast(shared)
    found = both.taken()
    if goes_on:
        both.completes(both.here, 8, 4)
        found += both.taken()
        assert [(one.wave, one.total) for one in found] == [(1, 5), (2, 11), (3, 7), (4, 8)]
        assert found[0].ranks == ((1, 3),)
        return
    # the second has all of the other session, so it is as good as ever
    assert [(type(one).__name__, getattr(one, "wave", 0)) for one in found] == [
        ("WaveFailed", 1),
        ("WaveFailed", 3),
        ("WaveCompleted", 2),
        ("Released", 0),
        ("WaveFailed", 4),
    ]
    assert {one.error.what for one in found if isinstance(one, ev.WaveFailed)} == {LOST.what}


def test_leaving_waits_for_what_is_open() -> None:
    both, told = Both(), []
    both.broadcast()
    both.stream.leave(both.there, ClosedError("split off"), lambda: told.append(1))
    both.broadcast()  # begins without it, so fails
    assert not told
    assert [one.wave for one in both.taken()] == [2]
    both.completes(both.there)
    both.completes(both.here)
    assert told
    assert both.taken()[0].total == 2


def test_sweeps_come_back_from_both() -> None:
    both = Both()
    both.stream.take(ev.SweepStream(7, 1, "flush"))
    assert [number for number, _ in both.said] == [30, 20]
    for part in (both.there, both.here):
        both.stream.answered(part, ev.SweepDone(0, 1, ((1, 3),), (PlaceStatistics(2, "open"),)))
    (done,) = both.taken()
    assert done.reached == ((1, 3), (FIRST + 1, FIRST + 3))
    assert [one.rank for one in done.reports] == [2, FIRST + 2]
    both.stream.take(ev.SweepStream(7, 2, "flush"))
    both.stream.answered(both.here, ev.SweepDone(0, 2, ((1, 3),), ()))
    both.stream.lose(both.there, LOST)
    assert both.taken()[0].reached == ((1, 3),)


def test_values_that_nobody_asked_for_pass_at_once() -> None:
    both = Both(sync=Synchronisation(NO_WAIT))
    both.stream.answered(both.there, ev.Contributed(0, 0, ((2, 3),), 1.0, b"x", None))
    (one,) = both.taken()
    assert (one.stream, one.ranks) == (7, ((FIRST + 2, FIRST + 3),))
    both.stream.take(ev.Read(7, FIRST + 2, 5))
    both.stream.take(ev.Read(7, 2, 6))
    assert both.said == [(20, ev.Read(20, 2, 5)), (30, ev.Read(30, 2, 6))]


def test_closing_closes_both() -> None:
    both = Both()
    both.broadcast()
    both.said.clear()
    both.stream.take(ev.CloseStream(7))
    assert both.said == [(20, ev.CloseStream(20)), (30, ev.CloseStream(30))]
    assert both.closed == [both.stream]
    both.completes(both.here)
    both.completes(both.there)
    assert not both.came


STEPS = st.lists(
    st.one_of(
        st.just(("broadcast", 0)),
        st.tuples(
            st.sampled_from(["here", "there", "fails here", "fails there"]), st.integers(1, 6)
        ),
        st.sampled_from([("lost", 0), ("leaves", 0)]),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([REPLACE, "fail", PARTIAL]))
def test_each_wave_ends_once_whatever_comes(steps: list[tuple[str, int]], on_loss: str) -> None:
    both, begun = Both(on_loss), 0
    error = SapwoodError("no").to_record()
    for what, wave in steps:
        part = both.there if what.endswith("there") else both.here
        if what == "broadcast":
            begun += 1
            both.broadcast()
        elif what == "lost":
            both.stream.lose(both.there, LOST)
        elif what == "leaves" and both.there.lost is None:
            both.stream.leave(
                both.there, ClosedError("left"), lambda: both.stream.lose(both.there, LOST)
            )
        elif what.startswith("fails"):
            both.stream.answered(part, ev.WaveFailed(0, wave, 1, error))
        elif what != "leaves":
            both.completes(part, 10 ** (part is both.there), wave)
    both.stream.lose(both.there, LOST)
    for wave in range(1, begun + 1):
        both.completes(both.here, 1, wave)
    assert sorted(one.wave for one in both.came) == list(range(1, begun + 1))
    for one in both.came:
        if isinstance(one, ev.WaveCompleted):
            others = (FIRST + 1, FIRST + 3) in one.ranks
            assert one.ranks == (((1, 3), (FIRST + 1, FIRST + 3)) if others else ((1, 3),))
            assert one.total == (11 if others else 1)
            assert others or on_loss == PARTIAL
