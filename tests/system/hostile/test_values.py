"""Hostile values, given to and returned by each way to compute: each has the error of its call.

A step is named by its call and its value. The order of the steps is shuffled with a fixed seed.
"""

import operator
import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

import sapwood
from sapwood.core.errors import DataValueError, MemoryLimitError, ProgramError, UserCodeError

from .recipes import Hostile, nested

PATIENCE = 30.0
KINDS = (ValueError, RecursionError, MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit)
METHODS = ("add", "compare", "print", "pickle", "load")
VALUES: dict[str, Callable[[], Any]] = {
    f"{method}-{kind.__name__}": lambda kind=kind, method=method: Hostile(kind, method)
    for kind in KINDS
    for method in METHODS
} | {
    "nested": nested,
    "surrogate": lambda: "\ud800",
    "nul": lambda: "\0" * 3,
    "right-to-left": lambda: "\u202eabc\n../..",
    "long-text": lambda: "x" * 10**6,
    "generator": lambda: (one for one in range(3)),
    "type": lambda: Hostile,
    "ellipsis": lambda: ...,
    "large-integer": lambda: 1 << 100_000,
    "not-a-number": lambda: float("nan"),
}


def _given(cluster: sapwood.Cluster, make: Callable[[], Any]) -> Future[Any]:
    return cluster.submit(lambda value: value is None, make())


def _returned(cluster: sapwood.Cluster, make: Callable[[], Any]) -> Future[Any]:
    return cluster.submit(lambda _value: make(), 0)


def _broadcast(cluster: sapwood.Cluster, make: Callable[[], Any]) -> None:
    with cluster.stream(lambda value: 1, reduce=operator.add) as stream:
        stream.broadcast(make()).result(PATIENCE)


def _reduced(cluster: sapwood.Cluster, make: Callable[[], Any]) -> None:
    with cluster.stream(lambda _value: make(), reduce=operator.add) as stream:
        stream.broadcast(0).result(PATIENCE)


CALLS: dict[str, Callable[[sapwood.Cluster, Callable[[], Any]], Any]] = {
    "submit-given": lambda cluster, make: _given(cluster, make).result(PATIENCE),
    "submit-returned": lambda cluster, make: _returned(cluster, make).result(PATIENCE),
    "broadcast-given": _broadcast,
    "broadcast-reduced": _reduced,
}
STEPS = [(call, value) for call in CALLS for value in VALUES]
random.Random(26).shuffle(STEPS)  # noqa: S311 - an order, not a secret


UNPICKLED = {"nested": DataValueError, "generator": DataValueError}
PLAIN = ("nul", "right-to-left", "long-text", "not-a-number")
ENDING = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")


def expected(call: str, value: str) -> type[BaseException] | None:
    """Return the error that a step has by the documentation; None for success."""
    method, _, name = value.partition("-")
    kind = {one.__name__: one for one in KINDS}.get(name)
    if call.startswith("broadcast"):
        if value in PLAIN:
            return None
        return (
            ProgramError if (call, value) == ("broadcast-reduced", "generator") else DataValueError
        )
    if kind is None or method not in {"pickle", "load"}:
        return UNPICKLED.get(value)
    on_agent = (method == "load") == (call == "submit-given")
    if not on_agent:  # an exception that ends a program ends the caller's, as in its own code
        return kind if name in ENDING else DataValueError
    if kind is MemoryError:
        return MemoryLimitError
    return DataValueError if method == "pickle" and name not in ENDING else UserCodeError


@pytest.mark.parametrize(("call", "value"), STEPS, ids=[f"{call}-{value}" for call, value in STEPS])
def test_a_value_has_the_error_of_its_call(cluster: sapwood.Cluster, call: str, value: str) -> None:
    error = expected(call, value)
    if error is None:
        CALLS[call](cluster, VALUES[value])
    else:
        with pytest.raises(error) as raised:
            CALLS[call](cluster, VALUES[value])
        assert raised.type is error or issubclass(error, UserCodeError)  # of the user's class, too


@pytest.mark.parametrize("value", ["surrogate", *PLAIN[:3], "ellipsis", "large-integer"])
def test_an_odd_value_comes_back_as_it_was(cluster: sapwood.Cluster, value: str) -> None:
    sent = VALUES[value]()
    assert cluster.submit(lambda given: given, sent).result(PATIENCE) == sent
