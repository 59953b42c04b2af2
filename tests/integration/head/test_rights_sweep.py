"""Every call and order of a head, in every role, about own objects and those of others.

What each role may do is in the table of the documentation. Values that are malformed are refused
in every role, and never end in an internal error.
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sapwood.content import messages as sm
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import ErrorRecord, InternalError, SecurityError
from sapwood.environment.configuration import load_configuration
from sapwood.head import session_records
from sapwood.head.folder import head_folder
from sapwood.head.front import SLOW_CALLS
from sapwood.head.head import Head
from sapwood.head.ledger import MOST_NOTED, EventQuery
from sapwood.head.node_sessions import NodeSession
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.events import Events
from sapwood.head.parts.links import Links
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import RIGHT_OF_ORDER, Orders
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.parts.web import WebServer
from sapwood.head.protocol import greeting
from sapwood.head.protocol.call import HeadCall
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.protocol.framing import Reply, ServiceCall, raw
from sapwood.head.role_table import CALLS, Permission, access_to_call, access_to_order
from sapwood.nodes import messages
from sapwood.security.authority import make_request
from sapwood.security.rights import ROLES, Rights
from sapwood.session.options import SessionOptions
from sapwood.session_server.making import session_options
from sapwood_simulation.hostile import HostilePeer

PATIENCE = 30.0
KEY = "5" * 64
_, REQUEST = make_request()


class Caller(ServiceCaller):
    """A client whose answers are kept."""

    numbers = itertools.count(1000)

    def __init__(self, rights: Rights | None, *, local: bool) -> None:
        connection: Any = SimpleNamespace(
            facts=lambda: SimpleNamespace(address="192.0.2.7:1"),
            abort=self.gone,
            close=self.gone,
        )
        super().__init__(next(self.numbers), connection)
        self.address = "" if local else "192.0.2.7:1"
        self.rights = rights
        self.answered = threading.Event()
        self.reply: Reply | None = None

    def write(self, message: msgspec.Struct) -> None:
        if isinstance(message, Reply):
            self.reply = message
            self.answered.set()


class SweptHead:
    """A head without nodes, whose calls start no process.

    Attributes:
        head: The head.
        asked: The orders that reached a node.
    """

    def __init__(self, head: Head, patch: pytest.MonkeyPatch) -> None:
        self.head = head
        self.asked: list[str] = []
        patch.setattr(head.control, "ask", self._ask)
        patch.setattr(head.sessions, "create", lambda *_: self._done(None))
        patch.setattr(head.sessions, "end", lambda *_: self._done(None))
        patch.setattr(head.runs, "create", lambda _: None)
        patch.setattr(head.runs, "cancel", lambda _: self._done(None))
        patch.setattr(head.front.http, "serving", lambda: self._done(None))
        patch.setattr(head.front.http, "redeem", lambda _: "x")
        patch.setattr(head.front.http, "serve", lambda *_: greeting.Greeting(**GREETING))
        for owner in ("me", "other"):
            creator = session_records.SessionCreator(
                names=list(ROLES["user"]), ids=("x",), owner=owner
            )
            record = session_records.SessionRecord(
                id=IDS[owner], name=owner, state="ready", on="head", created=1.0, creator=creator
            )
            head.sessions._records[record.id] = record
        patch.setattr(head.sessions, "secret_of", lambda _: "secret")

    def _ask(self, _host: int, handler: str, _value: Any) -> Future[Any]:
        self.asked.append(handler)
        return self._done(None)

    @staticmethod
    def _done(value: Any) -> Future[Any]:
        made: Future[Any] = Future()
        made.set_result(value)
        return made

    def call(self, caller: Caller, name: str, value: Any) -> ErrorRecord | None:
        """Make a call as its bytes would; return the error, if there is one."""
        self.head.front.thread.call(
            lambda: self.head.front.server._serve(caller, ServiceCall(1, name, raw(value)))
        )
        assert caller.answered.wait(PATIENCE), f"{name} is not answered"
        assert caller.reply is not None
        error = caller.reply.error
        assert error is None or error.code != InternalError.code, (name, value, error)
        return error


IDS = {"me": "00000001", "other": "00000002"}
GREETING: dict[str, Any] = {"cluster": "x", "authority": b"", "challenge": b""}


@pytest.fixture(scope="module")
def swept(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SweptHead]:
    del nothing_is_left_behind_by_all
    folder: Path = tmp_path_factory.mktemp("head")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        configuration = load_configuration({"nodes.listen": "127.0.0.1:0"}, folder=folder)
        options: SessionOptions = session_options(configuration.settings, {})
        nodes = configuration.settings.nodes
        head = Head("default", head_folder("default"), options, nodes, None, configuration)
        head.start()
        made = SweptHead(head, patch)
        everybody = threading.Barrier(SLOW_CALLS)
        for _ in range(SLOW_CALLS):
            head.front.pool.submit(everybody.wait, PATIENCE)
        yield made
        head.sessions._records.clear()
        head.close()


ROLE_RIGHTS: dict[str, frozenset[str] | None] = {
    "none": None,
    **{role: frozenset(names) for role, names in ROLES.items()},
}


def caller_of(role: str, *, local: bool) -> Caller:
    names = ROLE_RIGHTS[role]
    if names is None:
        return Caller(None, local=local)
    return Caller(Rights(names=names, ids=("x",), owner="me", subject="me"), local=local)


def valid(call: str, owner: str) -> Any:
    """Return the values of a call, about an object of an owner where it is about one."""
    ended = {"run": "r", "session": IDS[owner], "state": "done", "seconds": 1.0}
    order = {"component": "x", "action": "stop"}
    session = {"session": IDS[owner]}
    values: dict[HeadCall[..., Any], dict[str, Any]] = {
        Orders.give: {"order": order_of(messages.CLOSE, owner)},
        Orders.taken: {"number": 0},
        Links.certify: {"request": REQUEST},
        Links.delegate: {"tree": "x", "path": "/nonexistent"},
        Links.undelegate: {"tree": "x"},
        Runs.report: {"run": ended},
        RunRates.measured: {"key": KEY},
        RunRates.keep: {"key": KEY, "rates": b"x"},
        Components.logs: {"host": 0, "read": {}},
        Components.act: {"host": 1, "order": order},
        Events.find: {"query": {}},
        Events.follow: {"query": {}},
        Policy.change: {"key": "limits.events", "value": "1000000"},
        Nodes.remove: {"name": "nonexistent"},
        JoinTokens.revoke: {"token": "x"},
        IssuedCredentials.issue: {"wanted": {"rights": ["connect"]}},
        IssuedCredentials.revoke: {"block": "6mka3zni56vapays"},
        Sessions.create: {"wanted": {"on": "head"}},
        Sessions.certify: {**session, "request": REQUEST},
        Sessions.credential: session,
        Sessions.merge_credential: session,
        Sessions.find: session,
        Sessions.end: session,
        Sessions.act_for: session,
        Sessions.report: {"report": {"id": "x", "state": "ready"}},
        Sessions.report_tree: {"tree": {"id": "x", "places": []}},
        Sessions.report_metrics: {"metrics": {"id": "x", "metrics": {}}},
        Sessions.changed_trees: {"known": {}},
        Sessions.report_refused: {"refused": {**session, "reason": "x"}},
        Runs.create: {"wanted": {"spec": {"program": "x"}}},
        Runs.find: {"run": "x"},
        Runs.cancel: {"run": "x"},
        WebServer.speak_for: {"address": "192.0.2.8"},
        WebServer.serve: {"path": "/nonexistent", "request": b"x"},
        WebServer.note_refused: {"address": "x", "reason": "x"},
        WebServer.open: {"wanted": {"rights": ["connect"]}},
        WebServer.redeem: {"ticket": "x"},
    }
    return values.get(CALLS[call], {})


def body_of(order: str, owner: str) -> Any:
    """Return what an order carries, about processes of an owner."""
    file = sm.MissingPart("0" * 64, 1)
    command = 1 if owner == "me" else 2
    bodies: dict[str, Any] = {
        messages.OPEN: messages.OpenProcesses(
            session=f"new of {owner}",
            host=1,
            plan=ZygotePlan(()),
            configuration=b"",
            environment={},
            life=1,
        ),
        messages.RESUME: messages.ResumeProcesses(f"former of {owner}", 1),
        messages.LISTEN: messages.ListenForNodes("127.0.0.1:0"),
        messages.DETOUR: messages.NoteDetour(owner, messages.Detour(1, 1, 1)),
        messages.CONFIGURE: messages.ConfigureSession(owner, b""),
        messages.SPAWN: messages.SpawnProcesses(owner, []),
        messages.KILL: messages.KillProcess(owner, 1, 9),
        messages.COMMAND_START: messages.StartCommand(command=10 + command, arguments=[b"true"]),
        messages.COMMAND_INPUT: messages.CommandInput(command, b""),
        messages.COMMAND_SIGNAL: messages.SignalCommand(command, 15),
        messages.COMMAND_CANCEL: messages.CancelCommand(command),
        sm.WRITE: sm.StagePieces([]),
        sm.FETCH: sm.FetchContent("d", "tls://n1@127.0.0.1:1", [file]),
        sm.FIND: sm.FindFiles("/"),
        sm.READ: sm.ReadPiece("/", b"x", 0, 1),
    }
    plain = {messages.CLOSE: owner, sm.REMOVE: "x", sm.SERVE: "127.0.0.1:0"}
    return messages.to_value(bodies[order]) if order in bodies else plain.get(order)


def order_of(order: str, owner: str) -> Any:
    return {"host": 1, "handler": order, "value": body_of(order, owner)}


def owning(swept: SweptHead, caller: Caller) -> None:
    """Give a client a session on a node and a command there, and another one the same."""
    other = caller_of("user", local=False)
    head = swept.head
    head.on_nodes._sessions.clear()
    head.commands._owners.clear()
    for name, command, owner in (("me", 1, caller), ("other", 2, other)):
        head.on_nodes._sessions[name, 1] = NodeSession(
            name, 1, owner, head.front.server, head.on_nodes._exited
        )
        head.commands._owners[command, 1] = (owner, lambda: None)


@pytest.fixture(autouse=True)
def parting(swept: SweptHead, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do nothing about sessions on nodes that exist in the list of the head only."""
    monkeypatch.setattr(swept.head.control.access, "part", lambda _: None)
    monkeypatch.setattr(swept.head.control.access, "join", lambda _: None)
    yield
    swept.head.on_nodes._sessions.clear()
    swept.head.commands._owners.clear()


