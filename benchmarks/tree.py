"""What the tree costs: small messages down and up, and sums of large arrays.

``tree.broadcast_gather``
    64 bytes to every agent and 64 bytes back from each, put together in the order of the
    ranks; the built-in handler ``echo`` answers. Floor: a uvloop loop in the parent and one in
    each forked child, length-prefixed frames over socket pairs.
    The thread that measures waits for each answer (``stream.exchange``).
``tree.broadcast_gather_future``
    The same by ``stream.broadcast(value).result()``.
``tree.sum``
    Every agent's user code (in its runner process) fills a float64 array, and the caller gets
    the sum. Floor: forked children fill arrays in memory that they share with the parent, one
    byte over a socket pair says so, and the parent adds the arrays with numpy.

A measurement is one round; floor and Sapwood take turns, and the first rounds do not count.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import sapwood
from floors import measure_floor
from programs.filling import Filling
from report import Figure, Options, Report, read_options

SMALL = 64
"""Bytes of a small message."""

LARGE = (1 << 20, 8 << 20)
"""Bytes of the arrays to sum."""

WARM_UP = 20
SUM_WARM_UP = 2


def main() -> None:
    """Measure and print."""
    options = read_options("Broadcast, gather and sum.", agents=(4, 16, 64), runs=5)
    with Report("Tree", options) as report:
        for agents in options.agents:
            with sapwood.local(agents=agents) as cluster:
                for by_future in (False, True):
                    broadcast_gather(cluster, agents, options, report, by_future=by_future)
                for nbytes in LARGE[:1] if options.quick else LARGE:
                    array_sum(cluster, agents, nbytes, options, report)


def broadcast_gather(
    cluster: sapwood.Cluster, agents: int, options: Options, report: Report, *, by_future: bool
) -> None:
    """Measure 64 bytes down and up."""
    rounds = 20 if options.quick else 200
    sent = np.arange(SMALL, dtype=np.uint8)
    expected = np.tile(sent, agents)
    stream = cluster.stream("echo", reduce={"x": "concat"})
    turn_by = by_a_future if by_future else by_exchange
    seconds: list[float] = []
    floors: list[float] = []
    for _ in range(options.runs):
        floors += measure_floor("echo", agents=agents, nbytes=SMALL, rounds=rounds)
        for turn in range(WARM_UP + rounds):
            begin = time.perf_counter()
            total = turn_by(stream, {"x": sent})
            if turn >= WARM_UP:
                seconds.append(time.perf_counter() - begin)
            assert np.array_equal(total["x"], expected)
    stream.close()
    name = f"tree.broadcast_gather{'_future' if by_future else ''}"
    report.add(Figure.of(name, agents, seconds, floors, unit="us", nbytes=SMALL))


def by_exchange(stream: sapwood.Stream, value: Any) -> Any:
    """Wait for the answer to a value."""
    return stream.exchange(value).total


def by_a_future(stream: sapwood.Stream, value: Any) -> Any:
    """Get the future of the answer to a value, and wait for that."""
    return stream.broadcast(value).result().total


def array_sum(
    cluster: sapwood.Cluster, agents: int, nbytes: int, options: Options, report: Report
) -> None:
    """Measure the sum of one array from each agent."""
    rounds = 3 if options.quick else 40
    program = Filling(nbytes=nbytes, rounds=SUM_WARM_UP + rounds)
    seconds: list[float] = []
    floors: list[float] = []
    for _ in range(options.runs):
        floors += measure_floor("summing", agents=agents, nbytes=nbytes, rounds=rounds)
        cluster.run(program, range(agents)).result()
        assert len(Filling.seconds) == SUM_WARM_UP + rounds
        seconds += Filling.seconds[SUM_WARM_UP:]
    report.add(Figure.of("tree.sum", agents, seconds, floors, unit="ms", nbytes=nbytes))


if __name__ == "__main__":
    main()
