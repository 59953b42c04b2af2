"""Calls of a native map that are like the one before, made without Python.

Around each call a runner executes some Python whose objects are in no cache, as the function has
used the caches for its data. So once calls are alike, ``native/fastpath.c`` receives them,
calls the function and answers; of a call that is another one the first datagram comes back.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from sapwood.code import call_record
from sapwood.code.array_address import address_of
from sapwood.code.call_record import MAX_ARRAYS
from sapwood.code.native_call import NativeCall
from sapwood.code.runner import calls
from sapwood.comm import values
from sapwood.core.errors import ResourceError, SapwoodError
from sapwood.fastpath import native

VERSION: Final = 2
"""Version of the memory's layout; the library must have the same."""

FORKED: Final = -1_000_000
"""Returned in a copy of the process that a function has made."""

ENOUGH: Final = 2
"""Calls in a row that are like the one before after which the next ones are expected to be."""

SOON: Final = 8
"""Calls that are to be made without Python until another one comes, else that was in vain."""

MAX_VAIN: Final = 8
"""Times in a row that it was in vain after which calls of that context are made with Python."""

_NUMBER: Final = 16


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
    """What a call that is expected looks like, byte for byte, and what is to be answered.

    Both are what :mod:`sapwood.code.runner.calls` makes of them. In a call only its number, the
    bytes of the state's arrays, and numbers of the state that the function does not take may be
    others.

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


class _Area(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64))


class _Memory(ctypes.Structure):
    """``struct repeat``."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("fd", ctypes.c_int32),
        ("pid", ctypes.c_int64),
        ("times", ctypes.c_uint64),
        ("spin", ctypes.c_double),
        ("soon", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("numbers", ctypes.c_uint64 * MAX_NUMBERS),
        ("floats", ctypes.c_uint64 * MAX_FLOATS),
        ("state", ctypes.c_uint64),
        ("record", ctypes.c_uint64),
        ("record_size", ctypes.c_uint32),
        ("head_size", ctypes.c_uint32),
        ("state_size", ctypes.c_uint32),
        ("answer_size", ctypes.c_uint32),
        ("n_outputs", ctypes.c_uint32),
        ("n_around", ctypes.c_uint32),
        ("outputs", _Area * MAX_ARRAYS),
        ("places", ctypes.c_uint64 * MAX_ARRAYS),
        ("around", _Area * (2 * MAX_ARRAYS)),
        ("record_words", ctypes.c_uint64 * (2 + 2 * MAX_ARRAYS)),
        ("head", ctypes.c_uint8 * MAX_HEAD),
        ("mask", ctypes.c_uint8 * MAX_HEAD),
        ("answer", ctypes.c_uint8 * (_NUMBER + MAX_ANSWER)),
    )