# --- the table ------------------------------------------------------------------------------------


PLACES = pytest.mark.parametrize("local", [False, True], ids=["far", "here"])


@pytest.mark.row("C5-INFRA")
@PLACES
@pytest.mark.parametrize("role", ROLE_RIGHTS)
def test_every_call_in_every_role(swept: SweptHead, role: str, *, local: bool) -> None:
    rights, wrong = ROLE_RIGHTS[role], []
    for call, owner in itertools.product(CALLS, ("me", "other")):
        caller = caller_of(role, local=local)
        owning(swept, caller)
        if call == Orders.give.name:
            continue  # the next test
        error = swept.call(caller, call, valid(call, owner))
        found = error is None or error.code != SecurityError.code
        access = Permission.NO if rights is None else access_to_call(call, rights)
        expected = {
            Permission.NO: False,
            Permission.ALL: True,
            Permission.OWN: owner == "me" or not CALLS[call].reach.method_checks,
            Permission.HERE: local,
        }[access]
        if found != expected:
            wrong.append((call, owner, error))
    assert not wrong


@pytest.mark.row("C5-INFRA")
@PLACES
@pytest.mark.parametrize("role", ROLE_RIGHTS)
def test_every_order_in_every_role(swept: SweptHead, role: str, *, local: bool) -> None:
    rights, wrong = ROLE_RIGHTS[role], []
    for order, owner in itertools.product(RIGHT_OF_ORDER, ("me", "other")):
        caller = caller_of(role, local=local)
        owning(swept, caller)
        swept.asked.clear()
        error = swept.call(caller, Orders.give.name, {"order": order_of(order, owner)})
        access = Permission.NO if rights is None else access_to_order(order, rights)
        expected = access is Permission.ALL or (access is Permission.OWN and owner == "me")
        if swept.asked != [order] * expected:
            wrong.append((order, owner, error))
    assert not wrong


