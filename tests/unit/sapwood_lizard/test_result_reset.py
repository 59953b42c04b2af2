import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ProgramError
from sapwood_lizard.result_reset import ResultReset, alike
from sapwood_lizard.structures import EncodableStructure, b64_json_dec, b64_json_enc


class Result(EncodableStructure):
    _fields_: ClassVar = [
        ("count", ctypes.c_int),
        ("capacity", ctypes.c_int),
        ("values", ctypes.POINTER(ctypes.c_float)),
    ]
    aux_field_names = ("values",)

    def encode_dynamic(self, global_params: Any) -> str:
        values = self.get_ref("values")
        return b64_json_enc([values[i] for i in range(3)])

    def decode_dynamic(self, encoded: str, global_params: Any) -> None:
        for i, value in enumerate(b64_json_dec(encoded)):
            self.get_ref("values")[i] = value


def fresh() -> Result:
    made = Result()
    made.values_aux = [0, 0, 0]
    return made


def in_c_memory() -> Result:
    made = Result(capacity=3)
    made.values = (ctypes.c_float * 3)(5, 6, 7)
    return made


def reset_in_place(params: Any, aggregation_result: Any = None) -> Any:
    made = fresh() if aggregation_result is None else aggregation_result
    made.count = 0
    for i in range(3):
        made.get_ref("values")[i] = 0
    return made


def make_anew(params: Any, aggregation_result: Any = None) -> Any:
    return fresh()


def refuse(params: Any, aggregation_result: Any = None) -> Any:
    assert aggregation_result is None
    return fresh()


class Program:
    def __init__(self, init: Callable[..., Any]) -> None:
        self.module: Any = SimpleNamespace(init_aggregation_result=init)
        self.params = None

    def fresh_result(self) -> Any:
        return self.module.init_aggregation_result(None)

    def encode(self, structure: Any) -> str:
        text: str = structure.encode(None)
        return text


@pytest.mark.row("B-PROG-2")
@pytest.mark.parametrize("init", [reset_in_place, make_anew, refuse])
def test_every_iteration_begins_with_zeros(init: Callable[..., Any]) -> None:
    result = in_c_memory()
    reset = ResultReset(Program(init), result)
    for _ in range(4):
        reset.apply()
        assert (result.count, result.values[:3]) == (0, [0.0, 0.0, 0.0])
        result.count += 9
        for i in range(3):
            result.values[i] += 1.5


def test_a_result_that_happens_to_be_zero_proves_nothing() -> None:
    result = in_c_memory()
    result.values = (ctypes.c_float * 3)()
    reset = ResultReset(Program(make_anew), result)
    reset.apply()
    result.values[1] = 3.0
    reset.apply()
    assert result.values[:3] == [0.0, 0.0, 0.0]


def test_a_result_that_nothing_resets_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Result, "decode_dynamic", lambda self, encoded, params: None)
    reset = ResultReset(Program(make_anew), in_c_memory())
    with pytest.raises(ProgramError, match="does not reset"):
        reset.apply()


NUMBERS = st.floats(width=32) | st.integers(-(2**31), 2**31 - 1)


@given(st.lists(NUMBERS))
def test_values_are_like_what_c_makes_of_them(numbers: list[Any]) -> None:
    in_c = [
        ctypes.c_float(n).value if isinstance(n, float) else ctypes.c_uint32(n).value
        for n in numbers
    ]
    assert alike({"x": numbers}, {"x": in_c})


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_other_numbers_are_not_alike(a: float, b: float) -> None:
    if abs(a - b) > 1e-5 * max(abs(a), abs(b)) and max(abs(a), abs(b)) < 1e38:
        assert not alike([a], [b])


@pytest.mark.parametrize(("a", "b"), [([1], 1), ({"a": 1}, {"b": 1}), ("x", "y"), ([1], [1, 2])])
def test_other_forms_are_not_alike(a: Any, b: Any) -> None:
    assert not alike(a, b)
