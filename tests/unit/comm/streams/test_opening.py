"""What a place is told of the streams when it is attached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.comm import messages as msg
from sapwood.comm.messages import StreamSpec
from sapwood.comm.streams.opening import Opening
from sapwood.comm.streams.stream import Position
from sapwood.core.topology import ROOT, kary

JUNCTION = 5
SPEC = StreamSpec(1, "test", ((1, 5),), {"x": "sum"})


def opening_with(stream: Any) -> Opening:
    near: Any = SimpleNamespace(rank=ROOT, router=SimpleNamespace(tree=kary(4, 2)), links_to=tuple)
    unused: Any = None
    return Opening(near, {1: stream}, unused, Position(ROOT, 0), unused)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_junction_has_the_streams_before_it_may_tell_others_of_them(*, fresh: bool) -> None:
    stream = SimpleNamespace(spec=SPEC, quiet=False, concerns=lambda _rank: True)
    effects: list[Any] = opening_with(stream).child_came(JUNCTION, fresh=fresh)
    assert [effect.message for effect in effects] == [msg.Open(SPEC), msg.OpenStreams((1,))]
