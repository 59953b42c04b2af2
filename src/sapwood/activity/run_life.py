"""The life of a run: one record with a table of states, and why it ends."""

from __future__ import annotations

import enum
import time
from typing import Any

import msgspec

from sapwood.activity.progress import RunInfo, RunState
from sapwood.core.errors import CancelledError, DrainedError, SapwoodError
from sapwood.core.states import StateTable


class RunStep(enum.Enum):
    """What happens to a run."""

    BUILT = "built"
    ITERATES = "iterates"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DRAINED = "drained"


_ENDS = {
    RunStep.FAILED: RunState.FAILED,
    RunStep.CANCELLED: RunState.CANCELLED,
    RunStep.DRAINED: RunState.DRAINED,
}

TRANSITIONS = StateTable(
    "a run",
    {
        (RunState.BUILDING, RunStep.BUILT): RunState.PREPARING,
        (RunState.PREPARING, RunStep.ITERATES): RunState.RUNNING,
        (RunState.RUNNING, RunStep.ITERATES): RunState.RUNNING,  # data are cut anew
        (RunState.RUNNING, RunStep.DONE): RunState.DONE,
        **{
            (state, step): end
            for state in (RunState.BUILDING, RunState.PREPARING, RunState.RUNNING)
            for step, end in _ENDS.items()
        },
    },
)
"""The states of a run, and what leads from one to the next."""


class RunLife:
    """Where a run is in its life. Its own thread moves it; any thread may ask it to end.

    Args:
        name: The run's name, for errors.
        items: Items of its data.
        iterations: Iterations that are planned, as far as that is known.

    Attributes:
        began: When the run began, by ``time.perf_counter``.
        stopped: The error with which the run is to end at once; the first one counts.
        draining: Why the run is to stop after this iteration; empty while it is not.
    """

    def __init__(self, name: str, items: int, iterations: int | None) -> None:
        self.began = time.perf_counter()
        self.stopped: SapwoodError | None = None
        self.draining = ""
        self._name = name
        self._progress = RunInfo(state=RunState.BUILDING, iterations=iterations, items=items)

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.began

    @property
    def progress(self) -> RunInfo:
        """How far the run has come."""
        progress = self._progress
        if progress.state.final:
            return progress
        return msgspec.structs.replace(progress, seconds=self.seconds)

    def step(self, step: RunStep, **changes: Any) -> None:
        """Move the run to its next state.

        Args:
            step: What happens.
            **changes: What else is different in its progress.
        """
        state = TRANSITIONS.after(self._progress.state, step, self._name)
        self.note(state=state, **changes)

    def note(self, **changes: Any) -> None:
        """Record how far the run has come."""
        self._progress = msgspec.structs.replace(self._progress, seconds=self.seconds, **changes)

    def end(self, error: BaseException | None) -> None:
        """Move the run to its last state.

        Args:
            error: Why it fails, or was stopped; None if it is done.
        """
        if error is None:
            self.step(RunStep.DONE)
        elif isinstance(error, DrainedError):
            self.step(RunStep.DRAINED)
        elif isinstance(error, SapwoodError) and isinstance(self.stopped or error, CancelledError):
            self.step(RunStep.CANCELLED)
        else:
            self.step(RunStep.FAILED)

    def stop(self, error: SapwoodError) -> SapwoodError:
        """Have the run end with an error; return the one that counts, which is the first."""
        if self.stopped is None:
            self.stopped = error
        return self.stopped

    def must_go_on(self) -> None:
        """Raise the error with which the run was ended meanwhile, if it was."""
        if self.stopped is not None:
            raise self.stopped
