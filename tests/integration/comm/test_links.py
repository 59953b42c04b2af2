"""Links between real processes: over TLS on several addresses, cut in the middle, stopped."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.link import LinkTiming
from sapwood.comm.machine import machine_id
from sapwood.comm.payload import Payload

PATIENCE = 60.0
GRACE = 20.0
"""Seconds for which a broken link may stay where the end of a process is to be known before."""

MEGABYTE = 2**20


def resident(pid: int) -> int:
    """Return the memory of a process, bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def answers(grove: Any) -> dict[int, list[int]]:
    """Return what was answered: number of the request → order of arrival, checksum."""
    found: dict[int, list[int]] = {}
    for effect in grove.seen(ev.Answered):
        assert effect.error is None, effect.error
        assert effect.number not in found, "answered twice"
        found[effect.number] = plain.decode(effect.body)
    return found


@pytest.mark.row("A-ACT-5")
@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_a_tree_of_processes_is_right(plant_grove: Callable[..., Any], kind: str) -> None:
    """Junctions and agents on separate addresses; over TCP each shows a certificate."""
    grove = plant_grove(kind, 4, 2)
    for size in (3, 300_000):
        array = np.arange(size, dtype="f8")
        np.testing.assert_array_equal(grove.broadcast({"x": array}), array * (1 + 2 + 3 + 4))
    data = bytes(range(256)) * 1000
    for rank in range(1, grove.tree.size):
        grove.driver.post(ev.Ask(rank, "sum", rank, b"\xc0", Payload(data)))
    grove.until(lambda: len(grove.seen(ev.Answered)) == grove.tree.size - 1)
    expected = [0, zlib.crc32(data)]
    assert answers(grove) == dict.fromkeys(range(1, grove.tree.size), expected)
    assert grove.problems == []


@pytest.mark.row("D-2")
@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_a_transfer_survives_cuts_of_its_connection(
    plant_grove: Callable[..., Any], kind: str
) -> None:
    """24 MiB, in one frame and in pieces, through a proxy that cuts the connection in between."""
    grove = plant_grove(kind, 1, 0, proxied=(1,))
    proxy = grove.proxies[1]
    large = np.random.default_rng(1).bytes(24 * MEGABYTE)
    for number in range(20):
        grove.driver.post(ev.Ask(1, "sum", number, b"\xc0", Payload(b"%d" % number)))
    proxy.cut_at = [proxy.passed + part * MEGABYTE for part in (5, 12, 20)]
    grove.driver.post(ev.Ask(1, "sum", 20, b"\xc0", Payload(large)))
    for number in range(21, 40):
        grove.driver.post(ev.Ask(1, "sum", number, b"\xc0", Payload(b"%d" % number)))
    grove.until(lambda: len(grove.seen(ev.Answered)) == 40)
    assert proxy.cuts == 3
    expected = {number: [number, zlib.crc32(b"%d" % number)] for number in range(40)}
    expected[20] = [20, zlib.crc32(large)]
    assert answers(grove) == expected
    proxy.cut_at = [proxy.passed + part * MEGABYTE for part in (5, 20, 45)]
    array = np.frombuffer(large, "u8").astype("f8")
    np.testing.assert_array_equal(grove.broadcast({"x": array}), array)
    assert proxy.cuts == 6
    assert grove.seen(ev.PlacesLost) == []
    assert grove.problems == []


@pytest.mark.row("D-2")
def test_connections_that_break_all_the_time_lose_nothing(
    plant_grove: Callable[..., Any],
) -> None:
    grove = plant_grove("tls", 4, 2, proxied=(1, 5, 6))
    for wave in range(10):
        for rank in (5, 1, 6):
            proxy = grove.proxies[rank]
            proxy.cut_at = [proxy.passed + 30_000 * rank]
        array = np.full(20_000, float(wave))
        np.testing.assert_array_equal(grove.broadcast({"x": array}), array * 10)
    assert sum(proxy.cuts for proxy in grove.proxies.values()) >= 5
    assert grove.seen(ev.PlacesLost) == []
    assert grove.problems == []


@pytest.mark.row("D-4")
@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_a_stopped_reader_costs_no_memory_on_the_way(
    plant_grove: Callable[..., Any], kind: str
) -> None:
    """A junction keeps no more than its window for a child that does not read."""
    grove = plant_grove(kind, 4, 2)
    junction = grove.tree.parents[1]
    near, far = 1, 3
    assert grove.tree.parents[far] != junction
    data = np.random.default_rng(2).bytes(64 * 1024)
    grove.driver.post(ev.Ask(near, "sum", 0, b"\xc0", Payload(data)))
    grove.until(lambda: len(grove.seen(ev.Answered)) == 1)
    before = resident(grove.pids[junction])
    os.kill(grove.pids[near], signal.SIGSTOP)
    count = 1000
    for number in range(1, count):
        grove.driver.post(ev.Ask(near, "sum", number, b"\xc0", Payload(data)))
    for number in range(count, count + 10):
        grove.driver.post(ev.Ask(far, "sum", number, b"\xc0", Payload(data)))
    # Others are not held up, and what is for the one that stopped waits here.
    grove.until(lambda: len(grove.seen(ev.Answered)) == 11)
    (channel,) = [one for one in grove.driver.channels.values() if one.link.rank == junction]
    grove.until(lambda: channel.state.value == "open" and not channel.ready)
    assert channel.queued > 0
    assert resident(grove.pids[junction]) - before < 32 * MEGABYTE
    os.kill(grove.pids[near], signal.SIGCONT)
    grove.until(lambda: len(grove.seen(ev.Answered)) == count + 10)
    arrived = answers(grove)
    checksum = zlib.crc32(data)
    assert [arrived[number] for number in range(count)] == [[n, checksum] for n in range(count)]
    grove.until(lambda: channel.queued == 0)
    assert resident(grove.pids[junction]) - before < 48 * MEGABYTE


def test_the_end_of_a_process_is_known_without_the_grace_time(
    plant_grove: Callable[..., Any],
) -> None:
    grove = plant_grove(
        "unix", 2, 0, machine=machine_id(), timing=LinkTiming(0.5, 30.0, grace=GRACE)
    )
    begin = grove.loop.time()
    os.kill(grove.pids[1], signal.SIGKILL)
    grove.until(lambda: grove.seen(ev.PlacesLost))
    assert grove.loop.time() - begin < GRACE / 2
    grove.driver.close()
    assert grove.nursery.wait(grove.pids[2]) == 0


@pytest.mark.row("D-2")
def test_a_child_whose_parent_is_gone_is_taken_in_elsewhere_over_tls(
    plant_grove: Callable[..., Any],
) -> None:
    """A killed parent says no goodbye: connecting is refused, and the root takes its children."""
    grove = plant_grove("tls", 4, 2)
    junction = grove.tree.parents[1]
    joined = len(grove.seen(ev.PlaceJoined))
    os.kill(grove.pids[junction], signal.SIGKILL)
    grove.until(lambda: len(grove.seen(ev.PlaceJoined)) >= joined + 2)
    grove.driver.post(ev.Ask(1, "sum", 7, b"\xc0", Payload(b"seven")))
    grove.until(lambda: grove.seen(ev.Answered))
    assert answers(grove) == {7: [0, zlib.crc32(b"seven")]}
