"""The HTTP server of a cluster, as it and the users of its dashboard call the head."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sapwood.core.futures import CallerFuture, when_done
from sapwood.head.calls import IssueCredential
from sapwood.head.protocol.call import HeadPart, Reach, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.session_records import ClientCertificate
from sapwood.security.rights import ADMIN, CONNECT, OBSERVE

if TYPE_CHECKING:
    from sapwood.head.ledger import Ledger
    from sapwood.head.parts.credentials import IssuedCredentials
    from sapwood.head.service import ServiceServer
    from sapwood.head.web import HttpService
    from sapwood.nodes.control import ControlTree
    from sapwood.session.loop_thread import LoopThread


class OpenDashboard(msgspec.Struct, frozen=True, kw_only=True):
    """Let a browser in.

    Attributes:
        rights: What it may do; empty for what the pages need, which only read.
        lifetime: For how many seconds.
        subject: Who it is for, in words.
    """

    rights: list[str] = []
    lifetime: float = 12 * 3600.0
    subject: str = "dashboard"


class DashboardTicket(msgspec.Struct, frozen=True, kw_only=True):
    """What lets a browser in, once.

    Attributes:
        ticket: It; it is a secret.
        urls: Where the browser shows it: those without TLS on this machine first.
        expires: Until when, seconds since 1970.
        credential: Id of the credential that the browser gets, by which it is revoked.
        authority: Certificate of the cluster's authority, PEM: browsers and curl know the server
            by it.
    """

    ticket: str
    urls: list[str]
    expires: float
    credential: str
    authority: bytes


class WebServer(HeadPart):
    """The HTTP server of a cluster.

    Args:
        http: It starts the server, and has its tickets.
        server: It answers the calls.
        control: The tree of nodes, with the authority of the cluster.
        credentials: They issue what browsers get.
        ledger: It records refused requests.
        thread: Its loop starts the server.
    """

    def __init__(
        self,
        http: HttpService,
        server: ServiceServer,
        control: ControlTree,
        credentials: IssuedCredentials,
        ledger: Ledger,
        thread: LoopThread,
    ) -> None:
        self._http = http
        self._server = server
        self._control = control
        self._credentials = credentials
        self._ledger = ledger
        self._thread = thread

    @call("visitor", right=ADMIN, reach=Reach.HEAD)
    def speak_for(self, caller: ServiceCaller, address: str) -> None:
        """Leave the server's connection no rights until it shows the credential of a visitor.

        Args:
            caller: The server.
            address: Where the visitor is; for the ledger.
        """
        self._server.speaks_for(caller, address)

    @call("http.serve", right=ADMIN, reach=Reach.HEAD)
    def serve(
        self, caller: ServiceCaller, path: str, request: bytes, listens: tuple[str, ...] = ()
    ) -> ClientCertificate:
        """Give connections that speak HTTP to the server; return its certificate for browsers.

        Args:
            caller: The server.
            path: The socket at which it takes them.
            request: Its request for a certificate, PEM.
            listens: Where it listens itself, without TLS, ``host:port`` each.
        """
        made = self._http.serve(caller.number, path, request, listens)
        caller.when_gone(partial(self._http.gone, caller.number))
        return made

    @call("http.refused", right=ADMIN, reach=Reach.HEAD)
    def note_refused(self, address: str, reason: str, others: int = 0) -> None:
        """Note that the server has refused a request.

        Args:
            address: Where it came from.
            reason: Why.
            others: How many it has refused besides, since the last report.
        """
        facts = {"address": address, "others": str(others or "")}
        shown = {name: text for name, text in facts.items() if text}
        self._ledger.note("request.refused", reason, facts=shown)

    @call("http.open", right=ADMIN, reach=Reach.HEAD, slow=True)
    def open(self, caller: ServiceCaller, wanted: OpenDashboard) -> Future[DashboardTicket]:
        """Return what lets a browser in, as soon as the server serves.

        Args:
            caller: The caller.
            wanted: What the browser may do.
        """
        issued = self._credentials.issued(
            caller.granted,
            IssueCredential(
                subject=wanted.subject,
                rights=wanted.rights or [CONNECT, OBSERVE],
                lifetime=min(wanted.lifetime, self._credentials.longest),
            ),
        )
        answer: Future[DashboardTicket] = CallerFuture()

        def served(serving: Future[None]) -> None:
            if (error := serving.exception()) is not None:
                answer.set_exception(error)
                return
            ticket, expires = self._http.new_ticket(issued.text)
            answer.set_result(
                DashboardTicket(
                    ticket=ticket,
                    urls=self._http.urls(),
                    expires=expires,
                    credential=issued.facts.id,
                    authority=self._control.authority.certificate,
                )
            )

        when_done(self._thread.call(self._http.serving), served)
        return answer

    @call("http.urls", right=ADMIN, reach=Reach.HEAD)
    def urls(self) -> Future[list[str]]:
        """Start the server if it is not running; return its URLs when it serves.

        Returns:
            First those on this machine without TLS.
        """
        answer: Future[list[str]] = CallerFuture()

        def served(serving: Future[None]) -> None:
            if (error := serving.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(self._http.urls())

        when_done(self._http.serving(), served)
        return answer

    @call("http.redeem", right=ADMIN, reach=Reach.HEAD)
    def redeem(self, ticket: str) -> str:
        """Return the text of the credential behind a ticket, once.

        Args:
            ticket: The ticket.
        """
        return self._http.redeem(ticket)
