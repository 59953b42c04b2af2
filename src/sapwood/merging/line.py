"""The connection from the server of a session to another server, which takes part in its streams.

To the other server this is one more client, which may do nothing but work with streams. All of it
happens on the loop of this server.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.payload import Payload
from sapwood.comm.transport.base import Connection
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ProtocolError,
    SapwoodError,
)
from sapwood.core.rankset import MAX_RANKS
from sapwood.core.shown import shown
from sapwood.core.topology import Tree
from sapwood.environment.logs import logger
from sapwood.session_server import session_calls, wire
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.server_link import Connect, SessionAddress

ANSWER_TIMEOUT = 10.0
"""Seconds in which the other server lets this one in, or refuses."""

LOOK_INTERVAL = 5.0
"""Seconds between two looks whether the other server answers."""

SILENCE = 30.0
"""Seconds without an answer after which the other server counts as lost."""

MAX_UNSENT = 2**30
"""Bytes that may wait for a session server that does not read; with more, the line is cut."""

_log = logger("session")

TakeEffect = Callable[[Any], None]


class MergeLine:
    """A line to the server of another session.

    Args:
        address: Which session.
        connect: Connects to its server.
        loop: The loop of this server.
        label: The handle of this session, which the other one shows.
        ready: Told that the other server has let this one in.
        over: Told why the line has ended, or why there is none; once.
        limit: Bytes of a message or a payload of the other server at most.

    Attributes:
        address: Which session it leads to.
        facts: What the other server has said of itself; None before.
    """

    def __init__(
        self,
        address: SessionAddress,
        connect: Connect,
        loop: Any,
        label: str,
        ready: Callable[[], None],
        over: Callable[[SapwoodError], None],
        limit: int = wire.MAX_PAYLOAD,
    ) -> None:
        self.address = address
        self.facts: wire.Admitted | None = None
        self._tree: Tree | None = None
        self._connect = connect
        self._loop: Loop = loop
        self._shared_loop = loop
        self._label = label
        self._ready = ready
        self._over = over
        self._ended = False
        self._connection: Connection | None = None
        self._reader = wire.WireReader(wire.TO_CLIENT, limit=limit)
        self._streams: dict[int, TakeEffect] = {}
        self._numbers = itertools.count(1)
        self._calls = itertools.count(1)
        self._asked: int | None = None
        self._asked_at = 0.0
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Connect; ``ready`` or ``over`` is called."""
        self._timer = self._loop.call_later(ANSWER_TIMEOUT, self._too_late)
        self._connect(self, self._shared_loop, self._end)

    @property
    def tree(self) -> Tree:
        """The present tree of the other session."""
        assert self._tree is not None  # noqa: S101 - it is there from the admission on
        return self._tree

    @property
    def streams(self) -> int:
        """Streams that are open on it."""
        return len(self._streams)

    # --- what this server says -------------------------------------------------------------------

    def new_stream(self, take: TakeEffect) -> int:
        """Return a number for a stream; a function receives its results."""
        number = next(self._numbers)
        self._streams[number] = take
        return number

    def post(self, event: ev.Event) -> None:
        """Give the other root an event of a stream."""
        if isinstance(event, ev.CloseStream):
            self._streams.pop(event.stream, None)
        self._write(event)

    def tell(self, name: str, value: Any, payload: Payload | None = None) -> None:
        """Want something of the other root that has no answer."""
        self._write(wire.SessionCall(0, name, value, payload))

    def close(self) -> None:
        """Leave the other session as it was before."""
        if self._ended:
            return
        self._write(wire.SessionCall(0, session_calls.DETACH))
        self._stop()
        if self._connection is not None:
            self._connection.close()

    def _write(self, message: msgspec.Struct) -> None:
        if self._ended or self._connection is None:
            return
        self._connection.write(wire.pack(message, sharing=False))
        if getattr(self._connection, "unsent", 0) > MAX_UNSENT:
            self._cut(CommunicationError("the other root does not read what is sent to it"))

    # --- what the other server says --------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Ask to take part."""
        del initiator
        self._connection = connection
        if self._ended:
            connection.abort()
            return 0
        asked = wire.AskToAttach(
            version=wire.VERSION,
            session=self.address.session,
            secret=self.address.secret,
            role=ClientRole.MERGER.value,
            pid=os.getpid(),
            label=self._label,
        )
        self._write(asked)
        return 0

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take in what the other root says."""
        del number
        try:
            for message in self._reader.feed(data):
                if self._ended:
                    return
                self._take(message)
        except ProtocolError as error:
            self._cut(CommunicationError(f"the other root broke the protocol: {error.what}"))
        except SapwoodError as error:
            self._cut(error)
        except Exception as error:  # noqa: BLE001 - what another session says must not end this one
            _log.exception("another root said what cannot be", session=self.address.name)
            self._cut(ProtocolError(f"it said what cannot be: {shown(error)}"))

    def connection_closed(self, number: int, reason: str) -> None:
        """The line is gone."""
        del number
        self._end(CommunicationError(f"the connection has ended: {reason}"))

    def _take(self, message: msgspec.Struct) -> None:
        if isinstance(message, wire.NotAdmitted):
            self._cut(SapwoodError.from_record(message.error))
        elif isinstance(message, wire.Admitted):
            self._admitted(message)
        elif isinstance(message, wire.TreeNews):
            if message.tree is not None:
                self._tree = _checked(message.tree)
        elif isinstance(message, wire.SessionEnds):
            self._cut(ClosedError(f"it has ended: {message.reason}"))
        elif isinstance(message, wire.SessionAnswer):
            if message.number == self._asked:
                self._asked = None
        else:
            take = self._streams.get(getattr(message, "stream", 0))
            if take is not None:
                take(message)

    def _admitted(self, message: wire.Admitted) -> None:
        if self.facts is not None:
            raise ProtocolError("it lets this root in twice")
        if message.session != self.address.session:
            raise ProtocolError(f"it is the session {wire.printable(message.session[:200])}")
        self._tree = _checked(message.tree)
        self.facts = msgspec.structs.replace(message, name=wire.printable(message.name[:200]))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(LOOK_INTERVAL, self._look)
        self._ready()

    def _look(self) -> None:
        """Poll periodically, because a lost machine sends nothing."""
        now = self._loop.time()
        if self._asked is None:
            self._asked, self._asked_at = next(self._calls), now
            self._write(wire.SessionCall(self._asked, session_calls.STATUS))
        elif now - self._asked_at > SILENCE:
            self._cut(CommunicationError(f"it has not answered for {SILENCE:g} s"))
        if not self._ended:
            self._timer = self._loop.call_later(LOOK_INTERVAL, self._look)

    def _too_late(self) -> None:
        self._cut(CommunicationError(f"it did not answer within {ANSWER_TIMEOUT:g} s"))

    def _cut(self, error: SapwoodError) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._end(error)

    def _end(self, error: SapwoodError) -> None:
        if self._ended:
            return
        self._stop()
        _log.info("line to a session over", session=self.address.name, reason=error.what)
        self._over(error)

    def _stop(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._streams.clear()


def _checked(tree: Tree) -> Tree:
    """Return the tree of another session, if one can be like that.

    Raises:
        ProtocolError: It cannot.
    """
    size = len(tree.parents)
    lists = (tree.spares, tree.added, tree.removed)
    if (
        not 1 <= size <= MAX_RANKS
        or not 0 <= tree.planned < size
        or any(len(ranks) > size for ranks in lists)
        or not all(0 < rank < size for ranks in lists for rank in ranks)
    ):
        raise ProtocolError("its tree has more places than it can have, or ranks of no place")
    return tree
