"""Sentences about accesses outside of arrays."""

from __future__ import annotations

import ctypes

import msgspec
import pytest

from sapwood.code import call_record
from sapwood.code.call_record import CallRecord, Names, describe_access, take_access

NAMES = Names("add", "a.c:3", (("x", "float", 4), ("out", "double", 8)))
PLACES = [0x100000, 400, 0x900000, 16]


@pytest.mark.parametrize(
    ("kind", "place", "said"),
    [
        (
            "write",
            0x900000 + 16,
            "add wrote past the end of parameter out: at item 2 (byte 16) of 2",
        ),
        ("read", 0x100000 + 4096, "add read past the end of parameter x: at item 1024 (byte 4096)"),
        ("access", 0x100000 - 8, "add went before the begin of parameter x: at item -2 (byte -8)"),
        ("write", 0x100000 + 9, "add wrote to parameter x, which is read-only: at item 2"),
    ],
)
def test_the_nearest_array_is_named(kind: str, place: int, said: str) -> None:
    access = describe_access(NAMES, kind, place, PLACES)
    assert access is not None
    assert access.what.startswith(said)
    assert access.where == "a.c:3"
    assert access.hint


@pytest.mark.parametrize("place", [1 << 20, 1 << 46])
def test_an_access_far_from_all_arrays_names_none(place: int) -> None:
    names = [0x7F00_0000_0000, 400, 0x7F00_1000_0000, 16]
    assert describe_access(NAMES, "write", place, names) is None
    assert describe_access(Names("f", "", ()), "write", place, []) is None


@pytest.mark.parametrize(("kind", "did"), [("write", "wrote to"), ("read", "read")])
def test_a_null_pointer_is_called_one(kind: str, did: str) -> None:
    access = describe_access(NAMES, kind, 24, PLACES)
    assert access is not None
    assert access.what == f"add {did} memory by a null pointer (address 24)"


def test_the_line_of_a_crash_report_is_taken_out() -> None:
    numbers = " ".join(map(str, PLACES))
    line = f"memory write {0x900000 + 80} 2 {numbers} {msgspec.json.encode(NAMES).decode()}\n"
    access, rest = take_access(f"one\n{line}two\n")
    assert access is not None
    assert "at item 10 (byte 80) of 2" in access.what
    assert rest == "one\ntwo\n"
    assert take_access("one\ntwo\n") == (None, "one\ntwo\n")


def test_the_record_holds_a_call_while_it_lasts() -> None:
    read = (ctypes.c_uint64 * 6).from_address(call_record.address())
    record = CallRecord(NAMES)
    record.begin(PLACES)
    assert list(read)[1:] == [2, *PLACES]
    assert msgspec.json.decode(ctypes.string_at(read[0]), type=Names) == NAMES
    record.end()
    assert read[0] == 0


def test_of_very_many_arrays_the_first_are_recorded() -> None:
    arrays = tuple((f"a{number}", "int", 4) for number in range(call_record.MAX_ARRAYS + 9))
    record = CallRecord(Names("f", "", arrays))
    record.begin(list(range(2 * len(arrays))))
    read = (ctypes.c_uint64 * 2).from_address(call_record.address())
    assert read[1] == call_record.MAX_ARRAYS
    record.end()


@pytest.mark.parametrize(
    "line",
    [
        'memory write 5 7 1 2 {"a": 1}',
        'memory write 9000000 0 9000000 {"function": "f", "where": "", "arrays": []}',
        'memory write 9 0 {"function": "f", "where": "", "arrays": [["a", "double", 8]]}',
        'memory read 9437300 0 9437184 64 {"function": "f", "where": "", "arrays": [["", "", 0]]}',
        "memory read 9 0 {",
    ],
)
def test_a_line_that_user_code_has_written_over_says_nothing(line: str) -> None:
    access, rest = take_access(f"one\n{line}\ntwo\n")
    assert access is None or "null pointer" in access.what
    assert "two" in rest
