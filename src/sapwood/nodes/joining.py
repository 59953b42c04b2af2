"""How a machine becomes a node: it shows a token and gets a certificate and its place.

The machine that joins connects by TLS without a certificate. The head's authority is
told first; the token's pin says whether it is the right one, and only then does the token's secret
leave the machine. Key and certificate request are made on the machine.

::

    node                                   head
      ---- TLS, protocol sapwood-join/2 --->
      <--- JoinGreeting (authority) --------
      ---- JoinRequest (token, request) --->
      <--- JoinAnswer (certificate, place) -   or   JoinRefused (why)
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import msgspec

from sapwood.comm import framing
from sapwood.comm.framing import Buffers, MessageReader, SocketFrames
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls_connection import TlsConnection
from sapwood.comm.transport.tls_identity import connecting_context, node_of, parse_address
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
    StoreError,
)
from sapwood.core.failures import start_thread
from sapwood.core.futures import when_done
from sapwood.environment.settings import RestartSettings
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.authority import BACK_DATED, HEAD, is_head, make_request, pin_of
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import Invitation

JOIN_PROTOCOL = "sapwood-join/2"
"""The name under which the port of a head tells joining from anything else (ALPN)."""

AGENT_PROTOCOL = "sapwood-agent/2"
"""The name under which the root of a session tells processes that want to be agents (ALPN)."""

MAX_MESSAGE = 1 << 20
"""Bytes of one message of this protocol from the head."""

MAX_REQUEST = 64 * 1024
"""Most bytes of messages of an unauthenticated machine."""

MAX_JOINING = 64
"""Machines that may be joining at once; more are turned away and try again."""

JOIN_TURN = 2.0
"""Seconds after which a machine that has not asked yet makes room for another one."""

PATIENCE = 10.0
"""Seconds that a machine may take from its connection to its request."""

JOIN_TIMEOUT = 15.0
"""Seconds that a machine tries to reach the head."""

MAX_ATTEMPT = 10.0
"""Seconds for one attempt at one address."""

ANSWER_TIMEOUT = 2.0
"""Seconds for which a machine tries to reach the head directly if there is another way: as long as
TCP takes to repeat a first packet that was lost."""

STAGGER = 0.1
"""Seconds between the first tries of two addresses."""

FIRST_ATTEMPT = 1.0
"""Seconds for the first attempt at each of several addresses: one of them may belong to a head
that hangs. The next attempt has twice as long, up to :data:`MAX_ATTEMPT`."""

MAX_PAUSE, MAX_PAUSE_OF_SEVERAL = 2.0, 0.5
"""Seconds between two attempts at most; also where there are several addresses: another head may
serve at any moment."""

MAX_FACT = 200
"""Characters of each text that a machine says of itself."""

MAX_ADDRESSES = 64
"""Addresses that a machine may say of itself."""

MAX_CORES = 65_536
"""Cores that a machine may say it has."""

OLDEST_PYTHON = (3, 11)
"""Version of the oldest Python that a machine may have."""

T = TypeVar("T")

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_label(name: str) -> None:
    """Refuse what no node can be called; lists of nodes show it on terminals.

    Raises:
        SecurityError: No node can be called so.
    """
    if _LABEL.fullmatch(name) is None:
        raise SecurityError(
            f"no node can be called {name[:MAX_FACT]!a}",
            hint="give it another name by --as: up to 100 letters, digits, dots, - and _",
        )


def check_facts(facts: NodeFacts) -> None:
    """Refuse what a machine says of itself if that cannot be, or cannot be shown.

    Raises:
        SecurityError: It cannot.
    """
    check_label(facts.name)
    texts = [
        facts.user,
        facts.python,
        facts.architecture,
        facts.c_library,
        facts.boot,
        *facts.addresses,
    ]
    shown = all(len(text) <= MAX_FACT and text.isprintable() for text in texts)
    possible = 1 <= facts.cores <= MAX_CORES and facts.pid > 0 and math.isfinite(facts.clock)
    if not shown or not possible or len(facts.addresses) > MAX_ADDRESSES:
        raise SecurityError("the machine describes itself in a way that is not possible")


def check_python(version: str) -> None:
    """Refuse a Python with which Sapwood does not run.

    Args:
        version: What the machine says of its Python.

    Raises:
        SecurityError: It is too old.
    """
    numbers = tuple(int(one) if one.isdigit() else 0 for one in version.split(".")[:2])
    if numbers < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise SecurityError(
            f"its Python is {version or 'unknown'}, and Sapwood needs {oldest} or newer",
            hint=f"join with a Python {oldest} or newer that has Sapwood",
        )


def check_clock(skew: float, ahead: float) -> None:
    """Refuse a machine to which the certificates of the cluster would not be valid.

    Args:
        skew: Seconds by which its clock is ahead of the head's.
        ahead: By how much it may be.

    Raises:
        SecurityError: Its clock is too far ahead or behind.
    """
    if -BACK_DATED.total_seconds() <= skew <= ahead:
        return
    much = f"{abs(skew) / 3600:.1f} h" if abs(skew) >= 3600 else f"{abs(skew):.0f} s"
    raise SecurityError(
        f"its clock is {much} {'ahead of' if skew > 0 else 'behind'} the head's: "
        "certificates are not valid there",
        hint="set the clock of that machine, for example by `timedatectl set-ntp true`",
    )


class JoinGreeting(msgspec.Struct, frozen=True):
    """The head's authority, PEM."""

    authority: bytes


