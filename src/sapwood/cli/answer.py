"""What a run gave, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer

from sapwood.activity.progress import Progress
from sapwood.activity.statistics import RunStatistics
from sapwood.cli import figures, tables
from sapwood.cli.summary import summarise


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
    console = tables.output_console()
    console.print(tables.run_line(answer.statistics), style="bold")
    metrics = {name: figures.metric(value) for name, value in answer.progress.metrics.items()}
    for name, text in (_scalars(answer.result) | metrics).items():
        console.print(f"  {name} {text}")
    console.print(tables.agent_table(answer.statistics))
    console.print(tables.function_table(answer.statistics))
    if answer.output is not None:
        length = Path(answer.output).stat().st_size
        console.print(f"wrote {answer.output} ({figures.size(length)})", soft_wrap=True)


def print_json(value: Any) -> None:
    """Print plain data or a structure as one JSON object."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def _scalars(result: Any) -> dict[str, str]:
    """Return what of a result fits in a line each: its numbers and short texts."""
    plain = summarise(result)
    fields = plain if isinstance(plain, Mapping) else {"result": plain}
    return {
        name: figures.metric(value) if isinstance(value, float) else str(value)
        for name, value in fields.items()
        if isinstance(value, bool | int | float | str)
    }
