"""What the root says of pushed contributions: tag 39."""

from sapwood.comm.messages.base import WireMessage


class Taken(WireMessage, tag=39, frozen=True):
    """The root has what these agents sent of themselves: ``(rank, number)``, and all before."""

    stream: int
    upto: tuple[tuple[int, int], ...]
