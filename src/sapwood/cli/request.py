"""What a user asks of ``sapwood run``, as one frozen object."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The options of ``sapwood run``, parsed but not yet tried."""

    program: Path
    data: Path | None = None
    agents: int | None = None
    fanout: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    chunk: int | None = None
    time_limit: float | None = None
    memory_limit: str | None = None
    output: Path | None = None
    on_agent_loss: str = "replace"
    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
