from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.comm.transport.tcp import TcpTransport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import CommunicationError, ConfigurationError
from sapwood.testing.transports import (
    CHECKS,
    Check,
    End,
    Setting,
    notices_an_abort,
    takes_nobody_in_after_it_listens_no_more,
)

HOST = f"127.{1 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}.0.1"
"""An address of this machine that no other test uses at the same time, nor who connects."""


def free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def contexts(
    authority: trustme.CA, trusted: trustme.CA | None = None
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a member: its certificate by one authority, its trust in another."""
    made = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        authority.issue_cert(HOST).configure_cert(context)
        (trusted or authority).configure_trust(context)
        made.append(context)
    return made[0], made[1]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["unix", "tcp"])
def setting(request: pytest.FixtureRequest, tmp_path: Path, authority: trustme.CA) -> Setting:
    if request.param == "unix":
        numbers = iter(range(100))
        return Setting(UnixTransport(), lambda: str(tmp_path / f"{next(numbers)}.sock"))
    return Setting(TcpTransport(*contexts(authority)), lambda: f"{HOST}:{free_port()}")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_conformance(check: Check, setting: Setting, loop: Any) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_call(check, setting))


async def _call(check: Check, setting: Setting) -> None:
    await check(setting)


class TellsTwice(End):
    """Hears of each end twice, as from a transport that tells it so."""

    def connection_closed(self, number: int, reason: str) -> None:
        super().connection_closed(number, reason)
        super().connection_closed(number, reason)


class NeverStops(UnixTransport):
    """Accepts connections for ever."""

    async def listen(self, address: str, handler: ConnectionHandler) -> Listener:
        self.listener = await super().listen(address, handler)
        return Unclosable()


class Unclosable:
    """A listener that cannot be closed."""

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.row("A-ACT-5")
def test_the_checks_find_a_listener_that_goes_on(tmp_path: Path) -> None:
    transport = NeverStops()
    setting = Setting(transport, lambda: str(tmp_path / "a.sock"))

    async def check() -> None:
        with pytest.raises(AssertionError, match="still accepts"):
            await takes_nobody_in_after_it_listens_no_more(setting)
        transport.listener.close()

    asyncio.run(check())


@pytest.mark.row("A-ACT-5")
def test_the_checks_find_an_end_that_is_told_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.testing.transports.End", TellsTwice)
    setting = Setting(UnixTransport(), lambda: str(tmp_path / "a.sock"))
    with pytest.raises(AssertionError, match="told twice"):
        asyncio.run(_call(notices_an_abort, setting))


def test_a_stranger_is_refused(authority: trustme.CA) -> None:
    """A peer whose certificate another authority signed gets no message through."""
    stranger = TcpTransport(*contexts(trustme.CA(), trusted=authority))
    member = TcpTransport(*contexts(authority))

    async def meet() -> None:
        inside, outside = End(), End()
        address = f"{HOST}:{free_port()}"
        listener = await member.listen(address, inside)
        try:
            await stranger.connect(address, outside)
        except CommunicationError:
            pass
        else:  # in TLS 1.3 the side that connects learns of the refusal after its handshake
            outside.connections[0].write([b"let me in"])
            await outside.until(lambda: outside.closed[0] is not None)
        listener.close()
        assert not any(inside.received)

    asyncio.run(meet())


def test_without_a_certificate_nobody_gets_in(authority: trustme.CA) -> None:
    member = TcpTransport(*contexts(authority))
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.minimum_version = ssl.TLSVersion.TLSv1_3
    authority.configure_trust(anonymous)
    nobody = TcpTransport(contexts(authority)[0], anonymous)

    async def meet() -> None:
        inside, outside = End(), End()
        address = f"{HOST}:{free_port()}"
        listener = await member.listen(address, inside)
        try:
            await nobody.connect(address, outside)
        except CommunicationError:
            pass
        else:
            outside.connections[0].write([b"let me in"])
            await outside.until(lambda: outside.closed[0] is not None)
        listener.close()
        assert not any(inside.received)

    asyncio.run(meet())


def test_a_context_that_checks_nothing_is_refused(authority: trustme.CA) -> None:
    good = contexts(authority)
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ConfigurationError, match="does not check"):
        TcpTransport(careless, good[1])
    old = contexts(authority)[0]
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ConfigurationError, match=r"less than TLS 1\.3"):
        TcpTransport(old, good[1])


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_what_is_no_address_is_said(authority: trustme.CA, address: str) -> None:
    transport = TcpTransport(*contexts(authority))
    with pytest.raises(CommunicationError, match="no address"):
        asyncio.run(transport.connect(address, End()))
