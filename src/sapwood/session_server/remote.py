"""Clients on other machines: how they reach the server of a session, and what they show.

They connect to the head's port, which hands the connection to the server. The server shows a
certificate of the cluster's authority under the name of its session; the client shows none, and
proves by a secret that it may attach. All of this is in a credential, one line of text.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

from sapwood.comm.transport.base import ConnectionHandler, Failed
from sapwood.comm.transport.tls import connect_unnamed
from sapwood.comm.transport.tls_dial import is_another
from sapwood.comm.transport.tls_port import TlsPort
from sapwood.core.errors import ClosedError, CommunicationError
from sapwood.core.failures import new_thread
from sapwood.core.hints import command
from sapwood.head import session_records
from sapwood.head.parts.links import Links
from sapwood.head.parts.sessions import Sessions
from sapwood.head_client.connection import ServiceClient
from sapwood.head_client.handed_connections import take_sockets
from sapwood.nodes.control_link import RENEW_AFTER
from sapwood.nodes.port import session_protocol
from sapwood.nodes.refusals import log_refusals
from sapwood.security.authority import make_request, valid_until
from sapwood.security.credentials import Credentials
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session_server.session_credential import cluster_of

CALL_TIMEOUT = 10.0
"""Seconds that a head may take for what it does at once."""


def connect_by(
    credential: session_records.SessionCredential,
) -> Callable[[ConnectionHandler, SharedReactor, Failed], None]:
    """Return what connects to the server of a session on another machine."""

    def connect(handler: ConnectionHandler, loop: SharedReactor, failed: Failed) -> None:
        def refused(error: CommunicationError) -> None:
            failed(_without_server(credential, error) if is_another(error) else error)

        connect_unnamed(
            f"{credential.node}@{','.join(credential.addresses)}",
            session_protocol(credential.session),
            credential.authority,
            handler,
            loop,
            refused,
        )

    return connect


def _without_server(
    credential: session_records.SessionCredential, error: CommunicationError
) -> CommunicationError:
    """Return what to say where the head is there, and the server of the session is not."""
    missing = CommunicationError(
        f"the session '{credential.name}' has no root at its head",
        where=",".join(credential.addresses),
        hint="it has ended, waits for its machines, or its server does not come back: "
        f"{command('session', 'list', cluster=cluster_of(credential))} shows that",
    )
    missing.__cause__ = error
    return missing


class RemotePort:
    """Takes the connections of clients on other machines, which the head hands over.

    Args:
        session: The id of the session.
        handler: Hears of the connections, on the session's loop.
        loop: That loop.
        folder: Folder of the sockets of the session.
    """

    def __init__(
        self, session: str, handler: ConnectionHandler, loop: SharedReactor, folder: Path
    ) -> None:
        self._session = session
        self._handler = handler
        self._loop = loop
        self._port: TlsPort | None = None
        self._path = folder / "links.sock"
        self._listening = socket.socket(socket.AF_UNIX)
        try:
            self._listening.bind(str(self._path))
            self._listening.listen(64)
        except OSError:
            self._listening.close()
            raise
        self._thread = new_thread(
            "sapwood-links", take_sockets, self._listening, self._take, daemon=None
        )
        self._thread.start()

    def announce(self, client: ServiceClient) -> float:
        """Have a head hand connections over; return after how many seconds to do so again.

        Raises:
            SapwoodError: The head is gone, or does not.
        """
        key, request = make_request()
        made = client.call_within(CALL_TIMEOUT, Sessions.certify, self._session, request)
        shown = Credentials(
            node=made.node, certificate=made.certificate, key=key, authority=made.authority
        )
        self._loop.call_soon_threadsafe(self._show, shown)
        client.call_within(
            CALL_TIMEOUT, Links.delegate, self._session, str(self._path), session=True
        )
        return max(valid_until(shown.certificate) - time.time(), 0.0) * RENEW_AFTER

    def close(self) -> None:
        """Take no more connections; on the session's loop."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        if self._port is not None:
            self._port.close()

    def _show(self, credentials: Credentials) -> None:
        if self._port is not None:
            self._port.renew(credentials)
            return
        self._port = TlsPort(None, self._loop, credentials, refused=log_refusals)
        self._port.serve(session_protocol(self._session), self._handler, certificate=False)

    def _take(self, sock: socket.socket, peer: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._serve, sock, peer)
        except ClosedError:
            sock.close()

    def _serve(self, sock: socket.socket, peer: str) -> None:
        if self._port is None:
            sock.close()
        else:
            self._port.take(sock, peer)
