"""One connection under TLS: its handshake, its bytes in both directions, and its end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sapwood.comm.loop import Loop, Timer
from sapwood.comm.transport.base import ConnectionFacts, ConnectionHandler

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a peer has to connect, and as many for its TLS handshake."""

UNHEARD_TIMEOUT = 10.0
"""Seconds after which a connection is broken whose peer's machine confirms nothing that was sent.

The kernel of a stopped process confirms; the kernel of a machine that is cut off does not, and
would be asked again for a quarter of an hour.
"""

CLOSE_TIMEOUT = 10.0
"""Seconds that a connection that is being closed may take without any progress."""

RECORD = 16 * 1024
"""Bytes of a TLS record at most; one call reads no more."""

READ_SIZE = 256 * 1024
"""Bytes that are read before others have their turn."""

JOIN_SIZE = 64 * 1024
"""Bytes up to which small buffers are joined before they are encrypted."""

CHUNK = 256 * 1024
"""Bytes of a large buffer that one call encrypts."""

WRITE_SIZE = 1024 * 1024
"""Bytes that are written before others have their turn."""

_TOTAL_RETRANS = slice(100, 104)
"""Where ``struct tcp_info`` of Linux has ``tcpi_total_retrans``."""


class Handshake:
    """A handshake under way.

    Args:
        sock: The connected socket.
        loop: Watches it.
        timeout: Seconds that it may take.
    """

    def __init__(self, sock: ssl.SSLSocket, loop: Loop, timeout: float) -> None:
        self.sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._timeout = timeout
        self._timer: Timer | None = None
        self._reading = self._writing = False
        self._done: Callable[[], None] = _nothing
        self._failed: Callable[[OSError], None] = ignore_error

    def begin(self, done: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """Begin; one of the two is called when it is over, perhaps at once."""
        self._done, self._failed = done, failed
        late = TimeoutError(f"its handshake took longer than {self._timeout:g} s")
        self._timer = self._loop.call_later(self._timeout, self.fail, late)
        self._step()

    def end(self) -> ssl.SSLSocket:
        """Stop silently; return the socket."""
        if self._timer is not None:
            self._timer.cancel()
        self._watch(reading=False, writing=False)
        return self.sock

    def fail(self, error: OSError) -> None:
        """End it without success."""
        self.end()
        self._failed(error)

    def _step(self) -> None:
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(reading=True, writing=False)
        except ssl.SSLWantWriteError:
            self._watch(reading=False, writing=True)
        except OSError as error:  # ssl.SSLError and its kinds are OSErrors
            self.fail(error)
        else:
            self.end()
            self._done()

    def _watch(self, *, reading: bool, writing: bool) -> None:
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._loop.add_reader(self._fd, self._step)
            else:
                self._loop.remove_reader(self._fd)
        if writing != self._writing:
            self._writing = writing
            if writing:
                self._loop.add_writer(self._fd, self._step)
            else:
                self._loop.remove_writer(self._fd)


class TlsConnection:
    """One connection, after its handshake.

    OpenSSL wants a write that could not end be repeated with the same bytes, so what is being
    sent (``_chunk``) stays as it is until all of it is taken. Each read takes one record, and
    nothing of it stays behind, so the readiness of the socket equals the connection's.

    Args:
        sock: The socket; the connection owns it.
        handler: Hears of it.
        loop: Watches it.
        peer: Node id in the certificate that the peer has shown; empty without one.
        initiator: Whether this side connected.
    """

    __slots__ = (
        "_chunk",
        "_closing",
        "_farewell",
        "_fd",
        "_handler",
        "_loop",
        "_number",
        "_open",
        "_progress",
        "_reads_first",
        "_socket",
        "_timer",
        "_unsent",
        "_writing",
        "peer",
    )

    def __init__(
        self,
        sock: ssl.SSLSocket,
        handler: ConnectionHandler,
        loop: Loop,
        peer: str,
        *,
        initiator: bool,
    ) -> None:
        self.peer = peer
        self._socket = sock
        self._fd = sock.fileno()
        self._handler = handler
        self._loop = loop
        self._unsent: deque[memoryview] = deque()
        self._chunk: bytes | memoryview = b""
        self._open = True
        self._closing = False
        self._writing = False
        self._reads_first = False
        self._progress = 0
        self._timer: Timer | None = None
        self._farewell: Farewell | None = None
        self._number = -1
        loop.add_reader(self._fd, self._readable)
        self._number = handler.connection_opened(self, initiator=initiator)
        loop.call_soon(self._readable)  # something may have come with the end of the handshake

    def facts(self) -> ConnectionFacts:
        """Return what it is made of."""
        unsent = self.unsent
        try:
            address, local = self._socket.getpeername(), self._socket.getsockname()
        except OSError:  # it is gone, which is reported later
            return ConnectionFacts(unsent=unsent)
        return ConnectionFacts(
            address=shown_address(address),
            local_address=shown_address(local),
            protocol=self._socket.version() or "",
            certificate_end=_end_of(self._socket.getpeercert()),
            unsent=unsent,
            resent=_resent_by(self._socket),
        )

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    @property
    def functions(self) -> tuple[Callable[[int], bytes], Callable[[bytes], int]]:
        """Functions: one reads a record, the other sends all of some bytes or nothing."""
        return self._socket.read, self._socket.write

    @property
    def flushed(self) -> bool:
        """Whether it is open, and neither written bytes nor TLS itself wait for the socket."""
        waits = self._chunk or self._unsent or self._writing or self._reads_first
        return self._open and not self._closing and not waits

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return len(self._chunk) + sum(buffer.nbytes for buffer in self._unsent)

    # --- sending ---------------------------------------------------------------------------------

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order."""
        if not self._open or self._closing:
            return
        waits = bool(self._unsent or self._chunk)
        if not waits and sum(map(len, buffers)) <= JOIN_SIZE:
            self._chunk = b"".join(buffers)
        else:
            several = (memoryview(buffer) for buffer in buffers)
            self._unsent.extend(buffer.cast("B") for buffer in several if buffer.nbytes)
        if not waits:
            self._send()

    def close(self) -> None:
        """Send what is queued, then close."""
        if not self._open or self._closing:
            return
        self._closing = True
        if self._unsent or self._chunk:
            self._timer = self._loop.call_later(CLOSE_TIMEOUT, self._look, self._progress)
        else:
            self._shut()

    def abort(self) -> None:
        """Close at once."""
        self._end("the connection was closed")

    def _send(self) -> None:
        """Send until nothing is left, the kernel takes no more, or others have their turn."""
        left, write = WRITE_SIZE, self._socket.write
        try:
            while left > 0:
                chunk = self._chunk or self._next_chunk()
                if not chunk:
                    break
                self._chunk = chunk
                sent = write(chunk)
                self._chunk = b"" if sent == len(chunk) else memoryview(chunk)[sent:]
                left -= sent
                self._progress += 1
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLWantReadError:  # TLS itself must hear something first
            self._reads_first = True
            self._watch_writer(on=False)
            return
        except OSError:  # the other side is gone; reading says so
            self._unsent.clear()
            self._chunk = b""
        waits = bool(self._unsent or self._chunk)
        self._watch_writer(on=waits)
        if self._closing and not waits:
            self._shut()

    def _next_chunk(self) -> bytes | memoryview:
        """Take what is to be encrypted at once: a part of a large buffer, or small ones joined."""
        unsent = self._unsent
        if not unsent:
            return b""
        first = unsent[0]
        if first.nbytes >= JOIN_SIZE or len(unsent) == 1:
            return self._take(CHUNK)
        room, parts = JOIN_SIZE, []
        while unsent and room:
            parts.append(self._take(room))
            room -= parts[-1].nbytes
        return b"".join(parts)

    def _take(self, size: int) -> memoryview:
        """Take so many bytes at most out of the first buffer."""
        first = self._unsent[0]
        if first.nbytes <= size:
            return self._unsent.popleft()
        self._unsent[0] = first[size:]
        return first[:size]

    def _watch_writer(self, *, on: bool) -> None:
        if on != self._writing:
            self._writing = on
            if on:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        if self._unsent or self._chunk:
            self._send()
        else:  # reading wanted to write
            self._watch_writer(on=False)
            self._readable()

    # --- receiving -------------------------------------------------------------------------------

    def _readable(self) -> None:
        if not self._open or self._farewell is not None:
            return
        read, left = self._socket.read, READ_SIZE
        received: list[bytes] = []
        end = ""
        try:
            while left > 0:
                data = read(RECORD)
                if not data:
                    end = "the connection was closed"
                    break
                received.append(data)
                left -= len(data)
                if len(data) < RECORD:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._watch_writer(on=True)
        except OSError as error:
            end = reason_of(error)
        if received:
            data = received[0] if len(received) == 1 else b"".join(received)
            self._handler.bytes_received(self._number, data)
        if end:
            self._end(end)
        elif self._reads_first:
            self._reads_first = False
            self._send()

    # --- the end ---------------------------------------------------------------------------------

    def _look(self, progress: int) -> None:
        """Give up closing if the other side takes nothing."""
        if progress == self._progress:
            self.abort()
        else:
            self._timer = self._loop.call_later(CLOSE_TIMEOUT, self._look, self._progress)

    def _shut(self) -> None:
        """All is sent: say so, and wait until the other side has ended, too."""
        self._watch_writer(on=False)
        self._loop.remove_reader(self._fd)
        with contextlib.suppress(OSError, ValueError):  # without an answer
            self._socket.unwrap()
        self._farewell = Farewell(self._socket, self._loop, CLOSE_TIMEOUT)
        self._farewell.begin(self.abort)

    def _end(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()
        self._chunk = b""
        self._reads_first = False
        if self._farewell is None:
            self._watch_writer(on=False)
            self._loop.remove_reader(self._fd)
            self._socket.close()
        else:
            self._farewell.end()
        self._loop.call_soon(self._handler.connection_closed, self._number, reason)


class Farewell:
    """The end of a socket: sent bytes should arrive, so received bytes are read and dropped.

    A socket that is closed while bytes wait in it resets its connection, and the other side may
    lose what it has not read yet.

    Args:
        sock: The socket; nothing more is written to it.
        loop: Watches it.
        timeout: Seconds that the other side has to end.
    """

    def __init__(self, sock: ssl.SSLSocket, loop: Loop, timeout: float) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._over: Callable[[], None] = _nothing
        self._timer = loop.call_later(timeout, self.end)

    def begin(self, over: Callable[[], None]) -> None:
        """Say that nothing more comes, and wait for the same."""
        self._over = over
        self._loop.add_reader(self._fd, self._readable)
        with contextlib.suppress(OSError):  # it is gone: reading says so
            self._socket.shutdown(socket.SHUT_WR)  # from now on bytes are as they come

    def end(self) -> None:
        """Close the socket."""
        if self._socket.fileno() >= 0:
            self._timer.cancel()
            self._loop.remove_reader(self._fd)
            self._socket.close()
            self._over()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()


def prepare(sock: socket.socket) -> None:
    """Set what all sockets of links have.

    They never block, small messages do not wait, and a machine that is gone is noticed.
    """
    sock.settimeout(0)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    milliseconds = round(1000 * UNHEARD_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    # The kernel sends keep-alive probes, because a client may be silent for hours.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, round(UNHEARD_TIMEOUT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


def shown_address(name: str | Sequence[Any]) -> str:
    """Return host and port as they are written; of a Unix socket its path."""
    host = name if isinstance(name, str) else str(name[0])
    if isinstance(name, str) or host.startswith("/"):
        return host
    return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"


def _resent_by(sock: socket.socket) -> int | None:
    """Return how many segments the kernel has sent again; None of a Unix socket."""
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANS.stop)
    except OSError:
        return None
    return int.from_bytes(told[_TOTAL_RETRANS], sys.byteorder)


def _end_of(certificate: Any) -> float:
    """Return when a certificate ends, seconds since 1970; 0 without one."""
    return float(ssl.cert_time_to_seconds(certificate["notAfter"])) if certificate else 0.0


def reason_of(error: Exception) -> str:
    """Return what went wrong, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").replace("_", " ").lower()
        told = reason.partition(" alert ")[2]
        if told:
            return f"it refuses this side: {told}"
        if isinstance(error, ssl.SSLEOFError) or not reason:
            return "it ended the connection"
        return f"no TLS 1.3 with it: {reason}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)


def _nothing() -> None:
    pass


def ignore_error(_error: OSError) -> None:
    """Do nothing about an error."""
