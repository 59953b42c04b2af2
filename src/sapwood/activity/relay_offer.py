"""Once waves or requests flow, agents are offered the library that relays waves (``relay.py``).

The front end loads the one that exchanges both (``session/express/``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from sapwood.activity import orders
from sapwood.code.cache import BuildCache
from sapwood.code.target import Target
from sapwood.core.errors import SapwoodError
from sapwood.environment.logs import logger
from sapwood.session.options import PlacesChanged
from sapwood.session.session import Session
from sapwood.session.streams import StreamHandle

_log = logger("relay")


class RelayOffer:
    """Has the library built when waves or requests of a session flow, and tells the agents of it.

    Nobody waits for it: short work never needs it, and agents that have not heard of it yet do
    what it would do.

    Args:
        session: The session.
        cache: Where the library is kept.
        target: Returns what the agents run on.
        wanted: Whether there is to be an offer at all.
    """

    def __init__(
        self, session: Session, cache: BuildCache, target: Callable[[], Target], *, wanted: bool
    ) -> None:
        self._session = session
        self._cache = cache
        self._target = target
        self._library = b""
        self._stream: StreamHandle | None = None
        self._thread = threading.Thread(target=self._make, name="sapwood-relay", daemon=True)
        if wanted:
            session.express.on_flowing = self._thread.start
            session.subscribe(self._places_changed)

    def close(self) -> None:
        """Wait until nothing is built any more."""
        if self._thread.is_alive():
            self._thread.join()

    def _make(self) -> None:
        from sapwood.code.native_library import EXCHANGE, RELAY, build_native  # noqa: PLC0415 - seldom needed

        try:
            library = build_native(self._cache, RELAY, self._target())
        except (SapwoodError, OSError) as error:  # whoever needs the cache hears of it
            _log.debug("waves are not relayed", reason=str(error))
            return
        if library is None:
            _log.debug("waves are not relayed: there is no compiler")
            return
        self._library = os.fsencode(library)
        try:
            exchange = build_native(self._cache, EXCHANGE)
            if exchange is not None:
                self._session.exchange_by(str(exchange))
            self._stream = self._session.open_stream(orders.RELAY, {})
            self._offer()
        except SapwoodError:
            return  # the session is closed

    def _offer(self) -> None:
        if self._stream is not None and not self._session.closed:
            self._stream.broadcast({"library": self._library})

    def _places_changed(self, change: PlacesChanged) -> None:
        if change.back and change.agents:
            self._offer()
