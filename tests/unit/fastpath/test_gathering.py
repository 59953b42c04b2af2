"""What the answers to waves come to: the same as by the reductions, whatever came before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from sapwood.comm import frames, messages, values
from sapwood.comm import messages as msg
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import Accumulator
from sapwood.comm.reductions import REDUCTIONS
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import ExecutionError, ProtocolError
from sapwood.fastpath.gathering import AnswerReader, Answers, ChildAnswer, Gathered, gather
from sapwood.session.wave_result import WaveResult

from .conftest import OWNER, Front

STREAM = 3
RANGES = (((1, 2),), ((2, 3),), ((3, 4),))
ARRAY = np.arange(6.0).reshape(2, 3)
BLOCKS = 6


class Waves:
    """Waves one after the other, with three children or one, which give prescribed answers."""

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
        """Answer a value; the result must equal the result of the reductions."""
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

KINDS = [*REDUCTIONS.keys() - {"histogram", "top", "quantiles", "distinct", "tally"}]
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
@pytest.mark.slow
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
@pytest.mark.slow
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


RANKS = ((4, 6),)
ROW = np.arange(5.0)


class Child:
    """Makes the frames of a child's answers."""

    def __init__(self) -> None:
        self.blocks = [SharedBlock(4096) for _ in range(2)]

    def answer(self, wave: int, value: Any, weight: float = 2.0) -> tuple[bytes, int]:
        """Return an answer with its arrays in it, and how much of it says which wave it is of."""
        encoded = values.encode(value)
        return self._frame(wave, encoded.body, weight, Payload(encoded.payload()), share=False)

    def shared(self, wave: int, value: Any, block: int, at: int = 0) -> tuple[bytes, int]:
        """Return an answer with its arrays in shared memory."""
        encoded, here = values.encode(value), self.blocks[block]
        encoded.write_into(here.view[at:])
        payload = Payload(here.view, here.ref(at, encoded.nbytes))
        return self._frame(wave, encoded.body, 2.0, payload, share=True)

    def _frame(
        self, wave: int, body: bytes, weight: float, payload: Payload, *, share: bool
    ) -> tuple[bytes, int]:
        message = msg.Up(3, wave, 0, RANKS, weight, body)
        nothing = messages.encode(msg.Up(3, wave, 0, (), 0.0, b""))
        head = len(nothing) - len(b"\x90" + b"\xcb" + bytes(8) + b"\xc4\x00")
        return b"".join(frames.encode(message, payload, share=share)), head


@pytest.fixture(name="child")
def child_fixture() -> Iterator[Child]:
    child = Child()
    yield child
    for block in child.blocks:
        block.close()


def new_reader() -> AnswerReader:
    return AnswerReader(RANKS, CachedDecoder(), MappedBlocks())


def is_same(answer: Any, expected: dict[str, Any], weight: float = 2.0) -> bool:
    there, value, its_weight, nbytes, rank, *_ = answer
    encoded = values.encode(expected)
    sizes = len(encoded.payload()), encoded.nbytes  # in the message, in shared memory
    return bool(
        there
        and rank == 4
        and nbytes - len(encoded.body) in sizes
        and its_weight == weight
        and value.keys() == expected.keys()
        and all(np.array_equal(value[name], array) for name, array in expected.items())
        and all(value[name].dtype == np.asarray(array).dtype for name, array in expected.items())
    )


@pytest.mark.parametrize("first", [1, 126, 254, 65_533])
def test_waves_one_after_the_other(child: Child, first: int) -> None:
    reader = new_reader()
    for wave in range(first, first + 5):
        value = {"x": ROW + wave, "n": np.full((2, 3), wave)}
        assert is_same(reader.read(*child.answer(wave, value)), value)


def test_arrays_in_shared_memory_are_what_is_there_now(child: Child) -> None:
    reader = new_reader()
    for wave in range(1, 9):
        value = {"x": ROW * wave}
        assert is_same(reader.read(*child.shared(wave, value, wave % 2)), value)


@pytest.mark.parametrize(
    "other",
    [
        {"y": ROW},
        {"x": ROW[:3]},
        {"x": ROW.astype(np.float32)},
        {"x": np.arange(5)},
        {"x": ROW, "y": ROW},
    ],
)
def test_another_value_is_decoded(child: Child, other: Any) -> None:
    reader = new_reader()
    for wave in range(1, 12, 4):
        assert is_same(reader.read(*child.answer(wave, {"x": ROW})), {"x": ROW})
        assert is_same(reader.read(*child.answer(wave + 1, other)), other)
        assert is_same(reader.read(*child.shared(wave + 2, {"x": ROW}, 0)), {"x": ROW})
        assert is_same(reader.read(*child.shared(wave + 3, other, 0)), other)


def test_another_weight_of_a_child_is_seen(child: Child) -> None:
    reader = new_reader()
    for wave, weight in enumerate([2.0, 2.0, 3.0, 2.0]):
        found = reader.read(*child.answer(wave, {"x": ROW}, weight))
        assert is_same(found, {"x": ROW}, weight)


@pytest.mark.parametrize("value", [7, None, "text", [1, {"deep": [2]}], {"n": 1, "x": ROW}])
def test_values_that_are_not_arrays(child: Child, value: Any) -> None:
    reader = new_reader()
    for wave in range(1, 5):
        found = reader.read(*child.answer(wave, value))
        assert found is not None
        encoded = values.encode(value)
        nbytes = len(encoded.body) + len(encoded.payload())
        assert str(found) == str(ChildAnswer(True, value, 2.0, nbytes, 4))


def test_what_is_given_away_is_not_given_again(child: Child) -> None:
    reader = new_reader()
    for wave in range(1, 5):
        found = reader.read(*child.shared(wave, {"x": ROW, "list": [1]}, 0))
        assert found is not None
        assert found[1]["list"] == [1]
        found[1]["list"].append(2)


def test_nothing_to_reduce() -> None:
    reader = new_reader()
    message = msg.Up(3, 9, 0, RANKS, 2.0, b"")
    frame = b"".join(frames.encode(message, None, share=False))
    assert [reader.read(frame, 5) for _ in range(3)] == [ChildAnswer(False, None, 2.0, 0, 4)] * 3


def test_other_ranks_are_not_taken() -> None:
    reader = new_reader()
    message = msg.Up(3, 9, 0, ((4, 7),), 2.0, b"")
    frame = b"".join(frames.encode(message, None, share=False))
    assert [reader.read(frame, 5) for _ in range(2)] == [None, None]


@pytest.mark.parametrize("at", range(3, 60, 3))
def test_a_malformed_answer_is_an_error_or_another_value(child: Child, at: int) -> None:
    reader = new_reader()
    frame, head = child.answer(9, {"x": ROW})
    for _ in range(3):
        assert is_same(reader.read(frame, head), {"x": ROW})
    start = 16 + head
    torn = frame[: start + at] + bytes([frame[start + at] ^ 0xFF]) + frame[start + at + 1 :]
    fresh = new_reader()
    assert outcome(reader, torn, head) == outcome(fresh, torn, head)
    assert is_same(reader.read(frame, head), {"x": ROW})


def test_memory_that_is_gone_is_an_error(child: Child) -> None:
    reader = new_reader()
    frame, head = child.shared(1, {"x": ROW}, 0)
    child.blocks[0].close()
    with pytest.raises(ProtocolError, match="shared memory"):
        reader.read(frame, head)


def outcome(reader: AnswerReader, frame: bytes, head: int) -> str:
    try:
        return str(reader.read(frame, head))
    except (ProtocolError, ValueError) as error:
        return type(error).__name__
