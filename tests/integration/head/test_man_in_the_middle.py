"""A proxy between a head and its clients that ends TLS, and shows another certificate.

It has the certificate of another node of the cluster, of a web server of the cluster, or of a
head of a foreign authority. Each client checks who answers, at joining and at each connection
after that.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.comm.transport.base import Connection, ConnectionHandler
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.tls_identity import accepting_context, memory_file, parse_address
from sapwood.content.messages import MissingPart
from sapwood.content.peers import STAGE_PROTOCOL, StageFetch
from sapwood.content.staged import StageStore
from sapwood.core.errors import SapwoodError
from sapwood.head import session_records
from sapwood.head.protocol import greeting
from sapwood.head_client.access import HeadAccess
from sapwood.nodes import joining
from sapwood.nodes.port import session_protocol
from sapwood.security.authority import HEAD, Authority, make_request
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import AGENTS, NODES, Invitation
from sapwood.session.loop_thread import LoopThread
from sapwood.session_server.remote import connect_by

from .up_head import PATIENCE, UpHead

PROTOCOLS = [
    greeting.SERVICE_PROTOCOL,
    joining.JOIN_PROTOCOL,
    joining.AGENT_PROTOCOL,
    STAGE_PROTOCOL,
]
CONTROL = "sapwood-control"
SESSION = session_protocol("5b9a9171")


class Middle:
    """A proxy that reads what it passes on.

    Args:
        shown: What it shows to clients.
        node: What it shows to the head.
        place: Where the head is.

    Attributes:
        place: Where it listens, ``host:port``.
        heard: What clients have sent.
    """

    def __init__(self, shown: Credentials, node: Credentials, place: str) -> None:
        self._context = accepting_context(shown)
        self._context.verify_mode = ssl.CERT_NONE
        self._context.set_alpn_protocols([*PROTOCOLS, CONTROL, SESSION])
        self._node, self._upstream = node, place
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.heard = bytearray()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
                self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.settimeout(PATIENCE)
            with (
                self._context.wrap_socket(sock, server_side=True) as client,
                self._reached(client.selected_alpn_protocol() or "") as head,
            ):
                self._pass_on(client, head)

    def _reached(self, protocol: str) -> ssl.SSLSocket:
        """Connect to the head itself, as a node that may be there."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with memory_file(self._node.certificate + b"\n" + self._node.key) as path:
            context.load_cert_chain(path)
        context.set_alpn_protocols([protocol])
        _, (address,) = parse_address(f"head@{self._upstream}")
        return context.wrap_socket(socket.create_connection(address, PATIENCE))

    def _pass_on(self, client: ssl.SSLSocket, head: ssl.SSLSocket) -> None:
        while True:
            ready = [one for one in (client, head) if one.pending()]
            for one in ready or select.select([client, head], [], [], PATIENCE)[0]:
                data = one.recv(65536)
                if not data:
                    return
                if one is client:
                    self.heard += data
                (head if one is client else client).sendall(data)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()


def node_of_the_cluster(up: UpHead) -> Credentials:
    key, request = make_request()
    made = up.head.control.issuer.certify(request, "n9-1", 600.0)
    return msgspec.structs.replace(made, key=key)


def server_of_the_cluster(up: UpHead) -> Credentials:
    key, request = make_request()
    cluster = up.head.control.authority.cluster
    hosts = [f"{name}.{cluster}" for name in ("head", "n1-1", "s-5b9a9171")]
    made = up.head.control.issuer.certify_server(request, "web", hosts)
    return msgspec.structs.replace(made, key=key)


def foreign_head(up: UpHead) -> Credentials:
    key, request = make_request()
    return Authority.create(up.head.control.authority.cluster).issue(request, HEAD, key)


# --- clients: each returns the error that it ends with --------------------------------------------


def caught(work: Callable[[], Any]) -> SapwoodError:
    with pytest.raises(SapwoodError) as found:
        work()
    return found.value


def joins(up: UpHead, place: str, _folder: Path) -> tuple[SapwoodError, str]:
    token = Invitation(NODES, "a" * 8, "b" * 52, up.head.control.authority.pin)
    return caught(lambda: joining.join(token, [place], 1.0, "x")), token.secret


