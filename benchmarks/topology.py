"""Predicted and measured times of waves in trees of several shapes.

``topology.SHAPE``
    1 KiB to every agent and 1 KiB back, summed by the tree; the built-in handler ``echo`` answers.
    Waves go as messages: the short cut of flat trees is off, which the prediction knows nothing of.
    The *floor* is the prediction here (``wave_cost.py``), from figures of
    links that were measured just before: the ratio says how far it is off.

On a machine with fewer cores than processes, waves wait for cores. The model shares these evenly,
and knows nothing of what it costs to change from one process to another.
"""

from __future__ import annotations

import time

import msgspec
import numpy as np

import sapwood
from link_measurement import measure_links
from report import Figure, Options, Report, read_options
from sapwood.comm import values
from sapwood.environment.configuration import load_configuration
from sapwood.environment.cores import usable_cores
from sapwood.session_server.shape import tree_of_shape
from wave_cost import LinkCost, WaveLoad, predict

SIZE = 1024
"""Bytes of the value, and of each answer."""

SHAPES = ("flat", "kary:2", "kary:4", "knomial:2")

WARM_UP = 10


def main() -> None:
    """Measure and print."""
    options = read_options("Waves in trees of several shapes.", agents=(8, 16, 32), runs=3)
    with Report("Topology", options) as report:
        link = measure_links(waves=20 if options.quick else 200)
        for agents in options.agents:
            for shape in SHAPES[:2] if options.quick else SHAPES:
                wave(shape, agents, link, options, report)


def wave(shape: str, agents: int, link: LinkCost, options: Options, report: Report) -> None:
    """Measure a wave in a tree of some shape."""
    settings = load_configuration().settings
    settings = msgspec.structs.replace(
        settings, comm=msgspec.structs.replace(settings.comm, fastpath=False)
    )
    rounds = 10 if options.quick else 100
    sent = {"x": np.arange(SIZE // 8, dtype=float)}
    encoded = values.encode(sent)
    nbytes = len(encoded.body) + len(encoded.payload())
    tree = tree_of_shape(shape, agents)
    predicted = predict(tree, WaveLoad(nbytes, nbytes), link, cores=usable_cores()).seconds
    seconds: list[float] = []
    for _ in range(options.runs):
        with (
            sapwood.local(agents, shape=shape, settings=settings) as cluster,
            cluster.stream("echo", reduce={"x": "sum"}) as stream,
        ):
            for turn in range(WARM_UP + rounds):
                begin = time.perf_counter()
                total = stream.broadcast(sent).result().total
                if turn >= WARM_UP:
                    seconds.append(time.perf_counter() - begin)
                assert np.array_equal(total["x"], agents * sent["x"])
    name = f"topology.{shape}"
    report.add(Figure.of(name, agents, seconds, [predicted], unit="us", nbytes=SIZE))


if __name__ == "__main__":
    main()
