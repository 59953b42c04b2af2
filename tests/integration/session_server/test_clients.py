"""Clients that leave a root in the middle of something."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from sapwood.activity import agent_requests
from sapwood.comm import events as ev
from sapwood.comm.framing import FRAME_VERSION, MAGIC, PREFIX
from sapwood.comm.groups import events as gev
from sapwood.comm.messages import StreamSpec
from sapwood.comm.messaging import events as mev
from sapwood.core.errors import ClosedError, DataValueError, ProtocolError, SapwoodError
from sapwood.environment.settings import CommSettings, Settings
from sapwood.session_server import session_calls, wire
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.server import MAX_STRANGERS
from sapwood.session_server.server_link import SessionAddress
from sapwood_simulation.local_session_server import (
    attach_here,
    local_session_server,
    root_of,
    server_of,
)

from .conftest import PATIENCE, Until


def test_what_has_not_left_is_taken_back_with_its_client(until: Until) -> None:
    settings = Settings(comm=CommSettings(failure_after=PATIENCE))
    with local_session_server(settings, agents=2) as address:
        cluster = attach_here(address, settings)
        root = root_of(cluster)
        assert isinstance(root, ServedSession)
        agent = cluster.agents[0].pid
        os.kill(agent, signal.SIGSTOP)
        try:
            for number in range(400):
                cluster.session.ask(1, "nothing", b"x" * 60_000)
                cluster.session.send(1, number, number)
            until(lambda: len(root.of_request) == len(root.of_send) == 400)
            cluster.close()
            until(lambda: len(root.of_request) < 400)
        finally:
            os.kill(agent, signal.SIGCONT)
        until(lambda: not root.of_request)
        with attach_here(address, settings) as again:
            assert again.submit(pow, 2, 5).result(PATIENCE) == 32


def test_who_leaves_waits_for_no_answer_of_the_root() -> None:
    """Agents that are added take a while; a thread that waits for them would wait for ever."""
    settings = Settings()
    with local_session_server(settings, agents=1) as address:
        cluster = attach_here(address, settings)
        session = cluster.session
        assert isinstance(session, AttachedSession)
        asked = session.link.ask(session_calls.EXPAND, [{"parent": 0, "host": 0}])
        cluster.detach()
        assert isinstance(asked.exception(PATIENCE), ClosedError)


def test_who_breaks_the_protocol_is_cut_off_alone() -> None:
    settings = Settings()
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        with attach_here(address, settings, ClientRole.USER) as bad:
            bad.session.open_stream("echo", {}, [77])
            with pytest.raises(ProtocolError, match="cut this client off"):
                bad.submit(pow, 2, 2).result(PATIENCE)
        assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4


def test_what_is_too_large_at_once_is_refused_and_goes_in_pieces() -> None:
    comm = CommSettings(shared_memory=False, max_payload=2**18)
    settings, large = Settings(comm=comm), np.ones(2**16)
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        with cluster.stream("echo", reduce={"x": "sum"}) as stream:
            with pytest.raises(DataValueError, match=r"comm\.max_payload"):
                stream.broadcast({"x": large})
            pieces = [stream.broadcast({"x": piece}) for piece in np.split(large, 4)]
            totals = [one.result(PATIENCE).total["x"] for one in pieces]
            assert np.concatenate(totals).sum() == large.size
        with pytest.raises(DataValueError, match=r"comm\.max_payload"):
            cluster.submit(np.sum, large).result(PATIENCE)
        with pytest.raises(DataValueError, match=r"comm\.max_payload"):
            cluster.session.ask(1, "nothing", large)
        with pytest.raises(DataValueError, match=r"comm\.max_payload"):
            cluster.session.send(1, large, 7)
        with pytest.raises(DataValueError, match=r"comm\.max_payload"):
            cluster.session.content.offer(large.tobytes())
        assert cluster.submit(np.sum, large[:100]).result(PATIENCE) == 100


def test_who_sends_more_than_the_session_takes_is_cut_off_before_it_is_read() -> None:
    settings = Settings(comm=CommSettings(shared_memory=False, max_payload=2**18))
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        with attach_here(address, settings, ClientRole.USER) as bad:
            assert isinstance(bad.session, AttachedSession)
            frame = PREFIX.pack(MAGIC, FRAME_VERSION, 17, 10, 2**39)
            way = bad.session.link._connection
            assert way is not None
            bad.session.call(lambda: way.write([frame]))
            with pytest.raises(SapwoodError, match="549755813888 bytes, over the limit of 262144"):
                bad.submit(pow, 2, 2).result(PATIENCE)
        assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4


def test_agents_forget_the_runs_of_a_client_that_is_gone(until: Until) -> None:
    settings = Settings()
    order = agent_requests.OpenRun("r", b"", b"", 0, 1, "f")
    value = msgspec.to_builtins(order, builtin_types=(bytes,))
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        root = root_of(cluster)
        lost = attach_here(address, settings, ClientRole.USER).session
        assert isinstance(lost, AttachedSession)
        assert lost.ask(1, agent_requests.OPEN_RUN, value).exception(PATIENCE) is not None
        way = lost.link._connection
        assert way is not None
        lost.call(way.abort)
        until(lambda: len(server_of(address)._clients) == 1)
        closed = root.ask(1, agent_requests.CLOSE_RUN, "r").result(PATIENCE)
        assert closed["statistics"] is None
        assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4
        lost.close()


def test_a_client_that_sends_what_no_link_takes_is_cut_off_alone() -> None:
    settings = Settings()
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        with attach_here(address, settings, ClientRole.USER) as bad:
            session: Any = bad.session
            large = bytes(wire.MAX_EVENT + 1)
            session.call(lambda: session.link.write(ev.Ask(1, "ping", 77, large, None)))
            with pytest.raises(SapwoodError, match="over the limit of"):
                bad.submit(pow, 2, 2).result(PATIENCE)
        assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4


def test_patient_contracts_delay_no_revocation_and_no_expansion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings()
    over = threading.Event()
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        root, session = root_of(cluster), cluster.session
        assert isinstance(session, AttachedSession)
        invited: Any = SimpleNamespace(revoke=lambda _id: False, close=lambda: None)
        monkeypatch.setattr(root, "invited", invited)
        monkeypatch.setattr(root, "contract", lambda *_args: over.wait(PATIENCE))
        removing = [session.link.ask(session_calls.CONTRACT, [[1], 60.0, ""]) for _ in range(8)]
        try:
            revoked = session.link.ask(session_calls.REVOKE_INVITATION, "none")
            assert revoked.result(PATIENCE / 2) is False
            added = session.link.ask(session_calls.EXPAND, [{"parent": 0, "host": 0}])
            assert added.result(PATIENCE / 2) == [2]
            assert not any(one.done() for one in removing)
        finally:
            over.set()
        for one in removing:
            one.result(PATIENCE)


def place_of(address: SessionAddress) -> str:
    return str(Path(os.environ["XDG_RUNTIME_DIR"]) / f"{address.session}.sock")


def stranger(address: SessionAddress) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(PATIENCE)
    made.connect(place_of(address))
    return made


def farewell_of(sock: socket.socket) -> str:
    """Return why a root ends a connection."""
    reader = wire.WireReader(wire.TO_CLIENT)
    while data := sock.recv(65536):
        for message in reader.feed(data):
            assert isinstance(message, wire.NotAdmitted)
            return message.error.what
    return ""


def test_strangers_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    with local_session_server(settings, agents=1) as address, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(stranger(address)) for _ in range(MAX_STRANGERS + 8)]
        with attach_here(address, settings) as cluster:
            assert cluster.submit(pow, 2, 3).result(PATIENCE) == 8
        assert "others wait" in farewell_of(silent[0])
        monkeypatch.setattr("sapwood.session_server.server.STRANGER_PATIENCE", 0.05)
        assert "in time" in farewell_of(stack.enter_context(stranger(address)))


def test_little_is_read_of_a_stranger() -> None:
    with local_session_server(Settings(), agents=1) as address:
        for size, nbytes in ((2**20, 0), (10, 2**39)):
            with stranger(address) as sock:
                sock.sendall(PREFIX.pack(MAGIC, FRAME_VERSION, 1, size, nbytes))
                assert "over the limit" in farewell_of(sock)


def attaches_and_dies(address: SessionAddress) -> list[Any]:
    """Attach as owner, hear what was kept, and end without a word; return what was heard."""
    asked = wire.AskToAttach(version=wire.VERSION, session=address.session)
    heard: list[Any] = []
    reader = wire.WireReader(wire.TO_CLIENT)
    with stranger(address) as sock:
        sock.sendall(b"".join(wire.pack(asked, sharing=False)))
        while not any(isinstance(one, wire.AllHandedOver) for one in heard):
            heard += reader.feed(sock.recv(65536))
    return heard


def test_what_was_kept_waits_until_somebody_has_it(until: Until) -> None:
    settings = Settings()
    with local_session_server(settings, agents=2) as address:
        cluster = attach_here(address, settings)
        root, server = root_of(cluster), server_of(address)
        assert isinstance(root, ServedSession)
        stream = cluster.session.open_stream("echo", {"x": "sum"})
        assert stream.broadcast({"x": 2}).result(PATIENCE).total == {"x": 4}
        agent = cluster.agents[0].pid
        os.kill(agent, signal.SIGSTOP)
        try:
            stream.broadcast({"x": 3})
            cluster.detach()
        finally:
            os.kill(agent, signal.SIGCONT)
        until(lambda: root.call(lambda: server.kept_streams.nbytes))
        for _ in range(2):
            heard = attaches_and_dies(address)
            assert [one.wave for one in heard if isinstance(one, ev.WaveCompleted)] == [2]
            until(lambda: root.call(lambda: server.owner) is None)
        with attach_here(address, settings) as later:
            assert isinstance(later.session, AttachedSession)
            (kept,) = later.session.kept
            assert [one.result(PATIENCE).total for one in kept.waves] == [{"x": 6}]
            until(lambda: not root.call(lambda: server.kept_streams.nbytes))
            kept.handle.close()


NOT_POSSIBLE = (
    ev.Ask(77, "nothing", 1, b"", None),
    ev.Ask(-1, "nothing", 2, b"", None),
    mev.SendTagged(1, (77,), 3, b"", None),
    mev.SendTagged(2, (1,), 2**62, b"", None),
    mev.SendTagged(3, (), 2, b"", None),
    mev.CancelSend(9, 77),
    ev.Read(5, 77, 3),
    mev.PostReceive(1, 77, 3),
    mev.PostReceive(2, -5, 2**62),
    gev.EnterGroup(((9, 12),), "g"),
    gev.EnterGroup(((0, 2**60),), "g"),
    gev.EnterGroup((), "g"),
    ev.OpenStream(StreamSpec(stream=1, handler="echo", members=((0, 2**60),)), paced=False),
    ev.OpenStream(StreamSpec(stream=2, handler="", members=((1, 1),)), paced=False),
)


@pytest.mark.nightly
def test_what_cannot_be_done_ends_one_client_at_most() -> None:
    settings = Settings()
    with (
        local_session_server(settings, agents=1) as address,
        attach_here(address, settings) as cluster,
    ):
        for event in NOT_POSSIBLE:
            with attach_here(address, settings, ClientRole.USER) as bad:
                session = bad.session
                assert isinstance(session, AttachedSession)
                session.call(partial(session.link.write, event))
            assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4, event
