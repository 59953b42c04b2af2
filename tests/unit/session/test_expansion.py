"""Agents that are added are there together, or there are none."""

from __future__ import annotations

import pytest

from sapwood.core.errors import AgentLostError, ClosedError
from sapwood.session.expansion import Expansion
from sapwood.session.options import PlacesChanged


def test_one_that_never_comes_fails_all() -> None:
    expansion = Expansion()
    expansion.begun((5, 6))
    expansion.changed(PlacesChanged((5,), (5,), back=True, reason="", added=True))
    expansion.changed(PlacesChanged((6,), (6,), back=False, reason="killed", for_good=True))
    with pytest.raises(AgentLostError, match="killed"):
        expansion.done.result(0)
    expansion.changed(PlacesChanged((6,), (6,), back=True, reason="", added=True))
    expansion.abandon(ClosedError("the cluster was closed"))
    with pytest.raises(AgentLostError):
        expansion.done.result(0)


def test_nobody_waits_when_the_session_ends() -> None:
    expansion = Expansion()
    expansion.begun((5,))
    expansion.abandon(ClosedError("the cluster was closed"))
    with pytest.raises(ClosedError):
        expansion.done.result(0)
    expansion.changed(PlacesChanged((5,), (5,), back=True, reason="", added=True))
