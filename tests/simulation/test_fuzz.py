"""Hostile frames; `make torture` sends a million of them."""

from __future__ import annotations

from typing import get_args

import pytest

from sapwood.comm import frames, messages
from sapwood.comm.driver import NodeDriver
from sapwood.comm.links import LinkTable
from sapwood.comm.peers import PeerTable
from sapwood.comm.streams.engine import UnsynchronisedWaves
from sapwood.core.errors import ProtocolError
from sapwood_simulation import fuzz as fuzz_module
from sapwood_simulation.fuzz import FuzzError, fuzz
from sapwood_simulation.hostile import HostilePeer


@pytest.mark.slow
def test_hostile_frames_do_no_harm() -> None:
    report = fuzz(3_000, seed=11)
    assert report.frames >= 3_000
    assert report.cut_off > report.peers // 2


@pytest.mark.parametrize(
    ("owner", "check"),
    [(UnsynchronisedWaves, "_must_be_of_one"), (PeerTable, "must_be_parent")],
)
@pytest.mark.slow
def test_a_check_that_is_missing_is_found(
    owner: type, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frames reach streams of all kinds: without a check of them something breaks."""

    def nothing(*_args: object) -> None:
        pass

    monkeypatch.setattr(owner, check, nothing)
    with pytest.raises(FuzzError, match="to have it again"):
        fuzz(10_000, seed=1)


@pytest.mark.nightly
def test_places_that_are_said_to_be_below_themselves_do_no_harm() -> None:
    """Whoever followed the way to one of them went round in a circle for ever."""
    assert fuzz(20_000, seed=424242).frames >= 20_000


@pytest.mark.slow
def test_the_frames_are_of_every_kind() -> None:
    source = HostilePeer(3)
    kinds: set[type] = set()
    refused = 0
    for _ in range(6_000):
        try:
            kinds |= {type(frame.message) for frame in frames.FrameDecoder().feed(source.frame())}
        except ProtocolError:
            refused += 1
    assert kinds == set(get_args(messages.AnyMessage))
    assert 1_200 < refused < 4_800


@pytest.mark.slow
def test_the_same_seed_gives_the_same_frames() -> None:
    first, second = HostilePeer(5), HostilePeer(5)
    assert [first.frame() for _ in range(500)] == [second.frame() for _ in range(500)]


def test_a_place_that_crashes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(LinkTable, "_take", crash)
    with pytest.raises(FuzzError, match=r"KeyError: .*sapwood_simulation\.fuzz --seed 0"):
        fuzz(100)


def test_a_place_that_is_slow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "MAX_SECONDS", 0.0)
    with pytest.raises(FuzzError, match=r"0\.0 s for"):
        fuzz(100)


@pytest.mark.slow
def test_a_place_that_keeps_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "MAX_GROWTH", -(2**40))
    with pytest.raises(FuzzError, match="has grown"):
        fuzz(200)


def test_a_place_that_complains_too_often_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = NodeDriver.bytes_received

    def complain(place: NodeDriver, number: int, data: bytes) -> None:
        place.problem("again")
        original(place, number, data)

    monkeypatch.setattr(NodeDriver, "bytes_received", complain)
    with pytest.raises(FuzzError, match="complaints of one peer"):
        fuzz(100)
