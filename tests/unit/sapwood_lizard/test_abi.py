import ctypes
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from sapwood.core.errors import ProgramError
from sapwood_lizard.abi import ENTRY_POINTS, check_entry_points, check_structures, describe
from sapwood_lizard.layout import CType, EntryPoint, StructMember

INT, FLOAT = CType("int", "int", 4), CType("float", "float", 4)
BYTE, BOOL, DOUBLE = CType("int", "char", 1), CType("bool", "bool", 1), CType("float", "double", 8)


def pointer(target: CType | None) -> CType:
    return CType("pointer", f"{target.text if target else 'void'} *", 8, target)


def array(element: CType, count: int) -> CType:
    return CType("array", f"{element.text}[{count}]", element.size * count, element)


def structure(*members: tuple[int, CType], size: int) -> CType:
    found = tuple(StructMember(f"m{i}", offset, each) for i, (offset, each) in enumerate(members))
    return CType("struct", "s", size, None, found, "s.h:3")


def check(c: CType, fields: list[Any]) -> None:
    class Same(ctypes.Structure):
        _fields_: ClassVar = fields

    taken = EntryPoint((pointer(c), pointer(None)), "k.cu:7")
    points = {name: taken for name, classes in ENTRY_POINTS.items() if len(classes) == 2}
    points["run_iteration"] = EntryPoint((INT, *[pointer(c)] * 4), "k.cu:1")
    check_entry_points(points, where="k.cu")
    names = ("GlobalParams", "Dataset", "GlobalState", "AggregationResult")
    module: Any = SimpleNamespace(**dict.fromkeys(names, Same))
    check_structures(points, module, where="p.py")


INNER = structure((0, INT), (8, DOUBLE), size=16)


class Inner(ctypes.Structure):
    _fields_: ClassVar = [("a", ctypes.c_int), ("b", ctypes.c_double)]


VECTOR = structure((0, FLOAT), (4, FLOAT), (8, FLOAT), size=12)


class Vector(ctypes.Structure):
    _fields_: ClassVar = [(name, ctypes.c_float) for name in "xyz"]


FITTING = [
    (INT, ctypes.c_int),
    (INT, ctypes.c_uint32),
    (BYTE, ctypes.c_char),
    (BYTE, ctypes.c_bool),
    (BOOL, ctypes.c_bool),
    (BOOL, ctypes.c_uint8),
    (DOUBLE, ctypes.c_double),
    (pointer(FLOAT), ctypes.POINTER(ctypes.c_float)),
    (pointer(FLOAT), ctypes.c_void_p),
    (pointer(BYTE), ctypes.c_char_p),
    (pointer(None), ctypes.POINTER(ctypes.c_int)),
    (pointer(pointer(FLOAT)), ctypes.POINTER(ctypes.POINTER(ctypes.c_float))),
    (pointer(INNER), ctypes.POINTER(Inner)),
    (INNER, Inner),
    (array(FLOAT, 6), (ctypes.c_float * 3) * 2),
    (array(INNER, 2), Inner * 2),
    (CType("other", "union u", 8), ctypes.c_int64),
    (VECTOR, ctypes.c_float * 3),
    (VECTOR, Vector),
    (array(FLOAT, 3), Vector),
    (pointer(VECTOR), ctypes.POINTER(ctypes.c_float)),
    (pointer(FLOAT), ctypes.POINTER(Vector)),
    (pointer(VECTOR), ctypes.POINTER(ctypes.c_float * 3)),
    (pointer(array(FLOAT, 3)), ctypes.POINTER(Vector)),
    (pointer(pointer(VECTOR)), ctypes.POINTER(ctypes.POINTER(ctypes.c_float))),
    (pointer(structure((0, BYTE), (1, BOOL), size=2)), ctypes.POINTER(ctypes.c_char)),
]

OTHER = [
    (INT, ctypes.c_int64),
    (INT, ctypes.c_float),
    (FLOAT, ctypes.c_int),
    (DOUBLE, ctypes.c_float),
    (INT, ctypes.c_void_p),
    (pointer(FLOAT), ctypes.POINTER(ctypes.c_double)),
    (pointer(FLOAT), ctypes.POINTER(ctypes.POINTER(ctypes.c_float))),
    (pointer(pointer(FLOAT)), ctypes.POINTER(ctypes.c_float)),
    (pointer(FLOAT), ctypes.c_int64),
    (array(FLOAT, 6), ctypes.c_float * 5),
    (array(FLOAT, 6), ctypes.c_int * 6),
    (INNER, ctypes.c_double * 2),
    (structure((0, INT), (8, INT), size=16), Inner),
    (pointer(structure((0, INT), size=4)), ctypes.POINTER(Inner)),
    (VECTOR, ctypes.c_float * 4),
    (pointer(VECTOR), ctypes.POINTER(ctypes.c_int)),
    (pointer(VECTOR), ctypes.POINTER(ctypes.c_float * 4)),
    (pointer(array(FLOAT, 2)), ctypes.POINTER(Vector)),
    (pointer(structure((0, FLOAT), (4, INT), size=8)), ctypes.POINTER(ctypes.c_float)),
    (pointer(structure((0, FLOAT), (8, FLOAT), size=12)), ctypes.POINTER(ctypes.c_float)),
    (pointer(structure((0, FLOAT), size=8)), ctypes.POINTER(ctypes.c_float)),
]


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize(("c", "python"), FITTING)
def test_the_same_in_memory(c: CType, python: Any) -> None:
    check(structure((0, c), size=ctypes.sizeof(python)), [("x", python)])


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize(("c", "python"), OTHER)
def test_another_in_memory(c: CType, python: Any) -> None:
    with pytest.raises(ProgramError, match="is not laid out as s") as caught:
        check(structure((0, c), size=ctypes.sizeof(python)), [("x", python)])
    assert caught.value.where == "p.py, s.h:3"


@pytest.mark.parametrize(
    ("members", "size", "fields", "message"),
    [
        ([(0, INT)], 8, [("x", ctypes.c_int)], "8 bytes in C, 4 bytes in Python"),
        ([(0, INT), (4, INT)], 8, [("x", ctypes.c_int)], "no field for int m1"),
        ([(0, INT)], 4, [("x", ctypes.c_int), ("y", ctypes.c_int)], "no member for y"),
        ([(4, INT)], 8, [("x", ctypes.c_int)], "at byte 4 and at byte 0"),
    ],
)
def test_the_first_difference_is_named(
    members: list[tuple[int, CType]], size: int, fields: list[Any], message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        check(structure(*members, size=size), fields)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (ctypes.c_int * 3, "c_int * 3"),
        (ctypes.c_void_p, "c_void_p"),
        (ctypes.POINTER(Inner), "POINTER(Inner)"),
    ],
)
def test_types_are_told_as_they_are_written(declared: Any, text: str) -> None:
    assert describe(declared) == text
