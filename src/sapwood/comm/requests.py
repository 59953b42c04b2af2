"""Requests under way: which answers are still to come, and from whom."""

from __future__ import annotations

from collections.abc import Container

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.core.errors import AgentLostError, CommunicationError, ErrorRecord

MAX_REQUESTS = 1_000_000
"""Requests of one place that wait for an answer at a time."""


class Requests:
    """The open requests of one place."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def asked(self, number: int, destination: int) -> None:
        """Note a request.

        Raises:
            CommunicationError: Too many are open.
        """
        if len(self._open) >= MAX_REQUESTS:
            raise CommunicationError(f"more than {MAX_REQUESTS} requests wait for an answer")
        self._open[number] = destination

    def answered(self, number: int) -> bool:
        """Note an answer; return whether it was still wanted."""
        return self._open.pop(number, None) is not None

    def lost(self, ranks: Container[int], reason: str) -> list[ev.Effect]:
        """Answer the requests to places that are gone with an error."""
        gone = [(number, rank) for number, rank in self._open.items() if rank in ranks]
        for number, _ in gone:
            del self._open[number]
        return [ev.Answered(number, b"", None, _lost(rank, reason)) for number, rank in gone]

    def __len__(self) -> int:
        return len(self._open)


def unreachable(request: msg.Request, here: int) -> msg.Reply:
    """Return the answer to a request whose next hop is gone."""
    error = _lost(request.destination, f"no way on from rank {here}")
    return msg.Reply(here, request.source, request.number, b"", error)


def _lost(rank: int, reason: str) -> ErrorRecord:
    return AgentLostError(f"agent {rank} is gone: {reason}").to_record()
