"""Since when nodes are as they are, and why."""

from __future__ import annotations

import pytest

from sapwood.head.status import NodeCause, NodeCauses
from sapwood.session.options import PlacesChanged


def gone(reason: str, *, disconnected: bool = False) -> PlacesChanged:
    return PlacesChanged((1,), (1,), back=False, reason=reason, disconnected=disconnected)


BACK = PlacesChanged((1,), (1,), back=True)


def test_a_node_that_was_cut_off_and_is_lost_is_gone_since_the_first() -> None:
    causes = NodeCauses()
    causes.changed(gone("reset", disconnected=True), 10.0)
    assert causes.of(1).reason == "its link ended (reset); it may come back"
    causes.changed(gone("nothing heard for 4.1 s"), 14.0)
    assert causes.of(1) == NodeCause("nothing heard for 4.1 s", 10.0)


def test_a_node_that_is_back_says_why_it_was_gone() -> None:
    causes = NodeCauses()
    causes.changed(gone("killed"), 10.0)
    causes.changed(BACK, 20.0)
    assert causes.of(1) == NodeCause("", 20.0, "killed", 10.0)
    causes.changed(gone("again"), 30.0)
    causes.changed(gone("and again"), 31.0)
    assert causes.of(1) == NodeCause("and again", 30.0, "killed", 10.0)


@pytest.mark.parametrize("count", [3, 100])
def test_memory_is_bounded_and_the_oldest_is_forgotten(count: int) -> None:
    causes = NodeCauses(limit=3)
    for host in range(count):
        causes.note([host], "gone", float(host))
    assert [host for host in range(count) if causes.of(host).since or not host][-3:] == [
        *range(count)
    ][-3:]
    assert len([host for host in range(count) if causes.of(host).reason]) == 3
