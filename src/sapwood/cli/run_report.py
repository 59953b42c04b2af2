"""What a run gave, for people and as JSON: its answer, its statistics, its result in short."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import typer
from rich.console import RenderableType
from rich.text import Text

from sapwood.activity.progress import RunInfo
from sapwood.activity.statistics import AgentStatistics, FunctionStatistics, RunStatistics
from sapwood.cli import present
from sapwood.cli.present import FittingTable, shortened, write
from sapwood.code.transfers import NOTHING
from sapwood.environment.units import describe_size

FEW = 8
"""Numbers of an array that are shown in one line; longer ones are in ``--json`` and files."""


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``sapwood run --json`` prints; fields are only ever added."""

    program: str
    parameters: dict[str, Any]
    data: str
    items: int
    progress: RunInfo
    statistics: RunStatistics
    result: Any
    output: str | None = None
    options: dict[str, Any] = {}


def show_answer(answer: RunAnswer) -> None:
    """Print an answer as lines and tables."""
    metrics = {name: present.metric(value) for name, value in answer.progress.metrics.items()}
    headline, *lines = run_lines(answer.statistics)
    lines += result_lines(answer.result, metrics)
    lines += [f"  {name} {text}" for name, text in metrics.items()]
    used = answer.statistics.uses_devices
    devices: list[RenderableType] = [device_table(answer.statistics), ""] if used else []
    write(
        Text(headline, style="bold"),
        *map(Text, lines),
        "",
        agent_table(answer.statistics),
        "",
        *devices,
        function_table(answer.statistics),
        "",
    )
    if answer.output is not None:
        length = Path(answer.output).stat().st_size
        typer.echo(f"wrote {answer.output} ({describe_size(length)})")


def result_lines(result: Any, shown: Collection[str] = ()) -> list[str]:
    """Return a result as indented lines: every entry, what is long shortened.

    Args:
        result: Any value.
        shown: Names of entries that are shown elsewhere.

    Example:
        >>> result_lines({"pi": 3.0, "m": [[1, 2], [3, 4]], "none": None})
        ['  pi 3', '  m', '    1, 2', '    3, 4', '  none null']
    """
    plain = summarise(result)
    entries = plain if isinstance(plain, Mapping) else {"result": plain}
    return _lines("", {name: one for name, one in entries.items() if name not in shown})


def _lines(indent: str, value: Any) -> list[str]:
    """Return the lines of a value that does not fit in one, below the line of its name."""
    indent += "  "
    lines: list[str] = []
    if isinstance(value, Mapping):
        for name, item in value.items():
            text = _line(item)
            if text is None:
                lines += [f"{indent}{name}", *_lines(indent, item)]
            else:
                lines += [f"{indent}{name} {text}"]
        return lines
    if isinstance(value, list):
        for item in value[:FEW]:
            text = _line(item)
            lines += [f"{indent}{text}"] if text is not None else _lines(indent, item)
        left_out = len(value) - FEW
        return [*lines, f"{indent}… {left_out} more"] if left_out > 0 else lines
    return [f"{indent}{line}" for line in str(value).splitlines()]


