"""Write the tables of measurements into the documentation, from the figures in ``results/``.

::

    python benchmarks/tables.py                 # writes all tables
    python benchmarks/tables.py --check         # says which table differs from the figures
    python benchmarks/tables.py --save tree     # measures with tree.py --json, then writes
    python benchmarks/tables.py --save iterate --runs 50

A file of ``results/`` has the command, the kind of machine, the date, and the figures as
``--json`` prints them. A figure with several lines was measured several times: its cell
has the least and the greatest value. A table is between ``<!-- table: NAME -->`` and
``<!-- end of table -->``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"
PAGES = (DOCS / "explanation" / "measurements.md", DOCS / "programs" / "uneven-machines.md")

SIGNS = {"us": "µs"}
STEP = 1000
"""From so many microseconds or milliseconds on, a cell has the next larger unit."""

HUNDRED, TEN = 100, 10

Record = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of a table, or several: one for each number of agents.

    Attributes:
        label: Name of the measured operation.
        figure: Name of its figures.
        nbytes: Only figures with this payload; None for any.
    """

    label: str
    figure: str
    nbytes: int | None = None


@dataclass(frozen=True)
class Table:
    """A table of the documentation.

    Attributes:
        source: The file of ``results/``.
        rows: Its rows.
        own: Title of the column of Sapwood's figures.
        floor: Title of the column of floors; empty for none.
        peers: Titles of columns of other systems, with what follows the name of the figure.
    """

    source: str
    rows: tuple[Row, ...]
    own: str = "Sapwood"
    floor: str = "floor"
    peers: dict[str, str] = field(default_factory=dict)


MIB = 2**20

TABLES = {
    "failure": Table(
        "failure",
        (
            Row("an exception", "failure.exception"),
            Row("SIGSEGV", "failure.segv"),
            Row("`kill -9` of the runner", "failure.kill"),
            Row("`kill -9` of the agent", "failure.agent"),
            Row("a junction is killed, until the wave is complete", "failure.junction killed"),
            Row(
                "a junction is stopped, the same, minus `comm.failure_after`",
                "failure.junction stopped, less failure_after",
            ),
            Row("Ctrl-C, until `sapwood run` has ended", "failure.interrupt"),
        ),
        own="reported after",
    ),
    "startup": Table(
        "startup",
        (
            Row("ready", "startup.ready"),
            Row("memory of an agent", "startup.pss_ready"),
            Row("with its runner", "startup.pss_working"),
            Row("a secondary tree is ready", "startup.topology"),
        ),
    ),
    "waves": Table(
        "tree",
        (
            Row("`exchange`", "tree.broadcast_gather"),
            Row("`broadcast(…).result()`", "tree.broadcast_gather_future"),
        ),
    ),
    "messages": Table(
        "messages",
        (
            Row("on the client's loop", "messages.round_trip"),
            Row("from a waiting thread", "messages.round_trip_waiting"),
        ),
    ),
    "sums": Table("tree", (Row("1 MiB", "tree.sum", MIB), Row("8 MiB", "tree.sum", 8 * MIB))),
    "iterate": Table(
        "iterate",
        (
            Row("k-means", "iterate.wall"),
            Row("without work", "iterate.empty"),
        ),
        peers={
            "Sapwood": ".sapwood",
            "Open MPI, allreduce": ".mpi_allreduce",
            "reduce and broadcast": ".mpi_reduce_bcast",
        },
        own="",
    ),
    "hosts": Table(
        "hosts",
        (
            Row("64 bytes to all and back", "hosts.broadcast_gather"),
            Row("sum of 8 MiB from each", "hosts.sum"),
            Row("the cluster is ready", "hosts.ready"),
        ),
        peers={"Open MPI": ".mpi", "Ray": ".ray"},
    ),
    "datasets": Table(
        "datasets",
        (
            Row("k-means", "datasets.kmeans"),
            Row("logistic regression", "datasets.logistic"),
            Row("bytes on the wire, k-means", "datasets.kmeans.wire"),
            Row("memory of all processes, k-means", "datasets.kmeans.memory"),
        ),
        floor="",
        peers={"Open MPI": ".mpi", "Dask": ".dask"},
    ),
    "links": Table(
        "links",
        (
            Row("64 bytes there and back", "links.round_trip"),
            Row("64 MiB, until confirmed", "links.stream"),
            Row("empty request of the protocol and its answer", "links.request"),
            Row("1 MiB of a 16 MiB wave", "links.wave"),
            Row("memory of a silent link at the root", "links.idle_link"),
        ),
    ),
    "sessions": Table(
        "sessions",
        (
            Row("attach", "sessions.attach"),
            Row("64 bytes to all and back", "sessions.exchange"),
            Row("sum of 8 MiB from each", "sessions.sum"),
            Row("expand by 16 agents", "sessions.expand"),
        ),
    ),
    "native_code": Table(
        "native_code",
        (
            Row("find, verify and load an unchanged program", "native_code.load"),
            Row("call with ten arrays, in a run", "native_code.call"),
            Row("the same outside of runs", "native_code.call.apart"),
            Row("from an edit to the new version", "native_code.edit"),
        ),
    ),
    "growth": Table(
        "growth",
        (
            Row("barrier", "growth.barrier"),
            Row("reduction", "growth.reduction"),
            Row("barrier, 10 µs for each message", "growth.barrier.busy"),
            Row("reduction, 10 µs for each message", "growth.reduction.busy"),
        ),
        own="virtual time",
        floor="",
    ),
    "delegation": Table(
        "delegation",
        (
            Row("1 : 2 : 4", "delegation.124"),
            Row("one slows down to a quarter and recovers", "delegation.slowed"),
            Row("one 20 times as fast", "delegation.fast"),
        ),
        own="first run",
        floor="ideal",
        peers={
            "next run": ".again",
            "equal parts": ".static",
            "Ray": ".ray",
            "Dask": ".dask",
        },
    ),
}


