import ctypes
from typing import Any, ClassVar

import pytest

from sapwood_lizard.structures import (
    EncodableStructure,
    b64_json_dec,
    b64_json_enc,
    field_types,
    pointer_fields,
    scalar_fields,
)


class Inner(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double * 2)]


class Many(EncodableStructure):
    _fields_: ClassVar = [
        ("flag", ctypes.c_bool),
        ("letter", ctypes.c_char),
        ("grid", (ctypes.c_float * 2) * 3),
        ("inner", Inner),
        ("several", Inner * 2),
        ("name", ctypes.c_char * 4),
    ]


class Row(EncodableStructure):
    _fields_: ClassVar = [("n", ctypes.c_int), ("values", ctypes.POINTER(ctypes.c_float))]
    aux_field_names = ("values",)

    def encode_dynamic(self, global_params: Any) -> str:
        return b64_json_enc(list(self.get_ref("values")[: self.n]))

    def decode_dynamic(self, encoded: str, global_params: Any) -> None:
        self.values_aux = b64_json_dec(encoded)


def test_everything_without_pointers_comes_back() -> None:
    many = Many(True, b"\xff")
    many.grid[2][1] = 0.5
    many.inner.b[1] = 1e300
    many.several[1].a = -4
    many.name = b"abc"
    again = Many()
    again.decode(many.encode(None), None)
    assert bytes(again) == bytes(many)


def test_a_structure_is_json_in_base64_with_its_pointers_under_dynamic() -> None:
    row = Row(2)
    row.values_aux = [1.5, -2.0]
    text = row.encode(None)
    assert b64_json_dec(text) == {"n": 2, "dynamic": b64_json_enc([1.5, -2.0])}


def test_the_pointer_counts_where_it_is_set_and_the_list_where_not() -> None:
    row = Row(2)
    row.values_aux = [7.0, 8.0]
    assert row.get_ref("values") == [7.0, 8.0]
    memory = (ctypes.c_float * 2)(1, 2)
    row.values = memory
    assert row.get_ref("values")[1] == 2.0
    assert b64_json_dec(b64_json_dec(row.encode(None))["dynamic"]) == [1.0, 2.0]


def test_pointers_may_be_left_for_later() -> None:
    row = Row(2)
    row.values_aux = [1.0, 2.0]
    other = Row()
    other.decode(row.encode(None), None, decode_aux=False)
    assert other.n == 2
    assert not hasattr(other, "values_aux")


def test_a_structure_has_no_truth_and_no_length_unless_it_defines_one() -> None:
    with pytest.raises(TypeError, match="__len__"):
        bool(Many())


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.init_aux_structures(None),
        lambda s: s.encode_dynamic(None),
        lambda s: s.decode_dynamic("", None),
    ],
)
def test_what_only_programs_know_they_must_define(call: Any) -> None:
    with pytest.raises(NotImplementedError):
        call(Many())


def test_names_of_pointers_may_be_one_text() -> None:
    class Loose(EncodableStructure):
        _fields_: ClassVar = [("value", ctypes.c_int), ("values", ctypes.POINTER(ctypes.c_int))]
        aux_field_names = "values"

    assert pointer_fields(Loose) == ("values",)
    assert scalar_fields(Loose) == ["value"]


def test_fields_of_base_classes_come_first() -> None:
    class More(Row):
        _fields_: ClassVar = [("more", ctypes.c_int)]

    assert [name for name, _ in field_types(More)] == ["n", "values", "more"]


def test_not_a_number_and_infinity_travel() -> None:
    found = b64_json_dec(b64_json_enc([float("nan"), float("-inf")]))
    assert found[0] != found[0]
    assert found[1] == float("-inf")


@pytest.mark.parametrize("text", ["x", "AAAA", b64_json_enc(1)[:-2]])
def test_what_is_no_json_in_base64_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|JSON|Expecting|decode"):
        b64_json_dec(text)
