"""Large arrays of streams between real processes that share no memory, over TLS."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.link import LinkTiming
from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload

MEGABYTE = 2**20

GIBIBYTE = 2**30

NIGHTLY_PATIENCE = 600.0
"""Seconds that one of them may take."""

SIZE = 32 * MEGABYTE
"""Bytes of an array: far more than a junction may hold."""

MAY_HOLD = 16 * MEGABYTE

TIMING = LinkTiming(heartbeat=0.5, failure_after=30.0, grace=2.0)
"""A junction on another machine whose connection ended is waited for as long as ``grace``."""


def resident(pid: int) -> int:
    """Return the memory of a process, bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def begin(grove: Any, value: Any) -> None:
    members = ((1, grove.tree.agents + 1),)
    grove.driver.post(ev.OpenStream(StreamSpec(1, "x", members, {"x": "sum"})))
    encoded = values.encode(value)
    grove.driver.post(ev.Broadcast(1, encoded.body, Payload(encoded.payload())))


@pytest.mark.row("C2-RED")
def test_a_sum_passes_a_junction_that_holds_a_part_of_it(plant_grove: Callable[..., Any]) -> None:
    """The value goes down through two junctions, the sum of what agents make of it comes up."""
    grove = plant_grove("tls", 4, 2)
    junctions = [grove.pids[rank] for rank in (5, 6)]
    small = np.ones(40_000)
    np.testing.assert_array_equal(grove.broadcast({"x": small}), small * 10)
    before = [resident(pid) for pid in junctions]
    array = np.arange(SIZE // 8, dtype="f8")
    most = [0, 0]
    encoded = values.encode({"x": array})
    grove.driver.post(ev.Broadcast(1, encoded.body, Payload(encoded.payload())))

    def is_over() -> bool:
        for number, pid in enumerate(junctions):
            most[number] = max(most[number], resident(pid))
        return len(grove.seen(ev.WaveCompleted)) == 2

    grove.until(is_over)
    np.testing.assert_array_equal(grove.seen(ev.WaveCompleted)[-1].total["x"], array * 10)
    assert max(now - then for now, then in zip(most, before, strict=True)) < MAY_HOLD
    assert len(grove.driver.node.large) == 0
    assert grove.problems == []


@pytest.mark.row("C2-AM")
@pytest.mark.nightly
def test_two_gigabytes_are_added_in_a_junction_that_holds_a_part_of_them(
    plant_grove: Callable[..., Any],
) -> None:
    """1 GiB goes down to two agents below one junction, and 1 GiB of each comes up."""
    grove = plant_grove("tls", 4, 2)
    junction = grove.pids[5]
    grove.driver.post(ev.OpenStream(StreamSpec(1, "x", ((1, 3),), {"x": "sum"})))

    def total_of(value: Any, most: list[int]) -> Any:
        encoded = values.encode({"x": value})
        grove.driver.post(ev.Broadcast(1, encoded.body, Payload(encoded.payload())))
        done = len(grove.seen(ev.WaveCompleted))

        def is_over() -> bool:
            most[0] = max(most[0], resident(junction))
            return len(grove.seen(ev.WaveCompleted)) > done

        grove.until(is_over, NIGHTLY_PATIENCE)
        return grove.seen(ev.WaveCompleted)[-1].total["x"]

    before, most = [0], [0]
    total_of(np.ones(40_000), before)
    array = np.arange(GIBIBYTE // 8, dtype="f8")
    total = total_of(array, most)
    array *= 3
    assert np.array_equal(total, array)
    assert most[0] - before[0] < MAY_HOLD
    assert grove.problems == []


@pytest.mark.row("C2-RED")
@pytest.mark.row("D-2")
@pytest.mark.parametrize("upwards", [False, True], ids=["down", "up"])
def test_a_junction_is_killed_while_a_large_array_passes_it(
    plant_grove: Callable[..., Any], upwards: bool
) -> None:
    grove = plant_grove("tls", 4, 2, timing=TIMING)
    array = np.arange(3 * MEGABYTE // 2, dtype="f8")
    begin(grove, {"x": array})
    fetches = grove.driver.node.large.incoming.fetches
    if upwards:
        grove.until(lambda: any(MEGABYTE < fetch.position < fetch.size // 2 for fetch in fetches()))
    else:
        (channel,) = [one for one in grove.driver.channels.values() if one.link.rank == 5]
        grove.until(lambda: channel.sent > 20)
    os.kill(grove.pids[5], signal.SIGKILL)
    grove.until(lambda: grove.seen(ev.WaveCompleted))
    (wave,) = grove.seen(ev.WaveCompleted)
    np.testing.assert_array_equal(wave.total["x"], array * 10)
    assert wave.ranks == ((1, 5),)
    assert wave.weight == 4
    assert len(grove.seen(ev.PlacesLost)) > 0
    assert len(grove.driver.node.large) == 0
