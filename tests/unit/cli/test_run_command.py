"""Where a run goes on that has several allocations in turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import pytest

from sapwood.cli import run_command
from sapwood.cli.options import RunRequest
from sapwood.client import Dataset, Program
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


Resumed = Callable[..., list[Path | None]]


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> Resumed:
    """Run on two allocations; return from which files the run began on them."""

    def through(request: RunRequest, *, writes: bool) -> list[Path | None]:
        found: list[Path | None] = []

        def run_once(_cluster: Any, _program: Any, _data: Any, now: RunRequest, _begun: Any) -> int:
            found.append(now.resume)
            if len(found) > 1:
                return 0
            if writes and now.checkpoint is not None:
                now.checkpoint.with_suffix(".half").write_bytes(b"new")
                now.checkpoint.with_suffix(".half").replace(now.checkpoint)
            raise AgentLostError("the machines are gone")

        monkeypatch.setattr(run_command, "AllocationChain", Chain)
        monkeypatch.setattr(run_command, "run_once", run_once)
        monkeypatch.setattr(run_command, "is_whole", Path.exists)
        program, data = cast("Program", None), cast("Dataset", None)
        assert run_command.run_through(Settings(), program, data, request) == 0
        return found

    return through


def asked(**given: Any) -> RunRequest:
    return RunRequest(program=Path("p"), quiet=True, **given)


def test_it_goes_on_from_what_it_has_written(resumed: Resumed, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    assert resumed(asked(checkpoint=file), writes=True) == [None, file]
    assert resumed(asked(checkpoint=file), writes=True) == [None, file]


def test_a_checkpoint_that_another_run_has_left_is_none_of_its_own(
    resumed: Resumed, tmp_path: Path
) -> None:
    file, other = tmp_path / "checkpoint", tmp_path / "other"
    file.write_bytes(b"of another run")
    assert resumed(asked(checkpoint=file), writes=False) == [None, None]
    assert resumed(asked(checkpoint=file, resume=other), writes=False) == [other, other]
    assert resumed(asked(checkpoint=file, resume=file), writes=False) == [file, file]
