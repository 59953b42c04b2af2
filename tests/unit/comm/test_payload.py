import numpy as np
import pytest

from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
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
