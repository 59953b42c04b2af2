"""Serving lizard-slayer's API at a port, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette

from sapwood.errors import ConfigurationError, ResourceError
from sapwood.plugins.http import HttpLimits, HttpServer
from sapwood.plugins.peers import is_loopback
from sapwood.plugins.tools import logger
from sapwood_lizard.api import MAX_BODY

LIMITS: Final = HttpLimits(body_bytes=MAX_BODY, body_seconds=600.0, requests=64)
"""Bounds of a server: datasets are large, and come by slow lines."""

BACKLOG: Final = 128
"""Connections that may wait to be accepted."""

PAUSE: Final = 0.1
"""Seconds until another connection is accepted when this process has no room for one."""


class Place:
    """Where a server listens.

    Args:
        host: An address of this machine.
        port: 0 for a free one.
        token: Whether there is a token.
        certificate: File of the certificate, with those above it; None for no TLS.
        key: File of its key.

    Raises:
        ConfigurationError: Other machines would reach it without TLS and a token.
        ResourceError: The port is taken.
    """

    def __init__(
        self, host: str, port: int, *, token: bool, certificate: Path | None, key: Path | None
    ) -> None:
        if (certificate is None) != (key is None):
            raise ConfigurationError(
                "a certificate and its key belong together",
                hint="give both: --certificate FILE --key FILE",
            )
        if not is_loopback(host) and (certificate is None or not token):
            lacking = " and ".join(
                what
                for what, there in (("TLS", certificate is not None), ("a token", token))
                if not there
            )
            raise ConfigurationError(
                f"other machines would reach this server without {lacking}",
                where=f"--host {host}",
                hint="give --token FILE --certificate FILE --key FILE, or leave out --host; make "
                "them: (umask 077; openssl rand -hex 32 > token; openssl req -x509 -newkey "
                "ed25519 -nodes -days 365 -subj /CN=lizard -addext subjectAltName=DNS:NAME "
                "-keyout key.pem -out certificate.pem)",
            )
        self.context = None if certificate is None or key is None else _serving(certificate, key)
        self._token = token
        self.socket = _listening(host, port)
        self.port: int = self.socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if self.context is None else 'https'}://{shown}:{self.port}"

    def is_own_host(self, name: str) -> bool:
        """Return whether requests may name a host; any, where they must have the token."""
        return self._token or is_loopback(name)

    def close(self) -> None:
        """Listen no more."""
        self.socket.close()


def serve(
    application: Starlette,
    place: Place,
    *,
    ready: Callable[[Callable[[], None]], None],
    beside: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until Ctrl-C, SIGTERM, or a call of the function that ``ready`` receives.

    Args:
        application: The application that answers.
        place: Where; it is closed afterwards.
        ready: Called with a function that ends this, as soon as it serves; for any thread.
        beside: Runs meanwhile; when it ends, so does this.
    """
    with contextlib.closing(place):
        asyncio.run(_serve(application, place, ready, beside))


async def _serve(
    application: Starlette,
    place: Place,
    ready: Callable[[Callable[[], None]], None],
    beside: Callable[[], Awaitable[None]] | None,
) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def end() -> None:
        with contextlib.suppress(RuntimeError):  # it has ended, and so has the loop
            loop.call_soon_threadsafe(ended.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    server = HttpServer(application, place.is_own_host, LIMITS, _refused)
    tasks = [loop.create_task(_accept(server, place)), loop.create_task(_wait(ended))]
    if beside is not None:
        tasks.append(asyncio.ensure_future(_run(beside)))
    try:
        ready(end)
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.close()


async def _run(beside: Callable[[], Awaitable[None]]) -> None:
    await beside()


async def _wait(ended: asyncio.Event) -> None:
    await ended.wait()


async def _accept(server: HttpServer, place: Place) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, peer = await loop.sock_accept(place.socket)
        except OSError as error:
            _log.warning("a connection is not accepted", error=str(error))
            await asyncio.sleep(PAUSE)
            continue
        server.take(sock, place.context, f"{peer[0]}:{peer[1]}")


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        made = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise ResourceError(
            f"cannot listen: {error.strerror}",
            where=f"{host}:{port}",
            hint="take another port: --port 0 takes a free one",
        ) from error
    made.setblocking(False)  # noqa: FBT003 - the name of the call says it
    return made


def _serving(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"certificate and key cannot be used: {error}", where=f"{certificate}, {key}"
        ) from error
    return context


def _no_password() -> str:
    raise ssl.SSLError("the key has a password")


def _refused(address: str, reason: str) -> None:
    _log.warning("a client was turned away", peer=address, reason=reason)


_log = logger("lizard")
