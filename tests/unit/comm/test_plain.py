"""Values without arrays: long bytes and texts are read from the payload."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sapwood.comm import plain, values
from sapwood.core.errors import ProtocolError

LONG = values.LONG


@pytest.mark.parametrize(
    "value",
    [
        {"image": b"x" * LONG, "name": "short"},
        ["\N{GREEK SMALL LETTER BETA}" * LONG, b"", b"y" * (LONG + 1), b"z" * (LONG - 1)],
        b"a" * (3 * LONG),
    ],
)
def test_long_bytes_and_texts_are_read_from_the_payload(value: Any) -> None:
    encoded = values.encode(value)
    assert plain.decode(encoded.body, memoryview(encoded.payload())) == value


@pytest.mark.parametrize("place", [(0, "|u1", (9,)), (-1, "|u1", (2,)), (8, "|u1", (1,))])
def test_bytes_outside_the_payload_are_refused(place: Any) -> None:
    body = plain.encode(msgspec.msgpack.Ext(plain.EXT_BYTES, plain.encode(place)))
    with pytest.raises(ProtocolError, match="end outside"):
        plain.decode(body, memoryview(b"12345678"))


def test_what_names_no_bytes_is_refused() -> None:
    body = plain.encode(msgspec.msgpack.Ext(plain.EXT_TEXT, plain.encode("nothing")))
    with pytest.raises(ProtocolError, match="malformed"):
        plain.decode(body, memoryview(b""))
