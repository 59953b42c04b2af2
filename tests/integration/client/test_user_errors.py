"""Errors of a program's methods have file, line and traceback; agents get variables."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest

import sapwood

NAME = "SAPWOOD_TEST_GIVEN"


class Good(sapwood.Program):
    reduce: ClassVar[Any] = {"s": "sum"}

    def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - its name
        del slice, state
        return {"s": 1.0}


class Update(Good):
    def update(self, state: Any, total: Any) -> Any:
        return total["nothing"]


class Done(Good):
    def done(self, state: Any) -> bool:
        return bool(state["nothing"])


class Result(Good):
    def result(self, state: Any) -> Any:
        return state["nothing"]


class Init(Good):
    def init(self, data: Any) -> Any:
        return {"a": object()}


def given() -> str:
    return os.environ[NAME]


@pytest.fixture(scope="module")
def cluster() -> Any:
    with sapwood.local(agents=1, environment={NAME: "a=b c"}) as made:
        yield made


@pytest.mark.parametrize("program", [Update, Done, Result])
def test_methods_of_the_caller_fail_with_their_line(
    cluster: sapwood.Cluster, program: type[Good]
) -> None:
    with pytest.raises(sapwood.errors.UserCodeError) as caught:
        cluster.run(program, data=[1.0]).result()
    method = program.__name__.lower()
    assert caught.value.what == "KeyError: 'nothing'"
    assert caught.value.where == f"{program.__name__}.{method}"
    text = caught.value.details["traceback"]
    assert text.startswith(f'Traceback (most recent call last):\n  File "{__file__}", line ')
    assert f"in {method}\n" in text


def test_a_state_that_cannot_travel_is_named(cluster: sapwood.Cluster) -> None:
    with pytest.raises(sapwood.errors.DataValueError) as caught:
        cluster.run(Init, data=[1.0]).result()
    assert caught.value.where == "the state of Init"


def test_agents_get_the_variables_of_their_cluster(cluster: sapwood.Cluster) -> None:
    assert cluster.submit(given).result() == "a=b c"
    assert NAME not in os.environ


def test_a_variable_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(
        sapwood.errors.ConfigurationError, match="cannot be an environment variable"
    ):
        sapwood.local(agents=1, environment={"A=B": "1"})
    with pytest.raises(sapwood.errors.ConfigurationError, match="no '='"):
        sapwood.local(agents=1, environment={"A": "1\0"})
