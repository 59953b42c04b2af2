"""A program whose map takes ten arrays of the state."""

from typing import ClassVar

from sapwood import Program, native


class Ten(Program):
    """Call ``ten``."""

    sources = ("ten.c",)
    map = native("ten")
    reduce: ClassVar = {"total": "sum"}
