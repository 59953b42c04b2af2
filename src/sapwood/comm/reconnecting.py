"""Making the connection of a link anew, on any transport and any loop."""

from collections.abc import Awaitable, Callable

from sapwood.comm.place import Place
from sapwood.comm.transport.base import ConnectionHandler
from sapwood.core.errors import CommunicationError

PAUSE = 0.005
"""Seconds before the second try; each later one waits that much longer than the one before."""

MAX_PAUSE = 0.25
"""Seconds between two tries at most."""


async def reconnect(
    place: Place,
    link: int,
    attempt: int,
    connect: Callable[[ConnectionHandler], Awaitable[None]],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Connect until a broken link has a connection again, or has ended.

    It has ended when nobody listens any more, when its process is known to have ended, or when
    the grace time is over; the last two are the place's business.

    Args:
        place: The place.
        link: The link.
        attempt: Connections for it that broke before the link went on.
        connect: Connects a handler to the neighbour's address.
        sleep: Waits, seconds.
    """
    handler = place.resumption(link)
    if attempt:
        await sleep(min(MAX_PAUSE, PAUSE * attempt))
    while place.lines.is_broken(link):
        try:
            await connect(handler)
        except CommunicationError as error:
            if isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError):
                place.lines.give_up(link, error.what)
                return
            attempt += 1
            await sleep(min(MAX_PAUSE, PAUSE * attempt))
        else:
            return
