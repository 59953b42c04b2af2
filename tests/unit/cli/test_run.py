"""From which checkpoint a run continues on its next allocation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from sapwood.cli import run
from sapwood.cli.run import RunOutput
from sapwood.code.run_spec import RunSpec
from sapwood.core.errors import AgentLostError
from sapwood.environment.settings import Settings


class Chain:
    """Machines that were taken away, and those after them."""

    def __init__(self, *_words: Any) -> None:
        self.cluster = None
        self.count = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        """Nothing is held."""

    def follow(self, run: Any) -> Any:
        return run

    def goes_on(self, _error: Exception) -> str:
        return "the job is over"

    def move(self) -> None:
        self.count += 1


Resumed = Callable[..., list[str | bool | None]]


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> Resumed:
    """Run on two allocations; return from which files the run began on them."""

    def through(spec: RunSpec, *, writes: bool) -> list[str | bool | None]:
        found: list[str | bool | None] = []

        def run_once(_cluster: Any, now: RunSpec, _shown: Any, _begun: Any) -> int:
            found.append(now.auto_resume or (None if now.resume is None else str(now.resume)))
            if len(found) > 1:
                return 0
            if writes and now.checkpoint is not None:
                file = Path(now.checkpoint)
                file.with_suffix(".half").write_bytes(b"new")
                file.with_suffix(".half").replace(file)
            raise AgentLostError("the machines are gone")

        monkeypatch.setattr(run, "AllocationChain", Chain)
        monkeypatch.setattr(run, "run_once", run_once)
        assert run.run_through(Settings(), spec, RunOutput(quiet=True)) == 0
        return found

    return through


def asked(checkpoint: Path | None = None, resume: Path | None = None) -> RunSpec:
    return RunSpec("p", checkpoint=checkpoint, resume=resume)


def test_it_goes_on_from_what_it_has_written(resumed: Resumed, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    assert resumed(asked(checkpoint=file), writes=True) == [None, True]
    assert resumed(asked(checkpoint=file), writes=True) == [None, True]


def test_a_checkpoint_that_another_run_has_left_is_none_of_its_own(
    resumed: Resumed, tmp_path: Path
) -> None:
    file, other = tmp_path / "checkpoint", tmp_path / "other"
    file.write_bytes(b"of another run")
    assert resumed(asked(checkpoint=file), writes=False) == [None, None]
    assert resumed(asked(checkpoint=file, resume=other), writes=False) == [str(other)] * 2
    assert resumed(asked(checkpoint=file, resume=file), writes=False) == [str(file)] * 2
