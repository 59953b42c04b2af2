"""The events of a cluster: what happened, and what happens from now on."""

from __future__ import annotations

import msgspec

from sapwood.head.calls import EVENT_NOTED
from sapwood.head.ledger import EventQuery, Ledger, LedgerEvent, LedgerState, kinds_of
from sapwood.head.protocol.call import HeadPart, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.service import ServiceServer
from sapwood.security.rights import OBSERVE


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """What happened.

    Attributes:
        events: The events, the oldest first.
        state: How the ledger is.
    """

    events: list[LedgerEvent]
    state: LedgerState


class Events(HeadPart):
    """The events of a cluster.

    Args:
        ledger: It keeps them.
        server: It notifies those who follow them.
    """

    def __init__(self, ledger: Ledger, server: ServiceServer) -> None:
        self._ledger = ledger
        self._server = server

    @call("events", right=OBSERVE, slow=True)
    def find(self, query: EventQuery) -> EventPage:
        """Return what happened.

        Args:
            query: Which events.
        """
        return EventPage(events=self._ledger.find(query), state=self._ledger.state)

    @call("events.follow", right=OBSERVE)
    def follow(self, caller: ServiceCaller, query: EventQuery) -> None:
        """Notify the caller of what happens from now on.

        Args:
            caller: The caller.
            query: Which events.
        """
        kinds_of(query.kinds)

        def tell(event: LedgerEvent) -> None:
            if query.fits(event):
                self._server.tell(caller, EVENT_NOTED, event)

        caller.when_gone(self._ledger.subscribe(tell))
