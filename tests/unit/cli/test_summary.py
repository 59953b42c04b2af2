from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sapwood.cli.output import json_bytes
from sapwood.cli.summary import MAX_ELEMENTS, MAX_TEXT, summarise


def test_everything_becomes_plain() -> None:
    value = {
        "pi": np.float64(3.5),
        "few": np.arange(3),
        "many": np.zeros((100, 3), np.float32),
        "list": [1, (2, "x")],
        "object": object,
        1: True,
        "none": None,
    }
    plain = summarise(value)
    assert type(plain["pi"]) is float
    assert plain["few"] == [0, 1, 2]
    assert plain["many"] == "float32 100 x 3"
    assert plain["list"] == [1, [2, "x"]]
    assert plain["1"] is True
    json.dumps(plain)


def test_long_values_are_cut() -> None:
    assert summarise(list(range(MAX_ELEMENTS + 2)))[-1] == "… 2 more"
    assert len(summarise("x" * 1000)) == MAX_TEXT + 1


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def of_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        nested(100_000),
        of_itself(),
        {"a": {"b": of_itself()}},
        np.array([object(), None, 1]),
        np.array([1j, 2]),
        np.zeros(3, [("a", "f8"), ("b", "V4")]),
        np.zeros(3, [("a", "f8")])[0],
        [1j, {1, 2}, b"x"],
        Rude(),
        "\ud800 and \udcff",
        {"\ud800": 1},
    ],
    ids=range(11),
)
def test_any_result_can_be_written_as_json(value: Any) -> None:
    json.loads(json_bytes(summarise(value)))


def test_what_is_nested_deep_is_left_out() -> None:
    assert summarise(nested(3)) == [[[[]]]]
    assert summarise([nested(100)], levels=2) == [["…"]]
