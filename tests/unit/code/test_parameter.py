from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.parameter import Parameter, parameter
from sapwood.code.program import Program
from sapwood.core.errors import ParameterError, ProgramError


def named(default: Any, **options: Any) -> Parameter:
    made = Parameter(default, **options)
    made.__set_name__(object, "p")
    made.check_definition("test")
    return made


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (1, "12", 12),
        (1, " -3 ", -3),
        (1.0, "2.5e3", 2500.0),
        (1.0, "7", 7.0),
        ("a", "b c", "b c"),
        (False, "yes", True),
        (True, "OFF", False),
    ],
)
def test_a_command_line_text_becomes_the_type(default: Any, text: str, value: Any) -> None:
    found = named(default).check(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("default", "value"),
    [
        (1, "1.5"),
        (1, 2.0),
        (1, True),
        (1.0, "x"),
        (1.0, None),
        ("a", 1),
        (True, 1),
        (True, "maybe"),
    ],
)
def test_another_type_is_refused_by_name(default: Any, value: Any) -> None:
    with pytest.raises(ParameterError, match=r"^parameter p "):
        named(default).check(value)


@given(st.integers(), st.integers(-5, 5), st.integers(-5, 5))
def test_exactly_the_values_inside_the_limits_pass(value: int, a: int, b: int) -> None:
    low, high = sorted((a, b))
    spec = named(low, minimum=low, maximum=high)
    if low <= value <= high:
        assert spec.check(value) == value
    else:
        with pytest.raises(ParameterError) as caught:
            spec.check(value)
        assert f"{low} to {high}" in caught.value.hint


def test_nan_is_outside_any_limit() -> None:
    with pytest.raises(ParameterError):
        named(1.0, minimum=0.0).check(math.nan)


def test_choices_are_listed_when_another_value_is_given() -> None:
    with pytest.raises(ParameterError) as caught:
        named("fast", choices=["fast", "exact"]).check("slow")
    assert "fast, exact" in caught.value.hint


def test_numpy_scalars_are_numbers() -> None:
    assert named(1).check(np.int32(4)) == 4
    assert named(1.0).check(np.float32(0.5)) == 0.5


@pytest.mark.parametrize(
    ("default", "options"),
    [
        (1, {"minimum": 2}),
        ("a", {"minimum": 2}),
        (3, {"choices": [1, 2]}),
        ([], {}),
        (1, {"maximum": "9"}),
    ],
)
def test_a_definition_that_contradicts_itself_is_an_error(default: Any, options: Any) -> None:
    with pytest.raises(ProgramError):
        named(default, **options)
    with pytest.raises(ProgramError):
        type("Example", (Program,), {"p": Parameter(default, **options)})


def test_the_annotation_decides_the_type() -> None:
    class Example(Program):
        rate: float = parameter(1)

    assert Example(rate=2).rate == 2.0
    assert type(Example().rate) is float


def test_a_program_s_parameter_cannot_be_changed_afterwards() -> None:
    class Example(Program):
        k: int = parameter(1)

    example = Example()
    with pytest.raises(ParameterError, match="cannot change"):
        example.k = 2
    assert example.k == 1
