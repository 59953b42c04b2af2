"""``multiprocessing``: forked workers at the ends of pipes, values pickled."""

from __future__ import annotations

import multiprocessing
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from peers.work import SMALL, Clock, Work, check_sum, filled, touched


def worker(rank: int, pipe: Connection) -> None:
    """Answer orders until the pipe ends."""
    while True:
        order, value = pipe.recv()
        if order == "end":
            return
        if order == "sum":
            pipe.send(filled(value, rank))
        elif order == "touch":
            pipe.send(touched(value))
        else:
            pipe.send(value)


def main() -> None:
    """Do the work."""
    work = Work.from_arguments()
    clock = Clock()
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    for rank in range(1, work.agents + 1):
        ours, theirs = context.Pipe()
        context.Process(target=worker, args=(rank, theirs), daemon=True).start()
        theirs.close()
        pipes.append(ours)

    def ask(order: str, value: Any) -> list[Any]:
        for pipe in pipes:
            pipe.send((order, value))
        return [pipe.recv() for pipe in pipes]

    def round_trip() -> None:
        pipes[0].send(("echo", None))
        pipes[0].recv()

    def array_sum(nbytes: int) -> Any:
        for pipe in pipes:
            pipe.send(("sum", nbytes))
        total, waiting = np.zeros(nbytes // 8), list(pipes)
        while waiting:
            for ready in wait(waiting):
                assert isinstance(ready, Connection)
                total += ready.recv()
                waiting.remove(ready)
        return total

    clock.measure("round_trip", work.rounds, round_trip)
    clock.measure("gather", work.rounds, lambda: ask("echo", SMALL))
    for nbytes in work.sums:
        clock.measure(f"sum_{nbytes}", work.large_rounds, partial(array_sum, nbytes))
        check_sum(array_sum(nbytes), work.agents)
    array = np.zeros(work.broadcast // 8)
    rounds = max(1, work.large_rounds // 2)
    clock.measure("broadcast_copy", rounds, lambda: ask("touch", array))
    for pipe in pipes:
        pipe.send(("end", None))
    clock.report()


if __name__ == "__main__":
    main()
