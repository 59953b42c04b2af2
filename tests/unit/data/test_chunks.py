import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import InputError
from sapwood.data.chunks import split_range

starts = st.integers(-(10**6), 10**6)
lengths = st.integers(0, 10**6)
parts_counts = st.integers(1, 200)
chunk_sizes = st.none() | st.integers(1, 5000)


@given(starts, lengths, parts_counts, chunk_sizes)
@pytest.mark.slow
def test_the_parts_are_exactly_the_items_in_order(
    start: int, length: int, parts: int, chunk: int | None
) -> None:
    pieces = split_range(range(start, start + length), parts, chunk)
    assert len(pieces) == parts
    edges = [start]
    for piece in pieces:
        assert piece.start == edges[-1]
        assert piece.stop >= piece.start
        edges.append(piece.stop)
    assert edges[-1] == start + length


@given(lengths, parts_counts, chunk_sizes)
def test_the_parts_are_balanced_to_one_chunk(length: int, parts: int, chunk: int | None) -> None:
    size = chunk or 1
    counts = [-(-len(piece) // size) for piece in split_range(range(length), parts, chunk)]
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


@given(lengths, parts_counts, st.integers(1, 5000))
def test_only_the_last_item_may_end_a_part_inside_a_chunk(
    length: int, parts: int, chunk: int
) -> None:
    for piece in split_range(range(length), parts, chunk):
        assert piece.start % chunk == 0 or piece.start == length
        assert piece.stop % chunk == 0 or piece.stop == length


@given(st.integers(1, 100), st.integers(1, 100))
def test_without_a_chunk_size_sizes_differ_by_at_most_one(length: int, parts: int) -> None:
    sizes = [len(piece) for piece in split_range(range(length), parts)]
    assert max(sizes) - min(sizes) <= 1


def test_fewer_chunks_than_parts_leaves_empty_parts_at_the_end() -> None:
    assert split_range(range(5), 4, chunk=3) == [
        range(3),
        range(3, 5),
        range(5, 5),
        range(5, 5),
    ]


@pytest.mark.parametrize(("parts", "chunk"), [(0, None), (-1, None), (2, 0), (2, -3)])
def test_impossible_counts_are_errors(parts: int, chunk: int | None) -> None:
    with pytest.raises(InputError, match="at least"):
        split_range(range(10), parts, chunk)
