"""What a run gave, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from sapwood.activity.progress import Progress
from sapwood.activity.statistics import RunStatistics
from sapwood.cli import figures
from sapwood.cli.output import write
from sapwood.cli.statistics import agent_table, device_table, function_table, run_lines
from sapwood.cli.summary import summarise
from sapwood.environment.units import describe_size

FEW = 8
"""Numbers of an array that are shown in one line; longer ones are in ``--json`` and files."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``sapwood run --json`` prints; fields are only ever added."""

    program: str
    parameters: dict[str, Any]
    data: str
    items: int
    progress: Progress
    statistics: RunStatistics
    result: Any
    output: str | None = None


def show_answer(answer: Answer) -> None:
    """Print an answer as lines and tables."""
    metrics = {name: figures.metric(value) for name, value in answer.progress.metrics.items()}
    headline, *lines = run_lines(answer.statistics)
    lines += [f"  {name} {text}" for name, text in (_scalars(answer.result) | metrics).items()]
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


def _scalars(result: Any) -> dict[str, str]:
    """Return what of a result fits in a line each: numbers, short texts, a few numbers together."""
    plain = summarise(result)
    fields = plain if isinstance(plain, Mapping) else {"result": plain}
    return {name: text for name, value in fields.items() if (text := _line(value))}


def _line(value: Any) -> str:
    if isinstance(value, float):
        return figures.metric(value)
    if isinstance(value, bool | int | str):
        return str(value)
    if isinstance(value, list) and 0 < len(value) <= FEW:
        parts = [_line(each) for each in value if not isinstance(each, list)]
        if len(parts) == len(value) and all(parts):
            return ", ".join(parts)
    return ""
