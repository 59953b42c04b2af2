"""Staged content from node to node: TLS 1.3, and nothing but bytes.

::

    node that fetches                       node that has
      ---- SHA-256, size, offset, bytes ---->
      <--- these bytes ----------------------     as they come in, if they are not all there yet
      ---- the next ------------------------>     before the answer to the last, as Pull says

So content goes down a chain or a tree of nodes while it arrives. A connection that ends before its
time means that the other node has it not, or no more: then the next source is asked, from the same
byte. Each node that is served has a thread here, so a node that stops reading delays itself only.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sapwood.comm.transport.tls_identity import (
    accepting_context,
    connecting_context,
    node_of,
    parse_address,
)
from sapwood.content.messages import MissingPart, StagePiece
from sapwood.content.pull import ChunkRequest, Pull
from sapwood.content.refs import CHUNK, WantedChunk, checked_sha256
from sapwood.content.staged import StageStore
from sapwood.core.errors import CommunicationError, ProtocolError, SapwoodError
from sapwood.core.failures import as_error, new_thread
from sapwood.environment.logs import logger
from sapwood.security.credentials import Credentials

STAGE_PROTOCOL: Final = "sapwood-stage/2"
"""The name under which the port of a node tells this from anything else (ALPN)."""

MAX_SERVED: Final = 32
"""Nodes that one node serves at a time."""

CONNECT_TIMEOUT: Final = 5.0
"""Seconds in which a node must be reached at each of its addresses."""

SILENCE: Final = 30.0
"""Seconds without a byte after which a node is given up that should send some."""

LOOK: Final = 0.5
"""Seconds between two looks whether a node still wants what is awaited here."""

_WANTED = struct.Struct("<64sQQQ")

_log = logger("stage")


class StageServer:
    """Gives content to other nodes: each of them has a thread here.

    Args:
        store: What there is.
        credentials: Returns what this node shows.
    """

    def __init__(self, store: StageStore, credentials: Callable[[], Credentials]) -> None:
        self._store = store
        self._credentials = credentials
        self._lock = threading.Lock()
        self._served: dict[socket.socket, threading.Thread] = {}
        self._closed = False

    def take(self, sock: socket.socket, peer: str) -> None:
        """Serve a connection on which nothing was said yet; from any thread."""
        with self._lock:
            if self._closed or len(self._served) >= MAX_SERVED:
                sock.close()
                return
            thread = new_thread("sapwood-stage-peer", self._serve, sock, peer)
            self._served[sock] = thread
            thread.start()  # with the lock: else it may be waited for before

    def close(self) -> None:
        """Start to end all connections, without waiting."""
        with self._lock:
            self._closed = True
            for sock in self._served:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def wait_closed(self) -> None:
        """Wait until all have ended, after :meth:`close`."""
        with self._lock:
            threads = list(self._served.values())
        for thread in threads:
            thread.join()

    def _serve(self, sock: socket.socket, peer: str) -> None:
        try:
            self._talk(sock)
        except (OSError, ValueError, SapwoodError) as error:
            _log.info("node served no more", peer=peer, reason=str(error))
        finally:
            with self._lock:
                del self._served[sock]
            sock.close()

    def _talk(self, sock: socket.socket) -> None:
        context = accepting_context(self._credentials())
        context.set_alpn_protocols([STAGE_PROTOCOL])
        sock.settimeout(CONNECT_TIMEOUT)
        raw = sock.dup()  # TLS closes its socket, and close() still needs one
        raw.settimeout(CONNECT_TIMEOUT)
        with context.wrap_socket(raw, server_side=True) as way:
            way.settimeout(None)
            while len(asked := _received(way, _WANTED.size)) == _WANTED.size:
                way.settimeout(SILENCE)
                digits, *numbers = _WANTED.unpack(asked)
                if not self._send(way, WantedChunk(digits.decode(), *numbers)):
                    return
                way.settimeout(None)

    def _send(self, way: ssl.SSLSocket, wanted: WantedChunk) -> bool:
        """Send a chunk; return whether all of it was there, or came in time."""
        wanted.check()
        offset, end = wanted.offset, wanted.offset + wanted.nbytes
        while offset < end:
            data = self._store.wait_for(wanted.sha256, wanted.size, offset, LOOK)
            if data is None:
                return False
            if data:
                way.sendall(data[: end - offset])
                offset += len(data)
            elif _has_gone(way):
                return False
        return True


class StageFetch:
    """Content that is fetched from other nodes, on a separate thread.

    Args:
        store: Where it goes.
        sources: The addresses of the nodes that may have it, the nearest first.
        parts: What to fetch, in this order.
        credentials: What this node shows.
        ended: Called with how many bytes came, and what went wrong; on that thread.
    """

    def __init__(
        self,
        store: StageStore,
        sources: Sequence[str],
        parts: Sequence[MissingPart],
        credentials: Credentials,
        ended: Callable[[int, SapwoodError | None], None],
    ) -> None:
        self._store = store
        self._sources = list(sources)
        self._parts = parts
        self._credentials = credentials
        self._ended = ended
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._way: tuple[str, ssl.SSLSocket] | None = None
        self._cancelled = False
        self._came = 0
        self._thread = new_thread("sapwood-stage-fetch", self._work)
        self._thread.start()

    def cancel(self) -> None:
        """End it."""
        with self._lock:
            self._cancelled = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def wait_closed(self) -> None:
        """Wait until it has ended, after :meth:`cancel`."""
        self._thread.join()

    def _work(self) -> None:
        problem: SapwoodError | None = None
        try:
            for part in self._parts:
                self._fetch(part)
        except SapwoodError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - the node waits for its end
            problem = as_error(error, "fetching content of a node")
        self._disconnect()
        self._ended(self._came, problem)

    def _fetch(self, part: MissingPart) -> None:
        sha256 = checked_sha256(part.sha256)
        pull = Pull(part.nbytes, part.offset, self._sources)
        waiting: deque[ChunkRequest[str]] = deque()
        while not pull.done:
            requests = pull.requests()
            waiting.extend(requests)
            try:
                for one in requests:
                    self._ask(sha256, part.nbytes, one)
                data = self._received(waiting[0])
            except SapwoodError:
                self._disconnect()
                if self._cancelled or not all(map(pull.failed, waiting)):
                    raise
                waiting.clear()
                continue
            offset = pull.offset
            for chunk in pull.received(waiting.popleft(), data):
                self._store.write(StagePiece(sha256, part.nbytes, offset, chunk))
                offset += len(chunk)
                self._came += len(chunk)
        self._sources = pull.sources

    def _ask(self, sha256: str, nbytes: int, request: ChunkRequest[str]) -> None:
        """Request a chunk, if need be on a new connection.

        Raises:
            CommunicationError: The other node cannot be reached.
            ProtocolError: It serves no staged files.
        """
        if self._way is None:
            self._way = request.source, self._connected(request.source)
        wanted = _WANTED.pack(sha256.encode(), nbytes, request.offset, request.nbytes)
        with _losses(request.source):
            self._way[1].sendall(wanted)

    def _received(self, request: ChunkRequest[str]) -> bytes:
        """Return the chunk of the first request that was not answered.

        Raises:
            CommunicationError: It does not come.
        """
        assert self._way is not None  # noqa: S101 - it was requested
        with _losses(request.source):
            data = _received(self._way[1], request.nbytes)
        if len(data) < request.nbytes:
            raise _lost(request.source, "it sends no more")
        return data

    def _disconnect(self) -> None:
        if self._way is not None:
            self._way[1].close()
            self._way = None
        self._forget_socket()

    def _connected(self, address: str) -> ssl.SSLSocket:
        node, endpoints = parse_address(address)
        context = connecting_context(self._credentials)
        context.set_alpn_protocols([STAGE_PROTOCOL])
        reasons: list[str] = []
        for endpoint in endpoints:
            try:
                raw = socket.create_connection(endpoint, CONNECT_TIMEOUT)
                with self._lock:
                    self._socket = raw.dup()
                    if self._cancelled:
                        raw.close()
                        raise _lost(address, "it was cancelled")
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                way = context.wrap_socket(raw, server_hostname=node)
            except OSError as error:
                self._forget_socket()
                reasons.append(f"{endpoint[0]}:{endpoint[1]}: {error.strerror or error}")
                continue
            if node_of(way) != node:  # the certificate of a server may name several
                way.close()
                raise _lost(address, "its certificate does not name one node")
            if way.selected_alpn_protocol() != STAGE_PROTOCOL:
                way.close()
                raise ProtocolError("the node does not serve staged files", where=address)
            way.settimeout(SILENCE)
            return way
        raise _lost(address, "; ".join(reasons))

    def _forget_socket(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


def _lost(address: str, reason: str) -> CommunicationError:
    return CommunicationError(
        f"the node that has what is to be staged cannot be reached: {reason}", where=address
    )


@contextlib.contextmanager
def _losses(address: str) -> Iterator[None]:
    """Raise what goes wrong with a connection as the loss of the other node."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise _lost(address, getattr(error, "strerror", None) or str(error)) from error


def _has_gone(way: ssl.SSLSocket) -> bool:
    """Whether the other side has ended the connection."""
    poll = select.poll()
    poll.register(way, select.POLLRDHUP)
    return bool(poll.poll(0))


def _received(way: ssl.SSLSocket, nbytes: int) -> bytes:
    """Return as many bytes as asked for; fewer if the connection ends before."""
    parts: list[bytes] = []
    while nbytes and (data := way.recv(min(nbytes, CHUNK))):
        parts.append(data)
        nbytes -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)
