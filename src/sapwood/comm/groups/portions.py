"""What a scatter sends: one encoded value for each member, in a form that needs no numpy.

The body is a list of rows ``[rank, body, start, stop]``; the bytes of that member's arrays are
those from ``start`` to ``stop`` of the payload. Places on the way down pick rows and pass the
part of the payload that belongs to them on as a reference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.comm import plain
from sapwood.comm.payload import Payload
from sapwood.core import typed
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import Ranges, contains

Encoded = tuple[bytes, Payload | None]
"""Body and payload of a value."""

Row = tuple[int, bytes, int, int]


def picked(rows: list[Row], payload: Payload | None, ranks: Ranges) -> Encoded:
    """Return the rows of some members, and what of the payload belongs to them."""
    mine = [row for row in rows if contains(ranks, row[0])]
    first = min((row[2] for row in mine), default=0)
    last = max((row[3] for row in mine), default=0)
    body = plain.encode(
        [(rank, one, start - first, stop - first) for rank, one, start, stop in mine]
    )
    return body, payload.part(first, last) if payload is not None else None


def own(rows: list[Row], payload: Payload | None, rank: int) -> Encoded:
    """Return the value of one member.

    Raises:
        ProtocolError: There is none.
    """
    for row in rows:
        if row[0] == rank:
            part = payload.part(row[2], row[3]) if payload is not None else None
            return row[1], part
    raise ProtocolError(f"nothing was scattered to rank {rank}")


def read(body: bytes) -> list[Row]:
    """Return the rows.

    Raises:
        ProtocolError: The bytes are no rows.
    """
    rows: Any = plain.decode(body)
    try:
        return typed.convert(rows, list[Row])
    except msgspec.ValidationError as error:
        raise ProtocolError(f"what a scatter sent is malformed: {error}") from error
