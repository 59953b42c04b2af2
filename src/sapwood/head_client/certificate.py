"""The certificate that a client shows to nodes: signed by the head, and renewed in time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.futures import when_done
from sapwood.environment.logs import logger
from sapwood.head.parts.links import Links
from sapwood.head.session_records import ClientCertificate
from sapwood.head_client.connection import CALL_TIMEOUT
from sapwood.head_client.reconnecting import ReconnectingClient
from sapwood.nodes.control_link import RENEW_AFTER, RENEW_PAUSE
from sapwood.nodes.port import HeadPort
from sapwood.security.authority import make_request, valid_until
from sapwood.security.credentials import Credentials
from sapwood.session.shared_reactor import SharedReactor

_log = logger("head")


class RenewedCredentials:
    """What a client shows to nodes, and the ports at which it does.

    Args:
        head: The connection to the head.
    """

    def __init__(self, head: ReconnectingClient) -> None:
        self._head = head
        self._lock = threading.Lock()
        self._taken: Credentials | None = None
        self._ports: list[tuple[SharedReactor, HeadPort]] = []

    def current(self) -> Credentials:
        """Return what to show now; this waits for the head the first time only.

        Raises:
            CommunicationError: The head is gone.
        """
        with self._lock:
            known = self._taken
        if known is None:
            key, request = make_request()
            made = self._head.client.call_within(CALL_TIMEOUT, Links.certify, request)
            known = self._take(key, made)
        return known

    def listen(self, where: str, loop: SharedReactor) -> HeadPort:
        """Listen for nodes on a loop, and show them what is renewed from then on."""
        port = HeadPort(where, loop, self.current())
        with self._lock:
            self._ports.append((loop, port))
        return port

    def plan_renewal(self) -> None:
        """Have the present head renew it in time."""
        with self._lock:
            taken = self._taken
        if taken is not None:
            left = max(valid_until(taken.certificate) - time.time(), 0.0)
            self._head.client.later(left * RENEW_AFTER, self._renew)

    def _take(self, key: bytes, made: ClientCertificate) -> Credentials:
        """Show another certificate from now on."""
        taken = Credentials(
            node=made.node, certificate=made.certificate, key=key, authority=made.authority
        )
        with self._lock:
            self._taken = taken
            ports = list(self._ports)
        for loop, port in ports:
            try:
                loop.call_soon_threadsafe(port.renew, taken)
            except ClosedError:  # its session is over
                with self._lock:
                    self._ports.remove((loop, port))
        self.plan_renewal()
        return taken

    def _renew(self) -> None:
        """Ask for another certificate; on the connection's thread, which does not wait for it."""
        key, request = make_request()

        def answered(answer: Future[ClientCertificate]) -> None:
            try:
                self._take(key, answer.result())
            except SapwoodError as error:
                _log.warning("certificate not renewed", reason=error.what)
                if not self._head.is_away:
                    self._head.client.later(RENEW_PAUSE, self._renew)

        when_done(self._head.client.ask(Links.certify, request), answered)
