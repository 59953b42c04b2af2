"""Machines below machines: one machine's places are attached to a junction of another one."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

import sapwood
from sapwood.client.hosts import several
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.link import Identity
from sapwood.comm.place_keys import PlaceKeys
from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.tls_dial import is_unserved
from sapwood.comm.transport.tls_identity import connecting_context, parse_address
from sapwood.core.errors import CommunicationError
from sapwood.environment.settings import NodeSettings
from sapwood.security.authority import Authority, make_request
from sapwood.security.credentials import Credentials
from sapwood.session.between_machines import protocol_of
from sapwood.session.embedded import embedded
from sapwood.session.host import SessionHost
from sapwood.session.member import tree_protocol

from .conftest import PATIENCE, QUICK, control_of, daemons, places

MACHINES = 4
AGENTS = 8

Until = Callable[[Callable[[], object]], None]

pytestmark = pytest.mark.timeout(180)


def made() -> sapwood.Cluster:
    nodes = NodeSettings(start_timeout=60.0, topology="kary:2")
    return several(MACHINES, AGENTS, settings=msgspec.structs.replace(QUICK, nodes=nodes))


@pytest.fixture(scope="module")
def deep(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    """Four machines: 2 is below 1, and 4 below 3."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    with made() as cluster:
        assert works(cluster)
        yield cluster


@pytest.fixture
def standing(deep: sapwood.Cluster) -> sapwood.Cluster:
    """The cluster of the module."""
    return deep


def works(cluster: sapwood.Cluster) -> bool:
    """Whether all agents of a cluster contribute."""
    with cluster.stream(scaled(), reduce="sum") as stream:
        total = stream.broadcast(2.0).result(PATIENCE).total
    return bool(np.array_equal(total, expected(2.0)))


def scaled() -> Callable[[float], Any]:
    def scale(value: float) -> Any:
        import numpy  # noqa: PLC0415, ICN001 - at the agents

        import sapwood  # noqa: PLC0415 - as above

        return value * numpy.arange(20_000.0) * sapwood.here().rank

    return scale


def expected(value: float) -> Any:
    return value * np.arange(20_000.0) * sum(range(1, AGENTS + 1))


def host_of(cluster: sapwood.Cluster) -> SessionHost:
    return embedded(cluster.session).host


def attached(cluster: sapwood.Cluster) -> dict[int, int]:
    """Return where each place is attached."""
    host = host_of(cluster)
    found = {rank: host.node.router.placed(rank) for rank in host.tree.subtree(0)[1:]}
    return {rank: -1 if one is None else one.parent for rank, one in found.items()}


def planned(cluster: sapwood.Cluster) -> dict[int, int]:
    tree = host_of(cluster).tree
    return {rank: tree.parents[rank] for rank in tree.subtree(0)[1:]}


def junctions(cluster: sapwood.Cluster) -> dict[int, int]:
    """Return the junction of each machine."""
    host = host_of(cluster)
    return {host.hosts[rank]: rank for rank in host.tree.junctions}


def test_all_are_where_they_belong_and_the_root_has_few_links(
    standing: sapwood.Cluster, until: Until
) -> None:
    until(lambda: attached(standing) == planned(standing))
    of = junctions(standing)
    assert attached(standing)[of[2]] == of[1]
    assert attached(standing)[of[4]] == of[3]
    links = [one.rank for one in host_of(standing).driver.figures()]
    assert sorted(links) == sorted([of[1], of[3]])


def test_results_are_those_of_one_machine(standing: sapwood.Cluster) -> None:
    reduce = {"sum": "sum", "all": "gather"}

    def both(value: float) -> dict[str, Any]:
        here = sapwood.here()
        return {"sum": np.arange(50_000.0) / here.rank * value, "all": here.rank}

    totals = []
    with sapwood.local(AGENTS) as local:
        for cluster in (local, standing):
            with cluster.stream(both, reduce=reduce) as stream:
                totals.append([stream.broadcast(n / 3).result(PATIENCE).total for n in range(4)])
    for here, there in zip(*totals, strict=True):
        assert np.allclose(here["sum"], there["sum"], rtol=1e-12)
        assert list(here["all"]) == list(there["all"]) == list(range(1, AGENTS + 1))


def test_messages_and_groups_reach_every_machine(standing: sapwood.Cluster) -> None:
    def ring(_value: int) -> int:
        here = sapwood.here()
        here.send(here.rank % AGENTS + 1, here.rank, 7)
        return int(here.receive((here.rank - 2) % AGENTS + 1, 7)[0])

    with standing.stream(ring, reduce="gather") as stream:
        got = stream.broadcast(0).result(PATIENCE).total
    assert list(got) == [AGENTS, *range(1, AGENTS)]
    assert list(standing.map(abs, range(-20, 0))) == list(range(20, 0, -1))


# --- who gets in ----------------------------------------------------------------------------------


class Caller:
    """A peer that connects to the port of a junction and sends a greeting."""

    def __init__(self, credentials: Credentials, protocol: str) -> None:
        self.loop = Reactor()
        self.said: list[Any] = []
        self.error: CommunicationError | None = None
        self._transport = TlsTransport(credentials, protocol)
        self._decoder = frames.FrameDecoder()
        self._hello: msg.Hello | None = None
        self._connection: Connection | None = None

    def call(self, address: str, hello: msg.Hello) -> None:
        """Greet, and wait until the connection is over or an answer comes."""
        self._hello = hello
        self._transport.connect(address, self, self.loop, self._failed)
        self.loop.call_later(PATIENCE, self.loop.stop)
        self.loop.run()
        if self._connection is not None:
            self._connection.abort()
        self.loop.close()

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        assert initiator
        assert self._hello is not None
        self._connection = connection
        connection.write(frames.encode(self._hello, None, share=False))
        return 1

    def bytes_received(self, number: int, data: bytes) -> None:
        del number
        self.said += [frame.message for frame in self._decoder.feed(data)]
        self.loop.stop()

    def connection_closed(self, number: int, reason: str) -> None:
        del number, reason
        self.loop.stop()

    def _failed(self, error: CommunicationError) -> None:
        self.error = error
        self.loop.stop()


