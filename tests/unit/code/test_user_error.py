from __future__ import annotations

import os

import numpy as np
import pytest

from sapwood.code.user_error import user_error
from sapwood.core.errors import UserCodeError


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(problem: BaseException) -> BaseException:
    with pytest.raises(type(problem)) as caught:
        raise problem
    return caught.value


def missing(name: str) -> BaseException:
    with pytest.raises(KeyError) as caught:
        os.environ[name]
    return caught.value


def test_the_traceback_names_file_and_line() -> None:
    error = user_error(raised(ValueError("seven")))
    assert isinstance(error, UserCodeError)
    assert error.what == "ValueError: seven"
    assert f'File "{__file__}", line ' in error.details["traceback"]
    assert error.details["traceback"].endswith("ValueError: seven\n")


def test_an_exception_without_a_text_has_its_name() -> None:
    error = user_error(raised(UnprintableError()))
    assert error.what == "UnprintableError"


def test_a_missing_variable_of_an_agent_says_how_to_give_it() -> None:
    problem = missing("SAPWOOD_TEST_MISSING")
    assert "--env NAME" in user_error(problem).hint
    assert user_error(problem, of_agent=False).hint == ""
    assert user_error(raised(KeyError("SAPWOOD_TEST_MISSING"))).hint == ""


def test_a_change_of_a_read_only_array_says_to_copy_it() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only") as caught:
        array += 1
    assert "x = x.copy()" in user_error(caught.value).hint
    assert user_error(raised(ValueError("seven"))).hint == ""


def test_an_exit_is_an_error() -> None:
    error = user_error(raised(SystemExit(3)))
    assert error.what == "user code called sys.exit(3)"
