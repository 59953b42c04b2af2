"""Calls to a cluster of etcd: HTTP with JSON, over several endpoints, each within a bounded time.

etcd serves its API as JSON on the port of its clients (its *gateway*). All calls made here may be
repeated without harm, so a call goes to the next member when one does not answer.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import ssl
import threading
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from sapwood.core import typed
from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    HistoryGoneError,
    LeaseLostError,
    SapwoodError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from sapwood.core.suggest import suggest

MEMBER_TIME: Final = 2.0
"""Seconds that one member gets to answer, before the next one is asked."""

CALL_TIME: Final = 15.0
"""Seconds that a call has in all."""

PAUSE: Final = 0.1
"""Seconds between two rounds through the members."""

MAX_ANSWER: Final = 16 * 2**20
"""Bytes of an answer."""

MAX_ENDPOINTS: Final = 32
"""Endpoints of an address."""

IDLE_CONNECTIONS: Final = 4
"""Connections that wait for the next call, for each endpoint."""

DEFAULT_PORT: Final = 2379

DEFAULT_NAME: Final = "sapwood"
"""Below which keys of etcd a store lies if its address does not say."""

OLDEST: Final = (3, 4)
"""The first version with this form of the API."""

_OPTIONS: Final = ("ca", "cert", "key")

_MAX_NAME: Final = 128

# Codes of gRPC, as the gateway tells them.
_NOT_FOUND, _EXHAUSTED, _OUT_OF_RANGE = 5, 8, 11
_DENIED, _UNAUTHENTICATED = 7, 16
_AGAIN: Final = frozenset({1, 4, 10, 13, 14})  # canceled, late, aborted, internal, unavailable

_T = TypeVar("_T")

Endpoint = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class EtcdAddress:
    """Where a store in etcd is.

    Attributes:
        endpoints: Host and port of members.
        name: Below which keys the store lies.
        tls: Whether connections are TLS.
        ca: File with the certificates that members are checked with; empty for the system's.
        cert: File with the certificate that this client shows; empty for none.
        key: File with its key; empty if it is in ``cert``.
    """

    endpoints: tuple[Endpoint, ...]
    name: str = DEFAULT_NAME
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __str__(self) -> str:
        hosts = ",".join(endpoint_text(endpoint) for endpoint in self.endpoints)
        return f"{'etcds' if self.tls else 'etcd'}://{hosts}/{self.name}"

    @classmethod
    def parse(cls, address: str) -> EtcdAddress:
        """Return the address of a text.

        Raises:
            ConfigurationError: It is none.

        Example:
            >>> EtcdAddress.parse("etcd://n1,n2:3379/mine").endpoints
            (('n1', 2379), ('n2', 3379))
        """
        parts = urlsplit(address)
        if parts.scheme not in ("etcd", "etcds") or parts.fragment or "@" in parts.netloc:
            raise _wrong(address, "it has a user, a fragment or another scheme")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        for option in options:
            if option not in _OPTIONS:
                raise _wrong(address, f"it has no option '{option}'", suggest(option, _OPTIONS))
        tls = parts.scheme == "etcds"
        if options and not tls:
            raise _wrong(address, "it has files of TLS", "write etcds:// for TLS")
        if options.get("key") and not options.get("cert"):
            raise _wrong(address, "it has a key without a certificate", "add cert=FILE")
        endpoints = tuple(
            dict.fromkeys(_endpoint(text, address) for text in parts.netloc.split(","))
        )
        if len(endpoints) > MAX_ENDPOINTS:
            raise _wrong(address, f"it has more than {MAX_ENDPOINTS} endpoints")
        name = unquote(parts.path).strip("/") or DEFAULT_NAME
        if len(name.encode()) > _MAX_NAME or not name.isprintable():
            raise _wrong(address, "its name is too long or has control characters")
        return cls(endpoints, name, tls, **options)

    def context(self) -> ssl.SSLContext | None:
        """Return how TLS is spoken; None without.

        Raises:
            ConfigurationError: A file cannot be read or is not a certificate.
        """
        if not self.tls:
            return None
        files = [file for file in (self.ca, self.cert, self.key) if file]
        for file in files:
            if not Path(file).is_file():
                raise ConfigurationError("a file of TLS is not there", where=file)
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"the files of TLS do not fit: {error}",
                where=", ".join(files),
                hint="they hold certificates and a key in PEM, and the key is the certificate's",
            ) from error
        return context


def _endpoint(text: str, address: str) -> Endpoint:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise _wrong(address, f"'{text}' is not HOST:PORT") from None
    if not parts.hostname:
        raise _wrong(address, "an endpoint has no host")
    return parts.hostname, port or DEFAULT_PORT


def _wrong(address: str, reason: str, hint: str = "") -> ConfigurationError:
    scheme, _, rest = address.rpartition("@")[2].rpartition("://")  # without a password
    return ConfigurationError(
        f"not the address of a store in etcd: {reason}",
        where=f"{scheme or 'etcd'}://{rest}",
        hint=hint or "write etcd://host:2379,host:2379/name",
    )


def endpoint_text(endpoint: Endpoint) -> str:
    """Return host and port as in an address."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Header(msgspec.Struct):
    """What every answer begins with: the revision of etcd."""

    revision: int = 0


