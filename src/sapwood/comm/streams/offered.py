"""Large contributions that stay with whoever made them, and what puts them together.

What a place needs to know of them; ``offers.py`` has what it does with them,
``reductions/blend.py`` how pieces of arrays become one.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Draw
from sapwood.comm.peers import Effects
from sapwood.core.rankset import Ranges


class Offered(msgspec.Struct, frozen=True, gc=False):
    """A large contribution of a child, whose arrays are still there; ``rank`` is its first one."""

    child: int
    rank: int
    ranks: Ranges
    weight: float
    body: bytes
    size: int


class Strip(Protocol):
    """The same piece of several contributions; ``view`` is what they come to so far."""

    count: int
    view: memoryview

    def add(self, view: memoryview, weight: float) -> None:
        """Take this piece of one more contribution.

        Raises:
            SapwoodError: It does not fit.
        """


class Blend(Protocol):
    """Puts contributions together piece by piece: ``size`` bytes, and what goes with them."""

    body: bytes
    size: int

    def strip(self, start: int) -> Strip:
        """Return a piece that begins somewhere, with nothing in it."""

    def total(self, result: bytearray) -> Any:
        """Return the result at the root, from its bytes."""


class Drawing(Protocol):
    """Draws the large contributions to a wave.

    Attributes:
        sources: Which.
    """

    sources: tuple[Offered, ...]

    def stop(self) -> None:
        """Draw no more, and forget what has come."""


class Confluence(Drawing, Protocol):
    """Puts them together as they are drawn, and hands them on: ``size`` bytes."""

    size: int

    def drawn(self, link: Link, message: Draw) -> Effects:
        """Go on as whoever draws the result wants it, or begin anew.

        Raises:
            ProtocolError: It cannot be drawn so.
        """
