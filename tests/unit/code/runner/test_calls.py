"""Bytes of a call or a result: inline in the datagram, or spilled into shared memory."""

from __future__ import annotations

import pytest

from sapwood.code.runner.calls import INLINE, Bulk
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock


@pytest.mark.parametrize("nbytes", [0, 1, INLINE])
def test_few_bytes_travel_in_the_datagram(nbytes: int) -> None:
    held: list[SharedBlock] = []
    data = bytes(range(256)) * (nbytes // 256) + bytes(nbytes % 256)
    bulk = Bulk.pack(data, held.append)
    assert bulk == Bulk(data)
    assert bytes(bulk.unpack()) == data
    assert not held


def test_many_bytes_lie_in_shared_memory_that_the_sender_holds() -> None:
    held: list[SharedBlock] = []
    data = b"x" * (INLINE + 1)
    bulk = Bulk.pack(memoryview(data), held.append)
    assert not bulk.inline
    assert bytes(bulk.unpack()) == data
    (block,) = held
    block.close()


@pytest.mark.parametrize("nbytes", [3, INLINE + 3])
def test_who_unpacks_may_write_without_anybody_seeing_it(nbytes: int) -> None:
    held: list[SharedBlock] = []
    bulk = Bulk.pack(bytes(nbytes), held.append)
    bulk.unpack()[:3] = b"new"
    assert bytes(bulk.unpack()) == bytes(nbytes)
    for block in held:
        block.close()


def test_parts_are_spilled_each_at_its_offset() -> None:
    held: list[SharedBlock] = []
    bulk = Bulk.spill(8, [(0, memoryview(b"ab")), (6, memoryview(b"yz"))], held.append)
    assert bytes(bulk.unpack()) == b"ab\0\0\0\0yz"
    held.pop().close()


def test_a_payload_in_shared_memory_travels_by_reference() -> None:
    block = SharedBlock(4)
    ref = block.ref(0, 4)
    held: list[SharedBlock] = []
    assert Bulk.pack_payload(Payload(block.view[:4], ref), held.append) == Bulk(shared=ref)
    assert Bulk.pack_payload(Payload(b"here"), held.append) == Bulk(b"here")
    assert Bulk.pack_payload(None, held.append) == Bulk()
    assert not held
    block.close()
