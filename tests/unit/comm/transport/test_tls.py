"""TLS on the loop: who gets in, who does not, and that bytes arrive whole whatever happens."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm.driver import NodeDriver, reconnect
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.node import Node
from sapwood.comm.reactor import Reactor
from sapwood.comm.transport import tls_connection, tls_port
from sapwood.comm.transport.base import DescribedConnection
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.tls_connection import TlsConnection
from sapwood.comm.transport.tls_identity import (
    accepting_context,
    connecting_context,
    is_node,
    parse_address,
    socket_endpoint,
)
from sapwood.comm.transport.tls_port import TlsPort
from sapwood.core.errors import CommunicationError, ConfigurationError
from sapwood.core.topology import flat
from sapwood.security.credentials import Credentials
from sapwood.testing.transports import End, Pair, Setting
from sapwood.testing.transports import connect as connect_end

HOST = f"127.{1 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}.0.2"
"""An address of this machine that no other test uses at the same time, nor who connects."""

ROOT, LEAF = "root.grove.sapwood", "leaf.grove.sapwood"
TREE, JOIN = "sapwood-tree/grove", "sapwood-join"

Authority = Any
"""Makes credentials; see conftest.py."""


class Port:
    """A port at work, with what it says of those whom it refuses."""

    def __init__(self, loop: Reactor, credentials: Credentials, **options: Any) -> None:
        self.loop = loop
        self.refusals: list[tuple[str, str]] = []
        self.end = End()
        self.port = TlsPort(f"{HOST}:0", loop, credentials, refused=self._refused, **options)
        self.listener = self.port.serve(TREE, self.end)
        self.setting = Setting(None, str, loop, loop.run)  # type: ignore[arg-type]  # nothing is connected by it
        self.until = self.setting.until

    def _refused(self, address: str, reason: str) -> None:
        self.refusals.append((address, reason))

    @property
    def place(self) -> tuple[str, int]:
        return parse_address(self.port.address)[1][0]

    def dial(self, credentials: Credentials, *, address: str = "", protocol: str = TREE) -> End:
        """Connect to the port; return the end, which knows how that went."""
        end = End()
        transport = TlsTransport(credentials, protocol)
        setting = Setting(transport, str, self.loop, self.loop.run)
        connect_end(setting, address or self.port.address, end)
        return end

    def until_refused(self, end: End) -> str:
        """Wait until a peer knows that it is not let in; return why this side did so."""
        self.until(lambda: end.failures or end.closed[0] is not None)
        self.until(lambda: self.refusals)
        ((address, reason),) = self.refusals
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        assert self.end.connections == []
        return reason

    def close(self) -> None:
        for connection in self.end.connections:
            connection.abort()
        self.port.close()
        self.until(lambda: None not in self.end.closed)


@pytest.fixture
def port(loop: Reactor, authority: Authority) -> Iterator[Port]:
    with closing(Port(loop, authority.credentials(ROOT))) as made:
        yield made


def abort(port: Port, *ends: End) -> None:
    for end in ends:
        for connection in end.connections:
            connection.abort()
        port.until(lambda end=end: None not in end.closed)  # type: ignore[misc]  # mypy infers no type for lambdas with defaults


def bare(port: Port) -> socket.socket:
    """Return a connection without TLS."""
    return socket.create_connection(port.place)


def shaken_hands(port: Port, context: ssl.SSLContext, protocol: str = TREE) -> ssl.SSLSocket:
    """Return a connection of OpenSSL without Sapwood, after its handshake."""
    context.set_alpn_protocols([protocol])
    sock = context.wrap_socket(bare(port), server_hostname=ROOT, do_handshake_on_connect=False)
    sock.settimeout(0)

    def done() -> bool:
        try:
            sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            sock.close()
            raise
        return True

    port.until(done)
    return sock


# --- who gets in ----------------------------------------------------------------------------------


def test_both_sides_learn_from_the_certificate_who_the_other_is(
    port: Port, authority: Authority
) -> None:
    end = port.dial(authority.credentials(LEAF))
    port.until(lambda: port.end.connections)
    assert end.connections[0].peer == ROOT
    assert port.end.connections[0].peer == LEAF
    abort(port, end)


def test_a_connection_says_what_it_is_made_of(port: Port, authority: Authority) -> None:
    end = port.dial(authority.credentials(LEAF))
    port.until(lambda: port.end.connections)
    near, far = end.connections[0], port.end.connections[0]
    assert isinstance(near, TlsConnection)
    assert isinstance(far, TlsConnection)
    facts, other = near.facts(), far.facts()
    assert facts.address == other.local_address == port.port.address.partition("@")[2]
    assert facts.local_address == other.address
    assert (facts.protocol, facts.unsent) == ("TLSv1.3", 0)
    assert facts.certificate_end > dt.datetime.now(dt.UTC).timestamp()
    near.abort()
    assert near.facts().address == ""
    abort(port, end)


def test_a_node_of_another_authority_does_not_get_in(
    port: Port, authority: Authority, stranger: Authority
) -> None:
    end = port.dial(stranger.credentials(LEAF, believes=authority))
    assert "certificate is not accepted" in port.until_refused(end)
    assert end.closed == ["it refuses this side: unknown ca"]
    assert not any(port.end.received)


def test_a_node_that_another_authority_vouches_for_is_not_believed(
    port: Port, authority: Authority, stranger: Authority
) -> None:
    end = port.dial(authority.credentials(LEAF, believes=stranger))
    assert "certificate is not accepted" in end.failures[0].what
    assert "unknown ca" in port.until_refused(end)


def test_another_node_than_the_one_that_is_meant_is_not_believed(
    port: Port, authority: Authority
) -> None:
    host, number = port.place
    end = port.dial(authority.credentials(LEAF), address=f"tls://n2.grove.sapwood@{host}:{number}")
    assert "Hostname mismatch" in end.failures[0].what
    assert "n2.grove.sapwood" in end.failures[0].what
    port.until_refused(end)


@pytest.mark.parametrize("names", [("*.grove.sapwood",), (LEAF, "n2.grove.sapwood")])
def test_a_certificate_names_just_one_node(
    port: Port, authority: Authority, names: tuple[str, ...]
) -> None:
    end = port.dial(authority.credentials(LEAF, *names))
    assert port.until_refused(end) == "its certificate does not name one node"


def test_a_listener_whose_certificate_is_for_many_is_not_believed(
    loop: Reactor, authority: Authority
) -> None:
    with closing(Port(loop, authority.credentials(ROOT, "*.grove.sapwood"))) as port:
        end = port.dial(authority.credentials(LEAF))
        assert "does not name one node" in end.failures[0].what


def test_an_expired_certificate_is_refused(port: Port, authority: Authority) -> None:
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    end = port.dial(authority.credentials(LEAF, not_after=past))
    assert "expired" in port.until_refused(end)
    assert end.closed == ["it refuses this side: certificate expired"]


def test_without_a_certificate_nobody_gets_in(port: Port, authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem.decode())
    with shaken_hands(port, context) as sock:  # in TLS 1.3 it learns of the refusal afterwards
        port.until(lambda: port.refusals)
        sock.settimeout(5)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            sock.recv(10)
    assert "peer did not return a certificate" in port.refusals[0][1]
    assert port.end.connections == []


def test_tls_1_2_is_refused(port: Port, authority: Authority) -> None:
    context = connecting_context(authority.credentials(LEAF))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        shaken_hands(port, context)
    assert "unsupported protocol" in port.refusals[0][1]


@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http request"),
        (bytes(range(256)) * 4, "no TLS 1.3 with it"),
        (b"\x16\x03\x01\xff\xff" + b"x" * 100_000, "no TLS 1.3 with it"),
        (b"\x16\x03\x01\x00\x10", "it ended the connection"),
    ],
    ids=["http", "garbage", "huge record", "half a record"],
)
def test_noise_is_told_and_hurts_nobody(
    port: Port, authority: Authority, noise: bytes, reason: str
) -> None:
    with bare(port) as sock:
        sock.settimeout(0)
        sock.send(noise)
        sock.shutdown(socket.SHUT_WR)
        port.until(lambda: port.refusals)
    assert reason in port.refusals[0][1]
    end = port.dial(authority.credentials(LEAF))
    port.until(lambda: port.end.connections)
    abort(port, end)


def test_who_says_nothing_is_waited_for_no_longer_than_the_limit(
    loop: Reactor, authority: Authority
) -> None:
    with closing(Port(loop, authority.credentials(ROOT), handshake_timeout=0.05)) as port:
        with bare(port) as sock:
            port.until(lambda: port.refusals)
            port.until(lambda: select.select([sock], [], [], 0)[0])
            assert sock.recv(1) == b""
        assert port.refusals[0][1] == "its handshake took longer than 0.05 s"


def test_a_listener_that_says_nothing_is_given_up(loop: Reactor, authority: Authority) -> None:
    end = End()
    transport = TlsTransport(authority.credentials(LEAF), TREE, handshake_timeout=0.05)
    with socket.create_server((HOST, 0)) as mute:
        address = f"{ROOT}@{HOST}:{mute.getsockname()[1]}"
        connect_end(Setting(transport, str, loop, loop.run), address, end)
    assert "its handshake took longer than 0.05 s" in end.failures[0].what


def test_silent_peers_do_not_keep_others_out(
    loop: Reactor, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most so many handshakes at a time; the oldest makes room once it had its turn."""
    monkeypatch.setattr(tls_port, "HANDSHAKE_TURN", 0.05)
    with closing(Port(loop, authority.credentials(ROOT), max_handshakes=3)) as port:
        silent = [bare(port) for _ in range(7)]
        end = port.dial(authority.credentials(LEAF))
        port.until(lambda: port.end.connections)
        assert len(port.port._handshakes) <= 3
        reasons = {reason for _, reason in port.refusals}
        assert reasons == {"others wait, and it has not finished its handshake"}
        abort(port, end)
        for sock in silent:
            sock.close()
        port.until(lambda: not port.port._handshakes)


