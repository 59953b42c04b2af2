"""Commands on the nodes of a head, as a client sees them."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.core.hints import command
from sapwood.head import calls, session_records
from sapwood.head.parts.orders import Orders
from sapwood.head_client.access import HeadAccess
from sapwood.nodes import messages
from sapwood.nodes.commands import Commands


class HeadCarrier:
    """The way to the nodes of a head: those that take commands now.

    Args:
        head: The head.
        commands: Told of what happens.
        session: The session whose nodes are meant, and by whose right commands run there; None for
            all nodes of the head.
    """

    def __init__(
        self,
        head: HeadAccess,
        commands: Commands,
        session: session_records.SessionRecord | None = None,
    ) -> None:
        head.known.refuse_reserved()
        nodes = head.known.for_commands
        if session is not None:
            meant = set() if session.report is None else set(session.report.nodes)
            nodes = [one for one in nodes if one.name in meant]
            if not nodes:
                raise ConfigurationError(
                    f"the session '{session.handle}' is on no node that takes commands now",
                    hint=f"{command('session', 'show', session.handle)} says where it is",
                )
        self._session = "" if session is None else session.id
        self.names = [one.name for one in nodes]
        self._hosts = [one.host for one in nodes]
        self._numbers = {host: number for number, host in enumerate(self._hosts, 1)}
        self._head = head
        self._commands = commands
        self._unsubscribe = head.subscribe(self._noticed)

    def ask(self, number: int, request: str, message: msgspec.Struct) -> Future[Any]:
        """Send a request to a node."""
        host, value = self._hosts[number - 1], messages.to_value(message)
        return self._head.ask(host, request, value, self._session)

    def close(self) -> None:
        """Hear no more of the nodes, and leave the head."""
        self._unsubscribe()
        self._head.close()

    def _noticed(self, name: str, value: Any) -> None:
        if name == calls.COMMAND_OUTPUT:
            notice = typed.convert(value, calls.OfNode)
            output = messages.from_value(notice.value, messages.CommandOutput)
            taken = partial(self._taken, notice.number)
            self._commands.wrote(self._numbers.get(notice.host, 0), output, taken)
        elif name == calls.COMMAND_ENDED:
            notice = typed.convert(value, calls.OfNode)
            report = messages.from_value(notice.value, messages.CommandEnded)
            self._commands.ended(self._numbers.get(notice.host, 0), report)
        elif name == calls.NODES_CHANGED:
            change = typed.convert(value, calls.NodesChanged)
            for one in change.nodes if change.gone or change.for_good else ():
                if one.host in self._numbers and not one.takes_commands:
                    reason = change.reason or one.reason or "its daemon ended"
                    self._commands.lost(self._numbers[one.host], f"the node is gone: {reason}")

        elif name == calls.HEAD_GONE:
            for number in self._numbers.values():
                self._commands.lost(number, str(value))

    def _taken(self, number: int) -> None:
        self._head.client.ask(Orders.taken, number)
