from __future__ import annotations

import pytest

from sapwood.core.suggest import MAX_LISTED, suggest, suggestion


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("colors", ["colours", "seed"], "did you mean colours? Known: colours, seed"),
        ("zzz", ["b", "a"], "known: a, b"),
        ("x", [], "none is known"),
    ],
)
def test_the_nearest_names_come_first(name: str, known: list[str], text: str) -> None:
    assert suggest(name, known) == text


def test_near_names_are_suggested_and_far_ones_listed() -> None:
    assert suggestion("colors", ["colours", "seed"]) == "did you mean 'colours'?"
    assert suggestion("zzz", ["b", "a"], kind="keys") == "the keys are a, b"
    assert suggestion("zzz", [], kind="keys") == "no keys exist"


def test_long_lists_are_cut() -> None:
    hint = suggestion("zzz", [f"name{i}" for i in range(MAX_LISTED + 3)])
    assert hint.endswith("and 3 more")
