from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.extent import MAX_EXPRESSION, Extent
from sapwood.core.errors import ProgramError

NAMES = {"n": 7, "d": 3, "k": 2}


def formulas() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*NAMES, "1", "4", "12"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), inner).map(" ".join),
            inner.map("({})".format),
        ),
        max_leaves=8,
    )


@given(formulas())
def test_a_formula_means_what_python_says_it_means(text: str) -> None:
    assert Extent(text).value(NAMES) == eval(text, {}, dict(NAMES))  # noqa: S307 - the reference


@pytest.mark.parametrize(
    ("text", "name", "constant", "names"),
    [("n", "n", None, ("n",)), (" 16 ", None, 16, ()), ("n*d", None, None, ("n", "d"))],
)
def test_a_name_and_a_number_are_known_as_such(
    text: str, name: str | None, constant: int | None, names: tuple[str, ...]
) -> None:
    extent = Extent(text)
    assert (extent.name, extent.constant, extent.names) == (name, constant, names)


def test_division_rounds_down() -> None:
    assert Extent("(n+1)/d").value(NAMES) == 2


@pytest.mark.parametrize(
    "text",
    ["", "n n", "n+", "(n", "n)", "*n", "n(2)", "n%2", "n.x", "1.5", "n+" * MAX_EXPRESSION + "n"],
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ProgramError):
        Extent(text)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(KeyError, match="m"):
        Extent("2*m").value(NAMES)
