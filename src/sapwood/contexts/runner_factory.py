"""The runner factory: a client by which an agent has the zygote fork its runners.

The zygote has numpy and no event loop, so a fork of it is cheap and safe.

Between the zygote and each of its processes there is a ``SOCK_SEQPACKET`` pair. The process
sends :class:`Fork` with the runner's three descriptors; the zygote answers :class:`Forked` or
:class:`NotForked`, and later :class:`Ended`. :class:`EndRunner` ends a runner before. So the zygote
knows which ends were ordered, and reports the others.
"""

import array
import contextlib
import socket
from collections.abc import Callable, Sequence

import msgspec

from sapwood.core import typed

MAX_MESSAGE = 16 * 1024
"""Bytes of one message between a process and its zygote."""

DESCRIPTORS = 3
"""A runner gets a connection, a pipe to print to and a pipe to crash to."""


CONNECTION_CLOSED = 86
"""Exit status of a runner whose connection its process has closed, which ends it in order.

It is not 0: user code that ends the process gives that status, too.
"""


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Fork a runner; ``options`` is handed to its entry as it is."""

    options: bytes


class EndRunner(msgspec.Struct, frozen=True, tag="end"):
    """Kill a runner, if it still lives."""

    pid: int


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A runner was forked."""

    pid: int


class NotForked(msgspec.Struct, frozen=True, tag="not-forked"):
    """A runner could not be forked."""

    reason: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A runner ended; ``status`` is its exit code, or minus the signal that killed it."""

    pid: int
    status: int


Order = Fork | EndRunner
News = Forked | NotForked | Ended

encode = msgspec.msgpack.Encoder().encode
decode_order: Callable[[bytes], Order] = typed.unpacker(Order)
decode_news: Callable[[bytes], News] = typed.unpacker(News)


class RunnerFactory:
    """The fork client: a process' end of the connection to its zygote.

    Args:
        channel: The socket.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.settimeout(0)

    def fileno(self) -> int:
        """Return the descriptor to wait on for news."""
        return self._channel.fileno()

    def fork(self, options: bytes, descriptors: Sequence[int]) -> None:
        """Ask for a runner that gets these descriptors; :meth:`news` returns the outcome."""
        socket.send_fds(self._channel, [encode(Fork(options))], list(descriptors))

    def kill(self, pid: int) -> None:
        """Have a runner killed; its end follows as news. With the zygote, all runners are gone."""
        with contextlib.suppress(OSError):
            self._channel.send(encode(EndRunner(pid)))

    def close(self) -> None:
        """Close this end: the zygote ends the runners that were forked over it."""
        self._channel.close()

    def news(self) -> News | None:
        """Return the next news, or None when there are none now.

        Raises:
            ConnectionError: The zygote is gone.
        """
        try:
            data = self._channel.recv(MAX_MESSAGE)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError("the zygote is gone")
        return decode_news(data)


def receive_order(channel: socket.socket) -> tuple[Order, list[int]] | None:
    """Return the next order of a process with its descriptors; None at the end."""
    data, ancillary, _, _ = channel.recvmsg(
        MAX_MESSAGE, socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    )
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(content) - len(content) % descriptors.itemsize
            descriptors.frombytes(content[:whole])
    if not data:
        return None
    return decode_order(data), list(descriptors)
