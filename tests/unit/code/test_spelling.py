from __future__ import annotations

import pytest

from sapwood.code.spelling import suggest


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
