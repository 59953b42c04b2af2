"""The part of the library that exchanges waves, and the memory that it works in."""

import contextlib
import ctypes
import math
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sapwood.fastpath import native
from sapwood.fastpath.carriers import Functions, Tls

VERSION = 8
"""Version of the memory's layout; the library must have the same."""

MAX_PEERS = 256
"""Children of one place that the library knows."""

MAX_FD = 4096
"""Descriptors that it can tell apart."""

SLOT = 80 * 1024
"""Bytes of the answer of one child: what travels inline, and its header."""

READY = 1
"""State in which a wave may begin."""

_WIPE_ON_FORK = 18
_LONGEST_WAIT = 2**31 - 1
_JOURNAL = 512 * 1024
_ENTRY = struct.Struct("I4x")
_ASIDE = struct.Struct("II")


class Peer(ctypes.Structure):
    """A child: its socket, what that took of the frame, and what has come of the answer."""

    _fields_ = (
        ("fd", ctypes.c_int32),
        ("sent", ctypes.c_uint32),
        ("got", ctypes.c_uint32),
        ("whole", ctypes.c_uint32),
        ("tls", Tls),
    )


class ExchangeMemory(ctypes.Structure):
    """``struct exchange``."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("outer_fd", ctypes.c_int32),
        ("main_fd", ctypes.c_int32),
        ("bell_fd", ctypes.c_int32),
        ("state", ctypes.c_uint32),
        ("n_peers", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
        ("waves", ctypes.c_uint32),
        ("journal_size", ctypes.c_uint32),
        ("frame_size", ctypes.c_uint32),
        ("head_size", ctypes.c_uint32),
        ("left", ctypes.c_uint32),
        ("n_arrived", ctypes.c_uint32),
        ("aside_size", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
        ("looked", ctypes.c_uint32),
        ("ticket", ctypes.c_uint64),
        ("owner", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("room", ctypes.c_int64),
        ("budget", ctypes.c_int64),
        ("time", ctypes.c_double),
        ("spin", ctypes.c_double),
        ("head", ctypes.c_uint8 * 64),
        ("arrived", ctypes.c_uint32 * MAX_PEERS),
        ("peers", Peer * MAX_PEERS),
        ("index", ctypes.c_uint16 * MAX_FD),
        ("journal", ctypes.c_uint8 * _JOURNAL),
        ("aside", ctypes.c_uint8 * (16 * 1024)),
    )


_ALIGNMENT = 64
_SLOTS = -(-ctypes.sizeof(ExchangeMemory) // _ALIGNMENT) * _ALIGNMENT
_PEER_SIZE = ctypes.sizeof(Peer)
_FIRST_GOT = ExchangeMemory.peers.offset + Peer.got.offset
_GOT = struct.Struct("I")


class Passed:
    """A wave that is done: the frame that was sent, and the bytes that came of each child."""

    __slots__ = ("frame", "sizes")

    def __init__(self, frame: bytes, sizes: Sequence[int]) -> None:
        self.frame = frame
        self.sizes = sizes


class ExchangeLibrary:
    """The library at work in this process.

    Args:
        outer: Descriptor that the event loop sleeps on.
        main: Descriptor, in it, that all connections are in.
        bell: Descriptor of an eventfd, in that, which wakes the event loop.

    Attributes:
        begin_wave: Sends the next wave of the stream to all; takes who does this, the ticket that
            the library must be armed with, the value's body and its size, the bytes of its arrays
            and their size. Returns 0 if nothing was done, 1 if it was, -1 if the event loop
            continues with it.
        wait: Waits for answers, given who has the wave and milliseconds; returns how many came, 0
            if it is to be called once more, or -1 if the event loop continues.
        arrived: Numbers of the children whose answers these are.
        commit: Says that all answers are good, given who has the wave; returns how many waves are
            done, 0 if this one is not.

    Raises:
        ResourceError: There is none, or it is another version's.
    """

    def __init__(self, outer: int, main: int, bell: int) -> None:
        library = native.load()
        native.check_layout(library, "exchange", VERSION, ctypes.sizeof(ExchangeMemory))
        # Mapped, not allocated: of megabytes only the pages that are used are there.
        size = _SLOTS + MAX_PEERS * SLOT
        self._map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A process that the user forks has the same sockets: to it, nothing is ever armed.
        with contextlib.suppress(OSError):
            self._map.madvise(_WIPE_ON_FORK)
        memory = self.memory = ExchangeMemory.from_buffer(self._map)
        memory.version, memory.slot = VERSION, SLOT
        memory.outer_fd, memory.main_fd, memory.bell_fd = outer, main, bell
        self._library = library
        self._functions: Sequence[Functions | None] = ()
        self._address = ctypes.byref(memory)
        mine = (ctypes.c_void_p, ctypes.c_uint64)
        whole = (ctypes.c_char_p, ctypes.c_uint64)
        library.sapwood_exchange_commit.argtypes = mine
        library.sapwood_exchange_abandon.argtypes = mine
        # Functions that are called for each wave have no Python function in between.
        address = self._address
        begin_wave = native.holding(
            library, "sapwood_exchange_begin_wave", *mine, ctypes.c_uint64, *whole, *whole
        )
        wait = native.holding(library, "sapwood_exchange_wait", *mine, ctypes.c_int)
        self.begin_wave: Callable[[int, int, bytes, int, bytes, int], int] = partial(
            begin_wave, address
        )
        self.wait: Callable[[int, int], int] = partial(wait, address)
        self.commit: Callable[[int], int] = partial(library.sapwood_exchange_commit, address)
        at = ExchangeMemory.arrived.offset
        self.arrived = memoryview(self._map)[at : at + 4 * MAX_PEERS].cast("I")

    # --- whoever wants a wave --------------------------------------------------------------------

    def answer(self, number: int) -> bytes:
        """Return what has come of a child."""
        (got,) = _GOT.unpack_from(self._map, _FIRST_GOT + number * _PEER_SIZE)
        at = _SLOTS + number * SLOT
        return self._map[at : at + got]

    def abandon(self, owner: int) -> bool:
        """Let the event loop continue with the wave; return whether it had not yet."""
        return bool(self._library.sapwood_exchange_abandon(self._address, owner))

    # --- the event loop --------------------------------------------------------------------------

    def arm(
        self,
        descriptors: Sequence[int],
        room: int,
        budget: int,
        stream: int = 0,
        first: int = 0,
        functions: Sequence[Functions | None] = (),
    ) -> int:
        """Let waves begin; return the ticket that they need.

        Args:
            descriptors: Sockets of the children.
            room: Cost of what may be sent to each of them.
            budget: Cost of the answers of one after which it is owed credit.
            stream: Whose waves may begin.
            first: Number of the first one.
            functions: Read and write functions of each socket that has TLS; none has by default.
        """
        memory = self.memory
        self._functions = functions or [None] * len(descriptors)  # the library has addresses
        memory.stream, memory.first = stream, first
        memory.room, memory.budget = room, budget
        memory.n_peers = len(descriptors)
        for number, descriptor in enumerate(descriptors):
            peer = memory.peers[number]
            peer.fd = descriptor
            peer.tls.use(self._functions[number])
        memory.ticket += 1
        self._library.sapwood_exchange_arm(self._address)
        return int(memory.ticket)

    def take_back(self) -> bool:
        """Stop all waves; return whether that succeeded: not while a thread works on one."""
        return bool(self._library.sapwood_exchange_take_back(self._address))

    def passed(self) -> Iterator[Passed]:
        """Return the waves that are done, in order."""
        at, memory = ExchangeMemory.journal.offset, self.memory
        end, peers = at + memory.journal_size, memory.n_peers
        sizes = struct.Struct(f"{peers}I")
        while at < end:
            (size,) = _ENTRY.unpack_from(self._map, at)
            at += _ENTRY.size
            frame = self._map[at : at + size]
            at += (size + 7) & ~7
            yield Passed(frame, sizes.unpack_from(self._map, at))
            at += (sizes.size + 7) & ~7

    def aside(self) -> Iterator[tuple[int, bytes]]:
        """Return the frames that could wait, each with the number of the child, in order."""
        at = ExchangeMemory.aside.offset
        end = at + self.memory.aside_size
        while at < end:
            number, size = _ASIDE.unpack_from(self._map, at)
            at += _ASIDE.size
            yield number, self._map[at : at + size]
            at += size

    def under_way(self) -> bytes:
        """Return the frame of the wave that is not done; empty for none."""
        at = ExchangeMemory.journal.offset + self.memory.journal_size + _ENTRY.size
        return self._map[at : at + self.memory.frame_size]


def milliseconds(seconds: float | None) -> int:
    """Return how long to wait: rounded up, not at all below 0, and -1 for ever.

    Example:
        >>> [milliseconds(seconds) for seconds in (None, 0.0015, 0.0, -3.0, 1e300)]
        [-1, 2, 0, 0, 2147483647]
    """
    if seconds is None:
        return -1
    return math.ceil(1000 * min(max(0.0, seconds), _LONGEST_WAIT / 1000))