def test_a_port_that_is_closed_ends_handshakes_and_keeps_connections(
    port: Port, authority: Authority
) -> None:
    end = port.dial(authority.credentials(LEAF))
    port.until(lambda: port.end.connections)
    with bare(port) as sock:
        port.until(lambda: port.port._handshakes)
        port.port.close()
        sock.settimeout(5)
        assert sock.recv(1) == b""
        end.connections[0].write([b"still there"])
        port.until(lambda: bytes(port.end.received[0]) == b"still there")
    abort(port, end)


def test_who_connects_waits_until_there_are_descriptors(
    port: Port,
    authority: Authority,
    no_descriptors: Callable[[], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_port, "ACCEPT_PAUSE", 0.02)
    port.loop.fileno()
    looks: list[None] = []
    look = port.port._go_on

    def looked() -> None:
        looks.append(None)
        look()

    monkeypatch.setattr(port.port, "_go_on", looked)
    with bare(port) as sock, no_descriptors():
        port.until(lambda: len(looks) > 2)
        assert not port.port._handshakes
        del sock
    end = port.dial(authority.credentials(LEAF))
    port.until(lambda: port.end.connections)
    abort(port, end)


# --- protocols on one port ------------------------------------------------------------------------


def test_protocols_share_a_port(port: Port, authority: Authority) -> None:
    other = End()
    listener = port.port.serve("sapwood-tree/other", other)
    first = port.dial(authority.credentials(LEAF))
    second = port.dial(authority.credentials(LEAF), protocol="sapwood-tree/other")
    port.until(lambda: port.end.connections and other.connections)
    first.connections[0].write([b"to the grove"])
    second.connections[0].write([b"to the other"])
    port.until(lambda: port.end.received[0] and other.received[0])
    assert bytes(port.end.received[0]) == b"to the grove"
    assert bytes(other.received[0]) == b"to the other"
    listener.close()
    abort(port, first, second, other)


@pytest.mark.parametrize("which", ["never", "no more"])
def test_a_protocol_that_is_not_served_is_refused_as_if_nobody_listened(
    port: Port, authority: Authority, which: str
) -> None:
    if which == "no more":
        port.listener.close()
    protocol = TREE if which == "no more" else "sapwood-tree/other"
    end = port.dial(authority.credentials(LEAF), protocol=protocol)
    assert f"{protocol} is not served there" in end.failures[0].what
    assert isinstance(end.failures[0].__cause__, ConnectionRefusedError)
    assert "none of the protocols" in port.until_refused(end)


def test_a_protocol_is_served_once(port: Port) -> None:
    with pytest.raises(CommunicationError, match="served already"):
        port.port.serve(TREE, End())


def test_a_protocol_for_joining_takes_peers_without_a_certificate(
    port: Port, authority: Authority
) -> None:
    joining = End()
    listener = port.port.serve(JOIN, joining, certificate=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem.decode())
    with shaken_hands(port, context, JOIN) as sock:
        port.until(lambda: joining.connections)
        assert joining.connections[0].peer == ""
        sock.send(b"let me join")
        port.until(lambda: bytes(joining.received[0]) == b"let me join")
        abort(port, joining)
    with shaken_hands(port, context) as sock:  # the others still want one
        port.until(lambda: port.refusals)
        assert port.refusals[0][1] == "it shows no certificate"
    listener.close()
    assert port.end.connections == []


def test_a_certificate_that_is_not_needed_is_checked_all_the_same(
    port: Port, authority: Authority, stranger: Authority
) -> None:
    joining = End()
    port.port.serve(JOIN, joining, certificate=False)
    end = port.dial(stranger.credentials(LEAF, believes=authority), protocol=JOIN)
    port.until_refused(end)
    assert joining.connections == []


def test_renewed_credentials_are_used_for_new_connections(
    port: Port, authority: Authority, stranger: Authority
) -> None:
    old = port.dial(authority.credentials(LEAF))
    port.port.renew(stranger.credentials(ROOT))
    transport = TlsTransport(authority.credentials(LEAF), TREE)
    transport.renew(stranger.credentials(LEAF))
    new = End()
    connect_end(Setting(transport, str, port.loop, port.loop.run), port.port.address, new)
    port.until(lambda: len(port.end.connections) == 2)
    old.connections[0].write([b"old"])
    new.connections[0].write([b"new"])
    port.until(lambda: [bytes(data) for data in port.end.received] == [b"old", b"new"])
    abort(port, old, new)


# --- addresses ------------------------------------------------------------------------------------


def test_places_are_tried_side_by_side(port: Port, authority: Authority) -> None:
    """One refuses, one says nothing, one answers; the one that answers is remembered."""
    host, number = port.place
    transport, setting_loop = TlsTransport(authority.credentials(LEAF), TREE), port.loop
    setting = Setting(transport, str, setting_loop, setting_loop.run)
    with socket.create_server((HOST, 0)) as mute:
        with socket.create_server((HOST, 0)) as taken:
            unused = taken.getsockname()[1]
        silent = mute.getsockname()[1]
        address = f"tls://{ROOT}@{HOST}:{unused},{HOST}:{silent},{host}:{number}"
        first, second = End(), End()
        connect_end(setting, address, first)
        mute.settimeout(5)
        mute.accept()[0].close()  # it was tried
        connect_end(setting, address, second)
        assert first.connections[0].peer == second.connections[0].peer == ROOT
        mute.settimeout(0)
        with pytest.raises(BlockingIOError):  # and not again
            mute.accept()
    abort(port, first, second)


def test_every_place_that_fails_is_told(loop: Reactor, authority: Authority) -> None:
    with socket.create_server((HOST, 0)) as taken:
        unused = taken.getsockname()[1]
    transport, end = TlsTransport(authority.credentials(LEAF), TREE), End()
    address = f"{ROOT}@{HOST}:{unused},[::1]:{unused}"
    connect_end(Setting(transport, str, loop, loop.run), address, end)
    (failure,) = end.failures
    assert f"{HOST}:{unused}: Connection refused" in failure.what
    assert f"[::1]:{unused}: " in failure.what
    assert failure.where == address


def test_a_place_that_is_only_unreachable_may_come_back(
    loop: Reactor, authority: Authority
) -> None:
    with socket.create_server((HOST, 0)) as closed, socket.create_server((HOST, 0)) as mute:
        address = f"{ROOT}@{HOST}:{closed.getsockname()[1]},{HOST}:{mute.getsockname()[1]}"
        closed.close()
        transport = TlsTransport(authority.credentials(LEAF), TREE, handshake_timeout=0.1)
        end = End()
        connect_end(Setting(transport, str, loop, loop.run), address, end)
    assert not isinstance(end.failures[0].__cause__, ConnectionRefusedError)


def test_hosts_may_have_names(
    port: Port, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, number = port.place
    ask = socket.getaddrinfo

    def known(name: str, port: int, *, flags: int = 0, **_options: Any) -> Any:
        if name == "n1.test" and not flags:
            name = host
        elif not flags:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ask(name, port, type=socket.SOCK_STREAM, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    end = port.dial(authority.credentials(LEAF), address=f"{ROOT}@n2.test:1,n1.test:{number}")
    assert end.connections[0].peer == ROOT
    lost = port.dial(authority.credentials(LEAF), address=f"{ROOT}@n2.test:1")
    assert "n2.test:1: Name or service not known" in lost.failures[0].what
    abort(port, end)


def test_ipv6(loop: Reactor, authority: Authority) -> None:
    transport = TlsTransport(authority.credentials(ROOT), TREE)
    with Pair(Setting(transport, lambda: "[::1]:0", loop, loop.run)) as pair:
        assert pair.address.startswith(f"{ROOT}@[::1]:")
        pair.here.connections[0].write([b"six"])
        pair.until(lambda: bytes(pair.there.received[0]) == b"six")


def test_a_unix_socket_that_leads_to_a_node_is_a_place(
    port: Port, authority: Authority, tmp_path: Path
) -> None:
    """A tunnel carries TLS with the node itself: the tunnel need not be trusted."""
    path = tmp_path / "a,b@c.sock"
    with socket.socket(socket.AF_UNIX) as tunnel:
        tunnel.bind(str(path))
        tunnel.listen()
        tunnel.settimeout(0)

        def carry() -> None:
            with contextlib.suppress(BlockingIOError):
                outer, inner = tunnel.accept()[0], socket.create_connection(port.place)
                for one, other in ((outer, inner), (inner, outer)):
                    port.loop.add_reader(one.fileno(), partial(pump, one, other))

        def pump(one: socket.socket, other: socket.socket) -> None:
            data = one.recv(65_536)
            other.sendall(data)
            if not data:
                port.loop.remove_reader(one.fileno())
                other.shutdown(socket.SHUT_WR)
                ended.append(one)

        ended: list[socket.socket] = []
        port.loop.add_reader(tunnel.fileno(), carry)
        with socket.create_server((HOST, 0)) as taken:
            unused = taken.getsockname()[1]
        place = socket_endpoint(str(path))
        address = f"tls://{ROOT}@{HOST}:{unused},{place}"
        end = port.dial(authority.credentials(LEAF), address=address)
        assert end.connections[0].peer == ROOT
        connection = end.connections[0]
        assert isinstance(connection, DescribedConnection)
        assert connection.facts().address == str(path)
        assert connection.facts().local_address == ""
        connection.write([b"through"])
        port.until(lambda: [bytes(data) for data in port.end.received] == [b"through"])
        connection.close()
        port.until(lambda: None not in end.closed)
        port.until(lambda: len(ended) == 2)
        port.loop.remove_reader(tunnel.fileno())
        for one in ended:
            one.close()


def test_a_unix_socket_that_is_not_there_is_told(
    port: Port, authority: Authority, tmp_path: Path
) -> None:
    end = port.dial(authority.credentials(LEAF), address=f"{ROOT}@{tmp_path}/none.sock")
    assert f"{tmp_path}/none.sock: No such file or directory" in end.failures[0].what


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host:1",
        f"{ROOT}@",
        f"{ROOT}@host",
        f"{ROOT}@host:",
        f"{ROOT}@:1",
        f"{ROOT}@host:x",
        f"{ROOT}@host:70000",
        f"{ROOT}@host:1,",
        f"{ROOT}@::1:7000",
        f"{ROOT}@[host]:7000",
        "10.0.0.1@host:1",
        "*.sapwood@host:1",
        "a..b@host:1",
    ],
)
def test_what_is_no_address_is_told(loop: Reactor, authority: Authority, address: str) -> None:
    transport, end = TlsTransport(authority.credentials(LEAF), TREE), End()
    connect_end(Setting(transport, str, loop, loop.run), address, end)
    assert re.search("^no address|is not HOST:PORT", end.failures[0].what)
    assert end.failures[0].hint.startswith("write ")


@pytest.mark.parametrize("address", ["", "host", "no-such-host.invalid.:x", "203.0.113.1:1"])
def test_a_port_that_cannot_be_had_is_told(
    loop: Reactor, authority: Authority, address: str
) -> None:
    with pytest.raises(CommunicationError, match=r"cannot listen|not HOST:PORT"):
        TlsTransport(authority.credentials(ROOT), TREE).listen(address, End(), loop)


@given(st.text(max_size=80))
@pytest.mark.slow
def test_any_text_is_an_address_or_none(text: str) -> None:
    try:
        node, places = parse_address(text)
    except CommunicationError:
        return
    assert is_node(node)
    assert all(0 <= number < 65536 and host for host, number in places)


# --- credentials ----------------------------------------------------------------------------------


def test_contexts_check_peers_and_speak_nothing_older(authority: Authority) -> None:
    credentials = authority.credentials(LEAF)
    for context in (accepting_context(credentials), connecting_context(credentials)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert connecting_context(credentials).check_hostname


def test_credentials_do_not_show_their_key(authority: Authority) -> None:
    credentials = authority.credentials(LEAF)
    assert "PRIVATE" not in repr(credentials)


@pytest.mark.parametrize("what", ["certificate", "key", "authority", "other key", "locked", "node"])
def test_credentials_that_cannot_be_used_are_told(authority: Authority, what: str) -> None:
    good = authority.credentials(LEAF)
    other = authority.credentials(ROOT)
    made = {
        "certificate": Credentials(LEAF, b"rubbish", good.key, good.authority),
        "key": Credentials(LEAF, good.certificate, b"", good.authority),
        "authority": Credentials(LEAF, good.certificate, good.key, b""),
        "other key": Credentials(LEAF, good.certificate, other.key, good.authority),
        "locked": Credentials(LEAF, good.certificate, locked(good.key), good.authority),
        "node": Credentials("10.0.0.1", good.certificate, good.key, good.authority),
    }[what]
    with pytest.raises(ConfigurationError, match=r"cannot use certificate|is not a node id"):
        TlsTransport(made, TREE)


def locked(key: bytes) -> bytes:
    """Return a key behind a password."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - trustme brings it

    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_much_goes_both_ways_at_once(loop: Reactor, authority: Authority) -> None:
    """64 MiB each way; neither side waits for the other side to be done."""
    sent = random.Random(7).randbytes(2**20) * 64  # noqa: S311 - chance that can be repeated
    transport = TlsTransport(authority.credentials(ROOT), TREE)
    with Pair(Setting(transport, lambda: f"{HOST}:0", loop, loop.run)) as pair:
        pair.here.connections[0].write([sent])
        pair.there.connections[0].write([memoryview(sent)])
        size = len(sent)
        pair.until(lambda: len(pair.there.received[0]) == len(pair.here.received[0]) == size)
        assert pair.there.received[0] == sent
        assert pair.here.received[0] == sent


@pytest.fixture(scope="module")
def reused(authority: Authority) -> Iterator[Pair]:
    with closing(Reactor()) as loop:
        transport = TlsTransport(authority.credentials(ROOT), TREE)
        with Pair(Setting(transport, lambda: f"{HOST}:0", loop, loop.run)) as pair:
            yield pair


sizes = st.one_of(
    st.integers(0, 300),
    st.integers(tls_connection.RECORD - 2, tls_connection.RECORD + 2),
    st.integers(tls_connection.JOIN_SIZE - 2, tls_connection.JOIN_SIZE + 2),
    st.integers(tls_connection.CHUNK - 2, tls_connection.CHUNK + 2),
    st.integers(0, 2**20),
)


@settings(max_examples=40)
@given(st.lists(st.lists(sizes, max_size=6), max_size=6), st.integers(0, 2**16))
@pytest.mark.slow
def test_any_split_of_writes_arrives_whole(
    reused: Pair, writes: list[list[int]], seed: int
) -> None:
    """Both sides write in turns, with the loop running in between as long as it likes."""
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    pair = reused
    loop = pair.setting.loop
    ends = (pair.here, pair.there)
    for end in ends:
        end.received[0].clear()
    wanted = {0: bytearray(), 1: bytearray()}
    for several in writes:
        side = chance.randrange(2)
        buffers = [chance.randbytes(size) for size in several]
        ends[side].connections[0].write(
            [memoryview(one) if chance.random() < 0.5 else one for one in buffers]
        )
        wanted[1 - side] += b"".join(buffers)
        if chance.random() < 0.5:
            loop.call_soon(loop.stop)
            pair.setting.run()
    pair.until(lambda: all(len(ends[n].received[0]) >= len(wanted[n]) for n in (0, 1)))
    assert [end.received[0] for end in ends] == [wanted[0], wanted[1]]


@pytest.mark.slow
def test_who_does_not_read_keeps_bytes_waiting_and_nobody_else(
    port: Port, authority: Authority
) -> None:
    slow = shaken_hands(port, connecting_context(authority.credentials(LEAF)))
    quick = port.dial(authority.credentials(LEAF))
    port.until(lambda: len(port.end.connections) == 2)
    large = bytes(range(256)) * (128 * 1024)  # 32 MiB
    to_slow, to_quick = port.end.connections
    to_slow.write([large])
    for _ in range(50):
        to_slow.write([b"and more"])
        to_quick.write([b"x" * 1000])
    port.until(lambda: len(quick.received[0]) == 50_000)
    assert sum(part.nbytes for part in to_slow._unsent) > 2**23  # type: ignore[attr-defined]
    received = bytearray()

    def everything() -> bool:
        try:
            while data := slow.recv(2**20):
                received.extend(data)
        except ssl.SSLWantReadError:
            pass
        return len(received) == len(large) + 400

    port.until(everything)
    assert received == large + b"and more" * 50
    slow.close()
    abort(port, quick)


def test_a_connection_that_is_closed_loses_nothing_although_it_does_not_read(
    port: Port, authority: Authority
) -> None:
    """The other side continues writing; its bytes must not reset the connection."""
    end = port.dial(authority.credentials(LEAF))
    port.until(lambda: port.end.connections)
    sent = b"y" * 3_000_000
    port.end.connections[0].write([b"z" * 5_000_000])
    end.connections[0].write([sent])
    end.connections[0].close()
    port.until(lambda: port.end.closed[0] is not None)
    assert port.end.received[0] == sent
    port.until(lambda: end.closed[0] is not None)


def test_a_connection_is_closed_although_the_other_side_takes_nothing(
    port: Port, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_connection, "CLOSE_TIMEOUT", 0.05)
    with shaken_hands(port, connecting_context(authority.credentials(LEAF))):
        port.until(lambda: port.end.connections)
        port.end.connections[0].write([bytes(2**26)])
        port.end.connections[0].close()
        port.until(lambda: port.end.closed[0] is not None)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
def test_another_implementation_that_changes_its_keys_is_understood(
    port: Port, authority: Authority, tmp_path: Path
) -> None:
    """``openssl s_client``: a line ``K`` asks for new keys on both sides (TLS 1.3 KeyUpdate)."""
    credentials = authority.credentials(LEAF)
    files = {"-cert": credentials.certificate, "-key": credentials.key, "-CAfile": authority.pem}
    options = []
    for option, content in files.items():
        path = tmp_path / f"{option[1:]}.pem"
        path.write_bytes(content)
        options += [option, str(path)]
    host, number = port.place
    command = ["openssl", "s_client", "-connect", f"{host}:{number}", "-alpn", TREE, *options]
    command += ["-servername", ROOT, "-verify_return_error"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        port.until(lambda: port.end.connections)
        for number in range(3):
            client.stdin.write(b"K\n")
            client.stdin.flush()
            os.set_blocking(client.stdout.fileno(), False)
            said = bytearray()

            def heard(said: bytearray = said, word: bytes = b"KEYUPDATE") -> bool:
                said += client.stdout.read() or b""  # type: ignore[union-attr]
                return word in said

            port.until(heard)
            line = b"line %d\n" % number
            client.stdin.write(line)
            client.stdin.flush()
            port.until(lambda line=line: port.end.received[0].endswith(line))  # type: ignore[misc]  # mypy infers no type for lambdas with defaults
            port.end.connections[0].write([b"answer %d\n" % number])
            said.clear()
            port.until(partial(heard, said, b"answer %d" % number))
        port.end.connections[0].close()
        port.until(lambda: port.end.closed[0] is not None)
        client.stdin.close()


# --- links ----------------------------------------------------------------------------------------


def test_a_link_goes_on_over_a_new_connection(
    loop: Reactor, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut, the driver makes another one; both know what the other has."""
    timing = LinkTiming(heartbeat=0.5, failure_after=30.0, grace=20.0)
    joined: list[Any] = []
    problems: list[str] = []
    transport = TlsTransport(authority.credentials(ROOT), TREE)
    nodes = [Node(Identity("c", rank, 1, rank + 1, f"m{rank}"), flat(1), timing) for rank in (0, 1)]
    handlers: dict[Any, Callable[[Any], None]] = {ev.PlaceJoined: joined.append}
    root = NodeDriver(nodes[0], handlers, loop, problems.append)
    listener = transport.listen(f"{HOST}:0", root, loop)
    again: list[int] = []

    def make_again(link: int, attempt: int) -> None:
        again.append(attempt)
        connect = partial(connect_to, transport, listener.address, loop)
        reconnect(child, link, attempt, connect, loop)

    child = NodeDriver(nodes[1], {}, loop, problems.append, make_again)
    child.post(ev.Begin())
    transport.connect(listener.address, child, loop, lambda error: problems.append(str(error)))
    until = Setting(transport, str, loop, loop.run).until
    until(lambda: joined)
    for _ in range(3):
        count = len(again)
        for carrier in list(child.links.connections.values()):
            carrier.connection.abort()
        until(lambda count=count: len(again) > count)  # type: ignore[misc]  # mypy infers no type for lambdas with defaults
        until(lambda: not any(map(child.links.is_broken, child.channels)) and child.channels)
    assert len(joined) == 1
    listener.close()
    lost: list[int] = []
    monkeypatch.setattr(child, "give_up", lambda link, _reason: lost.append(link))
    for carrier in list(child.links.connections.values()):
        carrier.connection.abort()
    until(lambda: lost)  # the port is closed now: it is not tried again
    root.close()
    child.close()
    loop.call_later(0.05, loop.stop)
    loop.run()
    assert problems == []


def connect_to(
    transport: TlsTransport, address: str, loop: Reactor, handler: Any, failed: Any
) -> None:
    transport.connect(address, handler, loop, failed)


@pytest.mark.slow
def test_the_transport_is_not_imported_with_the_others() -> None:
    code = "import sys, sapwood.session.member, sapwood.session.host; print('ssl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- connections for another port -----------------------------------------------------------------


class Elsewhere:
    """A port without its own socket, which serves a protocol of another port."""

    def __init__(self, port: Port, credentials: Credentials, protocol: str) -> None:
        self.end = End()
        self.refusals: list[tuple[str, str]] = []
        self.port = TlsPort(
            None, port.loop, credentials, refused=lambda *told: self.refusals.append(told)
        )
        self.port.serve(protocol, self.end)
        self.stop = port.port.delegate(protocol, self.port.take)


@pytest.fixture
def elsewhere(port: Port, authority: Authority) -> Iterator[Elsewhere]:
    made = Elsewhere(port, authority.credentials("f1.grove.sapwood"), "sapwood-tree/other")
    yield made
    for connection in made.end.connections:
        connection.abort()
    made.port.close()
    port.until(lambda: None not in made.end.closed)


def test_a_protocol_is_served_elsewhere(
    port: Port, elsewhere: Elsewhere, authority: Authority
) -> None:
    """Each side sees the certificate of the one that serves it, and the other port sees nothing."""
    address = port.port.address.replace(ROOT, "f1.grove.sapwood")
    other = port.dial(authority.credentials(LEAF), address=address, protocol="sapwood-tree/other")
    own = port.dial(authority.credentials(LEAF))
    port.until(lambda: other.connections and own.connections and elsewhere.end.connections)
    port.until(lambda: port.end.connections)
    assert [len(end.connections) for end in (port.end, elsewhere.end)] == [1, 1]
    elsewhere.end.connections[0].write([b"hello"])
    port.until(lambda: bytes(other.received[0]) == b"hello")
    assert elsewhere.end.connections[0].peer == LEAF
    abort(port, other, own)


def test_what_is_served_elsewhere_no_more_is_refused_here(
    port: Port, elsewhere: Elsewhere, authority: Authority
) -> None:
    elsewhere.stop()
    end = port.dial(authority.credentials(LEAF), protocol="sapwood-tree/other")
    assert "protocol" in port.until_refused(end)


def test_a_protocol_has_one_place(port: Port, elsewhere: Elsewhere) -> None:
    for protocol in (TREE, "sapwood-tree/other"):
        with pytest.raises(CommunicationError, match="is served already"):
            port.port.delegate(protocol, elsewhere.port.take)


def test_a_first_message_may_come_in_pieces(
    port: Port, elsewhere: Elsewhere, authority: Authority
) -> None:
    """And the loop sleeps between them."""
    context = connecting_context(authority.credentials(LEAF))
    context.set_alpn_protocols([TREE])
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(into, out, server_hostname=ROOT)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    said = out.read()
    with bare(port) as sock:
        for start in range(0, len(said), 100):
            sock.sendall(said[start : start + 100])
            timer = port.loop.call_later(0.02, port.loop.stop)
            port.loop.run()
            timer.cancel()
        sock.settimeout(0)
        port.until(lambda: select.select([sock], [], [], 0)[0])
        assert sock.recv(1)[0] == 22  # it answers
    port.until(lambda: port.refusals)
    assert elsewhere.refusals == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [(b"", "it ended the connection"), (b"\x16\x03\x01\x02\x00\x01", "it ended the connection")],
)
def test_who_goes_away_before_it_has_said_what_it_wants_is_forgotten(
    port: Port, elsewhere: Elsewhere, said: bytes, reason: str
) -> None:
    del elsewhere
    with bare(port) as sock:
        sock.sendall(said)
    port.until(lambda: port.refusals)
    assert port.refusals[0][1] == reason


def test_who_says_nothing_is_not_waited_for(loop: Reactor, authority: Authority) -> None:
    with closing(Port(loop, authority.credentials(ROOT), handshake_timeout=0.05)) as port:
        other = Elsewhere(port, authority.credentials("f1.grove.sapwood"), "x")
        with bare(port):
            port.until(lambda: port.refusals)
        assert "it said nothing within" in port.refusals[0][1]
        other.port.close()


def test_a_machine_that_is_gone_is_noticed_also_where_nobody_says_anything() -> None:
    with socket.socket() as sock:
        tls_connection.prepare(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        asked = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        given_up = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert 1000 * asked == given_up == round(1000 * tls_connection.UNHEARD_TIMEOUT)


# --- connections for a port that comes soon -------------------------------------------------------


def dialled(port: Port, authority: Authority, node: str) -> End:
    """Start to connect for a protocol that no port serves yet; it is expected."""
    end, address = End(), port.port.address.replace(ROOT, node)
    transport = TlsTransport(authority.credentials(LEAF), "sapwood-tree/other")
    transport.connect(address, end, port.loop, end.failures.append)
    port.until(lambda: port.port.held == 1 or end.failures)
    return end


def test_who_wants_what_is_served_soon_waits_for_it(port: Port, authority: Authority) -> None:
    port.port.hold(lambda protocol: protocol == "sapwood-tree/other", 60.0)
    early = dialled(port, authority, "f1.grove.sapwood")
    port.port.serve_held()
    assert port.port.held == 1  # no port serves it yet
    served = Elsewhere(port, authority.credentials("f1.grove.sapwood"), "sapwood-tree/other")
    port.port.serve_held()
    assert port.port.held == 0
    port.until(lambda: early.connections and served.end.connections)
    assert port.refusals == []
    abort(port, early)
    served.port.close()


def test_who_waits_longer_than_it_may_is_answered(port: Port, authority: Authority) -> None:
    port.port.hold(lambda protocol: protocol == "sapwood-tree/other", 0.02)
    early = dialled(port, authority, ROOT)
    port.until(lambda: early.failures)
    assert "sapwood-tree/other is not served there" in early.failures[0].what
    other = port.dial(authority.credentials(LEAF), protocol="sapwood-tree/unknown")
    assert "sapwood-tree/unknown is not served there" in other.failures[0].what


@pytest.mark.slow
def test_who_waits_makes_room_for_others(loop: Reactor, authority: Authority) -> None:
    with closing(Port(loop, authority.credentials(ROOT), max_handshakes=1)) as port:
        port.port.hold(lambda protocol: protocol == "sapwood-tree/other", 60.0)
        early = dialled(port, authority, ROOT)
        own = port.dial(authority.credentials(LEAF))
        port.until(lambda: own.connections and port.end.connections and early.failures)
        assert "others wait" in port.refusals[0][1]
        abort(port, own)


def test_a_port_that_closes_keeps_nobody_waiting(port: Port, authority: Authority) -> None:
    port.port.hold(lambda protocol: protocol == "sapwood-tree/other", 60.0)
    early = dialled(port, authority, ROOT)
    port.port.close()
    port.until(lambda: early.failures)
