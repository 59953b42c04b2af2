"""Pickles that have compiled code say for which Python it is; others open everywhere."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sapwood.code import pickling
from sapwood.code.pickling import check_versions, open_pickled, pickle_of
from sapwood.comm.values import Pickled
from sapwood.core.errors import DataValueError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def compiled() -> list[Any]:
    """Return values that have code in them somewhere."""

    def outer() -> Callable[[], int]:
        return lambda: 1

    class Own:
        def method(self) -> int:
            return 1

    return [lambda: 7, outer, Own, Own(), functools.partial(map, lambda x: x), {"f": [outer]}]


PLAIN = [
    *(7, "text", {1, frozenset({2})}, np.arange(5.0), np.float32(1)),
    *(operator.add, functools.partial(operator.add, 1), dict, ValueError("x")),
    *(HERE, b"\x80\x05"),
]


@pytest.mark.parametrize("value", compiled())
def test_compiled_code_is_refused_where_another_python_is(value: Any) -> None:
    data = pickle_of(value)
    check_versions(data, "f", [f"{HERE}.1", f"{HERE}.99", ""])
    with pytest.raises(DataValueError) as caught:
        check_versions(data, "f", [f"{HERE}.1", "3.98.2", "3.99.1", "3.99.2"])
    assert caught.value.where == "f"
    assert f"Python {HERE} compiled" in caught.value.what
    assert "Python 3.98, 3.99" in caught.value.what
    assert f"have Python {HERE} there, by nodes.python" in caught.value.hint


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_what_has_no_code_goes_everywhere(value: Any) -> None:
    check_versions(pickle_of(value), "f", ["3.99.1"])


@pytest.mark.parametrize("value", compiled())
def test_code_of_another_python_is_an_error_where_it_is_opened(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would crash the interpreter."""
    monkeypatch.setattr(pickling, "_MINOR", "3.99")
    data = pickle_of(value)
    monkeypatch.undo()
    with pytest.raises(DataValueError, match=r"does not run code that Python 3\.99 compiled"):
        open_pickled(Pickled(data, []))


def test_code_of_this_python_opens_with_its_file() -> None:
    def named() -> int:
        return 7

    found = open_pickled(Pickled(pickle_of(named), []))
    assert found() == 7
    assert found.__code__.co_filename == __file__
