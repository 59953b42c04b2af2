"""What the server of a session lets clients do, without the session."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm.messages import FilterAt, StreamSpec
from sapwood.comm.streams.control import STAGE
from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.core.topology import flat
from sapwood.environment.settings import DisconnectPolicy
from sapwood.session.interface import NewAgent
from sapwood.session_server import session_calls, wire
from sapwood.session_server.admission import MAX_WATCHERS
from sapwood.session_server.client import ServedClient
from sapwood.session_server.rights import ALL, Allowed, ClientRole
from sapwood.session_server.server import SessionServer

LARGEST = 2**20


class Told:
    """A connection: what the client hears."""

    def __init__(self) -> None:
        self.reader = wire.WireReader(wire.TO_CLIENT)
        self.heard: list[Any] = []
        self.abort = self.close = lambda: None

    def write(self, buffers: list[bytes]) -> None:
        for one in buffers:
            self.heard += self.reader.feed(bytes(one))


class Invited:
    """The invitations of a session: records the requests."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.denied: list[frozenset[str]] = []
        self.deny = self.denied.append

    def create(self, *wanted: Any) -> list[str]:
        self.made.append(wanted)
        return ["line"]


class Root:
    """A root with a session that takes note of its events."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.invited = Invited()
        streams = iter(range(1, 100))
        self.session = SimpleNamespace(
            tree=flat(2),
            loop=SimpleNamespace(call_later=lambda *_: None),
            options=SimpleNamespace(shared_memory=False),
            failure=None,
            platforms=(),
            pythons=(),
            host=SimpleNamespace(
                hosts=(), new_stream=lambda: next(streams), post=self.posted.append
            ),
            supervisor=SimpleNamespace(processes=[None] * 3),
            processes=lambda ranks: [SimpleNamespace() for _rank in ranks],
            post_of_stream=self.posted.append,
            of_stream={},
            streams=SimpleNamespace(filters=self),
            entering={},
            of_group={},
            invited=self.invited,
            invitations=self.invited,
            call=lambda do, *given: do(*given),
            answer=lambda *_: None,
            subscribe=lambda *_: None,
        )
        self.server = SessionServer(
            self.session,  # type: ignore[arg-type]
            "a",
            "night",
            lambda _asked: ALL,
            lambda: None,
            lambda _reason: None,
            DisconnectPolicy(),
            largest=LARGEST,
            clock=lambda: 1000.0,
            executor=ThreadPoolExecutor(1),
        )
        self.server.news.processes = list  # type: ignore[method-assign]

    def client(
        self, allowed: Allowed, role: ClientRole, label: str = "me", *, owned: bool = False
    ) -> tuple[ServedClient, Told]:
        """Have one let in, and return it with what it hears."""
        told = Told()
        number = self.server.open(told, lambda _asked: allowed, here=False)  # type: ignore[arg-type]
        client = self.server._clients[number]
        asked = wire.AskToAttach(
            version=wire.VERSION, session="a", role=role.value, label=label, owned=owned
        )
        client.take(asked)
        return client, told


def by_credential(*roles: ClientRole) -> Allowed:
    return Allowed(frozenset(roles), time.time() + 1000, ("aa", "bb"))


CLIENTS = [
    (by_credential(ClientRole.USER), ClientRole.USER),
    (by_credential(ClientRole.OWNER), ClientRole.OWNER),
    (by_credential(ClientRole.MERGER), ClientRole.MERGER),
    (Allowed(frozenset({ClientRole.USER})), ClientRole.USER),
]

AT_ROOT = [
    (FilterAt("rank 0", b"f"),),
    (FilterAt("depth 0", b"", b"f"),),
    (FilterAt("*", b"f"),),
    (FilterAt("*", b"f"), FilterAt("rank 0")),  # a part over several sessions leaves the second
    (FilterAt("depth 1", b"f"), FilterAt("depth 0", b"f")),
]


@pytest.mark.parametrize(("allowed", "role"), CLIENTS)
@pytest.mark.parametrize("filters", AT_ROOT)
def test_filters_of_others_do_not_run_at_the_root(
    allowed: Allowed, role: ClientRole, filters: tuple[FilterAt, ...]
) -> None:
    root = Root()
    client, told = root.client(allowed, role)
    with pytest.raises(SecurityError, match="run as the user of its head") as refused:
        client.take(ev.OpenStream(StreamSpec(1, "echo", ((1, 3),), filters=filters)))
    assert 'FilterAt("depth 1")' in str(refused.value)
    assert root.posted == []
    below = (FilterAt("depth 1", b"f"), FilterAt("rank 7", b"f"), FilterAt("*"))
    client.take(ev.OpenStream(StreamSpec(1, "echo", ((1, 3),), filters=below)))
    client.take(ev.SweepStream(1, 1, STAGE, below))
    assert len(root.posted) == 2
    client.take(ev.SweepStream(1, 2, STAGE, filters))
    assert len(root.posted) == 2
    assert isinstance(told.heard[-1], wire.SweepRefused)
    assert "run as the user of its head" in told.heard[-1].error.what


@pytest.mark.parametrize(
    ("allowed", "role"),
    [
        (ALL, ClientRole.OWNER),
        (ALL, ClientRole.MERGER),
        (Allowed(frozenset({ClientRole.MERGER})), ClientRole.MERGER),
    ],
)
@pytest.mark.parametrize("filters", AT_ROOT)
def test_those_of_the_same_user_do(
    allowed: Allowed, role: ClientRole, filters: tuple[FilterAt, ...]
) -> None:
    root = Root()
    client, _ = root.client(allowed, role)
    client.take(ev.OpenStream(StreamSpec(1, "echo", ((1, 3),), filters=filters)))
    client.take(ev.SweepStream(1, 1, STAGE, filters))
    assert len(root.posted) == 2


def invite(root: Root, client: ServedClient, lifetime: float) -> Any:
    call = wire.SessionCall(1, session_calls.INVITE, [1, lifetime, ""])
    return root.server.calls.answer(client, call).result(10)


@pytest.mark.slow
def test_an_invitation_ends_with_the_credential_of_who_invites() -> None:
    root = Root()
    allowed = Allowed(frozenset({ClientRole.OWNER}), 1060.0, ("aa", "bb"))
    client, _ = root.client(allowed, ClientRole.OWNER)
    invite(root, client, 86400.0)
    invite(root, client, 5.0)
    here, _ = root.client(ALL, ClientRole.USER)
    invite(root, here, 86400.0)
    assert root.invited.made == [
        (1, 60.0, "", ("aa", "bb")),
        (1, 5.0, "", ("aa", "bb")),
        (1, 86400.0, "", ()),
    ]
    root.server.deny(frozenset({"bb"}))
    assert root.invited.denied == [frozenset({"bb"})]
    with pytest.raises(SecurityError, match="was revoked"):  # it was under way
        invite(root, client, 5.0)
    assert len(root.invited.denied) == 2
    assert invite(root, here, 5.0) == ["line"]


def test_who_may_own_a_session_changes_its_agents_also_beside_its_owner() -> None:
    root = Root()
    changed: list[Any] = []
    root.session.expand = changed.append
    root.session.contract = lambda *what: changed.append(what)
    user, _ = root.client(by_credential(ClientRole.USER), ClientRole.USER)
    beside, _ = root.client(ALL, ClientRole.USER)
    for name, value in (
        (session_calls.EXPAND, [{"parent": 0, "host": 0}]),
        (session_calls.CONTRACT, [[1], 1.0, "gone\x1b[2J"]),
    ):
        call = wire.SessionCall(1, name, value)
        with pytest.raises(SecurityError, match="only an owner"):
            root.server.calls.answer(user, call)
        root.server.calls.answer(beside, call).result(5.0)
    assert changed == [[NewAgent()], ([1], 1.0, "gone?[2J")]
    for seconds in (-1.0, 1e9, float("nan")):
        call = wire.SessionCall(1, session_calls.CONTRACT, [[1], seconds, ""])
        with pytest.raises(ConfigurationError, match="say how many seconds"):
            root.server.calls.answer(beside, call)


def test_who_watches_says_little_and_leaves_room() -> None:
    root = Root()
    watching = Allowed(frozenset({ClientRole.WATCHER}), time.time() + 1000, ("aa",))
    for _ in range(MAX_WATCHERS):
        client, _ = root.client(watching, ClientRole.WATCHER)
        assert client.reader.max_payload == wire.MAX_STRANGE
    with pytest.raises(ConfigurationError, match=f"{MAX_WATCHERS} clients watch"):
        root.client(watching, ClientRole.WATCHER)
    client, _ = root.client(ALL, ClientRole.OWNER)
    assert client.reader.max_payload == LARGEST


def test_a_label_is_shown_without_what_steers_a_terminal() -> None:
    client, _ = Root().client(ALL, ClientRole.USER, "ann\x1b[2J\n\u202eé")
    assert client.label == "ann?[2J??é"


def test_a_root_that_calls_no_own_filters_needs_not_refuse_them() -> None:
    root = Root()
    root.session.streams.filters = None
    client, _ = root.client(*CLIENTS[0])
    client.take(ev.OpenStream(StreamSpec(1, "echo", ((1, 3),), filters=AT_ROOT[0])))
    assert len(root.posted) == 1


@pytest.mark.parametrize(
    ("owned", "leaves", "abandoned"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_only_an_owner_that_did_not_leave_abandons_its_session(
    owned: bool, leaves: bool, abandoned: bool
) -> None:
    root = Root()
    client, _ = root.client(ALL, ClientRole.OWNER, owned=owned)
    assert not root.server.abandoned
    if leaves:
        client.take(wire.SessionCall(1, session_calls.DETACH))
    root.server.connection_closed(client.number, "it was killed")
    assert root.server.abandoned is abandoned
    user, _ = root.client(ALL, ClientRole.USER)
    root.server.connection_closed(user.number, "it was killed")
    assert root.server.abandoned is abandoned
    root.client(ALL, ClientRole.OWNER)
    assert not root.server.abandoned
