from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType

from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.cli.present import WIDTH, json_bytes
from sapwood.cli.run_report import (
    MAX_ELEMENTS,
    MAX_TEXT,
    RunAnswer,
    agent_table,
    function_table,
    run_lines,
    show_answer,
    summarise,
)


def answer(result: object, output: str | None = None) -> RunAnswer:
    return RunAnswer(
        program="quantize",
        parameters={"colours": 16},
        data="china.jpg",
        items=273_280,
        progress=RunInfo(state=RunState.DONE, metrics={"inertia": 95700536.789}),
        statistics=RunStatistics(program="quantize", iterations=83, seconds=0.5),
        result=result,
        output=output,
    )


def test_numbers_of_the_result_and_metrics_are_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_answer(answer({"inertia": 1.0, "converged": True, "centres": "float64 16 x 3"}))
    out = capsys.readouterr().out
    assert out.count("inertia") == 1
    assert "  inertia 9.570054e+07\n" in out
    assert "  converged True\n" in out
    assert "  centres float64 16 x 3\n" in out
    assert "wrote" not in out


def test_a_bare_result_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(answer(3.14159265358979))
    assert "  result 3.141593\n" in capsys.readouterr().out


def test_a_few_numbers_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(answer({"mean": [1.0, 2.5], "many": [0] * 9, "table": [[1]], "none": []}))
    out = capsys.readouterr().out
    assert "  mean 1, 2.5\n" in out
    assert "  many 0, 0, 0, 0, 0, 0, 0, 0, … 1 more\n  table\n    1\n  none []\n" in out


def test_the_file_that_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"x" * 2048)
    show_answer(answer({}, str(file)))
    assert capsys.readouterr().out.endswith(f"wrote {file} (2 KiB)\n")


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
    assert any("columns hidden: " in line for line in lines[-2:])


def test_run_lines() -> None:
    assert run_lines(statistics(2, 100)) == [
        "quantize: 20 iterations in 1.50 s, without starting the agents",
        "  prepare 500 ms (build 400 ms), update 2.00 ms",
    ]


def test_very_many_agents_are_cut() -> None:
    lines = lines_of(agent_table(statistics(100, 1000)))
    assert len(lines) < 70
    assert lines[-1].split() == ["…", "36", "more"]


def test_everything_becomes_plain() -> None:
    value = {
        "pi": np.float64(3.5),
        "few": np.arange(3),
        "many": np.zeros((100, 3), np.float32),
        "list": [1, (2, "x")],
        "object": object,
        1: True,
        "none": None,
    }
    plain = summarise(value)
    assert type(plain["pi"]) is float
    assert plain["few"] == [0, 1, 2]
    assert plain["many"] == "float32 100 x 3"
    assert plain["list"] == [1, [2, "x"]]
    assert plain["1"] is True
    json.dumps(plain)


def test_long_values_are_cut() -> None:
    assert summarise(list(range(MAX_ELEMENTS + 2)))[-1] == "… 2 more"
    assert len(summarise("x" * 1000)) == MAX_TEXT + 1


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def of_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        nested(100_000),
        of_itself(),
        {"a": {"b": of_itself()}},
        np.array([object(), None, 1]),
        np.array([1j, 2]),
        np.zeros(3, [("a", "f8"), ("b", "V4")]),
        np.zeros(3, [("a", "f8")])[0],
        [1j, {1, 2}, b"x"],
        Rude(),
        "\ud800 and \udcff",
        {"\ud800": 1},
    ],
    ids=range(11),
)
def test_any_result_can_be_written_as_json(value: Any) -> None:
    json.loads(json_bytes(summarise(value)))


def test_what_is_nested_deep_is_left_out() -> None:
    assert summarise(nested(3)) == [[[[]]]]
    assert summarise([nested(100)], levels=2) == [["…"]]
