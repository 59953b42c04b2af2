"""Methods of programs that return nothing, and data that do not fit to what a program wants."""

from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import DataShapeError, DataValueError, ProgramError, UserCodeError

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TREE = (2, 0)


class Sum(sapwood.Program):
    reduce = {"total": "sum"}  # noqa: RUF012 - as users write it
    forgotten: str = sapwood.parameter("")

    def init(self, data: Any) -> Any:
        return None if self.forgotten == "init" else {}

    def map(self, slice: Any, state: dict[str, Any]) -> Any:  # noqa: A002 - as Program.map
        return None if self.forgotten == "map" else {"total": float(np.nansum(slice.data))}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> Any:
        return {"update": None, "list": [total]}.get(self.forgotten, total)

    def done(self, state: dict[str, Any]) -> Any:
        return None if self.forgotten == "done" else True

    def metrics(self, state: dict[str, Any]) -> Any:
        return None if self.forgotten == "metrics" else {}


class WithoutInputs(Sum):
    inputs = ()


@pytest.mark.parametrize("method", ["init", "map", "update", "done", "metrics"])
def test_a_method_that_returns_nothing_is_named(standing: sapwood.Cluster, method: str) -> None:
    with pytest.raises(ProgramError, match=rf"{method} returned nothing \(Sum\.{method}"):
        standing.run(Sum(forgotten=method), np.ones(4)).result(60)


def test_a_state_of_another_type_is_named_with_its_method(standing: sapwood.Cluster) -> None:
    with pytest.raises(ProgramError, match="update returned a value of type list"):
        standing.run(Sum(forgotten="list"), np.ones(4)).result(60)


def test_data_that_no_input_names_are_refused_with_what_to_do(standing: sapwood.Cluster) -> None:
    with pytest.raises(DataShapeError, match=r'inputs = \["data"\].*range\(n\)'):
        standing.run(WithoutInputs, np.ones(4))


def test_a_range_has_no_fields_and_says_so(standing: sapwood.Cluster) -> None:
    with pytest.raises(UserCodeError, match=r"only indices.*slice\.start"):
        standing.run(Sum, range(4)).result(60)


def test_nan_is_let_in_by_the_switches_that_the_error_names(standing: sapwood.Cluster) -> None:
    data = np.array([1.0, np.nan, 2.0])
    with pytest.raises(DataValueError, match=r"allow_nan = True.*--allow-nan"):
        standing.run(Sum, data).result(60)
    assert standing.run(Sum, data, allow_nan=True).result(60) == {"total": 3.0}
    tolerant = type("Tolerant", (Sum,), {"allow_nan": True})
    assert standing.run(tolerant, data).result(60) == {"total": 3.0}


class Rounds(Sum):
    planned: int = sapwood.parameter(3)

    def init(self, data: Any) -> Any:
        self.asked = self.planned  # known only now
        return {"round": 0}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> Any:
        return {"round": state["round"] + 1}

    def done(self, state: dict[str, Any]) -> Any:
        return state["round"] == 3

    def iterations(self) -> int:
        return self.asked


@pytest.mark.parametrize(("planned", "total"), [(3, 3), (5, 5), (2, None)])
def test_the_total_is_that_after_init_as_long_as_it_is_true(
    standing: sapwood.Cluster, planned: int, total: int | None
) -> None:
    run = standing.run(Rounds(planned=planned), np.ones(4))
    run.result(60)
    assert (run.progress.iteration, run.progress.iterations) == (3, total)
