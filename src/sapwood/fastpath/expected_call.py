"""What a call that is expected looks like, byte for byte, and what is to be answered.

Both are what :mod:`sapwood.code.runner.calls` makes of them. In a call only its number, the bytes
of the state's arrays, and numbers of the state that the function does not take may be others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from sapwood.code.call_record import MAX_ARRAYS
from sapwood.code.native_call import NativeCall
from sapwood.code.runner import calls
from sapwood.comm import values
from sapwood.core.errors import SapwoodError

MAX_NUMBERS: Final = 16
"""Integers and arrays that a function may take."""

MAX_FLOATS: Final = 8
"""Floating-point numbers that it may take."""

MAX_HEAD: Final = 16 * 1024
"""Bytes of a call without its arrays."""

MAX_ANSWER: Final = 96 * 1024
"""Bytes of an answer without its number."""

ANSWER_TAIL: Final = 12
"""Bytes of an answer behind its arrays: nothing shared, the time, no error, no transfers."""

_CALL_TAIL: Final = b"\xc0\x90"


class ExpectedCall:
    """What calls and answers are like.

    Attributes:
        head: A call between its number and its arrays.
        mask: The bits of that which must be the same.
        state_size: Bytes of its arrays.
        arrays: Where in these each array of the state begins.
        answer: An answer between its number and its time.
        places: Where in that the outputs begin.
    """

    __slots__ = ("answer", "arrays", "head", "mask", "places", "state_size")

    def __init__(
        self, call: calls.Call, datagram: bytes, answer: bytes, native: NativeCall
    ) -> None:
        _require(call.body.shared is None and call.payload.shared is None and not call.free)
        number = 1 + len(calls.encode(call.number))
        body, payload = call.body.inline, call.payload.inline
        self.state_size = len(payload)
        self.head = datagram[number : len(datagram) - len(_CALL_TAIL) - len(payload)]
        _require(calls.encode(call) == datagram and datagram.endswith(_CALL_TAIL))
        # Behind the body: nothing shared, and how many bytes of arrays there are.
        at = len(self.head) - len(calls.encode(payload)) + len(payload) - 2 - len(body)
        _require(self.head[at : at + len(body)] == body)
        mask = bytearray(b"\xff" * len(self.head))
        self.arrays: dict[str, int] = {}
        for name, value, begin, size in _entries(body):
            if isinstance(value, values.ArrayMeta):
                self.arrays[name] = value.offset
            elif name not in native.state:
                mask[at + begin : at + begin + size] = _bits_that_stay(value, body[begin:][:size])
        self.mask = bytes(mask)
        result = calls.decode_result(answer)
        _require(result.body.shared is None and result.payload.shared is None)
        whole = result.payload.inline
        self.answer = answer[number : len(answer) - ANSWER_TAIL]
        _require(result.number == call.number and self.answer.endswith(whole))
        _require(result.error is None and result.transfers is None)
        metas = values.outline(result.body.inline)
        _require(type(metas) is dict and len(metas) == len(native.outputs))
        begin = len(self.answer) - len(whole)
        self.places: list[int] = []
        for output in native.outputs:
            meta = metas.get(output.name)
            _require(isinstance(meta, values.ArrayMeta))
            _require(meta.offset + output.nbytes <= len(whole))
            self.places.append(begin + meta.offset)

    @classmethod
    def of(
        cls, call: calls.Call, datagram: bytes, answer: bytes, native: NativeCall
    ) -> ExpectedCall | None:
        """Return what calls like this one are like; None if they are not for the library."""
        if (
            len(native.numbers) > MAX_NUMBERS
            or len(native.floats) > MAX_FLOATS
            or len(native.outputs) > MAX_ARRAYS
        ):
            return None
        try:
            expected = cls(call, datagram, answer, native)
        except (_UnlikeError, SapwoodError):
            return None
        fits = len(expected.head) <= MAX_HEAD and len(expected.answer) <= MAX_ANSWER - ANSWER_TAIL
        return expected if fits else None


class _UnlikeError(Exception):
    """It is not what it is thought to be."""


def _require(condition: bool) -> None:  # noqa: FBT001 - as assert
    if not condition:
        raise _UnlikeError


def _entries(body: bytes) -> Iterator[tuple[str, Any, int, int]]:
    """Return the entries of an encoded dictionary: key, value, and where the value is."""
    found = values.outline(body)
    _require(type(found) is dict)
    parts = [
        (key, value, calls.encode(key), values.encode(value).body) for key, value in found.items()
    ]
    at = len(body) - sum(len(key) + len(value) for _, _, key, value in parts)
    _require(body[at:] == b"".join(key + value for _, _, key, value in parts))
    for key, value, name, encoded in parts:
        yield key, value, at + len(name), len(encoded)
        at += len(name) + len(encoded)


def _bits_that_stay(value: object, encoded: bytes) -> bytes:
    """Return which bits of an encoded value say what it is, and not which."""
    if type(value) is bool:
        return b"\xfe"
    if type(value) is float or (type(value) is int and len(encoded) > 1):
        return b"\xff" + bytes(len(encoded) - 1)
    if type(value) is int and value >= 0:
        return b"\x80"
    if isinstance(value, np.generic) and encoded.endswith(value.tobytes()):
        return b"\xff" * (len(encoded) - value.nbytes) + bytes(value.nbytes)
    return b"\xff" * len(encoded)
