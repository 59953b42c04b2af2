"""What a user asks of ``sapwood run``, as one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The options of ``sapwood run``, parsed but not yet tried.

    Attributes:
        program: Folder or Python file.
        data: File of data, or None for the program's own.
        parameters: Texts by name.
        flags: Settings by dotted key: agents, fan-out, limits and ``--set``.
        chunk: Items that stay together, or None.
        output: Where to write the result, or None.
        on_agent_loss: ``replace`` or ``fail``.
        allow_nan: Whether the data may hold NaN and infinite values.
        quiet: Show errors only.
        verbose: Show progress as lines.
        as_json: Print one JSON object.
        watch: Run again after each edit.
    """

    program: Path
    data: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str | int] = field(default_factory=dict)
    chunk: int | None = None
    output: Path | None = None
    on_agent_loss: Literal["replace", "fail"] = "replace"
    allow_nan: bool = False
    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    watch: bool = False
