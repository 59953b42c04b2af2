"""How far a run has come, as one frozen snapshot."""

from __future__ import annotations

import enum

import msgspec


class RunState(enum.StrEnum):
    """The states of a run; the last four are final.

    A run is first ``building`` its program, which takes no time where that was built before, then
    ``preparing``: agents load the program and their slices. Then it is ``running``. One that has
    stopped after an iteration, because its machines leave, is ``drained``: it can resume on others.
    """

    BUILDING = "building"
    PREPARING = "preparing"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DRAINED = "drained"

    @property
    def final(self) -> bool:
        """Whether a run in this state changes no more."""
        return self in {RunState.DONE, RunState.FAILED, RunState.CANCELLED, RunState.DRAINED}


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a run.

    Attributes:
        state: Where the run is in its life.
        iteration: Iterations finished.
        iterations: Iterations planned, or None where only the data decide. What the program says
            before the first iteration; more than that, and it is None.
        seconds: Time since the run began.
        seconds_per_iteration: Mean over the iterations so far; 0 before the first.
        items: Items of the dataset.
        items_per_second: Items mapped per second, all agents together.
        agents: Agents that take part.
        metrics: What the program says of its state, for example the inertia.
    """

    state: RunState
    iteration: int = 0
    iterations: int | None = None
    seconds: float = 0.0
    seconds_per_iteration: float = 0.0
    items: int = 0
    items_per_second: float = 0.0
    agents: int = 0
    metrics: dict[str, float] = {}

    def bar(self) -> str:
        """Return it as a bar of HTML; empty before the first iteration, or if no end is planned.

        Example:
            >>> RunInfo(state=RunState.RUNNING, iteration=3, iterations=9).bar()
            '<progress max="9" value="3"></progress>'
        """
        end = self.iteration if self.state is RunState.DONE else self.iterations
        if not (self.iteration and end):
            return ""
        return f'<progress max="{end}" value="{self.iteration}"></progress>'

    def __str__(self) -> str:
        if self.state in {RunState.BUILDING, RunState.PREPARING}:
            return f"{self.state}, {self.seconds:.2f} s"
        planned = f"/{self.iterations}" if self.iterations else ""
        metrics = "".join(f", {name} {value:g}" for name, value in self.metrics.items())
        return (
            f"{self.state}, iteration {self.iteration}{planned}, "
            f"{self.agents} agents, {self.seconds:.2f} s{metrics}"
        )
