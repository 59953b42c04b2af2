"""What a client offers by hash: counted, held open, sent in chunks."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock
from sapwood.content import offers, serving
from sapwood.content.messages import GET, NAME
from sapwood.content.offers import ContentOffers
from sapwood.content.refs import CHUNK, ContentChunk, ContentRef, FileStamp
from sapwood.core.errors import ClosedError, DataMissingError, ProtocolError, SapwoodError
from sapwood.session.requests import ServedRequest

PATIENCE = 30.0


@pytest.fixture
def store() -> Any:
    made = ContentOffers()
    yield made
    made.close()


class Asking:
    """Asks a store as agents do."""

    def __init__(self, store: ContentOffers, rank: int = 1) -> None:
        self.store = store
        self.rank = rank
        self.taking = True

    def ask(self, handler: str, *argument: Any) -> ev.Answer:
        """Return the answer to a request."""
        answered = threading.Event()
        answers = self.begin(handler, *argument, on_answer=answered.set)
        assert answered.wait(PATIENCE)
        (answer,) = answers
        return answer

    def begin(self, handler: str, *argument: Any, on_answer: Any = lambda: None) -> list[ev.Answer]:
        answers: list[ev.Answer] = []

        def post(_post: Any, event: ev.Answer) -> None:
            answers.append(event)
            if self.taking and event.payload is not None:
                take(event.payload)
            on_answer()

        thread: Any = SimpleNamespace(post=post)
        asked = ev.Asked(self.rank, handler, 7, plain.encode(argument), None)
        request = ServedRequest(thread, lambda _event: None, asked)
        serve = {GET: self.store.asked_for_chunk, NAME: self.store.asked_for_name}[handler]
        serve(request)
        return answers

    def whole(self, ref: ContentRef) -> bytes:
        """Return all of some content."""
        parts = []
        for offset in range(0, ref.nbytes, CHUNK):
            answer = self.ask(GET, ref.sha256, ref.nbytes, offset, min(CHUNK, ref.nbytes - offset))
            assert answer.error is None
            assert answer.payload is not None
            parts.append(bytes(answer.payload.view))
        return b"".join(parts)


def take(payload: Payload) -> None:
    assert isinstance(payload.owner, ContentChunk)
    payload.owner.taken()


def raised_by(answer: ev.Answer) -> SapwoodError:
    assert answer.error is not None
    return SapwoodError.from_record(answer.error)


def test_bytes_are_named_by_their_hash_and_come_in_chunks(store: ContentOffers) -> None:
    data = os.urandom(2 * CHUNK + 5)
    ref = store.offer(data)
    assert ref == ContentRef(hashlib.sha256(data).hexdigest(), len(data))
    assert Asking(store).whole(ref) == data
    assert store.sent[ref.sha256] == len(data)


def test_shared_memory_is_offered_in_place(store: ContentOffers) -> None:
    with SharedBlock(8192) as block:
        block.view[100:104] = b"abcd"
        ref = store.offer_memory(block.ref(100, 4))
        gone = block.ref(0, 4)
    assert Asking(store).whole(ref) == b"abcd"  # it is held beyond the block
    with pytest.raises(ProtocolError, match="not this process's"):
        store.offer_memory(gone)


def test_offers_are_counted(store: ContentOffers) -> None:
    first, second = store.offer(b"abc"), store.offer(b"abc")
    assert first == second
    store.withdraw(first)
    assert Asking(store).whole(second) == b"abc"
    store.withdraw(second)
    assert len(store) == 0
    answer = Asking(store).ask(GET, first.sha256, 3, 0, 3)
    assert isinstance(raised_by(answer), ClosedError)
    store.withdraw(second)  # a second withdrawal is harmless


def test_a_file_is_sent_though_it_was_removed(store: ContentOffers, tmp_path: Path) -> None:
    path = tmp_path / "library"
    path.write_bytes(b"0123456789")
    stamp = FileStamp.of(os.fsencode(path))
    ref = store.offer_file(stamp, sha256=hashlib.sha256(b"0123456789").hexdigest())
    path.unlink()
    assert Asking(store).whole(ref) == b"0123456789"
    assert not stamp.is_here()


def test_a_part_of_a_file_is_named_when_somebody_asks(
    store: ContentOffers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    stamp = FileStamp.of(os.fsencode(path))
    hashed = Mock(side_effect=offers._hash_of)
    monkeypatch.setattr(offers, "_hash_of", hashed)
    ref = store.offer_file(stamp, 2, 5)
    assert ref.sha256 == ""
    assert not hashed.called
    asking = Asking(store)
    argument = [[stamp.path, stamp.size, stamp.mtime_ns], 2, 5]
    names = [plain.decode(asking.ask(NAME, *argument).body) for _ in range(2)]
    assert names == [hashlib.sha256(b"23456").hexdigest()] * 2
    assert hashed.call_count == 1
    assert asking.whole(ContentRef(names[0], 5)) == b"23456"
    store.withdraw(ref)
    assert len(store) == 0


def test_a_name_outlives_the_same_bytes_from_elsewhere(
    store: ContentOffers, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abc")
    stamp = FileStamp.of(os.fsencode(path))
    other = store.offer(b"abc")
    store.offer_file(stamp)
    asking = Asking(store)
    asking.ask(NAME, [stamp.path, stamp.size, stamp.mtime_ns], 0, 3)
    store.withdraw(other)
    assert asking.whole(other) == b"abc"


def test_a_file_that_has_changed_is_not_sent(store: ContentOffers, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abc")
    stamp = FileStamp.of(os.fsencode(path))
    store.offer_file(stamp)
    path.write_bytes(b"abcd")
    answer = Asking(store).ask(NAME, [stamp.path, stamp.size, stamp.mtime_ns], 0, 3)
    assert isinstance(raised_by(answer), DataMissingError)
    assert str(path) in raised_by(answer).where
    with pytest.raises(DataMissingError, match="has changed"):
        store.offer_file(stamp)
    path.unlink()
    with pytest.raises(DataMissingError, match="cannot be opened"):
        store.offer_file(stamp)


@pytest.mark.parametrize("wrong", [(-1, 1), (0, -1), (0, 4), (3, 1), (0, CHUNK + 1)])
def test_what_is_not_there_cannot_be_asked_for(
    store: ContentOffers, wrong: tuple[int, int]
) -> None:
    ref = store.offer(b"abc")
    answer = Asking(store).ask(GET, ref.sha256, 3, *wrong)
    assert isinstance(raised_by(answer), ProtocolError)


@pytest.mark.parametrize("argument", [["../../etc/passwd", 3, 0, 1], ["x"], [1, 2, 3, 4]])
def test_nonsense_is_answered_with_an_error(store: ContentOffers, argument: list[Any]) -> None:
    ref = store.offer(b"abc")
    asking = Asking(store)
    raised_by(asking.ask(GET, *argument))
    assert asking.whole(ref) == b"abc"


@pytest.mark.parametrize("size", [2, 4])
def test_content_of_another_size_is_refused(store: ContentOffers, size: int) -> None:
    ref = store.offer(b"abc")
    answer = Asking(store).ask(GET, ref.sha256, size, 0, 1)
    assert isinstance(raised_by(answer), ProtocolError)


def test_a_chunk_of_no_bytes_says_whether_content_is_offered(store: ContentOffers) -> None:
    ref = store.offer(b"abc")
    answer = Asking(store).ask(GET, ref.sha256, 3, 0, 0)
    assert (answer.payload, answer.error) == (None, None)
    store.withdraw(ref)
    assert isinstance(raised_by(Asking(store).ask(GET, ref.sha256, 3, 0, 0)), ClosedError)


def test_places_that_take_nothing_delay_no_other_place(store: ContentOffers) -> None:
    """However many there are; what they have not taken is bounded."""
    ref = store.offer(bytes(CHUNK))
    for rank in range(1, 41):
        asking = Asking(store, rank)
        asking.taking = False
        for _ in range(5):
            asking.begin(GET, ref.sha256, CHUNK, 0, CHUNK)
    for rank in range(41, 46):
        assert len(Asking(store, rank).whole(ref)) == CHUNK
    queue = store._queue
    assert queue.in_flight >= serving.MAX_IN_FLIGHT
    assert queue.in_flight <= serving.MAX_IN_FLIGHT + len(queue) * CHUNK


def test_what_one_place_has_not_taken_is_bounded(store: ContentOffers) -> None:
    ref = store.offer(bytes(CHUNK))
    asking = Asking(store)
    asking.taking = False
    most = serving.MAX_OF_ONE // CHUNK
    first = [asking.ask(GET, ref.sha256, CHUNK, 0, CHUNK) for _ in range(most)]
    answered = threading.Event()
    later = asking.begin(GET, ref.sha256, CHUNK, 0, CHUNK, on_answer=answered.set)
    assert len(Asking(store, 2).whole(ref)) == CHUNK  # the reader is past it
    assert not later
    assert first[0].payload is not None
    take(first[0].payload)
    assert answered.wait(PATIENCE)
    assert later[0].payload is not None


def test_closing_ends_what_waits() -> None:
    store = ContentOffers()
    ref = store.offer(bytes(CHUNK))
    asking = Asking(store)
    asking.taking = False
    for _ in range(serving.MAX_OF_ONE // CHUNK):
        asking.ask(GET, ref.sha256, CHUNK, 0, CHUNK)
    answered = threading.Event()
    answers = asking.begin(GET, ref.sha256, CHUNK, 0, CHUNK, on_answer=answered.set)
    store.close()
    assert answered.wait(PATIENCE)
    assert isinstance(raised_by(answers[0]), ClosedError)
    with pytest.raises(ClosedError):
        store.offer(b"abc")
    store.withdraw(ref)
