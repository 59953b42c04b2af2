"""What a head keeps of lost nodes has a bound, and clients learn what sessions learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.core.errors import SapwoodError
from sapwood.environment.settings import RecoveryPolicy
from sapwood.head import calls, node_changes
from sapwood.head.node_changes import LostNodes, NodeChanges
from sapwood.lifecycle.machine_events import MachineNews, NotifySessions
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


class NotifyingHead:
    """The surroundings of what notifies clients of nodes; all nodes are ready."""

    def __init__(self) -> None:
        self.notices: list[calls.NodesChanged] = []
        self._soon: list[Callable[[], None]] = []
        self.listeners: dict[str, Callable[..., None]] = {}
        nothing: Any = SimpleNamespace(
            watch=lambda: None,
            tell=lambda _host: None,
            note=lambda *_args: None,
            changed=lambda *_args: None,
            nodes_gone=lambda _ranks: None,
            look_soon=lambda: None,
        )
        control: Any = SimpleNamespace(
            session=SimpleNamespace(
                subscribe=partial(self.listeners.__setitem__, "places"), on_loop=self._soon.append
            ),
            watch_components=partial(self.listeners.__setitem__, "components"),
            watch_links=partial(self.listeners.__setitem__, "links"),
            watch_machines=partial(self.listeners.__setitem__, "machines"),
            nodes=[],
        )
        table: Any = SimpleNamespace(causes=nothing, of=self._of)
        server: Any = SimpleNamespace(tell_all=lambda _name, notice: self.notices.append(notice))
        NodeChanges(table, control, server, nothing, nothing, nothing, nothing).watch()

    def _of(self, host: int) -> Any:
        facts: dict[str, Any] = {"node": "", "facts": None, "skew": 0.0, "reason": ""}
        return calls.NodeRecord(host=host, name=f"n{host}", state="ready", **facts)

    def told(self) -> list[tuple[list[int], str]]:
        """Return the notices since the last time: nodes, and what is said of them."""
        soon, self._soon[:] = list(self._soon), []
        for function in soon:
            function()
        told, self.notices = self.notices, []
        return [
            (
                [one.host for one in notice.nodes],
                " ".join(
                    [name for name in ("back", "gone", "for_good") if getattr(notice, name)]
                    + [notice.reason] * bool(notice.reason)
                ),
            )
            for notice in told
        ]


def test_clients_are_notified_of_what_the_life_cycle_of_machines_decides() -> None:
    head = NotifyingHead()
    for rank in (1, 2):
        head.listeners["machines"](NotifySessions(rank, MachineNews.GONE, "no power"))
    head.listeners["machines"](NotifySessions(2, MachineNews.GIVEN_UP, "no power"))
    head.listeners["machines"](NotifySessions(3, MachineNews.READY))
    head.listeners["machines"](NotifySessions(4, MachineNews.REMOVED, "it was removed"))
    assert head.told() == [
        ([1, 2], "gone no power"),
        ([2], "gone for_good no power"),
        ([3], "back"),
        ([4], "gone for_good it was removed"),
    ]


def test_a_link_that_continues_does_not_open_a_closed_node_to_clients() -> None:
    head = NotifyingHead()
    head.listeners["links"](1, "")  # the life cycle of machines has no news of it
    assert head.told() == [([1], "")]


def test_each_event_gives_one_notice_of_a_node() -> None:
    head = NotifyingHead()
    head.listeners["machines"](NotifySessions(1, MachineNews.GONE, "no power"))
    change = PlacesChanged((1, 2), (), back=False, reason="no power")
    head.listeners["places"](change)
    assert head.told() == [([1], "gone no power"), ([2], "")]
    assert head.told() == []