class JoinRequest(msgspec.Struct, frozen=True):
    """A machine wants to join.

    Attributes:
        token: The whole text of its token; empty for a node that comes again, by its certificate.
        request: Certificate signing request, PEM.
        facts: What it says of itself.
    """

    token: str
    request: bytes
    facts: NodeFacts


class JoinAnswer(msgspec.Struct, frozen=True):
    """A machine is a node now.

    Attributes:
        node: Its node id.
        certificate: PEM.
        rank: Its place in the control tree.
        incarnation: Which process at that place it is.
        configuration: Encoded :class:`~sapwood.session.member.MemberConfiguration` of that tree.
        name: What users call it.
        restart: When its components that die are started again.
        components: Those of other packages that it runs.
        stage_folder: Where it keeps staged files; empty: in the user's cache folder.
        stage_limit: Bytes that these may have; 0: no limit.
    """

    node: str
    certificate: bytes
    rank: int
    incarnation: int
    configuration: bytes
    name: str = ""
    restart: RestartSettings = RestartSettings()
    components: list[str] = []
    stage_folder: str = ""
    stage_limit: int = 0


class AgentPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A process is an agent of a session now.

    Attributes:
        node: Its id in certificates.
        certificate: PEM.
        rank: Its place in the tree of the session.
        configuration: Encoded :class:`~sapwood.session.member.MemberConfiguration` of that tree.
        session: Name of the session.
        plan: What the process imports to begin runners.
        environment: Variables for those.
    """

    node: str
    certificate: bytes
    rank: int
    configuration: bytes
    session: str
    plan: ZygotePlan
    environment: dict[str, str] = {}


class JoinRefused(msgspec.Struct, frozen=True):
    """A machine may not join, and why.

    Attributes:
        reason: Why.
        hint: What to do about it.
        again: Whether it may try again automatically.
    """

    reason: str
    hint: str = ""
    again: bool = False


Answer = TypeVar("Answer", JoinAnswer, AgentPlace)
Told = JoinGreeting | JoinAnswer | AgentPlace | JoinRefused

FROM_MACHINE: Mapping[int, type[JoinRequest]] = {1: JoinRequest}
"""What a machine says, by the kind of its frame."""

FROM_HEAD: Mapping[int, type[Told]] = {
    2: JoinGreeting,
    3: JoinAnswer,
    4: AgentPlace,
    5: JoinRefused,
}
"""What a head or the root of a session says."""

_CODES: Mapping[type[msgspec.Struct], int] = {
    **{kind: code for code, kind in FROM_MACHINE.items()},
    **{kind: code for code, kind in FROM_HEAD.items()},
}


def packed(message: msgspec.Struct) -> Buffers:
    """Return the frame of a message.

    Raises:
        ProtocolError: It is too long.
    """
    return framing.packed(_CODES, message, MAX_MESSAGE)


# --- at the head ----------------------------------------------------------------------------------


class JoinServer:
    """Answers machines that want to join; what the port of a head gives their connections to.

    Args:
        authority: The authority's certificate, PEM.
        admit: Returns the answer to a request, or raises why there is none; given the request,
            the node in the certificate that was shown, and where the machine is. The answer may
            be a future, which is completed on the loop.
        loop: The loop.
    """

    def __init__(
        self,
        authority: bytes,
        admit: Callable[[JoinRequest, str, str], JoinAnswer | AgentPlace | Future[JoinAnswer]],
        loop: Loop,
    ) -> None:
        self._greeting = packed(JoinGreeting(authority))
        self._admit = admit
        self._loop = loop
        self._open: dict[int, tuple[Connection, MessageReader[JoinRequest], Timer]] = {}
        self._came: dict[int, float] = {}  # the first came first
        self._asked: set[int] = set()  # of those that wait for their answer
        self._next = 0

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Greet a machine."""
        del initiator
        self._next += 1
        number = self._next
        self._make_room()
        timer = self._loop.call_later(PATIENCE, self._too_late, number)
        self._open[number] = (connection, MessageReader(FROM_MACHINE, MAX_REQUEST), timer)
        self._came[number] = self._loop.time()
        if len(self._open) > MAX_JOINING:
            self._refuse(number, JoinRefused("too many machines join at once", again=True))
        else:
            connection.write(self._greeting)
        return number

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes of a request in."""
        if number not in self._open:
            return
        connection, reader, _ = self._open[number]
        try:
            requests = reader.feed(data)
        except ProtocolError:
            self._refuse(number, JoinRefused("the request is malformed"))
            return
        if len(requests) > 1 or (requests and not reader.empty) or number in self._asked:
            self._end(number).abort()
            return
        for request in requests:
            self._answer(number, connection, request)

    def _answer(self, number: int, connection: Connection, request: JoinRequest) -> None:
        try:
            address = connection.facts().address if isinstance(connection, TlsConnection) else ""
            answer = self._admit(request, connection.peer, address)
        except SapwoodError as error:
            self._refuse_for(number, error)
            return
        if isinstance(answer, Future):
            self._asked.add(number)
            when_done(answer, partial(self._admitted, number))
        else:
            self._grant(number, answer)

    def _admitted(self, number: int, answer: Future[JoinAnswer]) -> None:
        if number not in self._open:
            return  # the machine did not wait
        error = answer.exception()
        if isinstance(error, SapwoodError):
            self._refuse_for(number, error)
        elif error is None:
            self._grant(number, answer.result())

    def _grant(self, number: int, answer: JoinAnswer | AgentPlace) -> None:
        connection = self._end(number)
        connection.write(packed(answer))
        connection.close()

    def _refuse_for(self, number: int, error: SapwoodError) -> None:
        again = isinstance(error, CommunicationError | StoreError | ClosedError)  # may pass
        self._refuse(number, JoinRefused(error.what, error.hint, again))

    def connection_closed(self, number: int, reason: str) -> None:
        """Forget a machine."""
        del reason
        if number in self._open:
            self._end(number)

    def close(self) -> None:
        """End all connections."""
        for number in list(self._open):
            self._end(number).abort()

    def _make_room(self) -> None:
        """Close the oldest idle connection, so that idle ones do not block others."""
        oldest = next(iter(self._came), 0)
        full = len(self._open) >= MAX_JOINING
        if full and self._loop.time() - self._came[oldest] >= JOIN_TURN:
            self._end(oldest).abort()

    def _refuse(self, number: int, why: JoinRefused) -> None:
        connection = self._end(number)
        connection.write(packed(why))
        connection.close()

    def _too_late(self, number: int) -> None:
        if number in self._open:
            self._end(number).abort()

    def _end(self, number: int) -> Connection:
        connection, _, timer = self._open.pop(number)
        del self._came[number]
        self._asked.discard(number)
        timer.cancel()
        return connection


# --- on the machine -------------------------------------------------------------------------------


OwnKey = tuple[bytes, bytes]
"""The key of a machine that joins, and its request for a certificate, both PEM."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine has when it has joined.

    Attributes:
        answer: Its place.
        credentials: Its certificate and key.
        address: Where it reached the head, ``host:port``.
    """

    answer: JoinAnswer
    credentials: Credentials
    address: str


def join(
    token: Invitation,
    addresses: Sequence[str],
    timeout: float = JOIN_TIMEOUT,
    name: str = "",
    answer: FirstAnswer | None = None,
    failed: Callable[[str], None] = lambda _reason: None,
    own: OwnKey | None = None,
) -> Joined:
    """Join a cluster.

    All attempts show the same key: a head that has admitted this machine, and whose answer was
    lost, admits it again.

    Args:
        token: The token.
        addresses: Where the head may be, ``host:port`` or a Unix socket each; they are tried in
            turn.
        timeout: Seconds to try.
        name: What this node calls itself; empty for the machine's name.
        answer: A connection that there is already, which is tried before all others.
        failed: Told where and why an attempt came to nothing, if there will be another one.
        own: The key of this machine, if it may have asked before; by default a new one.

    Raises:
        SecurityError: The head is not the one that made the token, or it refuses.
        CommunicationError: It cannot be reached.
    """
    attempt = partial(_join_at, token, name, own or make_request())
    if answer is not None and answer.sock is not None:
        with contextlib.suppress(OSError, _ImpostorError):
            return attempt(answer.address, min(timeout, MAX_ATTEMPT), answer.sock)
    return _try_each(addresses, timeout, attempt, failed=failed)


class JoinedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has that has become an agent.

    Attributes:
        place: Its place.
        credentials: Its certificate and key.
        address: Where it reached the root of the session, ``host:port``.
    """

    place: AgentPlace
    credentials: Credentials
    address: str