def load(source: str) -> Record:
    """Return the contents of a file of ``results/``."""
    found: Record = json.loads((RESULTS / f"{source}.json").read_text(encoding="utf-8"))
    return found


def table_text(table: Table) -> str:
    """Return a table with its source above, as Markdown."""
    source = load(table.source)
    heads, lines = _lines(table, source["figures"])
    used = [any(line[number] for line in lines) for number in range(len(heads))]
    if heads[1] == "agents" and len({line[1] for line in lines}) == 1:
        used[1] = False
    rows = [heads, ["---"] * len(heads), *lines]
    text = "\n".join(
        "| " + " | ".join(cell for cell, use in zip(row, used, strict=True) if use) + " |"
        for row in rows
    )
    return f"`{source['command']}`, {source['machine']}, {source['date']}.\n\n{text}"


def _lines(table: Table, figures: list[Record]) -> tuple[list[str], list[list[str]]]:
    own = [table.own] if table.own else []
    heads = ["", "agents", *own, *table.peers]
    heads += [table.floor, "ratio"] if table.floor else []
    lines = []
    for row in table.rows:
        names = ([row.figure] if table.own else []) + [
            row.figure + suffix for suffix in table.peers.values()
        ]
        for agents in sorted({one["agents"] for one in figures if one["name"] in names}):
            columns = [_matching(figures, name, agents, row.nbytes) for name in names]
            if not any(columns):
                continue
            line = [row.label, f"{agents:,}", *(_cell(found, "value") for found in columns)]
            if table.floor:
                line += [_cell(columns[0], "floor"), _cell(columns[0], "ratio")]
            lines.append(line)
    return heads, lines


def _matching(figures: list[Record], name: str, agents: int, nbytes: int | None) -> list[Record]:
    return [
        one
        for one in figures
        if one["name"] == name and one["agents"] == agents and nbytes in (None, one["bytes"])
    ]


def _cell(found: list[Record], key: str) -> str:
    given = [one[key] for one in found if one[key] is not None]
    if not given:
        return ""
    if key == "ratio":
        texts = [f"{value:.2f}" for value in (min(given), max(given))]
        return texts[0] if texts[0] == texts[1] else " to ".join(texts)
    unit = found[0]["unit"]
    if unit in ("us", "ms") and min(given) >= STEP:
        given, unit = [value / STEP for value in given], {"us": "ms", "ms": "s"}[unit]
    texts = [_number(value) for value in (min(given), max(given))]
    text = texts[0] if texts[0] == texts[1] else " to ".join(texts)
    return f"{text} {SIGNS.get(unit, unit)}"


def _number(value: float) -> str:
    if value >= HUNDRED:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= TEN else f"{value:.2g}"


def written(text: str) -> str:
    """Return a page with each of its tables written anew."""

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}\n{table_text(TABLES[match[2]])}\n\n{match[3]}"

    pattern = r"(<!-- table: (\w+) -->)\n.*?(<!-- end of table -->)"
    return re.sub(pattern, replaced, text, flags=re.DOTALL)


def names_in(text: str) -> Iterator[str]:
    """Yield the names of the tables of a page."""
    yield from re.findall(r"<!-- table: (\w+) -->", text)


def machine() -> str:
    """Return the kind of this machine in words."""
    cores = len(os.sched_getaffinity(0))
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    python = ".".join(platform.python_version_tuple()[:2])
    load_text = f"load {os.getloadavg()[0]:.1f} at the start"
    return f"{cores} cores of {_processor()}, {system}, Python {python}, {load_text}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def save(name: str, more: list[str]) -> None:
    """Run a benchmark, and keep its figures in ``results/``."""
    kind = machine()
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), "--json", *more],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    head = {
        "command": " ".join(["python", f"benchmarks/{name}.py", *more]),
        "machine": kind,
        "date": time.strftime("%Y-%m"),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    figures = ",\n".join(f"  {line}" for line in done.stdout.splitlines() if line.startswith("{"))
    text = "{\n" + "\n".join(lines) + f'\n "figures": [\n{figures}\n ]\n}}\n'
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def main() -> int:
    """Measure if wanted, and write or check the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change no file; 1 if one differs")
    parser.add_argument("--save", metavar="NAME", help="run this benchmark first")
    given, more = parser.parse_known_args()
    if more and not given.save:
        parser.error(f"unknown: {' '.join(more)}")
    if given.save:
        save(given.save, more)
    differ = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if text != written(text):
            differ.append(page)
            if not given.check:
                page.write_text(written(text), encoding="utf-8")
    for page in differ:
        print(f"{page}: {'differs from the figures' if given.check else 'written'}")
    return int(given.check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