def greeting(cluster: sapwood.Cluster, rank: int, credential: bytes) -> msg.Hello:
    name = host_of(cluster).node.identity.cluster
    keys = PlaceKeys(credential)
    return Identity(name, rank, 1000, os.getpid(), "elsewhere", keys).hello(2**20, 1, 1, 0)


def certified(cluster: sapwood.Cluster, name: str = "n2") -> Credentials:
    key, request = make_request()
    made = control_of(cluster).issuer.certify(request, name)
    return msgspec.structs.replace(made, key=key)


def port_of(cluster: sapwood.Cluster, machine: int) -> tuple[int, str, str]:
    """Return the junction of a machine, its address and what is spoken there."""
    host = host_of(cluster)
    rank = junctions(cluster)[machine]
    tree = tree_protocol(host.node.identity.cluster)
    return rank, host._gateways.addresses()[rank], protocol_of(tree, rank)


@pytest.mark.parametrize(
    "shown", ["nothing", "another", "its own", "of the root", "of its machine"]
)
def test_a_node_without_the_right_token_is_not_let_in(
    standing: sapwood.Cluster, shown: str
) -> None:
    """It has a certificate of the cluster, and yet is not the place that it says it is."""
    host, of = host_of(standing), junctions(standing)
    _, address, protocol = port_of(standing, 1)
    keys = {machine: host._keys.of(machine, host.tree, host.hosts) for machine in of}
    rank, credential = {
        "nothing": (of[2], b""),
        "another": (of[2], keys[4].shown(of[4], of[3])),
        "its own": (of[2] - 1, keys[2].shown(of[2], of[1])),
        "of the root": (of[2], keys[2].shown(of[2], 0)),
        "of its machine": (of[2], keys[2].secret),
    }[shown]
    caller = Caller(certified(standing), protocol)
    caller.call(address, greeting(standing, rank, credential))
    assert isinstance(caller.said[0], msg.Refused)
    assert works(standing)


def test_a_stranger_is_not_let_in(standing: sapwood.Cluster) -> None:
    _, address, protocol = port_of(standing, 1)
    authority = Authority.create("sw-other")
    key, request = make_request()
    stranger = authority.issue(request, "n2", key)
    ours = certified(standing).authority
    for credentials in (stranger, msgspec.structs.replace(stranger, authority=ours)):
        caller = Caller(credentials, protocol)
        caller.call(address, greeting(standing, 2, b""))
        assert not caller.said
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    _, (place,) = parse_address(address)
    with (
        socket.create_connection(place, PATIENCE) as plain,
        context.wrap_socket(plain) as secure,
        pytest.raises(OSError, match="certificate required"),
    ):
        secure.recv(1)
    assert works(standing)


def test_nobody_serves_another_junction_or_tree_there(standing: sapwood.Cluster) -> None:
    rank, address, protocol = port_of(standing, 1)
    for other in (protocol.replace(f"/{rank}", ""), f"{protocol}0", "sapwood-join/2"):
        caller = Caller(certified(standing), other)
        caller.call(address, greeting(standing, 2, b""))
        assert caller.error is not None
        assert is_unserved(caller.error)


def test_a_node_listens_only_if_others_are_below_it(standing: sapwood.Cluster) -> None:
    listening = [
        bool([one for one in psutil.Process(pid).net_connections("tcp") if one.status == "LISTEN"])
        for pid in daemons(standing)
    ]
    assert listening == [True, False, True, False]


def test_the_certificate_of_a_junction_is_that_of_its_node(standing: sapwood.Cluster) -> None:
    _, address, protocol = port_of(standing, 3)
    node, (place,) = parse_address(address)
    context = connecting_context(certified(standing))
    context.set_alpn_protocols([protocol])
    with (
        socket.create_connection(place, PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=node) as secure,
    ):
        assert secure.version() == "TLSv1.3"
        assert secure.selected_alpn_protocol() == protocol


# --- what is lost ---------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["junction", "daemon"])
def test_what_is_below_a_machine_heals(until: Until, victim: str) -> None:
    """Waves continue meanwhile; in the end all are attached as planned, at whatever address."""
    with made() as cluster:
        assert works(cluster)
        before = host_of(cluster)._gateways.addresses()
        inner = junctions(cluster)[1]
        pid = places(cluster)[inner] if victim == "junction" else daemons(cluster)[0]
        with cluster.stream(scaled(), reduce="sum", on_loss="replace") as stream:
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + PATIENCE
            value = 0.0
            while attached(cluster) != planned(cluster) or pid in (
                places(cluster)[inner],
                daemons(cluster)[0],
            ):
                value += 1.0
                total = stream.exchange(value, timeout=PATIENCE).total
                assert np.array_equal(total, expected(value))
                assert time.monotonic() < deadline, (attached(cluster), planned(cluster))
        after = host_of(cluster)._gateways.addresses()
        assert (before[inner] == after[inner]) is (victim == "junction")
        assert works(cluster)