def join_session(invitation: Invitation, timeout: float = JOIN_TIMEOUT) -> JoinedAgent:
    """Become an agent of a session.

    Args:
        invitation: What its owner has given.
        timeout: Seconds to try.

    Raises:
        SecurityError: What answers is not the session that made the invitation, or it refuses.
        CommunicationError: It cannot be reached.
    """
    own = make_request()

    def attempt(address: str, left: float) -> JoinedAgent:
        with _way_by_pin(AGENT_PROTOCOL, invitation.pin, address, left) as (way, end, found):
            place, credentials = _ask(
                way, end, invitation.text, "", own, found.authority, address, AgentPlace
            )
            return JoinedAgent(place=place, credentials=credentials, address=address)

    return _try_each(invitation.addresses, timeout, attempt, answerer="root of the session")


def join_again(
    credentials: Credentials,
    addresses: Sequence[str],
    timeout: float,
    name: str = "",
    stop: Callable[[], bool] = lambda: False,
) -> Joined:
    """Join a cluster as the node that this machine was before, by its certificate.

    Args:
        credentials: What the node had.
        addresses: Where the head may be, ``host:port`` each; they are tried in turn.
        timeout: Seconds to try.
        name: What this node calls itself; empty for the machine's name.
        stop: Says whether to give up.

    Raises:
        SecurityError: It is another cluster's head, or the node may not come again.
        CommunicationError: The head cannot be reached.
    """
    return _try_each(addresses, timeout, partial(_join_again_at, credentials, name), stop)


