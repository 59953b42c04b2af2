"""How something that happened in a cluster is recorded in its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class NoteEvent(Protocol):
    """A receiver of events; like a ledger, it does not block."""

    def __call__(
        self,
        kind: str,
        text: str,
        *,
        node: str = "",
        session: str = "",
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Note that something happened."""


def note_nothing(
    kind: str,
    text: str,
    *,
    node: str = "",
    session: str = "",
    facts: Mapping[str, str] | None = None,
) -> None:
    """Note nothing: a cluster that ends with its program has no ledger."""
