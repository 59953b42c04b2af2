"""Tables of at most 80 columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.cli import figures

WIDTH = 80
"""Columns that every table fits into."""


def output_console() -> Console:
    """Return a console on stdout; colours only where it is a terminal that wants them."""
    console = Console(file=sys.stdout, highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, wrap: str = ""
) -> Table:
    """Return a table.

    Args:
        title: Stands above it, may be empty.
        columns: Headings; a heading that ends in ``>`` is of a column of numbers.
        rows: Cells.
        wrap: Heading of the one column that may break into several lines.
    """
    made = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="underline",
        box=None,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
    )
    for column in columns:
        heading = column.removesuffix(">")
        made.add_column(
            heading,
            justify="right" if column.endswith(">") else "left",
            no_wrap=heading != wrap,
            overflow="fold" if heading == wrap else "ellipsis",
        )
    for row in rows:
        made.add_row(*row)
    return made


def agent_table(statistics: RunStatistics) -> Table:
    """Return one row for each agent: its slice, its calls and where its time went."""
    columns = ("agent>", "slice", "items>", "calls>", "errors>", "items/s>", "in map>", "waiting>")
    return table("Agents", columns, map(_agent_row, statistics.agents))


def function_table(statistics: RunStatistics) -> Table:
    """Return one row for each function of each agent: calls and times."""
    columns = ("function", "agent>", "calls>", "errors>", "mean>", "p50>", "p95>", "max>", "in>")
    rows = [
        _function_row(agent.agent, function)
        for agent in statistics.agents
        for function in agent.functions
    ]
    return table("Functions", columns, sorted(rows, key=lambda row: (row[0], int(row[1]))))


def run_line(statistics: RunStatistics) -> str:
    """Return one sentence about the whole run."""
    count = statistics.iterations
    iterations = f"{count} iteration{'' if count == 1 else 's'}"
    parts = [
        f"{statistics.program}: {iterations} in {figures.seconds(statistics.seconds)}",
        f"build {figures.seconds(statistics.build_seconds)}",
        f"prepare {figures.seconds(statistics.prepare_seconds)}",
        f"update {figures.seconds(statistics.update_seconds)}",
    ]
    if statistics.replaced_agents:
        parts.append(f"{statistics.replaced_agents} agents replaced")
    return ", ".join(parts)


def _agent_row(agent: AgentStatistics) -> tuple[str, ...]:
    return (
        str(agent.agent),
        f"{agent.start}..{agent.stop}",
        figures.count(agent.items),
        str(agent.calls),
        str(agent.errors),
        figures.count(agent.items_per_second),
        figures.seconds(agent.map_seconds),
        figures.seconds(agent.wait_seconds),
    )


def _function_row(agent: int, function: FunctionStatistics) -> tuple[str, ...]:
    times = (function.mean, function.p50, function.p95, function.maximum)
    return (
        function.name,
        str(agent),
        str(function.calls),
        str(function.errors),
        *map(figures.seconds, times),
        figures.size(function.bytes_in),
    )
