"""Own filters of streams in the simulator: one process a place calls them, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.core.errors import SapwoodError

OwnFilter = Callable[[int, ev.Filter, list[Any]], Any]
"""``own(rank, effect, values)`` is what a filter makes of values; it may raise."""


class SimulatedFilters:
    """The filters of all places.

    Args:
        post: Gives a place an event.

    Attributes:
        own: What filters make of values.
    """

    def __init__(self, post: Callable[[int, ev.Event], None]) -> None:
        self._post = post
        self._wanted: dict[int, deque[ev.Filter]] = {}
        self.own: OwnFilter = _no_filter

    def wanted(self, rank: int, effect: ev.Filter) -> None:
        """Note that a filter is to be called."""
        self._wanted.setdefault(rank, deque()).append(effect)

    def forget(self, rank: int) -> None:
        """The process of a place ended."""
        self._wanted.pop(rank, None)

    def call_next(self, rank: int) -> None:
        """Call the filter that was wanted first at a place."""
        effect = self._wanted[rank].popleft()
        number, ticket = effect.spec.stream, effect.ticket
        try:
            parts = [
                values.decode(part.body, part.payload.view if part.payload is not None else b"")
                for part in effect.parts
            ]
            encoded = values.encode(self.own(rank, effect, parts))
        except SapwoodError as error:
            self._post(rank, ev.Filtered(number, ticket, b"", None, 0.0, error.to_record()))
            return
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        self._post(rank, ev.Filtered(number, ticket, encoded.body, payload))


def _no_filter(rank: int, _effect: ev.Filter, _values: list[Any]) -> Any:
    raise SapwoodError(f"rank {rank} has no filter")
