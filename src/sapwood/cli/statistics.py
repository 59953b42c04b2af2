"""The statistics of a run as a line and tables."""

from __future__ import annotations

from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.cli import figures
from sapwood.cli.output import FittingTable, shortened
from sapwood.code.transfers import NOTHING
from sapwood.environment.units import describe_size


def agent_table(statistics: RunStatistics) -> FittingTable:
    """Return one row for each agent: its slice, its calls and where its time went."""
    columns = ("agent>", "slice", "items>", "calls>", "errors>", "items/s>", "in map>", "waiting>")
    rows = shortened([_agent_row(one) for one in statistics.agents])
    optional = ("errors", "slice", "waiting", "items", "calls")
    return FittingTable("Agents", columns, rows, optional)


def device_table(statistics: RunStatistics) -> FittingTable:
    """Return one row for each agent: copies to and from its device, and launches."""
    columns = (
        "agent>",
        "copies in>",
        "in>",
        "s>",
        "copies out>",
        "out>",
        "s>",
        "kept>",
        "launches>",
    )
    rows = shortened([_device_row(one) for one in statistics.agents])
    return FittingTable("Devices", columns, rows, ("kept", "launches", "copies out", "copies in"))


def function_table(statistics: RunStatistics) -> FittingTable:
    """Return one row for each function of each agent: calls and times."""
    columns = ("function", "agent>", "calls>", "errors>", "mean>", "p50>", "p95>", "max>", "in>")
    rows = [
        _function_row(agent.agent, function)
        for agent in statistics.agents
        for function in agent.functions
    ]
    rows.sort(key=lambda row: (row[0], int(row[1])))
    optional = ("errors", "in", "p95", "p50", "calls")
    return FittingTable("Functions", columns, shortened(rows), optional)


def run_lines(statistics: RunStatistics) -> list[str]:
    """Return a headline about the whole run, and where the time outside the maps went."""
    count = statistics.iterations
    iterations = f"{count} iteration{'' if count == 1 else 's'}"
    limit = " (ended by max_iterations, before the program was done)"
    build = figures.seconds(statistics.build_seconds)
    parts = [
        f"prepare {figures.seconds(statistics.prepare_seconds)} (build {build})",
        f"update {figures.seconds(statistics.update_seconds)}",
    ]
    if statistics.replaced_agents:
        parts.append(f"{statistics.replaced_agents} agents replaced")
    return [
        f"{statistics.program}: {iterations} in {figures.seconds(statistics.seconds)}"
        + limit * statistics.cut_short,
        f"  {', '.join(parts)}",
    ]


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


def _device_row(agent: AgentStatistics) -> tuple[str, ...]:
    moved = agent.device or NOTHING
    return (
        str(agent.agent),
        str(moved.copies_in),
        describe_size(moved.bytes_in),
        figures.seconds(moved.seconds_in),
        str(moved.copies_out),
        describe_size(moved.bytes_out),
        figures.seconds(moved.seconds_out),
        str(moved.reused),
        str(moved.launches),
    )


def _function_row(agent: int, function: FunctionStatistics) -> tuple[str, ...]:
    times = (function.mean, function.p50, function.p95, function.maximum)
    return (
        function.name,
        str(agent),
        str(function.calls),
        str(function.errors),
        *map(figures.seconds, times),
        describe_size(function.bytes_in),
    )
