"""Pickling of user functions: the parts that are sent, and functions that cannot be sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sapwood.activity.offered_content import OfferedContent
from sapwood.client import user_code
from sapwood.client.user_code import CodeMaker
from sapwood.code.cache import BuildCache
from sapwood.code.pickling import open_pickled
from sapwood.core.errors import ConfigurationError, DataValueError

LEVELS = 100_000


@pytest.fixture
def maker(tmp_path: Path) -> CodeMaker:
    session: Any = SimpleNamespace(shares_machine=lambda: True)
    return CodeMaker(BuildCache(tmp_path), dict, list, list, OfferedContent(session))


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def call(maker: CodeMaker, function: Any, *args: Any) -> Any:
    return maker.call(function, maker.code(function), args, {}, 0.0)


def test_an_argument_that_is_nested_too_deep_is_named_as_that(maker: CodeMaker) -> None:
    with pytest.raises(DataValueError, match="deep") as caught:
        call(maker, len, nested(LEVELS))
    assert "an argument of len" in caught.value.what
    assert not caught.value.what.endswith(".")
    assert "fewer levels" in caught.value.hint


def test_a_function_that_holds_what_is_nested_too_deep_is_named_as_that(maker: CodeMaker) -> None:
    deep = nested(LEVELS)
    with pytest.raises(DataValueError, match="deep") as caught:
        maker.code(lambda: deep)
    assert "fewer levels" in caught.value.hint


class Silent:
    """Cannot be shown, nor sent."""

    def __call__(self) -> None: ...

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no bytes")


def test_what_cannot_be_shown_is_named_by_its_type(maker: CodeMaker) -> None:
    with pytest.raises(DataValueError, match="no bytes") as caught:
        maker.code(Silent())
    assert caught.value.where == "Silent"
    assert "open files" in caught.value.hint


@pytest.mark.parametrize("value", [nested(LEVELS), "pow", 3, None])
def test_what_is_no_function_is_said(maker: CodeMaker, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be called"):
        maker.code(value)


def test_compiled_code_is_refused_before_it_is_sent_to_another_python(tmp_path: Path) -> None:
    session: Any = SimpleNamespace(shares_machine=lambda: True)
    offered = OfferedContent(session)
    maker = CodeMaker(BuildCache(tmp_path), dict, list, lambda: ["3.99.1"], offered)
    ways: list[Callable[[], object]] = [
        lambda: maker.code(lambda: 1),
        lambda: call(maker, len, [lambda: 1]),
        lambda: maker.for_stream(lambda x: x, 0.0),
    ]
    for way in ways:
        with pytest.raises(DataValueError, match=r"processes with Python 3\.99, which"):
            way()
    assert call(maker, len, [{1}]).function == "len"
    assert maker.for_stream(abs, 0.0)[0].function == "abs"


def test_programs_that_stay_open_are_bounded(
    maker: CodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "MAX_PROGRAMS", 3)
    built: list[str] = []

    def build(program: Any, *_args: Any, **_named: Any) -> Any:
        built.append(program.hash)
        return SimpleNamespace(libraries=(), all_libraries=(), debug_files={})

    monkeypatch.setattr(user_code, "build_for_all", build)
    monkeypatch.setattr(user_code, "make_image", lambda program, *_args: {"hash": program.hash})

    def use(name: str) -> None:
        maker._native(SimpleNamespace(hash=name, parameters={}))  # type: ignore[arg-type]  # enough of one

    for name in ("a", "b", "c", "a", "d", "a", "b"):
        use(name)
    assert built == ["a", "b", "c", "d", "b"]
    assert len(maker._programs) == 3


def test_large_arrays_of_a_function_travel_beside_its_pickle(maker: CodeMaker) -> None:
    codes = []
    for end in (0.0, 1.0):
        large = np.zeros(100_000)
        large[-1] = end
        codes.append(maker.code(lambda large=large: float(large[-1])))
    assert all(len(one["code"].data) < 2000 for one in codes)
    assert codes[0]["code"].data == codes[1]["code"].data
    assert codes[0]["key"] != codes[1]["key"]
    assert [open_pickled(one["code"], lasting=True)() for one in codes] == [0.0, 1.0]
    assert call(maker, abs, -1).argument.nbytes == 0


def test_a_function_with_large_data_is_warned_of_once(
    maker: CodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda _what, **about: told.append(about))
    monkeypatch.setattr(user_code, "_log", log)
    monkeypatch.setattr(user_code, "LARGE_FUNCTION", 10_000)
    small, large = bytes(100), bytes(20_000)
    maker.code(lambda: small)
    assert told == []
    maker.code(lambda: large)
    maker.code(lambda: large)
    assert [one["hint"] for one in told] == ["keep them in arrays: these travel in shared memory"]
