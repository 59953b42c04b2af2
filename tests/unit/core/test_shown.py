"""Values of users in the texts of errors."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.shown import MAX_SHOWN, shown


class Raising:
    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        raise self.kind("printed")


def nested(kind: type) -> Any:
    deep = kind()
    for _ in range(100_000):
        deep = kind([deep])
    return deep


@pytest.mark.parametrize("kind", [ValueError, RecursionError, MemoryError, SystemExit])
def test_an_object_that_cannot_be_printed_is_named_by_its_class(kind: type[BaseException]) -> None:
    assert shown(Raising(kind)) == "an object of the class Raising"


def test_in_a_list_the_other_items_are_printed() -> None:
    assert shown([1, Raising(ValueError), "x"]) == "[1, an object of the class Raising, 'x']"


@pytest.mark.parametrize(
    "value",
    ["left", b"left", 7, -1.5, None, True, (1, 2), {"a": [1]}, bytearray(b"x"), ValueError("x")],
    ids=repr,
)
def test_an_ordinary_value_is_printed_as_repr_does(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**7,
        b"x" * 10**7,
        bytearray(10**7),
        list(range(10**6)),
        dict.fromkeys(range(1000), "x" * 1000),
        1 << 10**7,
        range(1 << 100_000),
        [1 << 100_000],
        np.zeros(10**6),
        nested(list),
        nested(tuple),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_a_large_value_has_a_short_text(value: object) -> None:
    assert len(shown(value)) <= MAX_SHOWN


def test_texts_are_escaped() -> None:
    assert shown("\ud800\0\u202e") == "'\\ud800\\x00\\u202e'"


def test_a_class_with_a_hostile_name_is_shown() -> None:
    class Kind(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise ValueError("no name")

        def __repr__(cls) -> str:
            raise ValueError("no text")

    class Odd(metaclass=Kind):
        def __repr__(self) -> str:
            raise ValueError("no text")

    assert shown(Odd()) == "an object of the class Odd"
    assert shown(Odd) == "an object of the class Kind"


@pytest.mark.slow
def test_no_error_prints_a_value_with_repr() -> None:
    source = Path(sapwood.__file__).parent
    found = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in source.rglob("*.py")
        for raised in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(raised, ast.Raise) and "AttributeError" not in ast.dump(raised)
        for node in ast.walk(raised)
        if (isinstance(node, ast.FormattedValue) and node.conversion == ord("r"))
        or (isinstance(node, ast.Name) and node.id == "repr")
    ]
    assert found == []