class _ImpostorError(Exception):
    """Who answers at an address is not who is wanted; that may be at another one."""

    def __init__(self, address: str, wanted: str) -> None:
        super().__init__(address)
        self.error = SecurityError(
            f"this is not the {wanted}",
            where=address,
            hint="another server answers at this address; the secret was not sent",
        )


class _PutOffError(Exception):
    """The head is there, and wants this machine to try again."""

    def __init__(self, refused: JoinRefused) -> None:
        super().__init__(refused.reason)
        self.reason = refused.reason
        self.hint = refused.hint


def _try_each(
    addresses: Sequence[str],
    timeout: float,
    attempt: Callable[[str, float], T],
    stop: Callable[[], bool] = lambda: False,
    answerer: str = "head",
    failed: Callable[[str], None] = lambda _reason: None,
) -> T:
    """Try one address after the other until one answers, or the time is over."""
    end = time.monotonic() + timeout
    reasons: dict[str, str] = {}
    put_off: SapwoodError | None = None
    impostors: dict[str, SecurityError] = {}
    pause, first = 0.2, True
    several = len(addresses) > 1
    longest, pause_limit = (
        (FIRST_ATTEMPT, MAX_PAUSE_OF_SEVERAL) if several else (MAX_ATTEMPT, MAX_PAUSE)
    )
    while (first or time.monotonic() < end) and not stop():
        first = False
        for address in addresses:
            left = max(1.0, min(end - time.monotonic(), timeout / max(1, len(addresses))))
            try:
                return attempt(address, min(left, longest))
            except _PutOffError as error:
                put_off = CommunicationError(error.reason, where=address, hint=error.hint)
                failed(f"{address}: {error.reason}")
            except _ImpostorError as error:
                impostors[address] = error.error
            except OSError as error:
                reasons[address] = error.strerror or str(error)
                failed(f"{address}: {reasons[address]}")
        if impostors and len(impostors) == len(addresses):
            break
        time.sleep(pause)  # the head may be about to listen
        pause, longest = min(2 * pause, pause_limit), min(2 * longest, MAX_ATTEMPT)
    if put_off is not None:
        raise put_off
    for impostor in impostors.values():
        raise impostor
    raise CommunicationError(
        f"the {answerer} cannot be reached",
        where=", ".join(f"{address}: {reason}" for address, reason in reasons.items()),
        hint="see whether a firewall lets this machine connect to one of these addresses",
    )


