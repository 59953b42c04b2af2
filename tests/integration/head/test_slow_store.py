"""A store that does not answer delays the calls that need it, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from sapwood.core.errors import SecurityError
from sapwood.environment.configuration import load_configuration
from sapwood.head.calls import IssueCredential
from sapwood.head.folder import find_head, head_folder
from sapwood.head.front import SLOW_CALLS
from sapwood.head.head import Head
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.parts.web import WebServer
from sapwood.head.role_table import CALLS
from sapwood.head.session_records import CreateSession, SessionRecord, SessionReport
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.nodes.joining import JoinRequest
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.authority import make_request
from sapwood.session_server.making import session_options

PATIENCE = 30.0

RECORD = SessionRecord(id="00000001", name="day", state="ready", on="head", created=1.0, pid=1)

WRITING: dict[str, Callable[[ServiceClient], Future[Any]]] = {
    "token.create": lambda head: head.ask(JoinTokens.create),
    "credential.issue": lambda head: head.ask(
        IssuedCredentials.issue, IssueCredential(rights=["connect"], lifetime=60.0)
    ),
    "credential.revoke": lambda head: head.ask(IssuedCredentials.revoke, "6mka3zni56vapays"),
    "policy.set": lambda head: head.ask(Policy.change, "limits.events", "1000000"),
    "rates.keep": lambda head: head.ask(RunRates.keep, "5" * 64, b"x"),
    "session.create": lambda head: head.ask(Sessions.create, CreateSession(name="night")),
    "session.report": lambda head: head.ask(
        Sessions.report, SessionReport(id=RECORD.id, state="ready")
    ),
}
"""Calls that write to the store."""

OTHERS = {one for one in CALLS.values() if not one.slow} - {WholeCluster.down, WebServer.urls}


class SlowStore:
    """A store whose writes wait."""

    def __init__(self, head: Head, patch: pytest.MonkeyPatch) -> None:
        self.reached, self.may_write = threading.Event(), threading.Event()
        self._transact = head._store.opened.transact
        patch.setattr(head._store.opened, "transact", self._wait)

    def _wait(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        assert self.may_write.wait(PATIENCE)
        return self._transact(*args, **kwargs)


@pytest.fixture(scope="module")
def head(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Head]:
    del nothing_is_left_behind_by_all
    folder: Path = tmp_path_factory.mktemp("head")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        settings = load_configuration({"nodes.listen": "127.0.0.1:0"}, folder=folder).settings
        options = session_options(settings, {})
        made = Head("default", head_folder("default"), options, settings.nodes)
        made.start()
        everybody = threading.Barrier(SLOW_CALLS)
        wait([made.front.pool.submit(everybody.wait, PATIENCE) for _ in range(SLOW_CALLS)])
        yield made
        made.close()


@pytest.fixture
def clients(head: Head) -> Iterator[tuple[ServiceClient, ServiceClient]]:
    del head
    way = UnixWay(find_head("default").socket)
    first, second = ServiceClient(way), ServiceClient(way)
    yield first, second
    first.close()
    second.close()


@pytest.mark.parametrize("name", WRITING)
def test_a_slow_store_delays_no_calls_that_do_not_need_it(
    head: Head,
    clients: tuple[ServiceClient, ServiceClient],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writing, other = clients
    head.sessions._records[RECORD.id] = RECORD
    begun: Future[Any] = Future()
    begun.set_exception(TimeoutError("this test starts no process"))
    monkeypatch.setattr(head.sessions.processes, "begin", lambda _plan: begun)
    store = SlowStore(head, monkeypatch)
    try:
        written = WRITING[name](writing)
        assert store.reached.wait(PATIENCE)
        assert other.call_within(PATIENCE, WholeCluster.facts).name == "default"
        assert other.call_within(PATIENCE, Nodes.every) == []
        assert RECORD.id in {one.id for one in other.call_within(PATIENCE, Sessions.every)}
        assert other.call_within(PATIENCE, Runs.every) == []
        answers = [other.ask_raw(one.name, {}) for one in OTHERS]
        _, left = wait(answers, PATIENCE)
        assert not left
        assert not written.done()
    finally:
        store.may_write.set()
        wait([written], PATIENCE)
        head.sessions._records.clear()


def test_a_slow_store_delays_a_machine_that_joins_and_no_other(
    head: Head, clients: tuple[ServiceClient, ServiceClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = head.control.desk.create_token()
    request = JoinRequest(token.text, make_request()[1], NodeFacts.here("slow"))
    loop = head.control.session
    store = SlowStore(head, monkeypatch)
    try:
        answer = loop.call(head.control.desk.admit, request, "", "10.0.0.9:7")
        assert store.reached.wait(PATIENCE)
        assert loop.call(lambda: "it answers") == "it answers"
        assert clients[0].call_within(PATIENCE, Nodes.every) == []
        assert not answer.done()
        with pytest.raises(SecurityError, match="needs a join token"):
            loop.call(head.control.desk.admitted, request, "stranger.grove")
    finally:
        store.may_write.set()
    rank = answer.result(PATIENCE).rank
    assert rank in loop.tree
    other = JoinRequest(token.text, make_request()[1], NodeFacts.here("slow"))
    again = loop.call(head.control.desk.admit, other, "", "10.0.0.9:7")
    with pytest.raises(SecurityError, match="used before"):
        again.result(PATIENCE)
    head.control.remove_node(rank, 0.0)
