"""The life cycles of processes, machines and holds: each file of ``scenarios`` is a transcript.

``REWRITE=1 pytest tests/unit/lifecycle/test_core.py`` writes the transcripts anew; then read what
has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sapwood.core.states import StateTable
from sapwood.lifecycle import holds, machines, processes

from .hold_transcript import HoldTranscript
from .machine_transcript import MachineTranscript
from .transcript import Scenario, Transcript, rerun

FOLDER = Path(__file__).with_name("scenarios")
SCENARIOS = sorted(FOLDER.glob("*.txt"))
MACHINES = sorted((FOLDER / "machines").glob("*.txt"))
HOLDS = sorted((FOLDER / "holds").glob("*.txt"))


def _rerun(path: Path) -> str:
    kinds: dict[str, Callable[[], Scenario]] = {
        "scenarios": Transcript,
        "machines": MachineTranscript,
        "holds": HoldTranscript,
    }
    return rerun(path, kinds[path.parent.name]())


@pytest.mark.parametrize("path", [*SCENARIOS, *MACHINES, *HOLDS], ids=lambda path: path.stem)
def test_the_orders_are_those_of_the_transcript(path: Path) -> None:
    now = _rerun(path)
    if os.environ.get("REWRITE"):
        path.write_text(now)
    assert now == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 30
    assert len(MACHINES) >= 25
    assert len(HOLDS) >= 15


class _Recording(StateTable[Any, Any]):
    """A table that records which of its transitions were made."""

    def __init__(self, table: StateTable[Any, Any]) -> None:
        super().__init__("the tested record", table)
        self.made: set[tuple[Any, Any]] = set()

    def after(self, state: Any, event: Any, which: object = "") -> Any:
        self.made.add((state, event))
        return super().after(state, event, which)


@pytest.mark.parametrize(
    ("module", "name", "paths"),
    [
        (processes, "TRANSITIONS", SCENARIOS),
        (machines, "MACHINE_TRANSITIONS", MACHINES),
        (holds, "HOLD_TRANSITIONS", HOLDS),
    ],
    ids=["processes", "machines", "holds"],
)
def test_each_transition_of_a_table_is_made_in_a_transcript(
    module: ModuleType, name: str, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _Recording(getattr(module, name))
    monkeypatch.setattr(module, name, table)
    for path in paths:
        _rerun(path)
    assert not [f"{state.name} {event.name}" for state, event in set(table) - table.made]


@pytest.mark.slow
def test_only_the_life_cycles_advance_records() -> None:
    """Whatever else starts, watches or ends processes and machines gives a core an event."""
    folder = FOLDER.parents[3] / "src" / "sapwood"
    advancing = re.compile(
        r"\.advance\((?:LifeEvent|MachineEvent|HoldEvent)\.|\b(?:LifeEvent|MachineEvent|HoldEvent)\."
    )
    found = {
        path.relative_to(folder).parts[0]
        for path in folder.rglob("*.py")
        if advancing.search(path.read_text())
    }
    assert found == {"lifecycle"}
