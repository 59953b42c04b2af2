from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.core.arguments import (
    MAX_SECONDS,
    choice,
    duration,
    function,
    path_text,
    text,
    wait_time,
    whole,
)
from sapwood.core.errors import ConfigurationError, DataMissingError, InputError
from sapwood.core.shown import shown


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3)])
def test_whole_numbers_of_any_kind(value: Any) -> None:
    number = whole(value, "chunk")
    assert (number, type(number)) == (3, int)


@pytest.mark.parametrize("value", ["3", 3.0, None, True, [3], np.float64(3)])
def test_others_are_errors(value: Any) -> None:
    with pytest.raises(InputError, match="chunk is"):
        whole(value, "chunk")


def test_the_caller_names_the_error() -> None:
    with pytest.raises(ConfigurationError, match="agents is 'x'"):
        whole("x", "agents", ConfigurationError)


@pytest.mark.parametrize("value", [1 << 100_000, -(1 << 100_000), 2**63], ids=shown)
def test_an_integer_that_fits_no_message_is_an_error(value: int) -> None:
    with pytest.raises(InputError, match="chunk is"):
        whole(value, "chunk")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (-1, 0.0),
        (-(1 << 100_000), 0.0),
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (1e300, MAX_SECONDS),
        (float("inf"), MAX_SECONDS),
        (1 << 100_000, MAX_SECONDS),
    ],
    ids=shown,
)
def test_a_wait_is_none_or_a_number_that_python_can_wait_for(
    given: Any, seconds: float | None
) -> None:
    assert wait_time(given) == seconds
    assert MAX_SECONDS < threading.TIMEOUT_MAX


@pytest.mark.parametrize("given", ["1", [1], float("nan"), True, object(), 1j])
def test_others_are_no_time_to_wait(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout is"):
        wait_time(given)


@pytest.mark.parametrize(
    "given",
    [-1, float("inf"), float("-inf"), float("nan"), None, "1", True, -(1 << 100_000)],
    ids=shown,
)
def test_others_are_no_duration(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="time_limit is"):
        duration(given, "time_limit")


@pytest.mark.parametrize("given", [1e300, 1 << 100_000], ids=shown)
def test_a_longer_duration_than_can_be_waited_for_is_the_longest(given: Any) -> None:
    assert duration(given, "time_limit") == MAX_SECONDS


class Uncomparable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("compared")


@pytest.mark.parametrize(
    "given",
    [Uncomparable(), None, "x" * 10**6, [], "lates"],
    ids=lambda one: str(type(one).__name__),
)
def test_a_word_that_is_no_choice_is_an_error(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="keep is"):
        choice(given, "keep", ("all", "latest"))


@pytest.mark.parametrize("given", [None, 3, "print", []])
def test_an_object_that_cannot_be_called_is_an_error(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a function"):
        function(given, "on_version")


@pytest.mark.parametrize("given", ["\ud800", "a\0b", None, b"x"], ids=shown)
def test_what_cannot_travel_is_no_text(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="name is"):
        text(given, "name")


@pytest.mark.parametrize("given", ["\ud800", "a\0b", None, b"x", 3], ids=shown)
def test_what_cannot_name_a_file_is_no_path(given: Any) -> None:
    with pytest.raises(DataMissingError, match="there can be no such file"):
        path_text(given, "the path", DataMissingError)


@pytest.mark.parametrize("given", ["", "data", "\udc80", Path("data")], ids=shown)
def test_the_text_of_a_path_is_as_given(given: Any) -> None:
    assert path_text(given, "the path", DataMissingError) == str(given)
