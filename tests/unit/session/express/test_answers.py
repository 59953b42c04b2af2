"""Answers that are like the last one of the same child, and those that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sapwood.comm import frames, messages, values
from sapwood.comm import messages as msg
from sapwood.comm.alike import Alike
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import ProtocolError
from sapwood.session.express.answers import Answer, AnswerReader

from .conftest import OWNER, Front, gather, up

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
    return AnswerReader(RANKS, Alike(), MappedBlocks())


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


def arrived(front: Front, child: Child, wave: int, value: Any) -> int:
    """Have the first child answer a wave of all; return what its answer arrives with."""
    library = front.library
    assert library.begin_wave(OWNER, library.memory.ticket, b"", 0, b"", 0) == 1
    frame, _ = child.answer(wave, value)
    front.children[0].sendall(frame)
    assert library.wait(OWNER, -1) == 1
    assert library.answer(0) == frame
    return library.arrived[0]


def commit(front: Front, wave: int) -> None:
    front.answer(b"", up(2, wave=wave), up(3, wave=wave))
    assert gather(front.library) == 2
    assert front.library.commit(OWNER)


@pytest.fixture(name="flowing")
def flowing_fixture(front: Front) -> Front:
    front.library.take_back()
    front.library.arm([own.fileno() for own in front.own], 2**20, 2**20, 3, 1)
    return front


def test_answers_like_one_that_is_remembered_arrive_with_its_serial(
    flowing: Front, child: Child
) -> None:
    library = flowing.library
    others = [{"x": ARRAY.astype(np.int64)}, {"y": ARRAY}, {"x": ARRAY[1:]}, {"x": [1.0]}]
    assert arrived(flowing, child, 1, {"x": ARRAY}) == 0
    assert library.remember(OWNER, 0, 77) == 0
    commit(flowing, 1)
    for wave, other in enumerate(others, start=1):
        assert arrived(flowing, child, 2 * wave, {"x": ARRAY * wave}) == 77 << 8
        commit(flowing, 2 * wave)
        assert arrived(flowing, child, 2 * wave + 1, other) == 0
        commit(flowing, 2 * wave + 1)


def test_payloads_like_one_that_is_remembered_are_aligned(flowing: Front, child: Child) -> None:
    library, value = flowing.library, {"x": ARRAY}
    for wave in range(1, 4):
        arrived(flowing, child, wave, value)
        assert library.remember(OWNER, 0, wave) == 0
        commit(flowing, wave)
    arrived(flowing, child, 4, {"x": ARRAY * 5})
    end = len(library.answer(0)) - ARRAY.nbytes
    assert np.array_equal(np.frombuffer(library.payload(0, end, ARRAY.nbytes)), ARRAY * 5)


def test_the_oldest_ones_are_forgotten(flowing: Front, child: Child) -> None:
    forgotten = []
    for wave in range(1, 8):
        assert arrived(flowing, child, wave, {"x": np.arange(wave)}) == 0
        forgotten.append(flowing.library.remember(OWNER, 0, wave))
        commit(flowing, wave)
    assert forgotten == [0, 0, 0, 0, 1, 2, 3]
    assert arrived(flowing, child, 8, {"x": np.arange(3)}) == 0
    commit(flowing, 8)
    assert arrived(flowing, child, 9, {"x": np.arange(7)}) == 7 << 8
    commit(flowing, 9)
    flowing.library.take_back()
    flowing.library.forget()
    flowing.library.arm([own.fileno() for own in flowing.own], 2**20, 2**20, 3, 10)
    assert arrived(flowing, child, 10, {"x": np.arange(7)}) == 0


def test_all_that_is_remembered_can_be_forgotten(flowing: Front, child: Child) -> None:
    library = flowing.library
    for times in range(1, 6):
        for wave in range(1, times + 1):
            assert arrived(flowing, child, wave, {"x": np.arange(wave)}) == 0
            assert library.remember(OWNER, 0, wave) == max(0, wave - 4)
            commit(flowing, wave)
        library.take_back()
        library.forget()
        library.arm([own.fileno() for own in flowing.own], 2**20, 2**20, 3, 1)


def test_only_who_has_the_wave_remembers_its_answers(flowing: Front, child: Child) -> None:
    library = flowing.library
    arrived(flowing, child, 1, {"x": ARRAY})
    assert library.remember(OWNER + 1, 0, 5) == -1
    assert library.remember(OWNER, 1, 5) == -1  # it has not answered
    assert library.remember(OWNER, 3, 5) == -1  # there is no such child
    commit(flowing, 1)
    assert library.remember(OWNER, 0, 5) == -1
    assert arrived(flowing, child, 2, {"x": ARRAY}) == 0


def test_long_messages_are_not_remembered(flowing: Front, child: Child) -> None:
    assert arrived(flowing, child, 1, {"x" * 600: ARRAY}) == 0
    assert flowing.library.remember(OWNER, 0, 5) == -1
    commit(flowing, 1)
    assert arrived(flowing, child, 2, {"x" * 600: ARRAY}) == 0


def outcome(reader: AnswerReader, frame: bytes, head: int) -> str:
    try:
        return str(reader.read(frame, head))
    except (ProtocolError, ValueError) as error:
        return type(error).__name__
