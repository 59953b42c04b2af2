"""The life cycles of processes and machines: each file of ``scenarios`` is a transcript.

``REWRITE=1 pytest tests/unit/lifecycle/test_core.py`` writes the transcripts anew; then read what
has changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .machine_transcript import MachineTranscript
from .transcript import Transcript, rerun

FOLDER = Path(__file__).with_name("scenarios")
SCENARIOS = sorted(FOLDER.glob("*.txt"))
MACHINES = sorted((FOLDER / "machines").glob("*.txt"))


@pytest.mark.parametrize("path", [*SCENARIOS, *MACHINES], ids=lambda path: path.stem)
def test_the_orders_are_those_of_the_transcript(path: Path) -> None:
    now = rerun(path, MachineTranscript() if path in MACHINES else Transcript())
    if os.environ.get("REWRITE"):
        path.write_text(now)
    assert now == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 30
    assert len(MACHINES) >= 25


@pytest.mark.slow
def test_only_the_life_cycles_advance_records() -> None:
    """Whatever else starts, watches or ends processes and machines gives a core an event."""
    folder = FOLDER.parents[3] / "src" / "sapwood"
    advancing = re.compile(
        r"\.advance\((?:LifeEvent|MachineEvent)\.|\b(?:LifeEvent|MachineEvent)\."
    )
    found = {
        path.relative_to(folder).parts[0]
        for path in folder.rglob("*.py")
        if advancing.search(path.read_text())
    }
    assert found == {"lifecycle"}
