"""The part of the library that relays waves, and the memory that it works in."""

import ctypes
import mmap
import struct
from collections.abc import Iterator
from enum import IntEnum

import msgspec

from sapwood.fastpath import native
from sapwood.fastpath.carriers import Functions, Tls

VERSION = 3
"""Version of the memory's layout; the library must have the same."""

MAX_BLOCKS = 16
"""Results of one runner whose memory the library knows."""

MAX_NAMES = 512
"""Bytes of procedure and context of a call, encoded."""

_MAX_EVENTS = 32
_RECORD = struct.Struct("IIdQd")


class Block(ctypes.Structure):
    """Shared memory of a runner: its inode, and this process' descriptor of it."""

    _fields_ = (("inode", ctypes.c_uint64), ("fd", ctypes.c_int64))


class KeptBlock(ctypes.Structure):
    """Memory of the contribution to a wave that is not confirmed."""

    _fields_ = (("wave", ctypes.c_uint64), ("inode", ctypes.c_uint64))


class RelayMemory(ctypes.Structure):
    """``struct relay``."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("epoll_fd", ctypes.c_int32),
        ("parent_fd", ctypes.c_int32),
        ("runner_fd", ctypes.c_int32),
        ("tls", Tls),
        ("rank", ctypes.c_uint64),
        ("pid", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("last_wave", ctypes.c_uint64),
        ("confirmed", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("room", ctypes.c_int64),
        ("weight", ctypes.c_double),
        ("names_size", ctypes.c_uint32),
        ("n_blocks", ctypes.c_uint32),
        ("n_kept", ctypes.c_uint32),
        ("n_free", ctypes.c_uint32),
        ("blocks", Block * MAX_BLOCKS),
        ("kept", KeptBlock * MAX_BLOCKS),
        ("free", ctypes.c_uint64 * MAX_BLOCKS),
        ("names", ctypes.c_uint8 * MAX_NAMES),
        ("n_events", ctypes.c_uint32),
        ("waves", ctypes.c_uint32),
        ("frame_at", ctypes.c_uint32),
        ("frame_left", ctypes.c_uint32),
        ("result_left", ctypes.c_uint32),
        ("unsent_at", ctypes.c_uint32),
        ("unsent", ctypes.c_uint32),
        ("journal_size", ctypes.c_uint32),
        ("events", ctypes.c_int32 * (2 * _MAX_EVENTS)),
        ("frame", ctypes.c_uint8 * (64 * 1024)),
        ("result", ctypes.c_uint8 * (128 * 1024)),
        ("journal", ctypes.c_uint8 * (1024 * 1024)),
        ("_busy", ctypes.c_uint32),
        ("_wave", ctypes.c_uint64),
        ("_attempt", ctypes.c_uint64),
    )


class RecordKind(IntEnum):
    """What passed."""

    FRAME_IN = 0
    CALL_OUT = 1
    RESULT_IN = 2
    FRAME_OUT = 3


_KINDS = tuple(RecordKind)


class Record(msgspec.Struct, frozen=True, gc=False):
    """Bytes that passed.

    Attributes:
        kind: Whence and where to.
        time: When, seconds of the monotonic clock.
        amount: Bytes of the value that arrived, its arrays included.
        seconds: Time that the runner took.
        data: The bytes.
    """

    kind: RecordKind
    time: float
    amount: int
    seconds: float
    data: bytes


class RelayLibrary:
    """The library at work in this process.

    Raises:
        ResourceError: There is none, or it is another version's.
    """

    def __init__(self) -> None:
        library = native.load()
        native.check_layout(library, "relay", VERSION, ctypes.sizeof(RelayMemory))
        # Mapped, not allocated: of a megabyte only the pages that are used are there.
        self._map = mmap.mmap(-1, ctypes.sizeof(RelayMemory))
        self.memory = RelayMemory.from_buffer(self._map)
        self.memory.version = VERSION
        self._wait = native.holding(library, "sapwood_relay_wait", ctypes.c_void_p, ctypes.c_int)
        self._functions: Functions | None = None
        self._address = ctypes.byref(self.memory)

    def wait(self, milliseconds: int) -> None:
        """Deal with waves until the time is over or there is something else to do."""
        self._wait(self._address, milliseconds)

    def use(self, parent: int, functions: Functions | None) -> None:
        """Use the socket of the parent, and what reads and writes it if it has TLS."""
        self.memory.parent_fd = parent
        self.memory.tls.use(functions)
        self._functions = functions  # the library has addresses

    def events(self) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, with what for, as ``epoll`` does."""
        events = self.memory.events
        return [(events[2 * i], events[2 * i + 1]) for i in range(self.memory.n_events)]

    def records(self) -> Iterator[Record]:
        """Return what passed, in order."""
        at, size = RelayMemory.journal.offset, self.memory.journal_size
        end = at + size
        while at < end:
            kind, size, time, amount, seconds = _RECORD.unpack_from(self._map, at)
            at += _RECORD.size
            yield Record(_KINDS[kind], time, amount, seconds, self._map[at : at + size])
            at += (size + 7) & ~7

    def frames_left(self) -> bytes:
        """Return messages of the parent that were not handled."""
        at = RelayMemory.frame.offset + self.memory.frame_at
        return self._map[at : at + self.memory.frame_left]

    def result_left(self) -> bytes:
        """Return messages of the runner that were not handled."""
        at = RelayMemory.result.offset
        return self._map[at : at + self.memory.result_left]

    def unsent(self) -> bytes:
        """Return the end of the last frame, which the socket did not take."""
        at = RelayMemory.journal.offset + self.memory.unsent_at
        return self._map[at : at + self.memory.unsent]
