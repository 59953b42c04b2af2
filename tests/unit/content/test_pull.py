"""Which chunks are requested next, and from which source."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.content.pull import WINDOW, ChunkRequest, Pull
from sapwood.content.refs import CHUNK
from sapwood.core.errors import InternalError

SIZES = st.one_of(
    st.integers(0, 3), st.integers(0, 12 * CHUNK), st.sampled_from([CHUNK, 4 * CHUNK, 5 * CHUNK])
)


@given(SIZES, st.floats(0.0, 1.0), st.integers(1, 4), st.integers(0, 2**32), st.floats(0.0, 0.5))
@pytest.mark.slow
def test_each_byte_is_handed_out_once_in_order_or_no_source_is_left(
    nbytes: int, here: float, sources: int, seed: int, failing: float
) -> None:
    """Answers come in any order, sources fail at any time, and some answers come twice."""
    events = random.Random(seed)  # noqa: S311 - of a simulation
    offset = int(nbytes * here)
    pull: Pull[int] = Pull(nbytes, offset, range(sources))
    open_requests: list[ChunkRequest[int]] = []
    answered: list[ChunkRequest[int]] = []
    failed: set[int] = set()
    while True:
        sent = pull.requests()
        assert all(one.source not in failed for one in sent)
        open_requests += sent
        if pull.done:
            break
        assert open_requests, "it waits for an answer"
        if answered and events.random() < 0.1:
            late = events.choice(answered)
            assert pull.received(late, bytes(late.nbytes)) == []
            continue
        request = open_requests.pop(events.randrange(len(open_requests)))
        if request.source in failed or events.random() < failing:
            failed.add(request.source)
            if not pull.failed(request):
                assert failed == set(range(sources))
                return
            continue
        answered.append(request)
        for chunk in pull.received(request, bytes(request.nbytes)):
            offset += len(chunk)
        assert pull.offset == offset
    assert offset == nbytes


def test_a_lost_chunk_holds_the_others_to_the_window() -> None:
    """Early chunks are held in memory: they must not be the rest of the content."""
    pull: Pull[str] = Pull(100 * CHUNK, 0, ["a"])
    first, *others = pull.requests()
    assert len(others) == WINDOW - 1
    for request in others:
        assert pull.received(request, bytes(CHUNK)) == []
        assert pull.requests() == []
    assert len(pull.received(first, bytes(CHUNK))) == WINDOW
    assert len(pull.requests()) == WINDOW


def test_only_open_requests_go_to_the_next_source() -> None:
    pull: Pull[str] = Pull(4 * CHUNK, 0, ["near", "root"])
    first, second, *_ = pull.requests()
    pull.received(first, bytes(CHUNK))
    assert pull.failed(second)
    (again,) = pull.requests()
    assert (again.source, again.offset, again.nbytes) == ("root", CHUNK, CHUNK)
    assert pull.received(second, bytes(CHUNK)) == []  # its answer comes after all
    assert pull.failed(second)  # and is not counted against the root
    assert pull.sources == ["root"]


def test_a_chunk_of_another_size_is_a_mistake_of_the_caller() -> None:
    pull: Pull[str] = Pull(10, 0, ["root"])
    (request,) = pull.requests()
    with pytest.raises(InternalError, match="requested size"):
        pull.received(request, b"short")
