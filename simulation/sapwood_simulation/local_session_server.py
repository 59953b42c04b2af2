"""Roots of sessions as other processes have them, but in this one: clients attach to them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

import sapwood
from sapwood.client.attaching import attached_cluster
from sapwood.comm.transport.unix import UnixTransport
from sapwood.environment.settings import Settings
from sapwood.session.embedded import EmbeddedSession, embedded
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.making import host_filters, plan_here
from sapwood.session_server.rights import ClientRole, same_user
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.server import SessionServer
from sapwood.session_server.server_link import SessionAddress

_numbers = itertools.count(1)
_roots: dict[str, ServedSession] = {}
_servers: dict[str, SessionServer] = {}


@contextlib.contextmanager
def local_session_server(
    settings: Settings, agents: int, fanout: int = 0
) -> Iterator[SessionAddress]:
    """Have a root; its session is gone afterwards."""
    planned = plan_here(settings, agents, fanout)
    session = ServedSession(msgspec.structs.replace(planned.options, fastpath=False))
    server = SessionServer(
        session,
        f"here-{next(_numbers)}",
        "here",
        same_user,
        changed=lambda: None,
        end=lambda _reason: None,
        keeping=settings.policy.disconnect,
        largest=settings.comm.max_payload,
    )
    host_filters(
        session, planned.runners, lambda rank, data: session.on_loop(server.news.wrote, rank, data)
    )
    session.start()
    path = Path(os.environ["XDG_RUNTIME_DIR"]) / f"{server.id}.sock"
    listener = session.call(
        lambda: UnixTransport().listen(str(path), server, session.loop)  # pragma: no cover
    )
    _roots[server.id], _servers[server.id] = session, server
    try:
        yield SessionAddress(session=server.id, name="here")
    finally:
        session.call(listener.close)
        session.call(server.close, "the test is over")
        session.close()
        server.calls.close()
        path.unlink()
        del _roots[server.id], _servers[server.id]


def attach_here(
    address: SessionAddress, settings: Settings, role: ClientRole = ClientRole.OWNER
) -> sapwood.Cluster:
    """Attach to such a root."""
    path = Path(os.environ["XDG_RUNTIME_DIR"]) / f"{address.session}.sock"
    connect = partial(UnixTransport().connect, str(path))
    return attached_cluster(address, connect, role, settings)


def server_of(address: SessionAddress) -> SessionServer:
    """Return what serves the clients of such a root."""
    return _servers[address.session]


def root_of(cluster: sapwood.Cluster) -> EmbeddedSession:
    """Return what is at the root of a cluster, wherever its client is."""
    session = cluster.session
    if isinstance(session, AttachedSession):
        return _roots[session.address.session]
    return embedded(session)
