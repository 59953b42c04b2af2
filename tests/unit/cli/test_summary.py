from __future__ import annotations

import json

import numpy as np

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