# --- the loop -------------------------------------------------------------------------------------


FILES = ("open", "os.", "shutil.", "sqlite3.", "subprocess.Popen", "socket.connect")
"""Beginnings of the names of events that a call raises which waits for a disk or a process."""

_watched: list[str] | None = None


def _watch(event: str, args: tuple[Any, ...]) -> None:
    on_loop = _watched is not None and threading.current_thread().name == "sapwood-service"
    if _watched is not None and on_loop and event.startswith(FILES):
        _watched.append(f"{event}: {args[:1]}")


class WatchedStore:
    """A store that notes on which threads it is used."""

    def __init__(self, store: Any, used: set[str]) -> None:
        self._store = store
        self._used = used

    def __getattr__(self, name: str) -> Any:
        thread = threading.current_thread().name
        # On the loop there are timers as well: only what a call does counts.
        # Not extract_stack, which reads the lines of the sources: it opens files.
        serves = any(frame.f_code.co_name == "_serve" for frame, _ in traceback.walk_stack(None))
        if serves or thread != "sapwood-service":
            self._used.add(thread)
        return getattr(self._store, name)


def test_no_call_waits_for_the_store_or_a_file_on_the_loop(
    swept: SweptHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such calls are declared as slow: the loop answers other callers meanwhile."""
    global _watched  # noqa: PLW0603 - an audit hook cannot be removed
    used: set[str] = set()
    store = swept.head._store
    monkeypatch.setattr(store, "_open", WatchedStore(store._open, used))
    sys.addaudithook(_watch)
    wrong: dict[str, list[str]] = {}
    seen: set[str] = set()
    for call, owner in itertools.product(CALLS, ("me", "other")):
        caller = caller_of("owner", local=True)
        owning(swept, caller)
        used.clear()
        _watched = []
        try:
            swept.call(caller, call, valid(call, owner))
        finally:
            found, _watched = _watched, None
        seen |= used
        if found or "sapwood-service" in used:
            wrong[call] = [*found, *used]
    assert not wrong
    assert seen, "no use of the store is noticed"
    _watched = []
    swept.head.front.thread.call(lambda: Path(__file__).read_bytes())
    found, _watched = _watched, None
    assert found, "a file that is read on the loop is not noticed"


# --- values ---------------------------------------------------------------------------------------


MALFORMED: list[Any] = [
    None,
    0,
    -5,
    2**63,
    "",
    "\x1b]0;x\x07",
    "x" * 10_000,
    b"\xff",
    [],
    [None],
    {},
    {"id": 5},
    {"session": "../../x", "request": b""},
    {"name": "x", "drain": -1.0},
    {"host": -1, "handler": "processes.open", "value": None},
    {"host": 1, "handler": "node.leave", "value": None},
    float("nan"),
]
"""Values for every call; no one is malformed for all of them."""

HARMFUL = {WholeCluster.down.name, WebServer.speak_for.name}


@pytest.mark.parametrize("role", ROLE_RIGHTS)
def test_malformed_values_in_every_role(swept: SweptHead, role: str) -> None:
    source = HostilePeer(11)
    rights = ROLE_RIGHTS[role]
    for call in CALLS.keys() - HARMFUL:
        for value in [*MALFORMED, *(source.value() for _ in range(8))]:
            caller = caller_of(role, local=True)
            error = swept.call(caller, call, value)
            if rights is None or access_to_call(call, rights) is Permission.NO:
                assert error is not None, (call, value)
                assert error.code == SecurityError.code, (call, value, error)


@pytest.mark.parametrize("role", ["owner", "user"])
def test_malformed_orders_reach_no_node(swept: SweptHead, role: str) -> None:
    """An order whose value the head reads is checked there; others are checked by the node."""
    read_by_head = [one for one in RIGHT_OF_ORDER if not one.startswith("stage.")]
    read_by_head.remove(messages.LISTEN)
    read_by_head.remove(messages.CLOSE)
    source = HostilePeer(12)
    for order in read_by_head:
        swept.asked.clear()
        for value in [*MALFORMED, *(source.value() for _ in range(8))]:
            caller = caller_of(role, local=False)
            owning(swept, caller)
            body = {"order": {"host": 1, "handler": order, "value": value}}
            assert swept.call(caller, Orders.give.name, body) is not None, (order, value)
        assert not swept.asked, order


def test_what_was_taken_is_not_taken_by_others(swept: SweptHead) -> None:
    mine, other = caller_of("user", local=False), caller_of("user", local=False)
    given: list[Any] = []
    question: Any = SimpleNamespace(give=lambda *values: given.append(values))
    untaken = swept.head.commands._untaken
    untaken[77] = (mine, question)
    assert swept.call(other, Orders.taken.name, {"number": 77}) is None
    assert (77 in untaken, given) == (True, [])
    assert swept.call(mine, Orders.taken.name, {"number": 77}) is None
    assert (77 in untaken, given) == (False, [(None, None)])


def test_a_delegation_is_ended_by_its_client_only(swept: SweptHead) -> None:
    mine, other = caller_of("user", local=False), caller_of("user", local=False)
    ended: list[str] = []
    swept.head.part(Links)._delegated["t", False] = (mine.number, lambda: ended.append("t"))
    assert swept.call(other, Links.undelegate.name, {"tree": "t"}) is None
    assert not ended
    assert swept.call(mine, Links.undelegate.name, {"tree": "t"}) is None
    assert ended == ["t"]


def test_a_credential_does_not_push_other_events_out_of_the_ledger(swept: SweptHead) -> None:
    issued = swept.head.ledger.find(EventQuery(kinds=["credential.issued"], limit=10_000))
    for number in range(MOST_NOTED + 50):
        told = {"run": f"r{number}", "session": "", "state": "done", "seconds": 1.0}
        flooding = Rights(
            names=frozenset(ROLES["user"]), ids=("y",), owner="flood", subject="flood"
        )
        caller = Caller(flooding, local=False)
        assert swept.call(caller, Runs.report.name, {"run": told}) is None
    noted = swept.head.ledger.find(EventQuery(kinds=["run.ended"], limit=10_000))
    assert sum(one.facts.get("by") == "flood" for one in noted) == MOST_NOTED
    assert swept.head.ledger.find(EventQuery(kinds=["credential.issued"], limit=10_000)) == issued


def test_a_node_does_not_push_other_events_out_of_the_ledger(swept: SweptHead) -> None:
    """A node that joined asks for certificates as often as it likes."""
    joined = swept.head.ledger.find(EventQuery(kinds=["node.joined"]))
    for _ in range(MOST_NOTED + 50):
        swept.head.control.issuer._note("certificate.renewed", "it got one", node="flooding")
    asked = EventQuery(kinds=["certificate.renewed"], nodes=["flooding"], limit=10_000)
    assert len(swept.head.ledger.find(asked)) == MOST_NOTED
    assert swept.head.ledger.find(EventQuery(kinds=["node.joined"])) == joined
