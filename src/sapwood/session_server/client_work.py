"""The requests, messages and groups of one client: its numbers of them, and the session's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.groups import events as gev
from sapwood.comm.messages.groups import LEAVE, NO_GROUP
from sapwood.comm.messaging import events as mev
from sapwood.core.errors import GroupError, ProtocolError, SapwoodError
from sapwood.environment.logs import logger
from sapwood.session_server.client_outbox import ClientOutbox
from sapwood.session_server.opened_runs import OpenedRuns
from sapwood.session_server.served_session import ServedSession

MAX_OPEN = 1_000_000
"""Requests and messages of one client that may be under way."""

_log = logger("session")


def take_back(session: ServedSession, event: ev.Event) -> None:
    """End something of a client that is gone, even if the core never took it."""
    try:
        if isinstance(event, ev.CloseStream):
            session.post_of_stream(event)
        else:
            session.host.post(event)
    except SapwoodError as error:
        _log.warning("not taken back", what=type(event).__name__, reason=error.what)


class ClientMessages:
    """The requests and tagged messages of one client; all on the loop's thread.

    Args:
        session: The session.
        outbox: Sends to the client.

    Attributes:
        asked: Open requests: the client's number and the session's.
        sends: Messages on their way, likewise.
        receives: Messages that the client waits for, likewise.
    """

    def __init__(self, session: ServedSession, outbox: ClientOutbox) -> None:
        self._session = session
        self.tell: Callable[[msgspec.Struct], None] = outbox.tell
        self._opened = OpenedRuns()
        self.asked: dict[int, int] = {}
        self.sends: dict[int, int] = {}
        self.receives: dict[int, int] = {}

    def ask(self, event: ev.Ask) -> None:
        """Have a handler called at an agent."""
        self._must_fit(event.number, self.asked)
        self._opened.asked(event)
        number = self.asked[event.number] = self._session.requests.new_number()
        self._session.of_request[number] = (self, event.number, event.destination)
        self._post_or_forget(event, number, self.asked, self._session.of_request)

    def cancel_request(self, event: mev.CancelRequest) -> None:
        """Take a request back."""
        number = self.asked.get(event.number)
        if number is not None:
            self._session.host.post(mev.CancelRequest(number))

    def send(self, event: mev.SendTagged) -> None:
        """Send a tagged message."""
        self._must_fit(event.number, self.sends)
        number = self.sends[event.number] = self._session.mailbox.new_number()
        self._session.of_send[number] = (self, event.number, set(event.destinations))
        self._post_or_forget(event, number, self.sends, self._session.of_send)

    def cancel_send(self, event: mev.CancelSend) -> None:
        """Take a message back that has not arrived."""
        number = self.sends.get(event.number)
        if number is not None:
            self._session.host.post(mev.CancelSend(number, event.destination))

    def receive(self, event: mev.PostReceive) -> None:
        """Wait for a tagged message."""
        self._must_fit(event.number, self.receives)
        number = self.receives[event.number] = self._session.mailbox.new_number()
        self._session.of_receive[number] = (self, event.number)
        try:
            self._session.host.post(msgspec.structs.replace(event, number=number))
        except SapwoodError as error:
            self._forget_receive(event.number)
            self.tell(mev.ReceiveFailed(event.number, error.to_record()))

    def cancel_receive(self, mine: int) -> bool:
        """Take a receive back; return whether that was in time."""
        number = self.receives.get(mine)
        if number is None or not self._session.host.node.point_to_point.matching.cancel(number):
            return False
        self._forget_receive(mine)
        return True

    def _forget_receive(self, mine: int) -> None:
        self._session.of_receive.pop(self.receives.pop(mine), None)

    def _post_or_forget(
        self, event: Any, number: int, mine: dict[int, int], known: dict[int, Any]
    ) -> None:
        """Give the core what is noted already; what it does not take is not noted any more."""
        try:
            self._session.host.post(msgspec.structs.replace(event, number=number))
        except SapwoodError:
            mine.pop(event.number, None)
            known.pop(number, None)
            raise

    def _must_fit(self, number: int, table: dict[int, int]) -> None:
        if number in table or len(table) >= MAX_OPEN:
            raise ProtocolError(f"number {number} is in use, or too many are")

    def leave(self) -> None:
        """End all of them: the client is gone."""
        session, post = self._session, partial(take_back, self._session)
        # A message that has not left is withdrawn at once, and then it is not in the table any
        # more.
        for number in tuple(self.asked.values()):
            post(mev.CancelRequest(number))
        for number in tuple(self.sends.values()):
            for rank in tuple(session.of_send[number][2]):
                post(mev.CancelSend(number, rank))
        for mine in list(self.receives):
            self.cancel_receive(mine)
        for rank, handler, body in self._opened.left():
            if rank in session.tree:
                session.ask_encoded(rank, handler, body, values.encode(None))


class ClientGroupCalls:
    """The groups that one client is in, or enters; all on the loop's thread.

    Args:
        session: The session.
        outbox: Sends to the client.
    """

    def __init__(self, session: ServedSession, outbox: ClientOutbox) -> None:
        self._session = session
        self._outbox = outbox

    def enter(self, event: gev.EnterGroup) -> None:
        """Enter a group."""
        key = (event.members, event.name)
        if key in self._session.entering:
            error = GroupError(
                "another client is entering this group already",
                hint="give groups of the same members different names",
            )
            self._outbox.tell(gev.GroupBroken(NO_GROUP, *key, error.to_record()))
            return
        self._session.entering[key] = self._outbox
        try:
            self._session.host.post(event)
        except SapwoodError:
            self._session.entering.pop(key, None)
            raise

    def call(self, event: gev.CallGroup) -> None:
        """Call an operation of a group."""
        if self._session.of_group.get(event.group, (None,))[0] is not self._outbox:
            if event.payload is not None:
                self._outbox.give_back(gev.Discarded(event.payload))
            return
        if event.call == LEAVE:
            del self._session.of_group[event.group]
        self._session.host.post(event)

    def dissolve(self, event: gev.BreakGroup) -> None:
        """Break a group, or take the entry back."""
        if event.group == NO_GROUP:
            mine = self._session.entering.get((event.members, event.name)) is self._outbox
        else:
            mine = self._session.of_group.get(event.group, (None,))[0] is self._outbox
        if mine:
            self._session.host.post(event)

    def leave(self) -> None:
        """Break all of them: the client is gone."""
        session, post = self._session, partial(take_back, self._session)
        error = GroupError("the client has left the session").to_record()
        for key, outbox in list(session.entering.items()):
            if outbox is self._outbox:
                post(gev.BreakGroup(NO_GROUP, *key, error, 1))
        for group, (outbox, key) in list(session.of_group.items()):
            if outbox is self._outbox:
                post(gev.BreakGroup(group, *key, error))
                del session.of_group[group]
