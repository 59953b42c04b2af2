"""What a message costs on a link of this machine, measured in a moment."""

from __future__ import annotations

import statistics
import time

import msgspec
import numpy as np

from sapwood.client.local import local
from sapwood.client.stream import Stream
from sapwood.environment.configuration import load_configuration
from sapwood.environment.settings import Settings
from wave_cost import LinkCost

SEVERAL = 9
"""Agents of the second tree: what it takes longer is the overhead of the client."""

SMALL = 256
"""Bytes of the small value."""

SIZE = 2**20
"""Bytes of the large value."""

LEAST = 1e-9
"""Seconds below which nothing is measured."""


def measure_links(settings: Settings | None = None, *, waves: int = 100) -> LinkCost:
    """Measure what a message costs between two processes of this machine.

    It starts two clusters of idle agents, of one and of nine, and lets waves go through them, as
    messages: the short cut that a flat tree of one machine has is off. From the time of a wave with
    one agent, four overheads and two latencies, and from what eight agents more take, two
    overheads of the client each, both follow; from a large value, the time of a byte.

    Args:
        settings: All settings; by default those of configuration files and variables.
        waves: Waves of each kind; the median counts.

    Raises:
        ResourceError: The clusters cannot be started.
    """
    chosen = load_configuration().settings if settings is None else settings
    plain = msgspec.structs.replace(
        chosen, comm=msgspec.structs.replace(chosen.comm, fastpath=False)
    )
    few, many = (np.zeros(count) for count in (SMALL // 8, SIZE // 8))
    with (
        local(1, shape="flat", settings=plain) as cluster,
        cluster.stream("echo", reduce="sum") as stream,
    ):
        one = _wave_seconds(stream, few, waves)
        large = _wave_seconds(stream, many, max(10, waves // 5))
    with (
        local(SEVERAL, shape="flat", settings=plain) as cluster,
        cluster.stream("echo", reduce="sum") as stream,
    ):
        several = _wave_seconds(stream, few, waves)
    overhead = max(LEAST, (several - one) / (2 * (SEVERAL - 1)))
    return LinkCost(
        latency=max(LEAST, (one - 4 * overhead) / 2),
        overhead=overhead,
        per_byte=max(0.0, (large - one) / (2 * SIZE)),
    )


def _wave_seconds(stream: Stream, value: object, waves: int) -> float:
    """Return the median time of a wave."""
    times: list[float] = []
    for _ in range(waves):
        begin = time.perf_counter()
        stream.broadcast(value).result()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
