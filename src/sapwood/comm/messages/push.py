"""What the root says of pushed contributions: tag 39."""

from sapwood.comm.messages.base import WireMessage


class Taken(WireMessage, tag=39, frozen=True):
    """Downwards: the root has values that these agents have pushed.

    ``upto`` has pairs of rank and number: that value and all before.
    """

    stream: int
    upto: tuple[tuple[int, int], ...]
