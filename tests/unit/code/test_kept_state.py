"""Whether a map keeps something from call to call, as far as one can see."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from sapwood.code.kept_state import kept_state
from sapwood.code.program import Program, native

seen = 0


class Plain(Program):
    reduce: ClassVar = {"n": "sum"}
    limit = 3

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        found = [0] * len(slice)
        found[0] = self.limit
        return {"n": self.twice(found)}

    def twice(self, found: list[int]) -> int:
        return 2 * sum(found)

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        self.updated = True  # in the process of the client
        return total


class Native(Program):
    reduce: ClassVar = {"n": "sum"}
    map = native("count")


class Storing(Plain):
    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        self.last = state
        return {"n": 0}


class StoringElsewhere(Plain):
    def twice(self, found: list[int]) -> int:
        self.found = found
        return 0


class Counting(Plain):
    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        global seen  # noqa: PLW0603 - what is to be seen
        seen += 1
        return {"n": seen}


class Closing(Plain):
    def close(self) -> None:
        pass


class Caching(Plain):
    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.cache: dict[int, int] = {}


@pytest.mark.parametrize("program", [Plain(), Native()], ids=["Python", "native"])
def test_a_map_that_keeps_nothing(program: Program) -> None:
    assert kept_state(program) == ""


@pytest.mark.parametrize(
    ("program", "how"),
    [
        (Storing(), "map stores last"),
        (StoringElsewhere(), "twice stores found"),
        (Counting(), "map stores seen"),
        (Closing(), "the program has a close"),
        (Caching(), "cache is a dict"),
    ],
    ids=["attribute", "attribute in a method", "global", "close", "container"],
)
def test_a_map_that_keeps_something(program: Program, how: str) -> None:
    assert kept_state(program) == how
