from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.cli.output import WIDTH
from sapwood.cli.statistics import agent_table, function_table, run_lines


def statistics(agents: int, items: int) -> RunStatistics:
    function = FunctionStatistics(
        name="assign", calls=20, total=1.0, mean=0.05, p50=0.049, p95=0.06, maximum=0.08,
        bytes_in=273_280,
    )  # fmt: skip
    each = items // agents
    return RunStatistics(
        program="quantize",
        iterations=20,
        seconds=1.5,
        prepare_seconds=0.5,
        build_seconds=0.4,
        update_seconds=0.002,
        agents=tuple(
            AgentStatistics(
                agent=rank,
                pid=1000 + rank,
                start=rank * each,
                stop=(rank + 1) * each,
                items=each,
                calls=20,
                map_seconds=1.0,
                wait_seconds=0.1,
                items_per_second=8_123_456.0,
                functions=(function,),
            )
            for rank in range(agents)
        ),
    )


def lines_of(renderable: RenderableType, width: int = WIDTH) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_agent_table() -> None:
    lines = lines_of(agent_table(statistics(4, 273_280)))
    assert lines[0].rstrip() == "Agents"
    row = next(line for line in lines if line.split()[:1] == ["2"])
    assert row.split() == ["2", "136640..204960", "68.3", "k", "20", "0", "8.12", "M", "1.00", "s", "100", "ms"]  # fmt: skip # noqa: E501 - one row, one line


@pytest.mark.parametrize("table", [agent_table, function_table])
def test_large_figures_stay_whole_within_eighty_columns(table: object) -> None:
    assert callable(table)
    lines = lines_of(table(statistics(64, 9_999_999_999)))
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("table", [agent_table, function_table])
def test_narrow_terminals_see_fewer_columns_and_whole_figures(table: object) -> None:
    assert callable(table)
    lines = lines_of(table(statistics(4, 273_280)), width=40)
    assert max(map(len, lines)) <= 40
    assert not any("…" in line for line in lines)
    assert "no room for: errors" in lines[-1]


def test_run_lines() -> None:
    assert run_lines(statistics(2, 100)) == [
        "quantize: 20 iterations in 1.50 s",
        "  prepare 500 ms (build 400 ms), update 2.00 ms",
    ]


def test_very_many_agents_are_cut() -> None:
    lines = lines_of(agent_table(statistics(100, 1000)))
    assert len(lines) < 70
    assert lines[-1].split() == ["…", "36", "more"]
