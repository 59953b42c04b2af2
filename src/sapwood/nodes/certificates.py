"""The certificates of a cluster: of its head, nodes, clients and servers."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence

from sapwood.core.errors import CommunicationError, ProtocolError, SecurityError
from sapwood.environment.units import format_time
from sapwood.nodes.control_link import RENEW_AFTER
from sapwood.nodes.note_event import NoteEvent
from sapwood.nodes.registry import NodeRegistry
from sapwood.security.authority import HEAD, Authority, make_request, places_id, valid_until
from sapwood.security.credentials import Credentials
from sapwood.session.requests import ServedRequest

MAX_REQUEST = 16 * 1024
"""Bytes of a certificate request; one of a P-256 key has 400."""


class CertificateIssuer:
    """Issues certificates as long as the authority of the cluster runs.

    Args:
        authority: The authority of the cluster.
        life: How long a certificate is valid, in seconds.
        registry: The nodes.
        denied: Says whether a node id may not return.
        note: Receives an event for each renewed certificate.
        leads: Returns whether this head serves: otherwise it signs nothing.

    Attributes:
        authority: The authority of the cluster.
        credentials: What the head shows.
        enabled: Whether it signs; the component *authority* can be stopped.
    """

    def __init__(
        self,
        authority: Authority,
        life: float,
        registry: NodeRegistry,
        denied: Callable[[str], bool],
        note: NoteEvent,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.authority = authority
        self.enabled = True
        self._life = dt.timedelta(seconds=life)
        self._registry = registry
        self._denied = denied
        self._note = note
        self._leads = leads
        self.credentials = self._issue()

    def _issue(self) -> Credentials:
        key, request = make_request()
        return self.authority.issue(request, HEAD, key, self._life)

    @property
    def renew_after(self) -> float:
        """Seconds after which a certificate is renewed."""
        return self._life.total_seconds() * RENEW_AFTER

    @property
    def spare(self) -> float:
        """Seconds for which each certificate is still valid when it is renewed."""
        return self._life.total_seconds() * (1.0 - RENEW_AFTER)

    def renew(self) -> Credentials:
        """Return new credentials of the head, and show them from now on."""
        self.credentials = self._issue()
        return self.credentials

    def check_leads(self) -> None:
        """Refuse what another head may do by now.

        Raises:
            CommunicationError: This one does not serve.
        """
        if not self._leads():
            raise CommunicationError(
                "this head does not serve", hint="try again: another one does, or will"
            )

    def check(self) -> None:
        """Refuse to sign a certificate while the authority is stopped.

        Raises:
            CommunicationError: The authority is stopped or this head does not serve; clients may
                try again.
        """
        self.check_leads()
        if not self.enabled:
            raise CommunicationError(
                "the authority of the cluster is stopped",
                hint="`sapwood node start authority --nodes head` on the head's machine starts it",
            )

    def sign(self, request: bytes, name: str) -> bytes:
        """Return a certificate with this name, after :meth:`check`."""
        return self.authority.sign(request, name, self._life)

    def certify(self, request: bytes, name: str, seconds: float = math.inf) -> Credentials:
        """Return the TLS credentials of a client that is not a node, without a key.

        Args:
            request: The request for a certificate, PEM.
            name: What it is called, a DNS label.
            seconds: How long they are valid at most.

        Raises:
            SecurityError: The request is malformed.
            CommunicationError: The authority is stopped.
        """
        self.check()
        life = min(seconds, self._life.total_seconds())
        return self.authority.issue(request, name, b"", dt.timedelta(seconds=life))

    def certify_server(self, request: bytes, name: str, hosts: Sequence[str]) -> Credentials:
        """Return the credentials of a server that browsers and scripts reach, without a key.

        Args:
            request: The request for a certificate, PEM.
            name: What it is called, a DNS label.
            hosts: Names and addresses under which it is reached.

        Raises:
            SecurityError: The request is malformed.
            CommunicationError: The authority is stopped.
        """
        self.check()
        return Credentials(
            node=self.authority.node_id(name),
            certificate=self.authority.sign_server(request, name, hosts, self._life),
            key=b"",
            authority=self.authority.certificate,
        )

    # --- requests of nodes, on the loop of the control tree ------------------------------------

    def renew_node(self, question: ServedRequest) -> None:
        """Give a node another certificate over its link, which says who it is."""
        with question.answered_with_errors():
            rank, name = self._certified_node(question)
            certificate = self.sign(_request_in(question), name)
            end = valid_until(certificate)
            self._registry.of(rank).certificate_end = end
            self._note(
                "certificate.renewed",
                "renewed the certificate",
                node=self._registry.name_of(rank),
                facts={"until": format_time(end)},
            )
            question.give(certificate, None)

    def certify_places(self, question: ServedRequest) -> None:
        """Give processes on a node that run as another user a separate certificate."""
        with question.answered_with_errors():
            _, name = self._certified_node(question)
            question.give(self.sign(_request_in(question), places_id(name)), None)

    def _certified_node(self, question: ServedRequest) -> tuple[int, str]:
        """Return rank and name in certificates of a node that asks for one.

        Raises:
            SecurityError: It is not a node, or was removed.
            CommunicationError: The authority is stopped.
        """
        rank = question.asked.source
        self.check()
        node = self._registry.node_of(rank)
        if not node or self._denied(node):
            raise SecurityError("this node gets no certificate")
        return rank, node.partition(".")[0]


def _request_in(question: ServedRequest) -> bytes:
    """Return the certificate request that a node sends.

    Raises:
        ProtocolError: It sends something else.
    """
    value = question.value()
    if not isinstance(value, bytes) or len(value) > MAX_REQUEST:
        raise ProtocolError(
            f"this is not a certificate request of at most {MAX_REQUEST} bytes",
            where=f"rank {question.asked.source}",
        )
    return value
