import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import pool as pool_module
from sapwood.comm import values
from sapwood.comm.pool import BlockPool, size_class
from sapwood.comm.shared_memory import MappedBlocks


@given(st.integers(0, 2**34))
def test_a_size_class_is_large_enough_and_not_much_larger(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size >= nbytes
    assert size <= max(4096, 2 * nbytes)
    assert size % 4096 == 0
    assert size_class(size) == size
    if nbytes > 2**24:
        assert size < nbytes + 2**24


def test_a_block_is_used_again_by_the_next_of_its_class() -> None:
    pool = BlockPool(0)
    first = pool.take(5000)
    pool.give_back(first)
    assert pool.take(8192) is first
    other = pool.take(5000)
    assert other is not first
    for block in (first, other):
        pool.give_back(block)
    pool.close()


def test_a_larger_block_does_not_serve_a_smaller_class() -> None:
    pool = BlockPool(0)
    large = pool.take(2**20)
    pool.give_back(large)
    small = pool.take(4096)
    assert small.capacity == 4096
    pool.give_back(small)
    pool.close()


def test_free_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_POOL_BYTES", 8192)
    pool = BlockPool(0)
    blocks = [pool.take(4096) for _ in range(4)]
    for block in blocks:
        pool.give_back(block)
    assert [block.fd >= 0 for block in blocks] == [True, True, False, False]
    pool.close()
    assert all(block.fd < 0 for block in blocks)


def test_a_pool_that_is_closed_frees_what_is_in_use() -> None:
    pool = BlockPool(0)
    lost, late = pool.take(4096), pool.take(4096)
    payload = pool.store(values.encode(np.zeros(1000)))
    assert payload is not None
    pool.close()
    pool.give_back(late)
    assert [block.fd for block in (lost, late, payload.owner)] == [-1, -1, -1]


def test_what_is_too_much_is_free_though_others_map_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_POOL_BYTES", 0)
    pool = BlockPool(0)
    block = pool.take(2**20)
    block.view[:] = b"x" * 2**20
    seen = MappedBlocks().view(block.ref())
    kept = os.dup(block.fd)
    try:
        assert os.fstat(kept).st_blocks
        pool.give_back(block)
        assert not os.fstat(kept).st_blocks
        assert bytes(seen[:9]) == bytes(9)
        pool.close()
    finally:
        os.close(kept)


def test_small_values_travel_in_the_message_and_large_ones_beside_it() -> None:
    pool = BlockPool(1000)
    assert pool.store(values.encode({"n": 1})) is None
    small = pool.store(values.encode(np.zeros(100)))
    assert small is not None
    assert small.ref is None
    array = np.arange(200.0)
    encoded = values.encode([array])
    large = pool.store(encoded)
    assert large is not None
    assert large.ref is not None
    seen = MappedBlocks().view(large.ref)
    np.testing.assert_array_equal(values.decode(encoded.body, seen)[0], array)
    pool.give_back(large.owner)
    pool.close()
