import numpy as np
import pytest

from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import AdoptedBlock, MappedBlocks, SharedBlock
from sapwood.core.errors import ProtocolError


def test_any_buffer_is_seen_as_bytes() -> None:
    array = np.arange(6, dtype="<u2").reshape(2, 3)
    payload = Payload(array.data)
    assert payload.nbytes == 12
    assert bytes(payload.view) == array.tobytes()


def test_shared_memory_is_mapped_when_it_is_looked_at() -> None:
    block = SharedBlock(10)
    block.view[:3] = b"abc"
    payload = Payload.mapped(block.ref(0, 3), MappedBlocks())
    assert payload.nbytes == 3
    assert bytes(payload.view) == b"abc"
    late = Payload.mapped(block.ref(0, 3), MappedBlocks())
    block.close()
    assert bytes(payload.view) == b"abc"
    with pytest.raises(ProtocolError, match="gone"):
        assert late.view


def test_a_payload_says_how_large_it_is() -> None:
    assert repr(Payload(b"abc")) == "Payload(3 bytes)"


def test_what_was_looked_at_is_lent_though_its_block_is_gone() -> None:
    blocks = MappedBlocks()
    with SharedBlock(10) as block:
        block.view[:3] = b"abc"
        payload = Payload.mapped(block.ref(0, 3), blocks)
        assert bytes(payload.view) == b"abc"
    blocks.forget_gone()
    assert bytes(payload.lent().view) == b"abc"


def test_a_payload_that_is_kept_outlives_its_sender_until_it_is_closed() -> None:
    with SharedBlock(10) as block:
        block.view[:3] = b"abc"
        payload = Payload.mapped(block.ref(0, 3), MappedBlocks())
        payload.keep()
    owner = payload.owner
    assert isinstance(owner, AdoptedBlock)
    assert payload.ref == owner.ref
    assert bytes(payload.view) == b"abc"
    owner.close()


def test_there_is_nothing_to_keep_of_bytes_in_a_message() -> None:
    payload = Payload(b"abc")
    payload.keep()
    assert payload.owner is None


@pytest.mark.parametrize("mapped", [False, True])
def test_a_part_of_a_payload_is_the_same_bytes(mapped: bool) -> None:
    with SharedBlock(10) as block:
        block.view[:6] = b"abcdef"
        shared = Payload.mapped(block.ref(0, 6), MappedBlocks())
        payload = shared if mapped else Payload(b"abcdef")
        for start, stop in ((0, 6), (0, 2), (2, 5), (5, 6)):
            part = payload.part(start, stop)
            assert part is not None
            assert part.nbytes == stop - start
            assert bytes(part.view) == b"abcdef"[start:stop]
        assert payload.part(6, 6) is None
        for start, stop in ((-1, 2), (3, 2), (0, 7)):
            with pytest.raises(ProtocolError, match="of a payload of 6"):
                payload.part(start, stop)
