"""What agents keep for one client: runs that it has opened, and slices of persistent datasets.

A client that ends properly has its agents forget both. One that is killed cannot; then the server
of the session does it. No I/O.
"""

from __future__ import annotations

from typing import Any

from sapwood.activity import agent_requests
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.data.slice import SliceRef

_read_slice = typed.unpacker(SliceRef)


class OpenedRuns:
    """The runs and persistent slices of one client, by agent.

    Example:
        >>> opened = OpenedRuns()
        >>> opened.asked(ev.Ask(3, agent_requests.RELEASE_DATA, 1, plain.encode("h"), None))
        >>> opened.left()
        []
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[int, str], None] = {}
        self._handles: dict[tuple[int, str], None] = {}

    def asked(self, event: ev.Ask) -> None:
        """Note a request of the client to an agent."""
        rank, handler = event.destination, event.handler
        if handler == agent_requests.OPEN_RUN:
            self._opened(event)
        elif handler == agent_requests.CLOSE_RUN:
            self._runs.pop((rank, _text(event)), None)
        elif handler == agent_requests.RELEASE_DATA:
            self._handles.pop((rank, _text(event)), None)

    def left(self) -> list[tuple[int, str, bytes]]:
        """Return what agents are to be asked when the client is gone, and forget all.

        Returns:
            The rank, the handler and the body of each request.
        """
        runs, self._runs = self._runs, {}
        handles, self._handles = self._handles, {}
        return [
            *((rank, agent_requests.CLOSE_RUN, plain.encode(run)) for rank, run in runs),
            *((rank, agent_requests.RELEASE_DATA, plain.encode(one)) for rank, one in handles),
        ]

    def _opened(self, event: ev.Ask) -> None:
        try:
            payload = event.payload
            order = plain.decode(event.body, payload.view if payload is not None else None)
            self._runs[event.destination, str(order["run"])] = None
            rows = _read_slice(order["slice"]).rows
        except (SapwoodError, ValueError, TypeError, KeyError):  # its agent will say so
            return
        if rows is not None and rows.handle:
            self._handles[event.destination, rows.handle] = None


def _text(event: ev.Ask) -> Any:
    try:
        return str(plain.decode(event.body))
    except SapwoodError:
        return ""
