"""Functions and types of a script that no other process can import."""

from __future__ import annotations

import functools
import typing
from typing import Any

import pytest

from sapwood.code.pickled_kinds import by_value
from sapwood.code.pickling import open_pickled, pickle_of
from sapwood.comm.values import Pickled

SCRIPT = """
import functools, typing

@functools.lru_cache(maxsize=7, typed=True)
def fibonacci(n):
    "Fibonacci's numbers."
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def shown(value): return f"other {value}"

@shown.register
def _(value: int): return f"int {value}"

@shown.register(list)
def _(value): return [shown(each) for each in value]

class Account:
    made = 0
    @functools.cached_property
    def balance(self):
        Account.made += 1
        return 5
    @functools.lru_cache
    def plus(self, x): return x + self.balance
    @functools.singledispatchmethod
    def add(self, x): return "other"
    @add.register
    def _(self, x: int): return self.balance + x

UserId = typing.NewType("UserId", int)
Mixed = typing.TypedDict("Mixed", {"a": int, "b": typing.NotRequired[str]})
class Options(typing.TypedDict, total=False):
    "Some options."
    size: int
    name: typing.Required[str]
"""


@pytest.fixture
def script() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SCRIPT, "script.py", "exec", dont_inherit=True), names)  # noqa: S102 - as a script is run
    return names


def travelled(value: Any) -> Any:
    """Return what arrives."""
    made = open_pickled(Pickled(pickle_of(value), []))
    assert made is not value
    return made


def test_a_function_with_a_cache_keeps_its_parameters(script: dict[str, Any]) -> None:
    fibonacci = travelled(script["fibonacci"])
    assert fibonacci(30) == 832040
    assert fibonacci.cache_parameters() == {"maxsize": 7, "typed": True}
    assert fibonacci.__doc__ == "Fibonacci's numbers."
    assert fibonacci.__wrapped__.__globals__["fibonacci"] is fibonacci
    assert script["fibonacci"].cache_info().misses == 0


def test_a_generic_function_keeps_its_kinds(script: dict[str, Any]) -> None:
    assert travelled(script["shown"])([1, "a", [2]]) == ["int 1", "other a", ["int 2"]]


def test_a_class_keeps_its_cached_and_generic_methods(script: dict[str, Any]) -> None:
    account = travelled(script["Account"]())
    assert (account.balance, account.balance, type(account).made) == (5, 5, 1)
    assert account.plus(2) == 7
    assert (account.add(3), account.add("x")) == (8, "other")


def test_types_of_a_script_arrive(script: dict[str, Any]) -> None:
    user_id = travelled(script["UserId"])
    assert (user_id(4), user_id.__supertype__, repr(user_id)) == (4, int, "__main__.UserId")
    mixed, options = travelled(script["Mixed"]), travelled(script["Options"])
    assert (mixed.__required_keys__, mixed.__optional_keys__) == ({"a"}, {"b"})
    assert (options.__required_keys__, options.__optional_keys__) == ({"name"}, {"size"})
    assert options(size=1) == {"size": 1}
    assert options.__doc__ == "Some options."
    assert typing.get_type_hints(options)["size"] is int


@functools.lru_cache
def cached_here(number: int) -> int:
    """A function that can be imported."""
    return number


@pytest.mark.parametrize("value", [cached_here, functools.singledispatch, abs, int, 3, typing.Any])
def test_what_has_a_name_travels_by_it(value: Any) -> None:
    assert by_value(value) is None
    assert open_pickled(Pickled(pickle_of(value), [])) is value
