"""TCP with mutual TLS 1.3: for processes on different machines.

There is no TCP without TLS here: nothing listens for peers that show no certificate. Where the
certificates come from is not this module's business; it is handed two contexts.
"""

import asyncio
import ssl

from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.comm.transport.stream_socket import StreamSocket
from sapwood.core.errors import CommunicationError, ConfigurationError

BACKLOG = 1024
"""Connections that may wait to be accepted."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a TLS handshake may take."""


class TcpTransport:
    """Connects machines; the address is ``host:port``, an IPv6 host in brackets.

    Args:
        accepting: Context of the side that listens; it must ask for a certificate.
        connecting: Context of the side that connects; it must check the other's.

    Raises:
        ConfigurationError: A context does not check its peer, or allows less than TLS 1.3.
    """

    def __init__(self, accepting: ssl.SSLContext, connecting: ssl.SSLContext) -> None:
        for name, context in (("accepting", accepting), ("connecting", connecting)):
            if context.verify_mode is not ssl.CERT_REQUIRED:
                raise ConfigurationError(
                    f"the {name} TLS context does not check its peer's certificate",
                    hint="set verify_mode to ssl.CERT_REQUIRED",
                )
            if context.minimum_version < ssl.TLSVersion.TLSv1_3:
                raise ConfigurationError(
                    f"the {name} TLS context allows less than TLS 1.3",
                    hint="set minimum_version to ssl.TLSVersion.TLSv1_3",
                )
        self._accepting = accepting
        self._connecting = connecting

    async def listen(self, address: str, handler: ConnectionHandler) -> Listener:
        """Accept connections; port 0 takes a free one.

        Raises:
            CommunicationError: The address is malformed or cannot be used.
        """
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: StreamSocket(handler, initiator=False),
                host,
                port,
                ssl=self._accepting,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
                backlog=BACKLOG,
            )
        except OSError as error:
            raise CommunicationError(f"cannot listen: {error.strerror}", where=address) from error
        return server

    async def connect(self, address: str, handler: ConnectionHandler) -> None:
        """Connect to a listener.

        Raises:
            CommunicationError: Nobody listens there, or one side refuses the other's certificate.
        """
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(
                lambda: StreamSocket(handler, initiator=True),
                host,
                port,
                ssl=self._connecting,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CommunicationError(f"cannot connect: {reason}", where=address) from error


def split_address(address: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        CommunicationError: The address is no ``host:port``.

    Example:
        >>> split_address("[::1]:7000")
        ('::1', 7000)
    """
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise CommunicationError("no address", where=address, hint="write host:port")
    return host, int(port)
