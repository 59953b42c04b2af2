"""The life cycle of processes: each file of ``scenarios`` is a transcript.

``REWRITE=1 pytest tests/unit/lifecycle/test_core.py`` writes the transcripts anew; then read what
has changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .transcript import rerun

SCENARIOS = sorted(Path(__file__).with_name("scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_orders_are_those_of_the_transcript(path: Path) -> None:
    now = rerun(path)
    if os.environ.get("REWRITE"):
        path.write_text(now)
    assert now == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 30
