from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.core.clock import VirtualClock
from sapwood.environment.component_entry import EntryComponent
from sapwood.environment.lifecycle import State
from sapwood.environment.supervisor import Supervisor

COUNTING = """
from sapwood.environment.lifecycle import State

made = []

class Counting:
    name = "counting"

    def __init__(self):
        made.append(self)
        self.steps = []

    def start(self, context):
        self.steps.append("start")

    def check(self):
        return State.READY

    def receive(self, event):
        self.steps.append(event.topic)

    def stop(self):
        self.steps.append("stop")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings one component, and names another that cannot be imported."""
    facts = tmp_path / "counting-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[sapwood.components]\ncounting = counting_component:Counting\nbroken = not_there:Part\n"
    )
    (tmp_path / "counting_component.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "counting_component", raising=False)


@pytest.mark.usefixtures("installed")
@pytest.mark.row("A-ENV-4")
def test_a_component_is_made_anew_for_each_life() -> None:
    part = EntryComponent("counting")
    supervisor = Supervisor([part], clock=VirtualClock())
    part.stop()  # before it was ever made
    for _ in range(2):
        supervisor.start()
        assert supervisor.state_of("counting") is State.READY
        supervisor.tell("topic", None)
        supervisor.stop()
    lives = sys.modules["counting_component"].made
    assert len(lives) == 2
    for one in lives:
        assert one.steps[0] == "start"
        assert one.steps[-1] == "stop"
        assert "topic" in one.steps


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("countin", "no package here brings a component 'countin'"),
        ("broken", "No module named 'not_there'"),
    ],
)
def test_what_cannot_be_made_is_a_failed_component(name: str, reason: str) -> None:
    supervisor = Supervisor([EntryComponent(name)], clock=VirtualClock())
    supervisor.start()
    assert supervisor.state_of(name) is State.FAILED
    assert reason in supervisor.view(name).reason
    supervisor.stop()
