"""How something that happened in a cluster is recorded in its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypedDict, Unpack


class AboutEvent(TypedDict, total=False):
    """What an event is about.

    Attributes:
        node: The node; empty for none.
        session: The session; empty for none.
        facts: More about it.
    """

    node: str
    session: str
    facts: Mapping[str, str]


class NoteEvent(Protocol):
    """A receiver of events; like a ledger, it does not block."""

    def __call__(self, kind: str, text: str, /, **about: Unpack[AboutEvent]) -> None:
        """Note that something happened."""


def note_nothing(_kind: str, _text: str, /, **_about: Unpack[AboutEvent]) -> None:
    """Note nothing: a cluster that ends with its program has no ledger."""
