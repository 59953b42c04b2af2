"""Unix stream sockets of the same user, on any loop that watches descriptors."""

import contextlib
import errno
import os
import socket
import stat
import struct
from collections import deque
from collections.abc import Sequence

from sapwood.comm.loop import Loop, Timer
from sapwood.comm.transport.base import ConnectionFacts, ConnectionHandler, Failed, Listener
from sapwood.core.errors import CommunicationError
from sapwood.core.failures import OUT_OF_DESCRIPTORS

BACKLOG = 1024
"""Connections that may wait to be accepted."""

ACCEPT_PAUSE = 0.1
"""Seconds until a process that had no descriptors left looks for connections again."""

BUSY_PAUSE = 0.02
"""Seconds until a place is tried again whose queue of connections is full."""

BUSY_PATIENCE = 30.0
"""Seconds for which such a place is tried."""

MAX_PATH = 107
"""Bytes of a Unix socket's path (``sun_path`` without its end)."""

READ_SIZE = 64 * 1024
"""Bytes that one system call reads at most."""

MAX_BUFFERS = 64
"""Buffers that one system call writes at most."""

_PEER_CREDENTIALS = struct.Struct("iII")


class UnixTransport:
    """Connects processes of one user on one machine; the address is a path."""

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        """Accept connections at a path; a socket that a dead process left there is replaced.

        Raises:
            CommunicationError: The path is too long or cannot be used.
        """
        if len(os.fsencode(address)) > MAX_PATH:
            raise CommunicationError(
                f"the path of a socket is longer than {MAX_PATH} bytes",
                where=address,
                hint="set TMPDIR or XDG_RUNTIME_DIR to a shorter folder",
            )
        sock = socket.socket(socket.AF_UNIX)
        try:
            _remove_socket(address)
            sock.bind(address)
            os.chmod(address, 0o600)  # noqa: PTH101 - one system call, at start-up
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise CommunicationError(f"cannot listen: {error.strerror}", where=address) from error
        return UnixListener(sock, address, handler, loop)

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect to a path; see :meth:`~sapwood.comm.transport.base.Transport.connect`."""
        loop.call_soon(_connect, address, handler, loop, failed, loop.time() + BUSY_PATIENCE)


def _connect(
    address: str, handler: ConnectionHandler, loop: Loop, failed: Failed, until: float
) -> None:
    try:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(0)  # a process that is stopped, and accepts nothing, must not stop this
            sock.connect(address)  # the kernel takes it in before it is accepted
            own = os.geteuid()
            if own != 0 and _peer_user(sock) not in {own, 0}:
                raise PermissionError(errno.EACCES, "another user listens there")
        except OSError:
            sock.close()
            raise
    except OSError as error:
        if isinstance(error, BlockingIOError) and loop.time() < until:  # its queue is full
            loop.call_later(BUSY_PAUSE, _connect, address, handler, loop, failed, until)
            return
        failure = CommunicationError(f"cannot connect: {error.strerror or error}", where=address)
        failure.__cause__ = error
        failed(failure)
        return
    UnixConnection(sock, handler, loop, initiator=True)


class UnixListener:
    """Accepts connections until it is closed.

    Args:
        sock: The listening socket; the listener owns it.
        address: Where it can be reached.
        handler: Hears of the connections.
        loop: Watches the socket.
    """

    def __init__(
        self, sock: socket.socket, address: str, handler: ConnectionHandler, loop: Loop
    ) -> None:
        self.address = address
        self._socket = sock
        self._handler = handler
        self._loop = loop
        self._timer: Timer | None = None
        sock.settimeout(0)
        loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Accept no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _pause(self) -> None:
        """Leave peers waiting until descriptors may be free again: they cannot be refused."""
        self._loop.remove_reader(self._socket.fileno())
        self._timer = self._loop.call_later(ACCEPT_PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                sock, _ = self._socket.accept()
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    self._pause()
                return  # else there are no more of them
            if _peer_user(sock) == os.geteuid():
                UnixConnection(sock, self._handler, self._loop, initiator=False)
            else:
                sock.close()


class UnixConnection:
    """One connection.

    Args:
        sock: The connected socket; the connection owns it.
        handler: Hears of it.
        loop: Watches it.
        initiator: Whether this side connected.

    Attributes:
        peer: Empty: who the peer is, the kernel has said.
        functions: None: the socket itself reads and writes.
        unsent: Bytes that the kernel has not taken yet.
    """

    peer = ""
    functions = None

    __slots__ = (
        "_closing",
        "_fd",
        "_handler",
        "_loop",
        "_number",
        "_open",
        "_socket",
        "_unsent",
        "unsent",
    )

    def __init__(
        self, sock: socket.socket, handler: ConnectionHandler, loop: Loop, *, initiator: bool
    ) -> None:
        sock.settimeout(0)
        self._socket = sock
        self._fd = sock.fileno()
        self._handler = handler
        self._loop = loop
        self._unsent: deque[memoryview] = deque()
        self.unsent: int = 0
        self._closing = False
        self._open = True
        self._number = -1
        loop.add_reader(self._fd, self._readable)
        self._number = handler.connection_opened(self, initiator=initiator)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    @property
    def flushed(self) -> bool:
        """Whether it is open and the kernel has taken all that was written."""
        return self._open and not self._closing and not self._unsent

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order."""
        if not self._open or self._closing:
            return
        if self._unsent:
            self._queue(buffers)
            return
        try:
            if len(buffers) == 1:
                buffer = buffers[0]
                sent = self._socket.send(buffer)
                if sent == len(buffer):
                    return
            else:
                sent = self._socket.sendmsg(buffers[:MAX_BUFFERS])
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the other side is gone; reading says so
        self._queue(buffers)
        self._forget(sent)
        if self._unsent:
            self._loop.add_writer(self._fd, self._writable)

    def facts(self) -> ConnectionFacts:
        """Return what it is made of: a Unix socket between two processes has no address."""
        return ConnectionFacts(unsent=sum(buffer.nbytes for buffer in self._unsent))

    def close(self) -> None:
        """Send what is queued, then close."""
        self._closing = True
        if not self._unsent:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._end("the connection was closed")

    def _readable(self) -> None:
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or "the connection broke")
            return
        if data:
            self._handler.bytes_received(self._number, data)
        else:
            self._end("the connection was closed")

    def _writable(self) -> None:
        try:
            self._forget(self._socket.sendmsg([*self._unsent][:MAX_BUFFERS]))
        except BlockingIOError:
            return
        except OSError:
            self._drop()
        if not self._unsent:
            self._loop.remove_writer(self._fd)
            if self._closing:
                self.abort()

    def _queue(self, buffers: Sequence[bytes | memoryview]) -> None:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self._unsent.append(view)
            self.unsent += view.nbytes

    def _drop(self) -> None:
        self._unsent.clear()
        self.unsent = 0

    def _forget(self, sent: int) -> None:
        """Drop what has been sent, bytes."""
        self.unsent -= sent
        unsent = self._unsent
        while unsent and sent >= unsent[0].nbytes:
            sent -= unsent.popleft().nbytes
        if sent:
            unsent[0] = unsent[0][sent:]

    def _end(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._fd)
        if self._unsent:
            self._drop()
            self._loop.remove_writer(self._fd)
        self._socket.close()
        self._loop.call_soon(self._handler.connection_closed, self._number, reason)


def _remove_socket(address: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(address).st_mode):  # noqa: PTH116 - agents have no pathlib
            os.unlink(address)  # noqa: PTH108 - as above


def _peer_user(sock: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    return int(uid)
