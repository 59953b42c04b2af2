"""Addresses of nodes, and the TLS contexts of their credentials.

Certificates name nodes, not machines: whoever connects says which node is meant, and the address
only says where it may be found.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

from sapwood.comm.transport.tls_connection import reason_of
from sapwood.core.errors import CommunicationError, ConfigurationError
from sapwood.core.shown import shown
from sapwood.security.credentials import Credentials

MAX_NODE = 253
"""Characters of a node id: it is a DNS name in certificates."""

_NODE = re.compile(r"(?=.*[a-z])[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


def is_node(text: str) -> bool:
    """Return whether a text can be a node id.

    Example:
        >>> is_node("n1.grove.sapwood"), is_node("10.0.0.1"), is_node("*.sapwood")
        (True, False, False)
    """
    return len(text) <= MAX_NODE and _NODE.fullmatch(text) is not None


def parse_address(address: str) -> tuple[str, list[tuple[str, int]]]:
    """Return node id and endpoints, host and port each, of ``tls://NODEID@host:port,host:port``.

    An endpoint that begins with a slash is a Unix socket, whose other end leads to the node; it has
    port 0 (:func:`socket_endpoint`).

    Raises:
        CommunicationError: It is not written so.

    Example:
        >>> parse_address("n1.grove.sapwood@[::1]:7000,localhost:7001")
        ('n1.grove.sapwood', [('::1', 7000), ('localhost', 7001)])
    """
    node, separator, endpoints = address.removeprefix("tls://").rpartition("@")
    if not separator or not is_node(node.lower()):
        raise CommunicationError(
            "no address of a node", where=address, hint="write tls://NODEID@host:port"
        )
    return node.lower(), [parse_endpoint(endpoint, address) for endpoint in endpoints.split(",")]


def socket_endpoint(path: str) -> str:
    """Return how a Unix socket is written as an endpoint of an address.

    Example:
        >>> endpoint = socket_endpoint("/run/a,b@c/head.sock")
        >>> endpoint, parse_address(f"n1.grove.sapwood@{endpoint}")[1]
        ('/run/a%2Cb%40c/head.sock', [('/run/a,b@c/head.sock', 0)])
    """
    return quote(path)


def parse_endpoint(endpoint: str, address: str) -> tuple[str, int]:
    """Return host and port of one endpoint of an address.

    Raises:
        CommunicationError: It is not written so.
    """
    if endpoint.startswith("/"):
        return unquote(endpoint), 0
    host, separator, port = endpoint.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1
    if bracketed:
        host = host[1:-1]
    if not separator or not host or bracketed != (":" in host) or not 0 <= number < 65536:
        raise CommunicationError(
            f"{shown(endpoint)} is not HOST:PORT",
            where=address,
            hint="write HOST:PORT, such as 0.0.0.0:7700 or [::1]:7700",
        )
    return host, number


def accepting_context(credentials: Credentials) -> ssl.SSLContext:
    """Return a new context for the side that listens.

    Raises:
        ConfigurationError: Certificate, key and authority are not what they should be.
    """
    context = _context(credentials, ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # links are long: no session is resumed, and nothing is left unread
    return context


def connecting_context(credentials: Credentials) -> ssl.SSLContext:
    """Return a new context for the side that connects; it checks the name of the other.

    Raises:
        ConfigurationError: Certificate, key and authority are not what they should be.
    """
    return _context(credentials, ssl.PROTOCOL_TLS_CLIENT)


def _context(credentials: Credentials, protocol: int) -> ssl.SSLContext:
    if not is_node(credentials.node):
        raise ConfigurationError(
            f"{shown(credentials.node)} is not a node id",
            where="TLS credentials",
            hint="a node id is a DNS name with a letter, such as n1.cluster.sapwood",
        )
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = False
    try:
        with memory_file(credentials.certificate + b"\n" + credentials.key) as path:
            context.load_cert_chain(path, password=_refuse_password)
        context.load_verify_locations(cadata=credentials.authority.decode("ascii"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(
            f"cannot use certificate, key and authority: {reason_of(error)}",
            where=f"TLS credentials of {credentials.node}",
            hint="they are PEM, the key is not encrypted and belongs to the certificate",
        ) from error
    return context


def node_of(sock: ssl.SSLSocket) -> str | None:
    """Return the node in a peer's certificate; empty without one, None if it names not just one."""
    certificate = sock.getpeercert()
    if not certificate:
        return ""
    alternatives: Any = certificate.get("subjectAltName", ())
    names = [str(name).lower() for kind, name in alternatives if kind == "DNS"]
    return names[0] if len(names) == 1 and is_node(names[0]) else None


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """Put content where only this process finds it, as long as the block runs: ssl wants a path."""
    fd = os.memfd_create("sapwood-credentials", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _refuse_password() -> str:
    raise ValueError("the key is encrypted")
