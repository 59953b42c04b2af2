"""What a head keeps of nodes that are lost has a bound."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.core.errors import SapwoodError
from sapwood.environment.settings import RecoveryPolicy
from sapwood.head import node_changes
from sapwood.head.node_changes import LostNodes
from sapwood.session.options import PlacesChanged


class LosingHead:
    """The surroundings of the lost nodes of a head."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        table: Any = SimpleNamespace(is_own=lambda rank: rank == 1, of=self._of)
        control: Any = SimpleNamespace(name_of=lambda rank: f"n{rank}")
        ledger: Any = SimpleNamespace(note_of_node=lambda *_args, **_facts: None)
        policy: Any = SimpleNamespace(current=SimpleNamespace(recovery=RecoveryPolicy()))
        removals: Any = SimpleNamespace(remove=self._remove)
        thread: Any = SimpleNamespace(post=self._post)
        self.lost = LostNodes(table, control, ledger, policy, removals, thread)

    def _of(self, rank: int) -> Any:
        return SimpleNamespace(host=rank, name=f"n{rank}", state="lost")

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        function(*args)

    def _remove(self, name: str) -> None:
        if name in self.removed:
            raise SapwoodError("it is being removed")
        self.removed.append(name)
        self.lost.note(int(name[1:]), PlacesChanged((), (), back=False, removed=True))


def test_of_many_lost_nodes_the_one_lost_longest_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_changes, "MAX_LOST", 3)
    head = LosingHead()
    lost = PlacesChanged((), (), back=False, reason="no answer")
    for rank in (1, 2, 3, 4):  # the head started the first one: it stays in the list
        head.lost.note(rank, lost)
    assert head.removed == []
    head.lost.note(2, PlacesChanged((), (), back=True))
    for rank in (2, 5, 6):
        head.lost.note(rank, lost)
    assert head.removed == ["n3", "n4"]
