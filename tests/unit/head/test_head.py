"""What a head keeps of nodes that are lost has a bound."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.core.errors import SapwoodError
from sapwood.environment.settings import RecoveryPolicy
from sapwood.head import head as module
from sapwood.head.head import Head
from sapwood.session.options import PlacesChanged


class LosingHead:
    """A head whose nodes are lost: with as much of it as that takes."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self._away: dict[int, None] = {}
        self.control: Any = SimpleNamespace(hosts=["own"], name_of=lambda rank: f"n{rank}")
        self.ledger: Any = SimpleNamespace(note=lambda *_args, **_facts: None)
        self.policy: Any = SimpleNamespace(current=SimpleNamespace(recovery=RecoveryPolicy()))
        self._thread: Any = SimpleNamespace(post=self._post)

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)

    def records(self) -> list[Any]:
        return [SimpleNamespace(host=rank, name=f"n{rank}", state="lost") for rank in self._away]

    def remove_node(self, wanted: Any) -> None:
        if wanted.name in self.removed:
            raise SapwoodError("it is being removed")
        self.removed.append(wanted.name)
        self.note(int(wanted.name[1:]), PlacesChanged((), (), back=False, removed=True))

    def note(self, rank: int, change: PlacesChanged) -> None:
        Head._note_node(self, rank, change)  # type: ignore[arg-type]  # enough of one

    def _node_lost(self, rank: int, reason: str) -> None:
        Head._node_lost(self, rank, reason)  # type: ignore[arg-type]  # enough of one

    def _remove_lost(self, rank: int, *, always: bool = False) -> None:
        Head._remove_lost(self, rank, always=always)  # type: ignore[arg-type]  # enough of one


def test_of_many_lost_nodes_the_one_lost_longest_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_LOST", 3)
    head = LosingHead()
    lost = PlacesChanged((), (), back=False, reason="no answer")
    for rank in (1, 2, 3, 4):  # the head started the first one: it stays in the list
        head.note(rank, lost)
    assert head.removed == []
    head.note(2, PlacesChanged((), (), back=True))
    for rank in (2, 5, 6):
        head.note(rank, lost)
    assert head.removed == ["n3", "n4"]
