"""Calls of one actor: how many a second, and how long one takes; beside Ray if it is installed.

Run one side after the other: ``python benchmarks/actors.py sapwood``, ``… ray``.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from statistics import median
from typing import Any

CALLS = 1000
ROUNDS = 7


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> int:
        """Add a number, and return the total."""
        self.total += number
        return self.total


def measure(side: str, start: Callable[[], Any], wait: Callable[[Any], int]) -> None:
    """Print the medians of calls that are submitted together, and of calls one by one."""
    assert wait(start()) == 1
    together, single = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for call in [start() for _ in range(CALLS)]:
            wait(call)
        together.append(CALLS / (time.perf_counter() - begin))
        for _ in range(CALLS // 10):
            begin = time.perf_counter()
            wait(start())
            single.append(time.perf_counter() - begin)
    print(f"{side}: {median(together):.0f} calls/s, {median(single) * 1e6:.0f} µs for one")


def main() -> None:
    """Measure the side that the command line names."""
    if sys.argv[1:] == ["ray"]:
        ray: Any = import_module("ray")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        counter = ray.remote(Counter).remote()
        measure("Ray", lambda: counter.add.remote(1), ray.get)
        ray.shutdown()
        return
    sapwood: Any = import_module("sapwood")
    with sapwood.local(agents=1) as cluster, cluster.actor(Counter) as actor:
        measure("Sapwood", lambda: actor.add(1), lambda future: int(future.result()))


if __name__ == "__main__":
    main()
