"""All transports against the conformance suite on all loops, and the suite against bad ones."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme
import uvloop

from sapwood.comm.loop import Loop
from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.base import ConnectionHandler, Failed, Listener, Transport
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.security.credentials import Credentials
from sapwood.testing.transports import (
    CHECKS,
    Check,
    End,
    Setting,
    connect,
    notices_an_abort,
    takes_nobody_in_after_it_listens_no_more,
)

HOST = f"127.{1 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}.0.1"
"""An address of this machine that no other test uses at the same time, nor who connects."""

MakeSetting = Callable[[Transport, Callable[[], str]], Setting]


@pytest.fixture(scope="module")
def tls() -> TlsTransport:
    authority = trustme.CA()
    issued = authority.issue_cert("n1.grove.sapwood")
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    key, believed = issued.private_key_pem.bytes(), authority.cert_pem.bytes()
    return TlsTransport(Credentials("n1.grove.sapwood", chain, key, believed), "sapwood-tree/a")


@pytest.fixture(params=["reactor", "asyncio", "uvloop"])
def make_setting(request: pytest.FixtureRequest) -> Iterator[MakeSetting]:
    if request.param == "reactor":
        with closing(Reactor()) as reactor:
            yield lambda transport, new: Setting(transport, new, reactor, reactor.run)
        return
    make = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
    with closing(make()) as loop:
        yield lambda transport, new: Setting(transport, new, loop, loop.run_forever)


@pytest.fixture
def new_path(tmp_path: Path) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: str(tmp_path / f"{next(numbers)}.sock")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["unix", "tls"])
def test_conformance(
    check: Check,
    kind: str,
    make_setting: MakeSetting,
    tls: TlsTransport,
    new_path: Callable[[], str],
) -> None:
    if kind == "unix":
        check(make_setting(UnixTransport(), new_path))
    else:
        check(make_setting(tls, lambda: f"{HOST}:0"))


class TellsTwice(End):
    """Hears of each end twice, as from a transport that tells it so."""

    def connection_closed(self, number: int, reason: str) -> None:
        super().connection_closed(number, reason)
        super().connection_closed(number, reason)


class NeverStops(UnixTransport):
    """Accepts connections for ever."""

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        self.listener = super().listen(address, handler, loop)
        return Unclosable(address)


class Unclosable:
    """A listener that cannot be closed."""

    def __init__(self, address: str) -> None:
        self.address = address

    def close(self) -> None:
        """Do nothing."""


class Hasty(UnixTransport):
    """Tells failures before it returns."""

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        super().connect(address, handler, Now(loop), failed)


class Now:
    """A loop that calls at once what is to be called soon."""

    def __init__(self, loop: Loop) -> None:
        self.time, self.call_later = loop.time, loop.call_later
        self.add_reader, self.remove_reader = loop.add_reader, loop.remove_reader
        self.add_writer, self.remove_writer = loop.add_writer, loop.remove_writer

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)


@pytest.mark.row("A-ACT-5")
def test_the_checks_find_a_listener_that_goes_on(new_path: Callable[[], str]) -> None:
    transport = NeverStops()
    with closing(Reactor()) as loop:
        setting = Setting(transport, new_path, loop, loop.run)
        with pytest.raises(AssertionError, match="still accepts"):
            takes_nobody_in_after_it_listens_no_more(setting)
        transport.listener.close()


@pytest.mark.row("A-ACT-5")
def test_the_checks_find_an_end_that_is_told_twice(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.testing.transports.End", TellsTwice)
    with closing(Reactor()) as loop, pytest.raises(AssertionError, match="reported twice"):
        notices_an_abort(Setting(UnixTransport(), new_path, loop, loop.run))


@pytest.mark.row("A-ACT-5")
def test_the_checks_find_calls_that_come_too_early(new_path: Callable[[], str]) -> None:
    with closing(Reactor()) as loop, pytest.raises(AssertionError, match="before `connect` ended"):
        connect(Setting(Hasty(), new_path, loop, loop.run), new_path(), End())
