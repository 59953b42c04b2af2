"""Contributions as they came, where an own filter puts them together."""

from __future__ import annotations

from sapwood.comm import events as ev
from sapwood.comm.payload import Payload
from sapwood.core.errors import SapwoodError


class Parts:
    """Contributions as they came, for an own filter."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[ev.Part] = []

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        self.parts.append(ev.Part(rank, weight, body, payload))

    def partial(self) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("an own filter puts these contributions together")

    def placed(self, _value: object) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("an own filter puts these contributions together")

    def total(self) -> object:
        """Refuse: the filter does this."""
        raise SapwoodError("an own filter puts these contributions together")

    def blend(self, _offers: object) -> None:
        """Say that they cannot be put together piece by piece."""
