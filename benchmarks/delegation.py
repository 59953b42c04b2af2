"""Runs on agents of unequal speed: how near to the ideal they come, and what that costs.

Agents are made unequal by their map, which takes ``items / rate`` seconds of waiting on each: so
two cores are enough to have any number of them, and the ideal is known, items by the sum of rates.

``delegation.124``
    Rates 1 : 2 : 4.
``delegation.slowed``
    Three equal agents; the first has a quarter of its rate in the second third of the run.
``delegation.fast``
    Three equal agents and one that is 20 times as fast, as one with a GPU would be.
``delegation.equal``
    Two equal agents whose map computes: what measuring costs. Floor: the same with ``static``.

The floor of the others is the ideal. They begin without a history of rates; ``.again`` is the next
run, which has one. ``.one`` and ``.one.again`` are runs of one iteration. ``.static`` is the same
run with equal parts. ``.ray`` is a pool of actors, and ``.dask`` a worker for each agent with work
stealing, where they are installed: a task for each of 64 chunks in each iteration, to whoever is
free.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import sapwood
from report import Figure, Report, read_options
from sapwood.activity.rate_history import FileHistory

ITEMS = 6400
CHUNKS = 64
ROUNDS = 24
BASE = 6400.0
"""Items per second of the slowest agent."""

RATES: dict[str, tuple[float, ...]] = {
    "124": (1.0, 2.0, 4.0),
    "slowed": (1.0, 1.0, 1.0),
    "fast": (1.0, 1.0, 1.0, 20.0),
}


def rate(kind: str, agent: int, round_: int) -> float:
    """Return the items per second of an agent in an iteration."""
    slowed = kind == "slowed" and not agent and ROUNDS // 3 <= round_ < 2 * ROUNDS // 3
    return BASE * RATES[kind][agent] / (4 if slowed else 1)


def ideal(kind: str, rounds: int = ROUNDS) -> float:
    """Return the seconds of a run whose agents are always all done at the same time."""
    agents = range(len(RATES[kind]))
    return sum(ITEMS / sum(rate(kind, one, number) for one in agents) for number in range(rounds))


class Waiting(sapwood.Program):
    """Waits for as long as its items take on this agent."""

    kind = sapwood.parameter("124")
    rounds = sapwood.parameter(ROUNDS)
    reduce: ClassVar = {"items": "sum"}

    def init(self, data: Any) -> dict[str, Any]:
        """As the method of all programs."""
        return {"round": 0, "items": 0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        """As the method of all programs."""
        time.sleep(len(slice) / rate(self.kind, int(os.environ["SAPWOOD_AGENT"]), state["round"]))
        return {"items": len(slice)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """As the method of all programs."""
        return {"round": state["round"] + 1, "items": state["items"] + total["items"]}

    def done(self, state: dict[str, Any]) -> bool:
        """As the method of all programs."""
        return bool(state["round"] >= self.rounds)

    def iterations(self) -> int:
        """As the method of all programs."""
        return int(self.rounds)


class Computing(sapwood.Program):
    """Adds up squares, for about 10 ms an iteration."""

    reduce: ClassVar = {"total": "sum"}

    def init(self, data: Any) -> dict[str, Any]:
        """As the method of all programs."""
        return {"round": 0, "total": 0.0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as the method
        """As the method of all programs."""
        return {"total": float(np.dot(slice.data, slice.data))}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """As the method of all programs."""
        return {"round": state["round"] + 1, "total": total["total"]}

    def done(self, state: dict[str, Any]) -> bool:
        """As the method of all programs."""
        return bool(state["round"] >= 400)


def main() -> None:
    """Measure and print."""
    options = read_options("Agents of unequal speed.", agents=(2,), runs=3)
    turns = 1 if options.quick else options.runs
    with Report("Agents of unequal speed", options) as report:
        for kind, rates in RATES.items():
            agents = len(rates)
            with sapwood.local(agents) as cluster:
                for name, rounds in ((kind, ROUNDS), (f"{kind}.one", 1)):
                    floor = [ideal(kind, rounds)]
                    first, again = [], []
                    for _ in range(turns):
                        with tempfile.TemporaryDirectory() as folder:
                            cluster.history = FileHistory(Path(folder))
                            first.append(waiting(cluster, kind, "measured", rounds))
                            again.append(waiting(cluster, kind, "measured", rounds))
                    report.add(Figure.of(f"delegation.{name}", agents, first, floor, unit="ms"))
                    report.add(
                        Figure.of(f"delegation.{name}.again", agents, again, floor, unit="ms")
                    )
                floor = [ideal(kind)]
                times = [waiting(cluster, kind, "static") for _ in range(turns)]
                report.add(Figure.of(f"delegation.{kind}.static", agents, times, floor, unit="ms"))
        report.add(equal(turns))
        for kind, rates in RATES.items():
            for name, peer in (("ray", with_ray), ("dask", with_dask)):
                try:
                    times = [peer(kind) for _ in range(turns)]
                except Exception as error:  # noqa: BLE001 - the others are measured all the same
                    print(f"without {name}: {error}", file=sys.stderr)
                    continue
                figure = f"delegation.{kind}.{name}"
                report.add(Figure.of(figure, len(rates), times, [ideal(kind)], unit="ms"))


def waiting(
    cluster: sapwood.Cluster,
    kind: str,
    how: Literal["measured", "static"],
    rounds: int = ROUNDS,
) -> float:
    """Return the seconds of all iterations of a run."""
    run = cluster.run(Waiting(kind=kind, rounds=rounds), range(ITEMS), delegate=how)
    assert run.result()["items"] == rounds * ITEMS
    return run.statistics.seconds - run.statistics.prepare_seconds


def equal(turns: int) -> Figure:
    """Measure equal agents, measured and static by turns."""
    data = np.random.default_rng(1).normal(size=8_000_000)
    values: list[float] = []
    floors: list[float] = []
    with sapwood.local(2) as cluster:
        for turn in range(1 + 3 * turns):
            for how, times in _ways(floors, values):
                run = cluster.run(Computing(), data, delegate=how)
                run.result()
                if turn:
                    statistics = run.statistics
                    times.append(statistics.seconds - statistics.prepare_seconds)
    return Figure.of("delegation.equal", 2, values, floors, unit="ms")


def _ways(
    static: list[float], measured: list[float]
) -> list[tuple[Literal["measured", "static"], list[float]]]:
    return [("static", static), ("measured", measured)]


def _rounds(agents: int, submit: Callable[[int, int, int], int]) -> float:
    begin = time.perf_counter()
    for number in range(ROUNDS):
        assert submit(number, CHUNKS, agents) == ITEMS
    return time.perf_counter() - begin


def with_ray(kind: str) -> float:
    """Return the seconds of Ray: an actor for each agent, chunks to who is free."""
    import ray  # noqa: PLC0415 - where it is installed
    from ray.util import ActorPool  # noqa: PLC0415 - as above

    agents = len(RATES[kind])
    ray.init(num_cpus=agents, include_dashboard=False, log_to_driver=False)
    try:

        class Mapper:
            def __init__(self, agent: int) -> None:
                self.agent = agent

            def map(self, count: int, number: int) -> int:
                time.sleep(count / rate(kind, self.agent, number))
                return count

        remote = ray.remote(Mapper)
        pool = ActorPool([remote.remote(one) for one in range(agents)])
        size = ITEMS // CHUNKS

        def submit(number: int, chunks: int, _agents: int) -> int:
            jobs = [(size, number)] * chunks
            return sum(pool.map_unordered(lambda actor, job: actor.map.remote(*job), jobs))

        submit(0, agents, agents)  # all are there
        return _rounds(agents, submit)
    finally:
        ray.shutdown()


def with_dask(kind: str) -> float:
    """Return the seconds of Dask: a worker for each agent, chunks by work stealing."""
    from distributed import (  # noqa: PLC0415 - where it is installed
        Client,
        LocalCluster,
        get_worker,
    )

    agents = len(RATES[kind])
    size = ITEMS // CHUNKS

    def one(count: int, number: int, _job: int) -> int:
        time.sleep(count / rate(kind, int(get_worker().name), number))
        return count

    with (
        LocalCluster(
            n_workers=agents, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):

        def submit(number: int, chunks: int, _agents: int) -> int:
            jobs = client.map(one, [size] * chunks, [number] * chunks, range(chunks), pure=False)
            return sum(client.gather(jobs))

        submit(0, agents, agents)
        return _rounds(agents, submit)


if __name__ == "__main__":
    main()
