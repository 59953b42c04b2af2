"""Messages of large values and contributions of streams, on links that share no memory.

Tags 34 to 38.
"""

from sapwood.comm.messages.base import WireMessage
from sapwood.core.rankset import Ranges


class Offer(WireMessage, tag=34, frozen=True):
    """Upwards: as ``Up``; the receiver draws its arrays, ``size`` bytes."""

    stream: int
    wave: int
    attempt: int
    ranks: Ranges
    weight: float
    body: bytes
    size: int


class Announced(WireMessage, tag=35, frozen=True):
    """Downwards: as ``Down``; the receiver draws its arrays, ``size`` bytes."""

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

    Downwards of the contribution offered for ``ranks``, upwards of the value of the wave. The
    drawing side chooses ``number``.
    """

    stream: int
    wave: int
    ranks: Ranges
    number: int
    start: int
    stop: int
    piece: int


class Piece(WireMessage, tag=37, frozen=True):
    """The payload is the bytes from ``start`` on, for the draw of that number."""

    stream: int
    wave: int
    number: int
    start: int


class Retracted(WireMessage, tag=38, frozen=True):
    """Upwards: the contribution offered for ``ranks`` is withdrawn.

    No bytes drawn of it may be used.
    """

    stream: int
    wave: int
    ranks: Ranges