def joins_again(up: UpHead, place: str, _folder: Path) -> tuple[SapwoodError, str]:
    node = node_of_the_cluster(up)
    return caught(lambda: joining.join_again(node, [place], 1.0)), ""


def becomes_an_agent(up: UpHead, place: str, _folder: Path) -> tuple[SapwoodError, str]:
    invitation = AGENTS.create(up.head.control.authority.pin, (place,))
    return caught(lambda: joining.join_session(invitation, 1.0)), invitation.secret


def calls_the_head(up: UpHead, place: str, _folder: Path) -> tuple[SapwoodError, str]:
    shown = up.issue("connect")
    error = caught(lambda: HeadAccess(f"sapwood://{place}", shown, None, "127.0.0.1:0"))
    return error, shown.text


class _Handler:
    """Hears of no connection."""

    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        del initiator
        connection.write([b"a secret"])
        self._opened()
        return 0

    def bytes_received(self, number: int, data: bytes) -> None:
        del number, data

    def connection_closed(self, number: int, reason: str) -> None:
        del number, reason


def dialled(connect: Callable[[ConnectionHandler, Any, Any], None]) -> SapwoodError:
    """Return why a connection is not made."""
    outcome: queue.Queue[SapwoodError | None] = queue.Queue()
    thread = LoopThread("test")
    try:
        thread.start()
        thread.post(connect, _Handler(lambda: outcome.put(None)), thread.loop, outcome.put)
        error = outcome.get(timeout=PATIENCE)
    finally:
        thread.stop()
    assert error is not None, "it is connected with the proxy"
    return error


def has_a_link(up: UpHead, place: str, _folder: Path) -> tuple[SapwoodError, str]:
    transport = TlsTransport(node_of_the_cluster(up), CONTROL)
    address = f"tls://head.{up.head.control.authority.cluster}@{place}"
    return dialled(lambda *rest: transport.connect(address, *rest)), ""


def attaches(up: UpHead, place: str, _folder: Path) -> tuple[SapwoodError, str]:
    session, control = SESSION.rpartition("/")[2], up.head.control
    credential = session_records.SessionCredential(
        "5b9a9171",
        "night",
        "secret",
        f"s-{session}.{control.authority.cluster}",
        control.authority.certificate,
        [place],
    )
    return dialled(connect_by(credential)), "secret"


def fetches_files(up: UpHead, place: str, folder: Path) -> tuple[SapwoodError, str]:
    ended: queue.Queue[SapwoodError | None] = queue.Queue()
    address = f"tls://n1-1.{up.head.control.authority.cluster}@{place}"
    part = MissingPart("0" * 64, 10)
    fetch = StageFetch(
        StageStore(folder, 0),
        [address],
        [part],
        node_of_the_cluster(up),
        lambda _nbytes, problem: ended.put(problem),
    )
    error = ended.get(timeout=PATIENCE)
    fetch.wait_closed()
    assert error is not None
    return error, part.sha256


@pytest.mark.row("C5-INFRA")
@pytest.mark.parametrize("shown", [node_of_the_cluster, server_of_the_cluster, foreign_head])
@pytest.mark.parametrize(
    "client",
    [
        joins,
        joins_again,
        becomes_an_agent,
        calls_the_head,
        has_a_link,
        attaches,
        fetches_files,
    ],
)
def test_no_client_gives_a_man_in_the_middle_anything(
    up: UpHead,
    tmp_path: Path,
    client: Callable[[UpHead, str, Path], tuple[SapwoodError, str]],
    shown: Callable[[UpHead], Credentials],
) -> None:
    middle = Middle(shown(up), node_of_the_cluster(up), up.address)
    try:
        error, secret = client(up, middle.address, tmp_path)
    finally:
        middle.close()
    heard = bytes(middle.heard)
    assert not secret or secret.encode() not in heard
    if client is calls_the_head:
        assert "not the head that the credential is for" in str(error)  # it has asked who it is
    else:
        assert not heard