def _line(value: Any) -> str | None:
    """Return a value as one line; None if it needs several."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return present.metric(value)
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, str):
        return value if len(value.splitlines()) < 2 else None
    if not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    if isinstance(value, list):
        parts = [None if isinstance(one, list | Mapping) else _line(one) for one in value[:FEW]]
        if None not in parts:
            left_out = len(value) - FEW
            more = [f"… {left_out} more"] if left_out > 0 else []
            return ", ".join([*map(str, parts), *more])
    return None


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
    """Return one row for each function on each machine: calls, times and bytes."""
    columns = "function node agents> calls> errors> total> mean> p50> p95> max> in> out> device>"
    names = columns.split()
    shown = len(names) if statistics.uses_devices else len(names) - 1
    rows = [_function_row(one)[:shown] for one in statistics.functions]
    optional = ("agents", "errors", "out", "in", "total", "p50", "p95", "node", "calls")
    return FittingTable("Functions", names[:shown], shortened(rows), optional)


def run_lines(statistics: RunStatistics) -> list[str]:
    """Return a headline about the whole run, and where the time outside the maps went."""
    count = statistics.iterations
    iterations = f"{count} iteration{'' if count == 1 else 's'}"
    limit = " (ended by max_iterations, before the program was done)"
    build = present.seconds(statistics.build_seconds)
    parts = [
        f"prepare {present.seconds(statistics.prepare_seconds)} (build {build})",
        f"update {present.seconds(statistics.update_seconds)}",
    ]
    if statistics.replaced_agents:
        parts.append(f"{statistics.replaced_agents} agents replaced")
    if statistics.resumed_from is not None:
        parts.append(f"resumed after iteration {statistics.resumed_from}")
    if statistics.checkpoints:
        took = present.seconds(statistics.checkpoint_seconds)
        parts.append(f"{statistics.checkpoints} checkpoints {took}")
    return [
        f"{statistics.program}: {iterations} in {present.seconds(statistics.seconds)}, "
        "without starting the agents" + limit * statistics.cut_short,
        f"  {', '.join(parts)}",
    ]


def _agent_row(agent: AgentStatistics) -> tuple[str, ...]:
    return (
        str(agent.agent),
        f"{agent.start}..{agent.stop}",
        present.count(agent.items),
        str(agent.calls),
        str(agent.errors),
        present.count(agent.items_per_second),
        present.seconds(agent.map_seconds),
        present.seconds(agent.wait_seconds),
    )


def _device_row(agent: AgentStatistics) -> tuple[str, ...]:
    moved = agent.device or NOTHING
    return (
        str(agent.agent),
        str(moved.copies_in),
        describe_size(moved.bytes_in),
        present.seconds(moved.seconds_in),
        str(moved.copies_out),
        describe_size(moved.bytes_out),
        present.seconds(moved.seconds_out),
        str(moved.reused),
        str(moved.launches),
    )


def _function_row(function: FunctionStatistics) -> tuple[str, ...]:
    times = (function.total, function.mean, function.p50, function.p95, function.maximum)
    return (
        function.name,
        function.node or "-",
        str(function.agents),
        str(function.calls),
        str(function.errors),
        *map(present.seconds, times),
        describe_size(function.bytes_in),
        describe_size(function.bytes_out),
        present.seconds(function.device_seconds),
    )


MAX_ELEMENTS = 64
"""Arrays and lists of at most this many elements are shown with their elements."""

MAX_TEXT = 200

MAX_LEVELS = 16
"""Depth of nested lists and dictionaries that is shown."""


def summarise(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return a value as numbers, text, lists and dicts; large arrays as type and shape.

    Example:
        >>> summarise({"pi": np.float64(3.14), "picture": np.zeros((480, 640, 3), np.uint8)})
        {'pi': 3.14, 'picture': 'uint8 480 x 640 x 3'}
    """
    if isinstance(value, np.generic):  # before float: np.float64 is one
        return summarise(value.item(), levels) if value.dtype.kind != "V" else str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.ndarray):
        if value.size > MAX_ELEMENTS:
            return _shape(value)
        plain = value.tolist()
        return plain if value.dtype.kind not in "OVc" else summarise(plain, levels)
    if isinstance(value, Mapping | list | tuple) and not levels:
        return "…"
    if isinstance(value, Mapping):
        return {str(name): summarise(item, levels - 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        shown = [summarise(item, levels - 1) for item in value[:MAX_ELEMENTS]]
        left_out = len(value) - len(shown)
        return [*shown, f"… {left_out} more"] if left_out else shown
    text = value if isinstance(value, str) else _repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - code of a user
        return f"a value of type {type(value).__qualname__}"


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype} {' x '.join(map(str, array.shape))}"
