"""Answers that are like the last one of the same child, and those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sapwood.comm import frames, messages, values
from sapwood.comm import messages as msg
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import ProtocolError
from sapwood.fastpath.answers import Answer, AnswerReader

RANKS = ((4, 6),)
ARRAY = np.arange(5.0)


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
        value = {"x": ARRAY + wave, "n": np.full((2, 3), wave)}
        assert is_same(reader.read(*child.answer(wave, value)), value)


def test_arrays_in_shared_memory_are_what_is_there_now(child: Child) -> None:
    reader = new_reader()
    for wave in range(1, 9):
        value = {"x": ARRAY * wave}
        assert is_same(reader.read(*child.shared(wave, value, wave % 2)), value)


@pytest.mark.parametrize(
    "other",
    [
        {"y": ARRAY},
        {"x": ARRAY[:3]},
        {"x": ARRAY.astype(np.float32)},
        {"x": np.arange(5)},
        {"x": ARRAY, "y": ARRAY},
    ],
)
def test_another_value_is_decoded(child: Child, other: Any) -> None:
    reader = new_reader()
    for wave in range(1, 12, 4):
        assert is_same(reader.read(*child.answer(wave, {"x": ARRAY})), {"x": ARRAY})
        assert is_same(reader.read(*child.answer(wave + 1, other)), other)
        assert is_same(reader.read(*child.shared(wave + 2, {"x": ARRAY}, 0)), {"x": ARRAY})
        assert is_same(reader.read(*child.shared(wave + 3, other, 0)), other)


def test_another_weight_is_seen(child: Child) -> None:
    reader = new_reader()
    for wave, weight in enumerate([2.0, 2.0, 3.0, 2.0]):
        found = reader.read(*child.answer(wave, {"x": ARRAY}, weight))
        assert is_same(found, {"x": ARRAY}, weight)


@pytest.mark.parametrize("value", [7, None, "text", [1, {"deep": [2]}], {"n": 1, "x": ARRAY}])
def test_values_that_are_not_arrays(child: Child, value: Any) -> None:
    reader = new_reader()
    for wave in range(1, 5):
        found = reader.read(*child.answer(wave, value))
        assert found is not None
        encoded = values.encode(value)
        nbytes = len(encoded.body) + len(encoded.payload())
        assert str(found) == str(Answer(True, value, 2.0, nbytes, 4))


def test_what_is_given_away_is_not_given_again(child: Child) -> None:
    reader = new_reader()
    for wave in range(1, 5):
        found = reader.read(*child.shared(wave, {"x": ARRAY, "list": [1]}, 0))
        assert found is not None
        assert found[1]["list"] == [1]
        found[1]["list"].append(2)


def test_nothing_to_reduce() -> None:
    reader = new_reader()
    message = msg.Up(3, 9, 0, RANKS, 2.0, b"")
    frame = b"".join(frames.encode(message, None, share=False))
    assert [reader.read(frame, 5) for _ in range(3)] == [Answer(False, None, 2.0, 0, 4)] * 3


def test_other_ranks_are_not_taken() -> None:
    reader = new_reader()
    message = msg.Up(3, 9, 0, ((4, 7),), 2.0, b"")
    frame = b"".join(frames.encode(message, None, share=False))
    assert [reader.read(frame, 5) for _ in range(2)] == [None, None]


@pytest.mark.parametrize("at", range(3, 60, 3))
def test_a_malformed_answer_is_an_error_or_another_value(child: Child, at: int) -> None:
    reader = new_reader()
    frame, head = child.answer(9, {"x": ARRAY})
    for _ in range(3):
        assert is_same(reader.read(frame, head), {"x": ARRAY})
    start = 16 + head
    torn = frame[: start + at] + bytes([frame[start + at] ^ 0xFF]) + frame[start + at + 1 :]
    fresh = new_reader()
    assert outcome(reader, torn, head) == outcome(fresh, torn, head)
    assert is_same(reader.read(frame, head), {"x": ARRAY})


def test_memory_that_is_gone_is_an_error(child: Child) -> None:
    reader = new_reader()
    frame, head = child.shared(1, {"x": ARRAY}, 0)
    child.blocks[0].close()
    with pytest.raises(ProtocolError, match="shared memory"):
        reader.read(frame, head)


def outcome(reader: AnswerReader, frame: bytes, head: int) -> str:
    try:
        return str(reader.read(frame, head))
    except (ProtocolError, ValueError) as error:
        return type(error).__name__
