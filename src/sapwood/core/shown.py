"""Values of users as text, for the text of an error."""

from __future__ import annotations

import reprlib
from typing import Any

MAX_SHOWN = 400
"""Characters of one value in the text of an error; the middle of a longer text is cut out."""

MAX_INTEGER_BITS = 512
"""Larger integers are shown by their size: Python refuses to print some of them."""


def shown(value: object) -> str:
    """Return what ``repr`` says of a value, in at most :data:`MAX_SHOWN` characters.

    It never raises, whatever the value does when it is printed, and does not print all of a
    large list or text first.

    Example:
        >>> shown("left"), shown(1 << 100_000)
        ("'left'", 'an integer of 100001 bits')
        >>> class Odd:
        ...     def __repr__(self) -> str:
        ...         raise ValueError("not today")
        >>> shown(Odd())
        'an object of the class Odd'
    """
    try:
        text = _printer.repr(value)
        if len(text) <= MAX_SHOWN:
            return text
        half = (MAX_SHOWN - 3) // 2
        return f"{text[:half]}...{text[-half:]}"
    except BaseException:  # noqa: BLE001 - values of users may do anything when printed
        return _by_class(value)


class _Printer(reprlib.Repr):
    """A ``repr`` that stops in the depth and after some items; its methods are named by types."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 10
        self.maxstring = self.maxother = self.maxlong = MAX_SHOWN

    def repr_int(self, value: int, level: int) -> str:
        del level
        bits = value.bit_length()
        return repr(value) if bits <= MAX_INTEGER_BITS else f"an integer of {bits} bits"

    def repr_bytes(self, value: bytes, level: int) -> str:
        del level
        if len(value) <= self.maxstring:
            return repr(value)
        return f"{value[: self.maxstring // 2]!r} and {len(value) - self.maxstring // 2} bytes more"

    def repr_bytearray(self, value: bytearray, level: int) -> str:
        return f"bytearray({self.repr_bytes(bytes(value[: self.maxstring + 1]), level)})"

    def repr_instance(self, value: Any, level: int) -> str:
        del level
        try:
            return repr(value)
        except Exception:  # noqa: BLE001 - in a list, the other items are shown
            return _by_class(value)


def _by_class(value: object) -> str:
    return f"an object of the class {type.__dict__['__name__'].__get__(type(value))}"


_printer = _Printer()
