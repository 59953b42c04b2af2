"""What members call, over the simulator: the handle's rounds are made by a stand-in for a place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import plain, values
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.handle import Group, GroupOptions, _rows
from sapwood.comm.messages.groups import FIELD, GroupCall, GroupNumber
from sapwood.comm.payload import Payload
from sapwood.core.errors import ClosedError, ConfigurationError, ProgramError, SapwoodError
from sapwood.core.request import Request
from sapwood.core.topology import Tree, flat, kary
from sapwood_simulation.timed import TimedTree


class Stage:
    """A tree whose agents are threads: each waits for its results while others call."""

    def __init__(self, tree: Tree, bandwidth: float = float("inf")) -> None:
        self.timed = TimedTree(tree, latency=1e-4, bandwidth=bandwidth)
        self.timed.start()
        self.timed.on_effect = self._saw
        self.lock = threading.RLock()
        self.waiting: dict[tuple[int, int], tuple[Request, Callable[[Any], Any]]] = {}
        self.number: GroupNumber = (0, 0, 0)
        self.error: SapwoodError | None = None
        self.agents = range(1, tree.agents + 1)
        for rank in self.agents:
            self.timed.post(rank, gev.EnterGroup(((1, tree.agents + 1),), ""))
        self.timed.run()

    def _saw(self, rank: int, effect: Any) -> None:
        if isinstance(effect, gev.GroupEntered):
            self.number = effect.group
        elif isinstance(effect, gev.GroupFinished) and (rank, effect.round) in self.waiting:
            request, convert = self.waiting.pop((rank, effect.round))
            view = effect.payload.view if effect.payload is not None else b""
            request.set_result(convert(values.decode(effect.body, view) if effect.body else None))
        elif isinstance(effect, gev.GroupBroken):
            error = self.error = SapwoodError.from_record(effect.error)
            for key in [key for key in self.waiting if key[0] == rank]:
                self.waiting.pop(key)[0].set_exception(error)

    def play(self, function: Callable[[Group], Any], options: GroupOptions) -> list[Any]:
        results: dict[int, Any] = {}

        def act(rank: int) -> None:
            group = Group(rank, self.agents, self.number, Wing(self, rank), options)
            try:
                results[rank] = function(group)
            except SapwoodError as error:
                results[rank] = error

        threads = [threading.Thread(target=act, args=(rank,)) for rank in self.agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return [results[rank] for rank in self.agents]


class Wing:
    """One member's way to its place."""

    def __init__(self, stage: Stage, rank: int) -> None:
        self.stage, self.rank = stage, rank

    def call(self, order: dict[str, Any], value: Any, convert: Callable[[Any], Any]) -> Request:
        request = Request()
        encoded = values.encode(value) if value is not None else None
        payload = Payload(encoded.payload()) if encoded is not None and encoded.nbytes else None
        event = gev.CallGroup(
            (*order["group"],),
            order["round"],
            GroupCall(*order["call"]),
            order["taken"],
            encoded.body if encoded is not None else b"",
            payload,
        )
        with self.stage.lock:
            if self.stage.error is not None:
                request.set_exception(self.stage.error)
                return request
            self.stage.waiting[(self.rank, order["round"])] = (request, convert)
            self.stage.timed.post(self.rank, event)
            self.stage.timed.run()
        return request

    def leave(self, number: GroupNumber) -> None:
        del number


@pytest.mark.row("C2-GROUP")
@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["sum", "sum:reproducible", "min", "max"]),
    st.sampled_from([(50,), (7, 9), (3, 4, 5)]),
    st.integers(8, 300),
    st.sampled_from(["f8", "f4", "i4"]),
)
@pytest.mark.slow
def test_in_pieces_an_array_reduces_to_the_same(
    kind: str, shape: tuple[int, ...], piece: int, dtype: str
) -> None:
    stage = Stage(kary(4, 2))
    arrays = [
        (np.random.default_rng(rank).normal(size=shape) * 100).astype(dtype) for rank in range(5)
    ]
    whole = {"min": np.min, "max": np.max}.get(kind, np.sum)(arrays[1:], axis=0)
    results = stage.play(
        lambda group: group.allreduce(arrays[group.rank], kind), GroupOptions(30.0, piece)
    )
    for result in results:
        assert result.dtype == dtype
        np.testing.assert_allclose(result, whole, rtol=1e-4, atol=1e-3)


@pytest.mark.row("C2-RED")
def test_in_pieces_junctions_add_while_they_receive() -> None:
    def seconds(piece: int) -> float:
        # Three levels; a megabyte takes a second on each link.
        stage = Stage(kary(8, 2), bandwidth=1e6)
        begin = stage.timed.now
        array = np.ones(32_000)
        calls = [array[first : first + piece] for first in range(0, len(array), piece)]
        for number, part in enumerate(calls, start=1):
            for rank in stage.agents:
                encoded = values.encode({"x": part})
                payload = Payload(encoded.payload())
                call = GroupCall("allreduce", "sum")
                event = gev.CallGroup(stage.number, number, call, 0, encoded.body, payload)
                stage.timed.post(rank, event)
        stage.timed.run()
        return stage.timed.now - begin

    whole, pieces = seconds(32_000), seconds(1_000)
    assert whole == pytest.approx(6 * 0.256, rel=0.01)  # up three links and down three
    assert pieces < 0.4 * whole  # 0.256 for all bytes to pass, and a piece for each link


def test_arrays_that_differ_are_told_before_any_piece_is_added() -> None:
    stage = Stage(flat(3))
    results = stage.play(
        lambda group: group.allreduce(np.ones(100 + (group.rank == 2))), GroupOptions(30.0, 64)
    )
    for result in results:
        assert "(101,)" in str(result)
        assert "(100,)" in str(result)


def lonely() -> Group:
    stage = Stage(flat(1))
    return Group(1, [1], stage.number, Wing(stage, 1), GroupOptions())


def test_mistakes_are_told_before_anything_is_sent() -> None:
    group = lonely()
    with pytest.raises(ProgramError):
        group.allreduce(1, "sun")
    with pytest.raises(ConfigurationError, match="not in the group"):
        group.broadcast(1, root=7)
    with pytest.raises(ConfigurationError, match="one for each member"):
        group.scatter([1, 2])
    assert group.allreduce(5) == 5
    group.close()
    with pytest.raises(ClosedError):
        group.barrier()


def test_the_rows_of_a_scatter_have_their_bytes_one_after_the_other() -> None:
    given = [np.arange(3.0), "x", np.ones((2, 40), np.int16)]
    body, flat = _rows([4, 7, 9], given)
    rows: Any = plain.decode(body)
    assert [rank for rank, *_ in rows] == [4, 7, 9]
    assert [(start, stop) for *_, start, stop in rows] == [(0, 64), (64, 64), (64, 256)]
    found = [values.decode(row, flat[start:stop].data)[FIELD] for _, row, start, stop in rows]
    assert found[1] == "x"
    np.testing.assert_array_equal(found[0], given[0])
    np.testing.assert_array_equal(found[2], given[2])
