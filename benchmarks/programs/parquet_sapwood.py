"""k-means and logistic regression over a Parquet file by Sapwood; see ``datasets.py``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import sapwood
from programs.parquet_steps import BLOCK, Course, Given, first, moved, part_of, ready
from sapwood.environment.settings import LimitSettings, Settings


class Task(sapwood.Program):
    """One of the two."""

    inputs = ("rows",)
    reduce: ClassVar = {"total": "sum"}
    task: str = sapwood.parameter("kmeans")
    rounds: int = sapwood.parameter(5)

    def init(self, data: Any) -> dict[str, Any]:
        """Begin with the first rows."""
        return {"state": first(self.task, data.rows(0, 8)["rows"]), "round": 0}

    def map(self, data: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Add up some rows at a time."""
        rows = data["rows"]
        parts = (rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK))
        return {"total": np.sum([part_of(self.task, one, state["state"]) for one in parts], axis=0)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Take the next state."""
        new = moved(self.task, state["state"], total["total"])
        return {"state": new, "round": state["round"] + 1}

    def done(self, state: dict[str, Any]) -> bool:
        """Stop after so many rounds."""
        return bool(state["round"] == self.rounds)


def main() -> None:
    """Run it on the machines of a head."""
    given = Given.from_arguments()
    settings = Settings(limits=LimitSettings(memory=given.limit))
    with sapwood.start(given.cluster, given.workers, settings=settings) as cluster:
        for one in [cluster.submit(ready, number) for number in range(given.workers)]:
            one.result()
        course = Course(given)
        run = cluster.run(Task(task=given.task, rounds=given.rounds), given.file)
        course.tell(run.result()["state"])


if __name__ == "__main__":
    main()
