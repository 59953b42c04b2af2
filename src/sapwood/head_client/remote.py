"""A client's way to a head on another machine: TLS 1.3 to the head's port, and a credential.

The client has no certificate. It looks whether the head is the one that its credential is for:
the credential has the pin of that cluster's authority. Only then it shows the credential, and that
is to sign what the head has made up: the credential itself stays here.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence

from sapwood.comm.loop import Loop
from sapwood.comm.transport.base import ConnectionHandler, Failed
from sapwood.comm.transport.tls_connection import TlsConnection
from sapwood.comm.transport.tls_identity import parse_address
from sapwood.core import typed
from sapwood.core.errors import CommunicationError, ConfigurationError, SecurityError
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.core.shown import shown
from sapwood.head.folder import find_head
from sapwood.head.protocol import greeting
from sapwood.head_client.connection import SCHEME, ServiceClient, UnixWay, WayToHead
from sapwood.security.authority import HEAD, is_head, pin_of
from sapwood.security.capabilities import Capability, HolderKey

REACH_TIMEOUT = 10.0
"""Seconds in which a head must be reached."""

ADDRESS_TIMEOUT = 1.5
"""Seconds that one of several addresses gets: there may be a head that hangs."""


def addresses_of(address: str) -> list[str]:
    """Return where a head is, of ``sapwood://host:port,host:port``.

    Raises:
        ConfigurationError: It is not written so.

    Example:
        >>> addresses_of("sapwood://10.0.0.5:7700,[::1]:7700")
        ['10.0.0.5:7700', '[::1]:7700']
    """
    addresses = [one for one in address.removeprefix(SCHEME).split(",") if one]
    try:
        for one in addresses:
            parse_address(f"head@{one}")
    except CommunicationError as error:
        raise ConfigurationError(
            error.what, where=address, hint="write sapwood://host:port"
        ) from error
    if not addresses or not address.startswith(SCHEME):
        raise ConfigurationError(
            f"{shown(address)} is not an address of a head", hint="write sapwood://host:port"
        )
    return addresses


class TlsWay:
    """The way to a head on another machine.

    Args:
        addresses: Where it may be, ``host:port`` each; they are tried in turn.
        pin: Of the authority of its cluster.
        cluster: What the user calls the cluster.

    Raises:
        CommunicationError: It is not reached.
    """

    def __init__(self, addresses: Sequence[str], pin: str, cluster: str = DEFAULT_CLUSTER) -> None:
        self.address = ",".join(addresses)
        self.cluster = cluster
        self._pin = pin
        self._socket = self._reach(addresses)
        self.certificate = self._socket.getpeercert(binary_form=True) or b""

    def open(self, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Hand the connection over to a loop."""
        del failed
        TlsConnection(self._socket, handler, loop, HEAD, initiator=True)

    def check(self, found: greeting.Greeting) -> None:
        """Refuse a head that is not the one that the credential is for.

        Raises:
            SecurityError: It is another one.
        """
        own = pin_of(found.authority) == self._pin
        if not own or not is_head(self.certificate, found.authority):
            raise SecurityError(
                "this is not the head that the credential is for",
                where=self.address,
                hint="a different cluster answers at this address; the credential was not sent",
            )

    def _reach(self, addresses: Sequence[str]) -> ssl.SSLSocket:
        end = time.monotonic() + REACH_TIMEOUT
        reasons: list[str] = []
        for address in addresses:
            left = max(end - time.monotonic(), 1.0)
            try:
                return _connected(
                    address, min(left, ADDRESS_TIMEOUT) if len(addresses) > 1 else left
                )
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                reasons.append(f"{address}: {reason}")
        raise CommunicationError(
            "the head cannot be reached",
            where="; ".join(reasons),
            hint="see whether it listens there; on the head's machine "
            f"{command('up', '--listen', addresses[0])} has it do so",
        )


def _connected(address: str, timeout: float) -> ssl.SSLSocket:
    _, ((host, port),) = parse_address(f"head@{address}")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE  # the credential's pin decides, in check()
    tls.set_alpn_protocols([greeting.SERVICE_PROTOCOL])
    raw = socket.create_connection((host, port), timeout)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = tls.wrap_socket(raw)
    except BaseException:
        raw.close()
        raise
    made.settimeout(0)
    return made


def show(
    client: ServiceClient,
    credential: Capability,
    holder: HolderKey | None,
    way: TlsWay | None,
    timeout: float,
) -> greeting.RightsFacts:
    """Show a credential to a head; from now on this connection may do what it allows, no more.

    Args:
        client: The connection.
        credential: The credential.
        holder: The key of its holder, if it names one.
        way: How the head was reached, if that was over TLS.
        timeout: Seconds that the head may take for each answer.

    Returns:
        What it allows.

    Raises:
        SecurityError: The head is another one, or refuses it.
    """
    found = typed.convert(client.call_raw(greeting.GREET, None, timeout), greeting.Greeting)
    if way is not None:
        way.check(found)
    shown = credential.show(found.challenge, greeting.context(found.cluster), holder)
    answer = client.call_raw(greeting.PRESENT, shown, timeout)
    return typed.convert(answer, greeting.RightsFacts)


def way_to(
    name: str, credential: Capability | None, heads: Sequence[str]
) -> tuple[WayToHead, str, str]:
    """Return the way to a head, where it is, and what to do if it does not answer.

    Args:
        name: As users give it.
        credential: What this side may do.
        heads: Where else it may be, as the head of before said.

    Raises:
        NodeLostError: No head runs on this machine.
        CommunicationError: The head of another machine is not reached.
        SecurityError: It is on another machine, and no credential is given.
    """
    if name.startswith(SCHEME):
        if credential is None:
            raise SecurityError(
                "authentication required: a head on another machine needs a credential",
                where=name,
                hint="`sapwood credential issue --role user --cluster NAME` on the head's machine "
                "makes one",
            )
        addresses = list(dict.fromkeys([*addresses_of(name), *heads]))
        return TlsWay(addresses, credential.authority, name), name, "see whether it is up"
    info = find_head(name)
    hint = f"it may have been killed: {command('up', cluster=name)} starts it again"
    return UnixWay(info.socket, name), f"process {info.pid}", hint


def open_client(
    name: str, credential: Capability | None, holder: HolderKey | None, timeout: float
) -> ServiceClient:
    """Connect to a head on another machine for some calls.

    Args:
        name: Its address.
        credential: What this side may do.
        holder: The key of its holder, if it names one.
        timeout: Seconds that the head may take for each answer.

    Raises:
        NodeLostError: No head runs on this machine.
        CommunicationError: It does not answer.
        SecurityError: It refuses the credential.
    """
    way, where, hint = way_to(name, credential, [])
    try:
        client = ServiceClient(way)
    except CommunicationError as error:
        raise CommunicationError(
            f"the head of the cluster '{name}' does not answer", where=where, hint=hint
        ) from error
    if credential is not None:
        try:
            show(client, credential, holder, way if isinstance(way, TlsWay) else None, timeout)
        except BaseException:
            client.close()
            raise
    return client
