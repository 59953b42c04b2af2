"""What the answers to waves come to: the same as by the reductions, whatever came before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from sapwood.comm import frames, values
from sapwood.comm import messages as msg
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import Accumulator
from sapwood.comm.reductions import REDUCTIONS
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import ExecutionError
from sapwood.fastpath.answers import Answers
from sapwood.fastpath.gathering import Gathered, gather
from sapwood.session.wave_result import WaveResult

from .conftest import OWNER, Front

STREAM = 3
RANGES = (((1, 2),), ((2, 3),), ((3, 4),))
ARRAY = np.arange(6.0).reshape(2, 3)
BLOCKS = 6


class Waves:
    """Waves one after the other, with three children or one that answer what they are told."""

    def __init__(
        self, front: Front, reduce: dict[str, str], first: int = 1, children: int = 3
    ) -> None:
        self.front, self.library, self.wave = front, front.library, first
        self.children, self.first = children, first
        ranges = RANGES[:children]
        self.spec = msg.StreamSpec(STREAM, "echo", ((1, children + 1),), reduce)
        self.mapped = MappedBlocks()
        self.answers = Answers(ranges, self.mapped, self.library)
        self.blocks = [SharedBlock(4096) for _ in range(BLOCKS)]
        self.library.take_back()
        own = [each.fileno() for each in front.own[:children]]
        self.ticket = self.library.arm(own, 2**20, 2**20, STREAM, first)

    def begin(self) -> None:
        """Begin the next wave."""
        assert self.library.begin_wave(OWNER, self.ticket, b"", 0, b"", 0) == 1

    def gathered(self, value: Any, *, shared: bool = False, weight: float = 2.0) -> Gathered | None:
        """Have a value answered, by each child times its rank."""
        self.begin()
        for number, child in enumerate(self.front.children[: self.children]):
            child.sendall(self.frame(number, times(value, number + 1), weight, shared=shared))
        done = self.gathered_by()
        self.wave += 1
        return done

    def gathered_by(self) -> Gathered | None:
        """Gather the answers."""
        return gather(self.library, self.spec, self.answers, self.first, OWNER, None)

    def frame(self, number: int, value: Any, weight: float, *, shared: bool) -> bytes:
        encoded, payload = values.encode(value), None
        if encoded.nbytes and shared:
            block = self.blocks[(self.wave + number) % len(self.blocks)]
            encoded.write_into(block.view[64 * number :])
            payload = Payload(block.view, block.ref(64 * number, encoded.nbytes))
        elif encoded.nbytes:
            payload = Payload(encoded.payload())
        message = msg.Up(STREAM, self.wave, 0, RANGES[number], weight, encoded.body)
        return b"".join(frames.encode(message, payload, share=shared))

    def check(self, value: Any, *, shared: bool = False) -> Any:
        """Have a value answered; the result must be that of the reductions."""
        expected = Accumulator(self.spec.reduce)
        for rank in range(1, self.children + 1):
            expected.add(times(value, rank), rank, 2.0)
        done = self.gathered(value, shared=shared)
        assert done is not None
        result, _ = done
        assert exact(result.total) == exact(expected.total())
        assert (result.wave, result.ranks) == (self.wave - 1, self.spec.members)
        assert result.weight == 2.0 * self.children
        return result.total

    def close(self) -> None:
        self.mapped.forget()
        for block in self.blocks:
            block.close()


def times(value: Any, factor: int) -> Any:
    """Return a value with its numbers multiplied."""
    if isinstance(value, dict):
        return {key: times(item, factor) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind not in "bSUV":
        return (value * value.dtype.type(factor)).astype(value.dtype)
    return value


def exact(value: Any) -> Any:
    """Return a value as it is compared bit by bit, with types, shapes and the order of keys."""
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.dtype.str, value.shape, value.tobytes()
    return type(value), repr(value)


@pytest.fixture(name="make_waves")
def make_waves_fixture(front: Front) -> Iterator[Callable[..., Waves]]:
    made: list[Waves] = []

    def make(reduce: dict[str, str], first: int = 1, children: int = 3) -> Waves:
        made.append(Waves(front, reduce, first, children))
        return made[-1]

    yield make
    while made:
        made.pop().close()


MakeWaves = Callable[..., Waves]

KINDS = [*REDUCTIONS.keys() - {"histogram", "top", "quantiles", "distinct"}]
KINDS = [*sorted(KINDS), "histogram:0:9:3", "top:2"]

ITEMS: list[Any] = [
    ARRAY,
    -0.0 * ARRAY,
    ARRAY * np.nan,
    ARRAY.astype(np.float32),
    ARRAY.astype(np.int64),
    ARRAY.astype(np.uint64),
    ARRAY.astype(np.int8),
    ARRAY.astype(complex),
    ARRAY.astype(bool),
    ARRAY.astype(">f8"),
    ARRAY.T,
    ARRAY.reshape(6),
    ARRAY[:, ::2],
    ARRAY[:0],
    np.array(2.5),
    np.float64(2.5),
    2.5,
    3,
    True,
]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("before", range(len(ITEMS)))
def test_what_looks_alike_is_told_apart(
    make_waves: MakeWaves, before: int, *, shared: bool
) -> None:
    waves = make_waves({"x": "sum", "y": "sum"})
    for after in ITEMS:
        for item in (*[ITEMS[before]] * 4, after, after, ITEMS[before]):
            waves.check({"x": item, "y": ARRAY + 1}, shared=shared)


@pytest.mark.parametrize(
    "kinds", [("sum", "max"), ("concat", "gather"), ("mean", "sum:reproducible"), ("sum", "count")]
)
def test_other_reductions_get_what_they_always_get(
    make_waves: MakeWaves, kinds: Sequence[str]
) -> None:
    waves = make_waves(dict(zip("xy", kinds, strict=True)))
    for number in range(12):
        waves.check({"x": ARRAY + number, "y": np.arange(4) - number}, shared=number % 5 == 4)


def test_fields_may_come_in_any_order(make_waves: MakeWaves) -> None:
    waves = make_waves({"x": "sum", "y": "sum"})
    for number in range(6):
        waves.check({"y": ARRAY + number, "x": ARRAY * number})


def test_a_value_that_is_no_dictionary(make_waves: MakeWaves) -> None:
    waves = make_waves({"": "sum"})
    for number in range(6):
        waves.check(ARRAY + number)


@pytest.mark.parametrize("first", [125, 253, 65_533, 2**32 - 2])
def test_waves_whose_numbers_get_longer(make_waves: MakeWaves, first: int) -> None:
    waves = make_waves({"x": "sum"}, first)
    for number in range(8):
        waves.check({"x": ARRAY + number})


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_results_stay_as_they_are(
    make_waves: MakeWaves, kind: str, children: int, *, shared: bool
) -> None:
    waves = make_waves({"x": kind}, 1, children)
    results = [waves.check({"x": np.arange(5.0) + n}, shared=shared) for n in range(8)]
    before = [exact(result) for result in results]
    for number in range(8):
        waves.check({"x": np.arange(5.0) * number}, shared=shared)
    assert [exact(result) for result in results] == before


def test_another_weight_is_seen(make_waves: MakeWaves) -> None:
    waves = make_waves({"x": "mean"})
    for weight in (2.0, 2.0, 2.0, 5.0, 2.0):
        done = waves.gathered({"x": ARRAY}, weight=weight)
        assert done is not None
        assert done[0].weight == 3 * weight
        assert np.array_equal(done[0].total["x"], 2 * ARRAY)


def test_what_does_not_fit_is_an_error_as_always(front: Front, make_waves: MakeWaves) -> None:
    waves = make_waves({"x": "sum"})
    for _ in range(4):
        waves.check({"x": ARRAY})
    waves.begin()
    for number, value in enumerate([ARRAY, ARRAY, ARRAY.T]):
        front.children[number].sendall(waves.frame(number, {"x": value}, 2.0, shared=False))
    with pytest.raises(ExecutionError, match=r"cannot reduce field 'x'.*\(2, 3\).*\(3, 2\)"):
        waves.gathered_by()


def test_answers_with_nothing_to_reduce(make_waves: MakeWaves) -> None:
    for kind, counted in itertools.product(("sum", "gather"), (False, True)):
        waves = make_waves({"x": kind})
        waves.spec = msg.StreamSpec(STREAM, "echo", ((1, 4),), {"x": kind}, counted=counted)
        waves.begin()
        for number, child in enumerate(waves.front.children):
            message = msg.Up(STREAM, 1, 0, RANGES[number], 1.0, b"")
            child.sendall(b"".join(frames.encode(message, None, share=False)))
        done = waves.gathered_by()
        if kind == "sum" or counted:
            total = None if counted else {"x": None}
            assert done == (WaveResult(total, waves.spec.members, 3.0, 1), 0)


def test_a_dictionary_where_a_number_belongs_is_an_error_every_time(
    front: Front, make_waves: MakeWaves
) -> None:
    waves = make_waves({"": "sum"})
    for _ in range(9):
        waves.begin()
        for number, child in enumerate(front.children):
            child.sendall(waves.frame(number, {"": ARRAY}, 2.0, shared=False))
        with pytest.raises(ExecutionError, match="cannot reduce what the agents contributed"):
            waves.gathered_by()
        while waves.library.memory.left:
            waves.library.wait(OWNER, -1)
        waves.library.commit(OWNER)
        waves.wave += 1
