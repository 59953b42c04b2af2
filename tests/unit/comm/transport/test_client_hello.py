"""The first message of TLS clients: of real ones, in pieces, and of other clients."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm.transport.client_hello import LONGEST_HELLO, WITHOUT_ALPN, offered_protocols


def hello(*protocols: str) -> bytes:
    """What OpenSSL says first."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="n1.grove.sapwood")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


@pytest.mark.parametrize(
    "protocols", [(), ("h2",), ("sapwood-tree/1/sapwood-x1", "sapwood-join/2")]
)
@pytest.mark.slow
def test_real_clients_are_understood(protocols: tuple[str, ...]) -> None:
    assert offered_protocols(hello(*protocols)) == (protocols or (WITHOUT_ALPN,))


def test_no_part_of_a_message_is_taken_for_all_of_it() -> None:
    data = hello("sapwood-join/2")
    assert {offered_protocols(data[:size]) for size in range(len(data))} == {None}
    assert offered_protocols(data + b"more") == ("sapwood-join/2",)


@given(st.binary(max_size=600))
def test_anything_else_offers_nothing(data: bytes) -> None:
    for text in (data, b"\x16\x03\x01" + len(data).to_bytes(2, "big") + data):
        assert offered_protocols(text) in {None, (), (WITHOUT_ALPN,)}


@given(st.data())
@pytest.mark.slow
def test_a_message_with_a_wrong_byte_does_no_harm(data: st.DataObject) -> None:
    wrong = bytearray(hello("sapwood-join/2"))
    place = data.draw(st.integers(0, len(wrong) - 1))
    wrong[place] ^= data.draw(st.integers(1, 255))
    offered_protocols(bytes(wrong))


def test_a_message_that_is_too_long_is_not_waited_for() -> None:
    assert offered_protocols(b"\x16\x03\x01" + (LONGEST_HELLO + 1).to_bytes(2, "big")) == ()
