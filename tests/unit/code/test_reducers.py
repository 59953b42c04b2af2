from typing import Any

import pytest

from sapwood.code.filter import Filter
from sapwood.code.native_marker import native
from sapwood.code.program import Program
from sapwood.code.reducers import FieldReducers, built_in, has_reducers
from sapwood.core.errors import ProgramError


def longer(left: str, right: str) -> str:
    return max(left, right, key=len)


class Greatest(Filter):
    greatest = 0

    def up(self, values: list[Any]) -> Any:
        self.greatest = max(self.greatest, *values)
        return self.greatest


def reducers(reduce: dict[str, Any], depth: int) -> FieldReducers:
    functions: dict[str, Any] = {}
    made = FieldReducers(reduce, functions.__getitem__)
    made.depth = depth
    return made


def test_a_tree_of_reducers_gives_what_one_gives() -> None:
    how = {"word": longer, "mean": "mean", "greatest": Greatest, "who": "gather"}
    leaves = [
        {"word": "x" * rank, "mean": float(rank), "greatest": rank, "who": rank}
        for rank in (1, 2, 3)
    ]
    below, root, alone = reducers(how, 1), reducers(how, 0), reducers(how, 0)
    below.ranks, below.weights = [2, 3], [20.0, 30.0]
    partial = below.up(leaves[1:])
    root.ranks, root.weights = [1, 2], [10.0, 50.0]
    alone.ranks, alone.weights = [1, 2, 3], [10.0, 20.0, 30.0]
    expected = {"word": "xxx", "mean": pytest.approx(140 / 60), "greatest": 3, "who": [1, 2, 3]}
    assert root.up([leaves[0], partial]) == expected
    assert alone.up(leaves) == expected


def test_what_travels_instead_of_a_function() -> None:
    assert built_in({"word": longer, "n": "sum"}) == {"word": "gather", "n": "sum"}
    assert has_reducers({"bins": native("add")})
    assert not has_reducers({"n": "sum"})


def one(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("reduce", "text"),
    [
        (longer, "reduce must be a dictionary, not longer"),
        ({"n": "summ"}, "or give a function of two values"),
        ({"n": one}, "field n cannot be reduced by one"),
        ({"n": 3}, "field n cannot be reduced by 3"),
        ({"n": dict}, "field n cannot be reduced by dict"),
        ({"n": Filter}, "has no way up"),
    ],
)
def test_what_cannot_reduce_is_refused_with_the_class(reduce: Any, text: str) -> None:
    with pytest.raises(ProgramError) as refused:
        type("Wrong", (Program,), {"reduce": reduce})
    assert text in str(refused.value)
