"""The floor of files for many nodes: a process for each, which writes what comes and passes it on.

Sockets block. The first process is the source; the others are below each other in a shape that is
given. With ``secure`` each link is TLS 1.3, and each process takes the SHA-256 of what comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sapwood.comm.transport.tls_identity import accepting_context, connecting_context
from sapwood.security.authority import Authority, make_request, new_cluster_id
from sapwood.security.credentials import Credentials

PIECE = 1 << 20
ACKNOWLEDGED = b"."


def measure(sources: Sequence[int], nbytes: int, folder: str, *, secure: bool) -> list[float]:
    """Return how long it takes until all processes have the bytes in their own files.

    Args:
        sources: From where each process gets them, from the first on: its number, 0 for the source.
        nbytes: How many bytes; whole pieces.
        folder: Where the files are for the time being.
        secure: Whether links are encrypted, and content is hashed.
    """
    authority = Authority.create(new_cluster_id()) if secure else None
    names = range(len(sources) + 1)
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    own = [_issued(authority, f"p{one}") for one in names]
    done, told = os.pipe()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        source = Path(place, "source")
        with source.open("wb") as file:
            for _ in range(nbytes // PIECE):
                file.write(os.urandom(PIECE))
        os.sync()
        pids = []
        for number, above in enumerate(sources, 1):
            pid = os.fork()
            if not pid:
                status = 1
                with contextlib.suppress(BaseException):
                    incoming = _connect(listening[above].getsockname(), own[number], own[above])
                    below = _accepted(listening[number], sources.count(number), own[number])
                    _pass_on(incoming, below, Path(place, str(number)), nbytes, hashed=secure)
                    os.write(told, ACKNOWLEDGED)
                    status = 0
                os._exit(status)
            pids.append(pid)
        below = _accepted(listening[0], sources.count(0), own[0])
        begin = time.perf_counter()
        with source.open("rb", buffering=0) as file:
            while data := file.read(PIECE):
                for link in below:
                    link.sendall(data)
        os.close(told)
        count = 0
        while data := os.read(done, len(sources)):
            count += len(data)
        seconds = time.perf_counter() - begin
        for pid in pids:
            os.waitpid(pid, 0)
        assert count == len(sources)
    return [seconds]


def _issued(authority: Authority | None, name: str) -> Credentials | None:
    if authority is None:
        return None
    key, request = make_request()
    return authority.issue(request, name, key)


def _connect(
    address: tuple[str, int], own: Credentials | None, other: Credentials | None
) -> socket.socket:
    plain = socket.create_connection(address)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if own is None or other is None:
        return plain
    return connecting_context(own).wrap_socket(plain, server_hostname=other.node)


def _accepted(listening: socket.socket, count: int, own: Credentials | None) -> list[socket.socket]:
    found: list[socket.socket] = []
    for _ in range(count):
        link, _ = listening.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.append(accepting_context(own).wrap_socket(link, server_side=True) if own else link)
    return found


def _pass_on(
    incoming: socket.socket,
    below: Sequence[socket.socket],
    path: Path,
    nbytes: int,
    *,
    hashed: bool,
) -> None:
    """Write what comes to a file, and send it to others as it comes."""
    buffer, hasher = memoryview(bytearray(PIECE)), hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        while nbytes:
            got = 0
            while got < PIECE and (count := incoming.recv_into(buffer[got:])):
                got += count
            if not got:
                raise ConnectionError
            file.write(buffer[:got])
            if hashed:
                hasher.update(buffer[:got])
            for link in below:
                link.sendall(buffer[:got])
            nbytes -= got
