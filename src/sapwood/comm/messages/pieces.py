"""Messages of large values and contributions of streams, on links that share no memory.

Tags 34 to 38.
"""

from sapwood.comm.messages.base import WireMessage
from sapwood.core.rankset import Ranges


class Offer(WireMessage, tag=34, frozen=True):
    """As :class:`~sapwood.comm.messages.Up`; the ``size`` bytes of its arrays are to be drawn."""

    stream: int
    wave: int
    attempt: int
    ranks: Ranges
    weight: float
    body: bytes
    size: int


class Announced(WireMessage, tag=35, frozen=True):
    """As :class:`~sapwood.comm.messages.Down`; the ``size`` bytes of its arrays are to be drawn."""

    stream: int
    wave: int
    attempt: int
    body: bytes
    confirmed: int
    ranks: Ranges
    version: int
    size: int


class Draw(WireMessage, tag=36, frozen=True):
    """Send the bytes from ``start`` to ``stop``, in pieces of ``piece`` bytes.

    Downwards it means the offered contribution of ``ranks``, upwards the announced value; there
    ``stop`` 0 says that none of it is wanted. ``number`` is chosen by whoever draws.
    """

    stream: int
    wave: int
    ranks: Ranges
    number: int
    start: int
    stop: int
    piece: int


class Piece(WireMessage, tag=37, frozen=True):
    """Bytes from ``start`` on, as the payload: a part of what the draw ``number`` asked for."""

    stream: int
    wave: int
    number: int
    start: int


class Retracted(WireMessage, tag=38, frozen=True):
    """The offered contribution of ``ranks`` will not come; nothing drawn of it may be used."""

    stream: int
    wave: int
    ranks: Ranges
