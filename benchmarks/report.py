"""What every benchmark shares: its options, its medians, and how it prints them.

A benchmark measures Sapwood and a *floor*, the least that the same work costs without
Sapwood, in the same run. A :class:`Figure` holds both; a :class:`Report` prints figures as
one JSON object per line, or as a table for people.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent

TABLE_WIDTH = 100
"""Columns of a table that is not printed on a terminal."""

UNITS = {
    "s": (1.0, "s"),
    "ms": (1e3, "ms"),
    "us": (1e6, "µs"),
    "KiB": (2.0**-10, "KiB"),
    "MiB": (2.0**-20, "MiB"),
}
"""How a raw value (seconds, bytes) becomes the unit of a figure."""


@dataclass(frozen=True)
class Options:
    """The command line of a benchmark.

    Attributes:
        json: Print one JSON object per line instead of a table.
        quick: A smoke test: few repetitions, small numbers of agents.
        runs: Repetitions of each measurement; the median counts.
        agents: Numbers of agents to measure.
    """

    json: bool
    quick: bool
    runs: int
    agents: tuple[int, ...]


def read_options(description: str, *, agents: Sequence[int], runs: int) -> Options:
    """Read the command line; ``--quick`` takes the smallest number of agents and one run."""
    parser = argparse.ArgumentParser(description=description)
    add_options(parser, runs=runs)
    return options_of(parser.parse_args(), agents=agents, runs=runs)


def add_options(parser: argparse.ArgumentParser, *, runs: int) -> None:
    """Add the options that all benchmarks have."""
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    parser.add_argument("--runs", type=int, default=None, help=f"repetitions (default {runs})")
    parser.add_argument("--agents", type=int, nargs="+", default=None, help="numbers of agents")


def options_of(given: argparse.Namespace, *, agents: Sequence[int], runs: int) -> Options:
    """Return those options as they were given."""
    chosen = given.agents or (agents[:1] if given.quick else agents)
    return Options(given.json, given.quick, given.runs or (1 if given.quick else runs), (*chosen,))


@dataclass(frozen=True)
class Figure:
    """One measured figure beside its floor, both medians in the figure's unit.

    Attributes:
        name: Name of the measurement, ``benchmark.case``.
        agents: Number of agents.
        bytes: Size of the payload of one agent; 0 where there is none.
        value: Sapwood (or the peer that the name says).
        unit: Unit of ``value`` and ``floor``.
        floor: The least the same work costs, measured in the same run; None where it is 0
            by definition.
        runs: Number of measurements behind the median.
    """

    name: str
    agents: int
    bytes: int
    value: float
    unit: str
    floor: float | None
    runs: int

    @property
    def ratio(self) -> float | None:
        """``value / floor``; None without a floor, or with one that noise made negative."""
        return self.value / self.floor if self.floor is not None and self.floor > 0 else None

    @classmethod
    def of(
        cls,
        name: str,
        agents: int,
        values: Sequence[float],
        floors: Sequence[float],
        *,
        unit: str,
        nbytes: int = 0,
    ) -> Self:
        """Make a figure from raw measurements (seconds or bytes)."""
        scale = UNITS[unit][0]
        floor = statistics.median(floors) * scale if floors else None
        return cls(
            name, agents, nbytes, statistics.median(values) * scale, unit, floor, len(values)
        )

    def to_json(self) -> str:
        """Return the figure as one line of JSON."""
        return json.dumps(
            {
                "name": self.name,
                "agents": self.agents,
                "bytes": self.bytes,
                "value": _rounded(self.value),
                "unit": self.unit,
                "floor": _rounded(self.floor),
                "ratio": _rounded(self.ratio),
                "runs": self.runs,
            }
        )


@dataclass
class Report:
    """Prints figures: JSON lines as they come, or one table at the end."""

    title: str
    options: Options
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Take a figure in."""
        self.figures.append(figure)
        if self.options.json:
            print(figure.to_json(), flush=True)
        else:
            print(f"… {figure.name}, {figure.agents} agents", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Take in what was left out, and why; it goes to stderr, so stdout stays JSON."""
        self.notes.append(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.figures and not self.options.json:
            Console(width=None if sys.stdout.isatty() else TABLE_WIDTH).print(self._table())
        for text in self.notes:
            print(f"note: {text}", file=sys.stderr)

    def _table(self) -> Table:
        table = Table(title=self.title, box=SIMPLE_HEAD)
        for column in ("figure", "agents", "bytes", "value", "floor", "ratio", "runs"):
            justify: Literal["left", "right"] = "left" if column == "figure" else "right"
            table.add_column(column, justify=justify, no_wrap=True)
        for figure in self.figures:
            unit = UNITS[figure.unit][1]
            table.add_row(
                figure.name,
                str(figure.agents),
                f"{figure.bytes:,}" if figure.bytes else "",
                f"{figure.value:.3f} {unit}",
                f"{figure.floor:.3f} {unit}" if figure.floor is not None else "-",
                f"{figure.ratio:.2f}" if figure.ratio is not None else "-",
                str(figure.runs),
            )
        return table


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
