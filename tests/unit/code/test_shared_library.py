from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

import pytest

from sapwood.code.interface import Interface
from sapwood.code.shared_library import SharedLibrary, machine_of
from sapwood.core.errors import ProgramError


def header(number: int, *, order: str = "<") -> bytes:
    return (
        b"\x7fELF\x02"
        + (b"\x01" if order == "<" else b"\x02")
        + bytes(12)
        + struct.pack(f"{order}H", number)
    )


@pytest.mark.parametrize(
    ("data", "machine"),
    [
        (header(183), "aarch64"),
        (header(22, order=">"), "s390x"),
        (header(4711), "machine 4711"),
        (b"\x7fELF", ""),
        (b"#!/bin/sh and so on and on", ""),
    ],
)
def test_the_header_says_what_a_library_is_for(tmp_path: Path, data: bytes, machine: str) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(data)
    assert machine_of(path) == machine


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert machine_of(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (header(8), "is for machine 8, this machine is"),
        (b"text", "is no ELF file"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path: Path, data: bytes, match: str) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(data)
    with pytest.raises(ProgramError, match=match):
        SharedLibrary(path, Interface())


def test_a_broken_library_of_this_machine_is_named(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(Path(sys.executable).resolve().read_bytes()[:64])
    assert machine_of(path) == platform.machine()
    with pytest.raises(ProgramError, match="cannot be loaded"):
        SharedLibrary(path, Interface())