def _join_at(
    token: Invitation,
    name: str,
    own: OwnKey,
    address: str,
    timeout: float,
    plain: socket.socket | None = None,
) -> Joined:
    with _way_by_pin(JOIN_PROTOCOL, token.pin, address, timeout, plain) as (way, end, found):
        return _joined(way, end, token.text, name, own, found.authority, address)


_MAKERS = {
    JOIN_PROTOCOL: "head that made the join token",
    AGENT_PROTOCOL: "session that made the invitation",
}
"""Whose the pin is, in words."""


@contextlib.contextmanager
def _way_by_pin(
    protocol: str, pin: str, address: str, timeout: float, plain: socket.socket | None = None
) -> Iterator[tuple[_Way, float, JoinGreeting]]:
    """Be connected to whoever has the authority of a pin; also given: the end of the time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the pin decides, below
    with _reached(context, protocol, address, timeout, None, plain) as (secure, end):
        way = _way(secure)
        greeting = _greeting(way, end)
        certificate = secure.getpeercert(binary_form=True) or b""
        if pin_of(greeting.authority) != pin or not is_head(certificate, greeting.authority):
            raise _ImpostorError(address, _MAKERS[protocol])
        yield way, end, greeting


def _join_again_at(credentials: Credentials, name: str, address: str, timeout: float) -> Joined:
    head = f"{HEAD}.{credentials.node.partition('.')[2]}"
    context = connecting_context(credentials)
    with _reached(context, JOIN_PROTOCOL, address, timeout, head) as (secure, end):
        if node_of(secure) != head:  # the certificate of a server may name several
            raise _ImpostorError(address, "head of the cluster")
        way = _way(secure)
        _greeting(way, end)
        return _joined(way, end, "", name, make_request(), credentials.authority, address)


@contextlib.contextmanager
def _reached(
    context: ssl.SSLContext,
    protocol: str,
    address: str,
    timeout: float,
    head: str | None,
    plain: socket.socket | None = None,
) -> Iterator[tuple[ssl.SSLSocket, float]]:
    """Be connected to a head; also given: when the time is over."""
    context.set_alpn_protocols([protocol])
    end = time.monotonic() + timeout
    with (
        plain or _connected(address, timeout) as found,
        context.wrap_socket(found, server_hostname=head) as secure,
    ):
        if secure.selected_alpn_protocol() != protocol:
            raise ConnectionError(f"{protocol} is not served there")
        yield secure, end


def _connected(address: str, timeout: float) -> socket.socket:
    """Return a connection with what is at an address."""
    _, ((host, port),) = parse_address(f"head@{address}")
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(host)
    except OSError:
        sock.close()
        raise
    return sock


class FirstAnswer:
    """Connects to several addresses side by side: a firewall may drop what goes to one, unheard.

    Each begins a little after the one before, so that most often only one connection is made.

    Args:
        addresses: ``host:port`` each.
        timeout: Seconds to wait for the first that answers.

    Attributes:
        address: The one that answered first; empty if none did.
        sock: The connection; None if none did. The receiver closes it.
    """

    def __init__(self, addresses: Sequence[str], timeout: float = ANSWER_TIMEOUT) -> None:
        self.address = ""
        self.sock: socket.socket | None = None
        self._lock = threading.Lock()
        self._left = len(addresses)
        self._over = threading.Event()
        for number, address in enumerate(addresses):
            work = partial(self._try, address, number * STAGGER, timeout)
            start_thread("sapwood-dial", work)
        if addresses:
            self._over.wait(timeout)
        with self._lock:
            self._over.set()

    def _try(self, address: str, pause: float, timeout: float) -> None:
        sock = None
        if not self._over.wait(pause):
            with contextlib.suppress(OSError, CommunicationError):
                sock = _connected(address, timeout)
        with self._lock:
            self._left -= 1
            if sock is not None and not self._over.is_set():
                self.address, self.sock, sock = address, sock, None
                self._over.set()
            elif not self._left:
                self._over.set()
        if sock is not None:
            sock.close()


_Way = SocketFrames[Told]


def _way(secure: ssl.SSLSocket) -> _Way:
    return SocketFrames(secure, MessageReader(FROM_HEAD, MAX_MESSAGE))


def _greeting(way: _Way, end: float) -> JoinGreeting:
    greeting = _read(way, end)
    if isinstance(greeting, JoinRefused) and greeting.again:
        raise _PutOffError(greeting)
    if not isinstance(greeting, JoinGreeting):
        raise SecurityError("the server that answers is not a head of Sapwood")
    return greeting


def _joined(
    way: _Way,
    end: float,
    token: str,
    name: str,
    own: OwnKey,
    authority: bytes,
    address: str,
) -> Joined:
    answer, credentials = _ask(way, end, token, name, own, authority, address, JoinAnswer)
    return Joined(answer=answer, credentials=credentials, address=address)


def _ask(
    way: _Way,
    end: float,
    token: str,
    name: str,
    own: OwnKey,
    authority: bytes,
    address: str,
    kind: type[Answer],
) -> tuple[Answer, Credentials]:
    """Ask the head, who is known by now, or the root of a session."""
    key, request = own
    way.send(packed(JoinRequest(token, request, NodeFacts.here(name))))
    answer = _read(way, end)
    if isinstance(answer, JoinRefused):
        if answer.again:
            raise _PutOffError(answer)
        raise SecurityError(answer.reason, where=address, hint=answer.hint)
    if not isinstance(answer, kind):
        raise SecurityError("the head gave no answer", where=address)
    credentials = Credentials(
        node=answer.node,
        certificate=answer.certificate,
        key=key,
        authority=authority,
    )
    return answer, credentials


def _read(way: _Way, end: float) -> Told:
    try:
        return way.receive(end)
    except ProtocolError as error:
        raise SecurityError(
            "the server that answers is not a head of Sapwood", hint=error.hint
        ) from error