class KeyValue(msgspec.Struct):
    """A key of etcd."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeAnswer(msgspec.Struct):
    """Keys in order."""

    header: Header = msgspec.field(default_factory=Header)
    kvs: list[KeyValue] = []
    more: bool = False


class EtcdStep(msgspec.Struct):
    """The answer to one step of a transaction."""

    response_range: RangeAnswer | None = None


class TransactionAnswer(msgspec.Struct):
    """Whether the conditions held, and what the branch taken says."""

    header: Header
    succeeded: bool = False
    responses: list[EtcdStep] = []


class GrantAnswer(msgspec.Struct):
    """A lease of etcd."""

    ID: int = 0
    TTL: int = 0
    error: str = ""


class KeepAliveAnswer(msgspec.Struct):
    """A lease that was kept alive, or, without a time, one that is gone."""

    result: GrantAnswer


class RevokeAnswer(msgspec.Struct):
    """A lease is over."""

    header: Header = msgspec.field(default_factory=Header)


class VersionAnswer(msgspec.Struct):
    """What ``/version`` says."""

    etcdserver: str


class EtcdRefusal(msgspec.Struct):
    """An error of the API."""

    message: str = ""
    code: int = 0


class TooLargeError(Exception):
    """An answer is longer than :data:`MAX_ANSWER`."""


class _TryNextError(Exception):
    """This member cannot answer now.

    Attributes:
        done: Whether it may have done what was asked.
    """

    def __init__(self, reason: str, *, done: bool) -> None:
        super().__init__(reason)
        self.done = done


@dataclasses.dataclass(frozen=True, slots=True)
class EtcdAnswer:
    """What a member said.

    Attributes:
        body: The answer's bytes.
        repeated: Whether another attempt may have been carried out before, or may be later.
    """

    body: bytes
    repeated: bool

    def read(self, kind: type[_T]) -> _T:
        """Return the answer as a structure.

        Raises:
            StoreError: It is something else.
        """
        return decoded(self.body, kind)


def decoded(body: bytes, kind: type[_T]) -> _T:
    """Return JSON of the gateway as a structure; it writes long integers as text.

    Raises:
        StoreError: It is something else.
    """
    try:
        return typed.json_reader(kind, strict=False)(body)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"the server that answers is not etcd: {error}",
            hint="look at host and port of the store",
            details={"answer": body[:500].decode(errors="replace")},
        ) from error


def text_of(data: bytes) -> str:
    """Return bytes as they are written in JSON."""
    return base64.b64encode(data).decode("ascii")


class Members:
    """The members of a cluster of etcd, of which one answers.

    Args:
        address: Where they are.
        patience: Seconds that one member gets to answer.

    Raises:
        ConfigurationError: The files of TLS cannot be used.
    """

    def __init__(self, address: EtcdAddress, patience: float = MEMBER_TIME) -> None:
        self.address = address
        self._patience = patience
        self.context = address.context()
        self.closing = threading.Event()
        self._guard = threading.Lock()
        self._idle: dict[Endpoint, list[http.client.HTTPConnection]] = {}
        self._current = 0
        self._heard: dict[Endpoint, float] = {}

    @property
    def current(self) -> Endpoint:
        """The member that is asked first."""
        return self.address.endpoints[self._current]

    def leave(self, endpoint: Endpoint) -> None:
        """Ask another member first, if it was this one."""
        with self._guard:
            if self.current == endpoint:
                self._current = (self._current + 1) % len(self.address.endpoints)

    def silent_for(self, endpoint: Endpoint) -> float:
        """Return the seconds since a member answered a call."""
        return MonotonicClock().now() - self._heard.get(endpoint, float("-inf"))

    def check_version(self) -> None:
        """See that what answers is an etcd of this API.

        Raises:
            StoreUnavailableError: None answers.
            StoreError: It is something else, or too old.
        """
        found = self.call("/version", None).read(VersionAnswer).etcdserver
        major, _, rest = found.partition(".")
        minor = rest.partition(".")[0]
        if not (major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= OLDEST):
            raise StoreError(
                f"etcd has version {found}",
                where=str(self.address),
                hint=f"stores need {OLDEST[0]}.{OLDEST[1]} or newer",
            )

    def call(self, path: str, body: dict[str, Any] | None) -> EtcdAnswer:
        """Return the answer of the first member that has one.

        Args:
            path: Path of the call, for example ``/v3/kv/range``.
            body: The request; None for a ``GET``.

        Raises:
            StoreUnavailableError: None answered within :data:`CALL_TIME`.
            StoreError: A member refused; or one of its kinds.
            TooLargeError: The answer is too long.
        """
        clock = MonotonicClock()
        deadline = clock.now() + CALL_TIME
        reasons: dict[str, str] = {}
        repeated = False
        while True:
            for _ in self.address.endpoints:
                if self.closing.is_set():
                    raise ClosedError("the store is closed", where=str(self.address))
                endpoint = self.current
                left = deadline - clock.now()
                if left <= 0:
                    break
                try:
                    return EtcdAnswer(
                        self.ask(endpoint, path, body, min(self._patience, left)), repeated
                    )
                except _TryNextError as reason:
                    reasons[endpoint_text(endpoint)] = str(reason)
                    repeated = repeated or reason.done
                    self.leave(endpoint)
            if clock.now() >= deadline:
                raise StoreUnavailableError(
                    f"no member of etcd answered in {CALL_TIME:.0f} s",
                    where=str(self.address),
                    hint="look whether most members run and this machine reaches one of them",
                    details={"members": "\n".join(f"{e}: {why}" for e, why in reasons.items())},
                )
            self.closing.wait(PAUSE)

    def once(self, path: str, body: dict[str, Any]) -> None:
        """Ask the current member only, and do without its answer if there is none."""
        with contextlib.suppress(_TryNextError, SapwoodError, TooLargeError):
            self.ask(self.current, path, body, self._patience)

    def answers(self, endpoint: Endpoint) -> bool:
        """Return whether a member answers and is in touch with most others."""
        probe = {"key": text_of(b"\0"), "count_only": True}
        try:
            self.ask(endpoint, "/v3/kv/range", probe, MEMBER_TIME)
        except (_TryNextError, SapwoodError):
            return False
        return True

    def ask(
        self, endpoint: Endpoint, path: str, body: dict[str, Any] | None, seconds: float
    ) -> bytes:
        """Return what one member answers.

        Raises:
            StoreError: It refused.
            TooLargeError: The answer is too long.
        """
        while True:
            connection, used = self._connection(endpoint)
            connection.timeout = seconds
            sent = False
            try:
                if connection.sock is None:
                    connection.connect()
                connection.sock.settimeout(seconds)
                sent = True
                if body is None:
                    connection.request("GET", path)
                else:
                    connection.request("POST", path, msgspec.json.encode(body))
                response = connection.getresponse()
                answer = response.read(MAX_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if used and not isinstance(error, TimeoutError):
                    continue  # it had been closed while idle
                reason = str(error) or type(error).__name__
                raise _TryNextError(reason, done=sent) from error
            if len(answer) > MAX_ANSWER:
                connection.close()
                raise TooLargeError
            self._give_back(endpoint, connection)
            if response.status != http.HTTPStatus.OK:
                raise self._refused(endpoint, response.status, answer)
            self._heard[endpoint] = MonotonicClock().now()
            return answer

    def _refused(self, endpoint: Endpoint, status: int, answer: bytes) -> Exception:
        try:
            refusal = typed.json_reader(EtcdRefusal)(answer)
        except msgspec.MsgspecError:
            if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
                return _TryNextError(f"HTTP {status}", done=True)
            return StoreError(
                f"the server that answers is not etcd: HTTP {status}",
                where=endpoint_text(endpoint),
                hint="look at host and port of the store",
            )
        if refusal.code in _AGAIN or "too many requests" in refusal.message:
            return _TryNextError(refusal.message, done=True)
        return refused(refusal, str(self.address))

    def _connection(self, endpoint: Endpoint) -> tuple[http.client.HTTPConnection, bool]:
        with self._guard:
            idle = self._idle.get(endpoint)
            if idle:
                return idle.pop(), True
        host, port = endpoint
        if self.context:
            return http.client.HTTPSConnection(host, port, context=self.context), False
        return http.client.HTTPConnection(host, port), False

    def _give_back(self, endpoint: Endpoint, connection: http.client.HTTPConnection) -> None:
        with self._guard:
            idle = self._idle.setdefault(endpoint, [])
            if len(idle) < IDLE_CONNECTIONS and not self.closing.is_set():
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Let go of all connections; calls that run end with an error."""
        self.closing.set()
        with self._guard:
            for connections in self._idle.values():
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.close()
            self._idle.clear()


def refused(refusal: EtcdRefusal, where: str) -> StoreError:
    """Return the error that a refusal of etcd means."""
    text = refusal.message.removeprefix("etcdserver: ")
    if refusal.code == _NOT_FOUND and "lease" in text:
        return LeaseLostError(
            "a lease of the store is over",
            where=where,
            hint="grant another one and write its keys again",
        )
    if refusal.code == _EXHAUSTED:
        return StoreFullError(
            f"etcd is full: {text}; nothing was written",
            where=where,
            hint="compact and defragment it and disarm its alarm, or raise its quota",
        )
    if refusal.code == _OUT_OF_RANGE:
        return HistoryGoneError(
            f"the store keeps these changes no more: {text}",
            where=where,
            hint="read all keys again, and watch from the revision of that",
        )
    hint = "look at the version and the settings of etcd"
    if refusal.code in (_DENIED, _UNAUTHENTICATED):
        hint = "etcd must take this client without a password: by its certificate"
    return StoreError(f"etcd refused: {text or refusal.code}", where=where, hint=hint)


def already_there(refusal: StoreError) -> bool:
    """Return whether a lease was refused because one of its number exists."""
    return "lease already exists" in refusal.what
