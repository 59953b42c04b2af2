"""Sapwood, floors and peers side by side: small messages, sums, broadcasts.

``round_trip``
    An empty message to one agent and back.
``gather``
    64 bytes to every agent and 64 bytes back from each, put together at the caller.
``sum_*``
    The sum of one float64 array that user code fills on each agent.
``broadcast_view``, ``broadcast_copy``
    64 MiB to every agent, whose user code looks at one number of each page, of what it may only
    read or of a private copy. The caller's array is not shared before.

The floors are the least that the same work costs without any of them: a uvloop loop in the parent
and in each child, numpy adding from shared memory, memory that is shared before the array is
written to it. Peers: Open MPI through mpi4py (yielding when idle), Dask distributed, Ray, and
pipes of ``multiprocessing``. A peer that cannot be installed or does not finish in time is left out
with a note. ``--output FOLDER`` writes ``peers.md`` and ``peers.png``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sapwood
from floors import measure_floor
from peers.running import SCRIPTS, PeerFailedError, PeerMissingError, run_peer
from peers.work import SMALL, Clock, Work, touched
from programs.filling import Filling

MIB = 2**20

LABELS = {
    "sapwood": "Sapwood",
    "floor": "floor",
    "mpi": "Open MPI",
    "dask": "Dask",
    "ray": "Ray",
    "pipes": "pipes",
}
"""Columns of the table."""

Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Options:
    """The command line.

    Attributes:
        agents: Numbers of agents.
        peers: Which peers.
        rounds: Rounds of small figures; the large ones get a tenth, at least 3.
        sums: Sizes of the arrays to sum, bytes.
        broadcast: Size of the array to broadcast, bytes.
        time_limit: Seconds for each run of a peer.
        output: Where table and plot are written; empty for nowhere.
    """

    agents: tuple[int, ...]
    peers: tuple[str, ...]
    rounds: int
    sums: tuple[int, ...]
    broadcast: int
    time_limit: float
    output: str

    def work(self, agents: int) -> Work:
        """Return what is done with some agents."""
        return Work(agents, self.rounds, max(3, self.rounds // 10), self.sums, self.broadcast)


def read_options() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Sapwood, floors and peers side by side.")
    parser.add_argument("--agents", type=int, nargs="+", help="numbers of agents (4 16 64)")
    parser.add_argument("--peers", nargs="*", choices=[*SCRIPTS], default=[*SCRIPTS])
    parser.add_argument("--rounds", type=int, help="rounds of the small figures (200)")
    parser.add_argument("--quick", action="store_true", help="small sizes: not a measurement")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for each peer")
    parser.add_argument("--output", default="", help="folder for peers.md and peers.png")
    given = parser.parse_args()
    sums, broadcast = ((MIB // 8,), MIB) if given.quick else ((MIB, 8 * MIB), 64 * MIB)
    return Options(
        tuple(given.agents or ([4] if given.quick else [4, 16, 64])),
        tuple(given.peers),
        given.rounds or (20 if given.quick else 200),
        sums,
        broadcast,
        given.time_limit,
        given.output,
    )


def main() -> None:
    """Measure and print."""
    options = read_options()
    if options.output and importlib.util.find_spec("matplotlib") is None:
        sys.exit("error: --output needs matplotlib: `make .venv/with-bench` installs it")
    found: dict[int, dict[str, Seconds]] = {}
    notes: list[str] = []
    for agents in options.agents:
        work = options.work(agents)
        columns = found[agents] = {"sapwood": by_sapwood(work), "floor": by_floors(work)}
        for peer in options.peers:
            print(f"… {LABELS[peer]}, {agents} agents", file=sys.stderr, flush=True)
            try:
                columns[peer] = run_peer(peer, work, options.time_limit)
            except (PeerMissingError, PeerFailedError) as error:
                notes.append(f"{LABELS[peer]}, {agents} agents: left out: {error}")
    table = markdown(found, notes)
    print(table)
    if options.output:
        folder = Path(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "peers.md").write_text(table, encoding="utf-8")
        (folder / "peers.json").write_text(json.dumps(medians(found), indent=1), encoding="utf-8")
        plot(found, folder / "peers.png")


def by_sapwood(work: Work) -> Seconds:
    """Measure Sapwood."""
    clock = Clock()
    with sapwood.local(agents=work.agents) as cluster:
        session = cluster.session
        clock.measure("round_trip", work.rounds, lambda: session.ask(1, "ping", None).result())
        stream = cluster.stream("echo", reduce={"x": "concat"})
        clock.measure("gather", work.rounds, lambda: stream.exchange({"x": SMALL}))
        stream.close()
        for nbytes in work.sums:
            program = Filling(nbytes=nbytes, rounds=3 + work.large_rounds)
            cluster.run(program, range(work.agents)).result()
            clock.seconds[f"sum_{nbytes}"] = Filling.seconds[3:]
        array = np.zeros(work.broadcast // 8)
        rounds = max(1, work.large_rounds // 2)
        for figure, function in (("broadcast_view", touched), ("broadcast_copy", copied)):
            with cluster.stream(function, reduce="sum") as large:
                clock.measure(figure, rounds, partial(_broadcast, large, array))
    return clock.seconds


def _broadcast(stream: sapwood.Stream, array: Any) -> None:
    stream.exchange(array)


def copied(array: Any) -> float:
    """Take a private copy of an array, and look at each page."""
    return touched(array.copy())


def by_floors(work: Work) -> Seconds:
    """Measure the floors."""
    trip = measure_floor("echo", agents=1, nbytes=0, rounds=work.rounds)
    gather = measure_floor("echo", agents=work.agents, nbytes=SMALL.nbytes, rounds=work.rounds)
    seconds: Seconds = {"round_trip": trip, "gather": gather}
    for nbytes in work.sums:
        seconds[f"sum_{nbytes}"] = measure_floor(
            "summing", agents=work.agents, nbytes=nbytes, rounds=work.large_rounds
        )
    rounds = max(1, work.large_rounds // 2)
    shared = measure_floor("sharing", agents=work.agents, nbytes=work.broadcast, rounds=rounds)
    seconds["broadcast_view"] = shared["view"]
    seconds["broadcast_copy"] = shared["copy"]
    return seconds


def medians(found: dict[int, dict[str, Seconds]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return medians in milliseconds: figure, number of agents, column."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for agents, columns in found.items():
        for column, figures in columns.items():
            for figure, seconds in figures.items():
                by_agents = result.setdefault(figure, {}).setdefault(str(agents), {})
                by_agents[column] = round(statistics.median(seconds) * 1e3, 4)
    return result


def markdown(found: dict[int, dict[str, Seconds]], notes: list[str]) -> str:
    """Return the table: milliseconds, medians."""
    columns = [name for name in LABELS if any(name in by for by in found.values())]
    lines = [
        f"| figure, ms | agents | {' | '.join(LABELS[name] for name in columns)} | to the floor |",
        f"|---|---|{'---|' * (len(columns) + 1)}",
    ]
    for figure, by_agents in medians(found).items():
        for agents, values in by_agents.items():
            cells = [f"{values[name]:.3g}" if name in values else "-" for name in columns]
            ratio = f"{values['sapwood'] / values['floor']:.2f}" if "floor" in values else "-"
            lines.append(f"| {figure_name(figure)} | {agents} | {' | '.join(cells)} | {ratio} |")
    return "\n".join([*lines, "", *(f"* {note}" for note in notes), ""])


def figure_name(figure: str) -> str:
    """Return what a figure is called in table and plot."""
    if not figure.startswith("sum_"):
        return figure.replace("_", " ")
    nbytes = int(figure.removeprefix("sum_"))
    return f"sum of {nbytes / MIB:g} MiB"


def plot(found: dict[int, dict[str, Seconds]], path: Path) -> None:
    """Draw one panel for each figure: bars by number of agents, on a logarithmic scale."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra that only --output needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    values = medians(found)
    figure, panels = plt.subplots(2, -(-len(values) // 2), figsize=(13, 7), squeeze=False)
    for panel in panels.flat[len(values) :]:
        panel.set_visible(False)
    for panel, (name, by_agents) in zip(panels.flat, values.items(), strict=False):
        for place, column in enumerate(LABELS):
            heights = [by_agents[agents].get(column, np.nan) for agents in by_agents]
            offsets = np.arange(len(by_agents)) + (place - (len(LABELS) - 1) / 2) * 0.14
            panel.bar(offsets, heights, 0.13, label=LABELS[column])
        panel.set(title=figure_name(name), yscale="log", xlabel="agents", ylabel="ms")
        panel.set_xticks(range(len(by_agents)), list(by_agents))
    panels.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
