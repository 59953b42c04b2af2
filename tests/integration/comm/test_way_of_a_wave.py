"""A wave on its way through the protocol core: each file has one part of it, and has it once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import sapwood
from sapwood.comm import events as ev
from sapwood.core.topology import ROOT, kary
from sapwood_simulation.network import Network

SOURCES = Path(sapwood.__file__).parent

CALLED_UPON = (
    "comm/cached_codec.py",
    "comm/frames.py",
    "comm/framing.py",
    "comm/link.py",
    "comm/messages/",
    "comm/payload.py",
    "comm/peers.py",
    "comm/plain.py",
    "comm/reduction",
    "comm/routing.py",
    "comm/streams/contributors.py",
    "comm/streams/filters.py",
    "comm/streams/late.py",
    "comm/streams/roster.py",
    "comm/streams/stream.py",
    "comm/streams/wave.py",
    "comm/values.py",
    "core/",
)
"""State, tables, codecs and reductions: they are asked and changed, and pass no wave on."""

WAY = [
    ("comm/driver.py", "comm/links.py"),
    ("comm/links.py", "comm/node.py"),
    ("comm/node.py", "comm/streams/engine.py"),
]


def passages(run: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return which file called which other one, in the order in which that first happened."""
    found: dict[tuple[str, str], None] = {}

    def place_of(frame: FrameType | None) -> str:
        path = Path(frame.f_code.co_filename) if frame is not None else Path()
        return path.relative_to(SOURCES).as_posix() if path.is_relative_to(SOURCES) else ""

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        caller, callee = place_of(frame.f_back), place_of(frame)
        if caller and callee and caller != callee and not callee.startswith(CALLED_UPON):
            found[caller, callee] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(found)


def test_a_wave_enters_each_file_once_on_its_way_down_and_once_on_its_way_up() -> None:
    network = Network(kary(4, 2), 1, lambda _rank, value: value)
    network.start()
    network.open_stream(1, {"x": "sum"})
    for _ in range(2):  # with the first one, what is made once is made
        network.broadcast(1, {"x": 1})
        network.run()
    assert passages(lambda: network.broadcast(1, {"x": 1})) == WAY
    # Down through junctions, at agents, up again, and the total at the root: the same way each
    # time. What a place sends leaves from where its bytes came in, and nothing is called back.
    assert passages(network.run) == WAY
    assert len(network.observed(ev.WaveCompleted)) == 3
    assert network.nodes[ROOT].streams[1].waves == {}