class Repeating:
    """Makes calls without Python, one kind at a time.

    Args:
        fd: The connection to the agent.
        spin: Seconds to look for the next call before sleeping, where the last came as soon.
        datagram: Where its datagrams are put.
        is_quiet: Tells whether nothing else happens in this process beside the calls.
        end_copy: Ends a process that user code has forked and let return.
    """

    def __init__(
        self,
        fd: int,
        spin: float,
        datagram: bytearray,
        is_quiet: Callable[[], bool],
        end_copy: Callable[[], NoReturn],
    ) -> None:
        self._bytes = datagram
        self._datagram = (ctypes.c_char * len(datagram)).from_buffer(datagram)
        self._is_quiet = is_quiet
        self._end_copy = end_copy
        self._fd = fd
        self._spin = spin
        self._held: Sequence[object] = ()
        self._last = calls.Bulk()
        self._alike = 0
        self._vain = 0
        self._memory: _Memory | None = None
        self._repeat = _function()

    def begins(
        self, native_call: Callable[[], NativeCall | None] | None
    ) -> Callable[[], NativeCall | None] | None:
        """Note that calls of another kind begin; return what to ask of them, None for nothing."""
        self._alike = self._vain = 0
        self._held = ()
        return native_call if self._repeat is not None else None

    def expects(
        self,
        call: calls.Call,
        size: int,
        body: calls.Bulk,
        answer: bytes,
        native_call: Callable[[], NativeCall | None],
    ) -> bool:
        """Note a call; True if the next ones are to be like it, and then :meth:`receive` is next.

        Args:
            call: The call.
            size: Its bytes, which are in the memory for datagrams.
            body: The result that was sent; the same object where that was like the last one.
            answer: All that was sent.
            native_call: Returns the call of the function that this was.
        """
        if body is not self._last:
            self._last, self._alike = body, 0
            return False
        self._alike += 1
        if self._alike < ENOUGH or self._vain > MAX_VAIN or not self._is_quiet():
            return False
        native = native_call()
        if native is None:
            return False
        try:
            return self._prepare(call, bytes(self._bytes[:size]), answer, native)
        except (OSError, MemoryError):  # what it needs beside the call is not to be had
            return False

    def _prepare(
        self, call: calls.Call, datagram: bytes, answer: bytes, native: NativeCall
    ) -> bool:
        """Fill in what calls are to be like; False if they are not for the library."""
        self._held = ()
        memory = self._memory = self._memory or self._made()
        expected = ExpectedCall.of(call, datagram, answer, native)
        if expected is None:
            return False
        # At the begin of a page, as outputs end at one: a load waits for a store before it whose
        # address has the same last twelve bits, and k-means took 30 to 90 µs longer for that.
        state = np.frombuffer(_private(max(1, expected.state_size)), np.uint8)
        places = {name: address_of(state) + at for name, at in expected.arrays.items()}
        memory.times, memory.function, memory.state = 0, native.function, address_of(state)
        memory.numbers[: len(native.numbers)] = _resolved(native.numbers, places)
        memory.floats[: len(native.floats)] = [
            int.from_bytes(each, "little") for each in native.floats
        ]
        memory.record_words[: len(native.record)] = _resolved(native.record, places)
        memory.record_size = 8 * len(native.record)
        memory.head_size, memory.state_size = len(expected.head), expected.state_size
        memory.head[: len(expected.head)] = expected.head
        memory.mask[: len(expected.mask)] = expected.mask
        memory.answer_size = len(expected.answer)
        memory.answer[_NUMBER : _NUMBER + len(expected.answer)] = expected.answer
        memory.n_outputs = len(native.outputs)
        memory.places[: len(native.outputs)] = expected.places
        for number, output in enumerate(native.outputs):
            memory.outputs[number] = (output.address, output.nbytes)
        around = [part for output in native.outputs for part in output.around]
        memory.n_around = len(around)
        for number, part in enumerate(around):
            memory.around[number] = part
        self._held = (native, state)
        return True

    def receive(self) -> int:
        """Make calls until another one comes; return the size of that, 0 when there are no more.

        Raises:
            OSError: The connection fails.
        """
        memory = self._memory
        assert memory is not None  # noqa: S101 - expect() was called
        size = -errno.EINTR
        while size == -errno.EINTR:
            size = self._repeat(ctypes.byref(memory), self._datagram, len(self._bytes))
        if size == FORKED:
            self._end_copy()
        self._vain = self._vain + 1 if memory.times < SOON else 0
        if size < 0:
            raise OSError(-size, os.strerror(-size))
        return int(size)

    def _made(self) -> _Memory:
        # Mapped, not allocated: only the pages that are used are there.
        memory = _Memory.from_buffer(_private(ctypes.sizeof(_Memory)))
        memory.version, memory.fd, memory.pid = VERSION, self._fd, os.getpid()
        memory.spin = self._spin
        memory.record = call_record.address()
        return memory


def _function() -> Any:
    """Return the object that makes the calls; None without a library."""
    try:
        library = native.load()
        native.check_layout(library, "repeat", VERSION, ctypes.sizeof(_Memory))
    except ResourceError:
        return None
    function = library.sapwood_repeat
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    return function


def _private(nbytes: int) -> mmap.mmap:
    """Return memory of this process alone, also where the function makes copies of that."""
    return mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _resolved(numbers: Sequence[int | str], places: dict[str, int]) -> list[int]:
    """Return addresses in place of names, and all numbers as register contents."""
    found = (places[each] if isinstance(each, str) else each for each in numbers)
    return [each & (2**64 - 1) for each in found]
