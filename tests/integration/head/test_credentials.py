"""Who shows which credential to a real head, over TLS and over its socket, and what that allows."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.code.run_spec import RunSpec
from sapwood.comm.framing import FRAME_VERSION, MAGIC, PREFIX, PREFIX_SIZE
from sapwood.comm.framing import framed as framed_bytes
from sapwood.contexts.plan import ZygotePlan
from sapwood.core import typed
from sapwood.core.errors import (
    CommunicationError,
    ConfigurationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
    TimeLimitError,
)
from sapwood.core.topology import ROOT
from sapwood.environment.settings import ClusterSettings, Settings
from sapwood.head import calls, node_table, service, session_records
from sapwood.head.ledger import EventQuery, LedgerEvent
from sapwood.head.parts import orders
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.events import Events
from sapwood.head.parts.links import Links
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import OF_OPEN_SESSION, RIGHT_OF_ORDER
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import RunEnded, Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.protocol import greeting
from sapwood.head.protocol.caller import MAX_STRANGE_MESSAGE, ServiceCaller
from sapwood.head.protocol.framing import ServiceCall, packed
from sapwood.head.protocol.framing import raw as raw_value
from sapwood.head.protocol.greeting import context
from sapwood.head.role_table import CALLS
from sapwood.head_client import remote
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.connection import ServiceClient
from sapwood.head_client.remote import TlsWay
from sapwood.head_client.staging import Staging
from sapwood.nodes import messages
from sapwood.nodes.joining import JoinRequest
from sapwood.nodes.node_facts import NodeFacts
from sapwood.security.authority import make_request, places_id
from sapwood.security.capabilities import (
    Capability,
    HolderKey,
    Issuer,
    holder_text,
    new_challenge,
    verify,
)
from sapwood.security.rights import ALLOCATE, RIGHTS, ROLES, SPAWN, Rights
from sapwood.session.interface import NewAgent
from sapwood.session_server.session_credential import credential_text

from .up_head import PATIENCE, UpHead, until


def attached(line: str) -> sapwood.Cluster:
    """Attach as soon as the root of a new session is known at the port of its head."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return sapwood.attach(line)
        except CommunicationError:
            if time.monotonic() > end:
                raise
            threading.Event().wait(0.05)


def framed(name: str, value: Any = None, number: int = 1) -> bytes:
    return b"".join(packed(ServiceCall(number, name, raw_value(value))))


NEEDED = {name: one.right for name, one in CALLS.items()}

ONE_AGENT = session_records.CreateSession(agents=1)


# --- what a credential allows ---------------------------------------------------------------------


def test_each_call_and_each_order_has_its_right(up: UpHead) -> None:
    assert CALLS.keys() == up.head.front.server._calls.keys()
    assert {*NEEDED.values(), *RIGHT_OF_ORDER.values()} <= RIGHTS.keys()


@pytest.mark.row("C5-INFRA")
@pytest.mark.parametrize("far", [True, False], ids=["tls", "socket"])
def test_a_connection_may_do_what_its_credential_says_and_no_more(up: UpHead, *, far: bool) -> None:
    with up.access(up.issue("connect", subject="ann"), far=far) as head:
        assert [one.name for one in head.nodes] == ["n1", "n2"]
        assert head.connection.rights is not None
        assert (head.connection.rights.subject, head.connection.rights.names) == (
            "ann",
            ["connect"],
        )
        for name, right in NEEDED.items():
            if right != "connect":
                with pytest.raises(SecurityError, match="does not give the right"):
                    head.client.call_raw(name, {"name": "n1"}, PATIENCE)
        start = messages.StartCommand(command=1, arguments=[b"true"])
        with pytest.raises(SecurityError, match="right 'spawn'"):
            head.ask(1, messages.COMMAND_START, messages.to_value(start)).result(PATIENCE)
    refused = up.events("credential.refused")[-1]
    assert refused.facts["subject"] == "ann"
    assert refused.facts["wanted"] == messages.COMMAND_START
    assert ("address" in refused.facts) == far


@pytest.mark.row("C5-RES")
def test_a_program_on_another_machine_uses_the_nodes_of_its_credential(
    up: UpHead, tmp_path: Path
) -> None:
    rights = ("connect", "create", "allocate", "spawn", "run")
    file = tmp_path / "credential"

    class Count(sapwood.Program):
        reduce = {"n": "sum"}  # noqa: RUF012 - the declared form of programs

        def init(self, data: Any) -> dict[str, Any]:
            return {}

        def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
            return {"n": len(slice)}

        def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
            return total

    class Wait(Count):
        def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
            while not gate.exists():
                time.sleep(0.01)
            return total

    gate = tmp_path / "gate"

    def programs() -> list[calls.ConnectedUser]:
        return up.head.part(Nodes).snapshot().connected

    file.touch(mode=0o600)
    file.write_text(up.issue(*rights, nodes="n[1-2]", subject="bob").text)
    with (
        sapwood.connect(up.url, credential=file).start(agents=2, settings=up.settings) as cluster,
        cluster.stream(abs, reduce=operator.add) as stream,
    ):
        assert stream.broadcast(-1).result(PATIENCE).total == 2
        assert cluster.run(Count, range(10)).result(PATIENCE) == {"n": 10}
        waiting = cluster.run(Wait, range(10))
        until(lambda: [one.run for one in programs()[0].runs] == [waiting.name])
        gate.touch()
        assert waiting.result(PATIENCE) == {"n": 10}
        until(lambda: not programs()[0].runs)
        (program,) = programs()
        assert (program.user, program.nodes, program.agents) == ("bob", ["n1", "n2"], 2)
        first = cluster.run(Count, range(10), delegate="measured")
        assert first.result(PATIENCE) == {"n": 10}
        assert first.record.first_guess == ""

        def is_guessed() -> bool:
            again = cluster.run(Count, range(10), delegate="measured")
            assert again.result(PATIENCE) == {"n": 10}
            return "for all agents (the store of the head)" in again.record.first_guess

        until(is_guessed)  # the head stores the rates of a run after its end
        until(lambda: len(up.events("run.ended")) >= 4)
    created = up.events("session.created")[-1]
    assert created.facts["address"].startswith("127.0.0.1:")
    assert "bob" in created.text
    assert created.session == program.name
    ended = up.events("run.ended")[-1]
    assert (ended.session, ended.facts["state"], ended.facts["by"]) == (
        created.session,
        "done",
        "bob",
    )
    until(lambda: up.events("session.ended")[-1:][0].session == created.session)


@pytest.mark.row("C5-RES")
def test_a_credential_reports_no_runs_and_keeps_no_rates_of_others(up: UpHead) -> None:
    rights = ("connect", "allocate", "spawn", "run")
    bobs = up.issue(*rights, subject="bob")
    key = "5" * 64
    with up.access(up.issue(*rights, subject="ann")) as ann, up.access(bobs) as bob:
        told = RunEnded(run="r", session="the tree of ann", state="done", seconds=1.0)
        with pytest.raises(SecurityError, match="right 'admin'"):
            bob.client.call_within(PATIENCE, Runs.report, told)
        ann.client.ask(RunRates.keep, key, b"of ann").result(PATIENCE)
        bob.client.ask(RunRates.keep, key, b"of bob").result(PATIENCE)
        assert ann.client.call_within(PATIENCE, RunRates.measured, key) == b"of ann"
    assert not [one for one in up.events("run.ended") if one.session == "the tree of ann"]


@pytest.fixture
def reserving(up: UpHead) -> Iterator[UpHead]:
    """A head that reserves its machine for its user, which is the default."""
    up.head.policy.set("limits.head_machine", "owner", "")
    yield up
    up.head.policy.set("limits.head_machine", "", "")


def shown_by_processes() -> Iterator[bytes]:
    """Return the arguments and variables of all processes, which other users or logs may see."""
    for one in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                yield (one / name).read_bytes()


@pytest.mark.row("C5-INFRA")
def test_processes_show_no_secrets_and_leave_no_core_dumps(up: UpHead) -> None:
    with up.access(None, far=False) as head:
        made = head.client.call_within(2 * PATIENCE, Sessions.create, ONE_AGENT)
        line = head.client.call_within(PATIENCE, JoinTokens.create)
    try:
        record = up.head.sessions.find(made.id)
        secrets = [
            up.head.sessions.secret_of(record),
            line.text.partition("@")[0],
            up.issue("connect").text,
        ]
        found = b"\n".join(shown_by_processes())
        assert b"--ready-descriptor" in found  # the root of the session is among them
        assert not [one for one in secrets if one.encode() in found]
        assert b"PRIVATE KEY" not in found
        nodes = [up.head.control.registry.facts_of(host) for host in (1, 2)]
        for pid in (record.pid, *(one.pid for one in nodes if one is not None)):
            (limit,) = (
                text.split()[4]
                for text in Path(f"/proc/{pid}/limits").read_text("ascii").splitlines()
                if text.startswith("Max core file size")
            )
            assert limit == "1"  # 0 does not prevent dumps to a program
    finally:
        up.head.sessions.end(made.id).result(PATIENCE)


def asked_for(order: str, node: int) -> Any:
    """Return a value of an order that a client might send."""
    if order == messages.COMMAND_START:
        return messages.to_value(messages.StartCommand(command=node, arguments=[b"true"]))
    if order == messages.RESUME:
        return messages.to_value(messages.ResumeProcesses("x", node))
    if order == messages.OPEN:
        plan = ZygotePlan(())
        opening = messages.OpenProcesses(
            session="x", host=node, plan=plan, configuration=b"", environment={}, life=1
        )
        return messages.to_value(opening)
    return "x"


@pytest.mark.row("C5-RES")
def test_a_credential_runs_nothing_as_the_user_of_the_head(
    reserving: UpHead, tmp_path: Path
) -> None:
    """Code there could issue credentials at the head's socket, and read its store."""
    up, refused = reserving, "as the user of the head"
    shown = up.issue(*ROLES["user"], subject="ann")
    with up.access(shown) as head:
        assert [one.reserved for one in head.known.records] == [True, True]
        assert (head.nodes, head.known.for_commands) == ([], [])
        for order, right in RIGHT_OF_ORDER.items():
            if right in {ALLOCATE, SPAWN} and order not in OF_OPEN_SESSION:
                with pytest.raises(SecurityError, match=refused):
                    head.ask(1, order, asked_for(order, 1)).result(PATIENCE)
        with pytest.raises(SecurityError, match=refused):
            head.client.call_within(PATIENCE, Sessions.create, ONE_AGENT)
        with pytest.raises(SecurityError, match=refused):
            Staging(head).facts()
    file = tmp_path / "credential"
    file.touch(mode=0o600)
    file.write_text(shown.text)
    with pytest.raises(SecurityError, match=refused):
        sapwood.connect(up.url, credential=file).start(agents=1)
    with pytest.raises(SecurityError, match=refused):
        sapwood.execute(["true"], f"head:{up.url}", credential=file)
    assert up.events("credential.refused")[-1].facts["subject"] == "ann"
    start = asked_for(messages.COMMAND_START, 1)
    for allowed in (None, up.issue("connect", "spawn", "admin")):
        with up.access(allowed, far=False) as head:
            assert len(head.nodes) == 2
            head.ask(1, messages.COMMAND_START, start).result(PATIENCE)


@pytest.mark.row("C5-RES")
def test_a_credential_works_in_no_session_that_runs_as_the_user_of_the_head(
    reserving: UpHead,
) -> None:
    up = reserving
    with up.access(None, far=False) as head:
        made = head.client.call_within(2 * PATIENCE, Sessions.create, ONE_AGENT)
    try:
        carls = up.issue("connect", "attach", "run", "merge", session=made.name)
        with up.access(carls) as head:
            for call in (Sessions.credential, Sessions.merge_credential):
                with pytest.raises(SecurityError, match="as the user of the head"):
                    head.client.call_within(PATIENCE, call, made.id)
        with up.access(up.issue("connect", "attach")) as head:  # who only watches
            head.client.call_within(PATIENCE, Sessions.credential, made.id)
        assert not up.head.sessions.find(made.id).shared
    finally:
        up.head.sessions.end(made.id).result(PATIENCE)


@pytest.mark.row("C5-RES")
def test_a_session_that_credentials_use_leaves_reserved_nodes_out(
    reserving: UpHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = reserving
    first = up.head.control.registry.facts_of(1)
    for module in (node_table, orders):
        monkeypatch.setattr(module, "is_reserved", lambda facts: facts == first)
    anns = up.issue(*ROLES["user"], subject="ann")
    with up.access(anns) as head:
        assert [one.name for one in head.nodes] == ["n2"]
        made = head.client.call_within(2 * PATIENCE, Sessions.create, ONE_AGENT)
        shown = head.client.call_within(PATIENCE, Sessions.credential, made.id)
    try:
        with attached(credential_text(shown)) as cluster:
            hosts = {cluster.session.hosts[agent.rank] for agent in cluster.agents}
            assert hosts == {2}
            with pytest.raises(SapwoodError, match="as the user of the head"):
                cluster.session.expand([NewAgent(ROOT, 1)])
    finally:
        up.head.sessions.end(made.id).result(PATIENCE)


@pytest.mark.row("C5-RES")
def test_without_the_right_for_a_node_nothing_begins_there(up: UpHead) -> None:
    with up.access(up.issue("connect", "allocate", "spawn", nodes="n1")) as head:
        assert [one.name for one in head.nodes] == ["n1"]
        start = messages.StartCommand(command=1, arguments=[b"true"])
        with pytest.raises(SecurityError, match="other nodes"):
            head.ask(2, messages.COMMAND_START, messages.to_value(start)).result(PATIENCE)
        head.ask(1, messages.COMMAND_START, messages.to_value(start)).result(PATIENCE)
        with pytest.raises(SecurityError, match="head's machine only"):
            head.client.call(Links.delegate, "x", "/tmp/x")  # noqa: S108 - it is refused


def test_a_session_on_the_machine_of_the_head_is_for_administrators(up: UpHead) -> None:
    with up.access(up.issue("connect", "create", "attach", "run", "delete")) as head:
        with pytest.raises(SecurityError, match="right 'admin'"):
            head.client.call_within(
                PATIENCE, Sessions.create, session_records.CreateSession(on="local", agents=1)
            )
        found = head.client.call_within(PATIENCE, Sessions.every)
        assert {one.state for one in found} <= {"ended"}  # from other tests


@pytest.mark.row("C5-RES")
def test_who_owns_a_session_on_nodes_begins_nothing_on_the_machine_of_the_head(
    up: UpHead,
) -> None:
    """Neither by words that no command says, nor with more agents than the head allows."""
    rights = ("connect", "create", "attach", "run", "delete", "allocate", "spawn")
    with up.access(up.issue(*rights, subject="ann")) as head:
        wanted = session_records.CreateSession(name="anns", agents=1)
        record = head.client.call_within(2 * PATIENCE, Sessions.create, wanted)
        shown = head.client.call_within(PATIENCE, Sessions.credential, record.id)
    try:
        with attached(credential_text(shown)) as anns:
            with pytest.raises(SapwoodError, match="nothing on the machine of its root"):
                anns.session.expand([NewAgent(ROOT, 0)])
            with pytest.raises(ConfigurationError, match="no such node"):
                anns.session.expand([NewAgent(ROOT, -5)])  # as those that joined are counted
            with pytest.raises(ConfigurationError, match="more than the limit"):
                anns.session.expand([NewAgent(ROOT, 1)] * up.settings.limits.agents)
            assert anns.expand(1)
            anns.contract([agent.rank for agent in anns.agents])
            (last,) = anns.expand(1)  # on a node, though none is left to go by
            assert anns.session.hosts[last] in {1, 2}
    finally:
        up.head.sessions.end("anns").result(PATIENCE)


@pytest.mark.row("C5-SESS")
def test_who_makes_a_session_has_the_user_of_the_head_do_nothing_else(up: UpHead) -> None:
    rights = ("connect", "create", "attach", "run", "delete")
    mine = Settings(cluster=ClusterSettings(interpreter=["/opt/mine"]))
    chosen = msgspec.to_builtins(mine)
    refused = r"cluster\.interpreter: only the user of the head"
    before = up.head.sessions.records()
    for more, wanted in (
        (["allocate", "spawn"], session_records.CreateSession(settings=chosen)),
        (
            ["admin"],
            session_records.CreateSession(on="local", settings=chosen),
        ),  # an administrator is another one, too
    ):
        shown = up.issue(*rights, *more)
        with up.access(shown) as head, pytest.raises(SecurityError, match=refused):
            head.client.call_within(PATIENCE, Sessions.create, wanted)
    assert up.head.sessions.records() == before


def test_a_credential_lives_as_long_as_the_policy_allows_by_default(up: UpHead) -> None:
    def left() -> float:
        with up.access(None, far=False) as head:
            wanted = calls.IssueCredential(rights=["connect"], lifetime=0.0)
            made = head.client.call_within(PATIENCE, IssuedCredentials.issue, wanted)
        return made.facts.not_after - time.time()

    assert left() == pytest.approx(7 * 86_400, abs=PATIENCE)
    up.head.policy.set("limits.credential_life", "3600", "")
    try:
        assert left() == pytest.approx(3600, abs=PATIENCE)
    finally:
        up.head.policy.set("limits.credential_life", "", "")


@pytest.mark.row("C5-RES")
def test_a_run_of_the_user_of_the_head_begins_only_on_its_machine(
    up: UpHead, tmp_path: Path
) -> None:
    wanted = calls.CreateRun(spec=RunSpec("x.py"), folder=str(tmp_path))
    with (
        up.access(up.issue("connect", "admin")) as head,
        pytest.raises(SecurityError, match=r"head's machine only.*--on head instead of --detach"),
    ):
        head.client.call_within(PATIENCE, Runs.create, wanted)
    with (
        up.access(up.issue("connect", "admin", user="no-such-user"), far=False) as head,
        pytest.raises(SecurityError, match="is for no-such-user"),
    ):
        head.client.call_within(PATIENCE, Runs.create, wanted)


@pytest.mark.row("C5-RES")
def test_the_root_of_a_session_acts_with_the_rights_of_who_made_it(up: UpHead) -> None:
    with (
        up.access(up.issue("connect", "create", "attach", "run")) as head,
        pytest.raises(SecurityError, match="right 'allocate'"),
    ):
        head.client.call_within(PATIENCE, Sessions.create, ONE_AGENT)
    credential = up.issue("connect", "create", "allocate", "spawn", subject="ann")

    def roots() -> list[ServiceCaller]:
        callers = [one for one in up.head.front.server.callers if one.is_local]
        return [one for one in callers if one.rights is not None and one.rights.ids]

    with up.access(credential) as head:
        wanted = session_records.CreateSession(
            name="anns", agents=1, settings=msgspec.to_builtins(up.settings)
        )
        made = head.client.call_within(PATIENCE, Sessions.create, wanted)
    (root,) = roots()
    assert root.rights is not None
    assert root.rights.subject == "ann"
    assert root.rights.names == {"connect", "create", "allocate", "spawn"}
    # Another connection of that root, which another head gets, has no more.
    with contextlib.closing(HeadAccess(session=made.id)) as again:
        assert again.connection.rights is not None
        with pytest.raises(SecurityError, match="right 'observe'"):
            again.client.call_within(PATIENCE, Nodes.status)
    rights = ("connect", "attach", "run", "delete")
    foreign = up.issue(*rights)
    others = [
        up.issue(*rights, subject="bob"),
        foreign.attenuate(subject="ann"),  # any holder may add this
        foreign.attenuate(session="anns"),  # likewise: narrowing grants nothing
        up.issue(*rights, subject="ann", session="other"),
        up.issue(*rights, user="bob", session="anns"),
    ]
    for one in others:
        with up.access(one) as head, pytest.raises(SecurityError):
            head.client.call_within(PATIENCE, Sessions.credential, "anns")
    with (
        up.access(foreign) as head,
        pytest.raises(SecurityError, match="belongs to another client"),
    ):
        head.client.call_within(PATIENCE, Sessions.end, "anns")
    assert up.events("credential.refused")[-1].facts["where"] == "ann"
    for one in (
        up.issue(*rights, subject="ann"),  # another credential of hers
        up.issue(*rights, subject="ann").attenuate(subject="carl"),
        up.issue(*rights, subject="bob", session="anns"),
        up.issue(*rights, "admin"),
        up.issue("connect", "attach"),
    ):
        with up.access(one) as head:
            assert head.client.call(Sessions.credential, "anns").name == "anns"
    up.head.part(IssuedCredentials).revoked(credential.claims.ids[-1])
    until(lambda: not roots())
    with pytest.raises(SecurityError, match="was revoked"):
        HeadAccess(session=made.id)
    with up.access(None, far=False) as head:
        head.client.call_within(PATIENCE, Sessions.end, "anns")


def test_who_resumes_nothing_keeps_nobody_else_out(up: UpHead) -> None:
    mine, yours = (up.issue("connect", "allocate", "spawn", subject=one) for one in "ab")
    resume = messages.to_value(messages.ResumeProcesses("of-a", 1))
    with up.access(mine) as first, up.access(yours) as second:
        for client in (second, first):
            with pytest.raises(SapwoodError, match="nothing of the session"):
                client.ask(1, messages.RESUME, resume).result(PATIENCE)
            until(lambda: up.head.on_nodes.of("of-a", 1) is None)


@pytest.mark.row("C5-INFRA")
def test_a_certificate_of_a_node_is_no_credential(up: UpHead, tmp_path: Path) -> None:
    """A node shows its certificate to the head's port, and is a stranger to the head's calls."""
    key, request = make_request()
    node = up.head.control.nodes[0].node
    shown = up.head.control.issuer.certify(request, node.partition(".")[0])
    assert shown.node == node
    (tmp_path / "node.pem").write_bytes(shown.certificate + key)
    with up.raw(tmp_path / "node.pem") as way:
        for number, call in enumerate(
            (Nodes.every.name, IssuedCredentials.issue.name, WholeCluster.down.name), 1
        ):
            way.sendall(framed(call, {}, number))
            reply = msgspec.msgpack.decode(received(way))
            assert "credential" in reply["error"]["what"]
            assert reply["error"]["code"] == SecurityError.code


def received(way: ssl.SSLSocket) -> bytes:
    """Return the next message of a head."""
    data = way.recv(PREFIX_SIZE)
    size = PREFIX.unpack(data)[3]
    while len(data) < PREFIX_SIZE + size:
        data += way.recv(65536)
    return data[PREFIX_SIZE:]


def opening(session: str) -> messages.OpenProcesses:
    return messages.OpenProcesses(
        session=session,
        host=1,
        plan=ZygotePlan(()),
        configuration=b"",
        environment={},
        life=1,
    )


def test_nobody_gives_orders_to_processes_of_others(up: UpHead) -> None:
    mine, yours = (up.issue("connect", "allocate", "spawn", subject=one) for one in "ab")
    with up.access(mine) as first, up.access(yours) as second:
        sleep = messages.StartCommand(command=77, arguments=[b"sleep", b"100"])
        first.ask(1, messages.COMMAND_START, messages.to_value(sleep)).result(PATIENCE)
        for name, order in (
            (messages.COMMAND_CANCEL, messages.CancelCommand(77)),
            (messages.COMMAND_SIGNAL, messages.SignalCommand(77, 9)),
            (messages.COMMAND_INPUT, messages.CommandInput(77, b"")),
        ):
            with pytest.raises(ProtocolError, match="another client's"):
                second.ask(1, name, messages.to_value(order)).result(PATIENCE)
        with up.head.on_nodes._lock:
            up.head.on_nodes._sessions["theirs", 1] = cast("Any", SimpleNamespace(caller=None))
        try:
            for name, told in (
                (messages.SPAWN, messages.SpawnProcesses("theirs", [])),
                (messages.KILL, messages.KillProcess("theirs", 1, 9)),
                (messages.CONFIGURE, messages.ConfigureSession("theirs", b"")),
            ):
                with pytest.raises(ProtocolError, match="not this client's"):
                    second.ask(1, name, messages.to_value(told)).result(PATIENCE)
        finally:
            with up.head.on_nodes._lock:
                del up.head.on_nodes._sessions["theirs", 1]
        with sapwood.connect().start(agents=2, settings=up.settings) as cluster:
            (name,) = {one for one, _ in up.head.on_nodes._sessions}
            second.ask(1, messages.CLOSE, name).result(PATIENCE)  # it is not theirs: nothing ends
            with pytest.raises(ProtocolError, match="is another client's"):
                second.ask(2, messages.OPEN, messages.to_value(opening(name))).result(PATIENCE)
            assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
        cancel = messages.to_value(messages.CancelCommand(77))
        first.ask(1, messages.COMMAND_CANCEL, cancel).result(PATIENCE)


@pytest.mark.row("C5-RES")
def test_places_of_another_user_cannot_join_as_their_node(up: UpHead) -> None:
    node = up.head.control.nodes[0].node
    assert node
    asked = JoinRequest("", b"", NodeFacts.here("n1"))
    with pytest.raises(SecurityError, match="that was never here needs a join token"):
        up.head.control.desk.admitted(asked, places_id(node))


@pytest.mark.row("C5-RES")
def test_who_runs_as_a_user_lets_nobody_run_as_another(up: UpHead) -> None:
    rights = Rights(names=frozenset(RIGHTS), user="ann", subject="ann", not_after=2e9)
    for user, expected in (("", "ann"), ("ann", "ann")):
        wanted = calls.IssueCredential(rights=["connect"], user=user, lifetime=60.0)
        made = up.head.credentials.issue(wanted, rights, [], 1e9)
        assert made.facts.user == Capability.parse(made.text).claims.user == expected
    with pytest.raises(SecurityError, match="for processes of the user 'ann'"):
        up.head.credentials.issue(
            calls.IssueCredential(rights=["connect"], user="root"), rights, [], 1e9
        )


def test_nobody_issues_more_than_they_may(up: UpHead) -> None:
    few = up.issue("connect", "admin", "run", lifetime=100.0, subject="ops")
    with up.access(few) as head:

        def issue(**wanted: Any) -> calls.IssuedCredential:
            return head.client.call(IssuedCredentials.issue, calls.IssueCredential(**wanted))

        made = issue(rights=["run"], lifetime=1000.0)
        assert made.facts.not_after <= few.claims.not_after
        with pytest.raises(SecurityError, match="you do not hold: spawn"):
            issue(rights=["run", "spawn"])
        with pytest.raises(SecurityError, match="do not hold"):
            issue(role="user")
        with pytest.raises(ConfigurationError, match="'kin' is not a role"):
            issue(role="kin")
        with pytest.raises(ConfigurationError, match="allows nothing"):
            issue()
        with pytest.raises(ConfigurationError, match="to 30 days"):
            issue(rights=["run"], lifetime=31 * 86_400.0)
        with pytest.raises(ConfigurationError, match="both given"):
            issue(rights=["run"], role="user")


def test_a_program_looks_at_nodes_and_issues_lists_and_revokes_credentials(up: UpHead) -> None:
    head = sapwood.connect()
    assert [(one.name, one.is_ready, one.cores > 0) for one in head.nodes()] == [
        ("n1", True, True),
        ("n2", True, True),
    ]
    made = head.credentials.issue(["connect"], subject="a script", lifetime=60)
    known = {one.id: one for one in head.credentials.list()}
    assert known[made.facts.id] == made.facts
    assert (made.facts.subject, made.facts.rights) == ("a script", ["connect"])
    assert 50 < made.facts.not_after - time.time() <= 60
    script = sapwood.connect(up.url, credential=made.text)
    assert script.nodes() == head.nodes()
    with pytest.raises(SecurityError, match="admin"):
        script.credentials.issue(["connect"])
    role = head.credentials.issue(role="user", nodes="n1")
    assert (role.facts.rights, role.facts.nodes) == (sorted(ROLES["user"]), "n1")
    with pytest.raises(ConfigurationError, match="a role and rights are both given"):
        head.credentials.issue(["connect"], role="user")
    with pytest.raises(ConfigurationError, match="lifetime is 0"):
        head.credentials.issue(["connect"], lifetime=0)
    done = head.credentials.revoke(made.facts.id)
    assert (done.id, done.known, done.nodes) == (made.facts.id, True, ["n1", "n2"])
    with pytest.raises(SecurityError, match="revoked"):
        script.nodes()


def test_whoever_is_connected_can_verify_credentials_of_the_cluster(up: UpHead) -> None:
    """As the root of a session does: it has the issuer's key and what was revoked."""
    good, bad = up.issue("connect", "attach", session="s"), up.issue("connect", "attach")
    with up.access(None, far=False) as root:

        def admit(credential: Capability) -> Rights:
            challenge = new_challenge()
            shown = credential.show(challenge, "session s")
            return verify(
                shown,
                root.connection.facts.issuer,
                root.connection.facts.cluster,
                challenge,
                "session s",
                now=time.time(),
                denied=root.denials.__contains__,
            )

        admit(bad).require("attach", time.time(), session="s")
        up.head.part(IssuedCredentials).revoked(bad.id)
        until(lambda: bad.id in root.denials)
        with pytest.raises(SecurityError, match="revoked"):
            admit(bad)
        rights = admit(good)
        rights.require("attach", time.time(), session="s")
        for right, session in (("attach", "t"), ("merge", "s")):
            with pytest.raises(SecurityError):
                rights.require(right, time.time(), session=session)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.row("C5-SESS")
def test_what_is_wrong_with_a_credential_is_said_and_noted(up: UpHead) -> None:
    cluster, pin = (
        up.head.control.authority.cluster,
        bytes.fromhex(up.head.control.authority.pin),
    )
    key, stranger = HolderKey.create(), HolderKey.create()
    own = Issuer(up.head.credentials._issuer.key)
    good: dict[str, Any] = {"not_after": time.time() + 100, "authority": pin}
    bound = own.issue(cluster, ["connect"], holder=key.public, **good)
    for credential, cause in (
        (Issuer.create().issue(cluster, ["connect"], **good), "not issued by this cluster"),
        (own.issue("other", ["connect"], **good), "for another cluster"),
        (own.issue(cluster, ["connect"], **good | {"not_after": 1.0}), "has expired"),
        (own.issue(cluster, ["run"], **good), "does not give the right 'connect'"),
    ):
        for far in (True, False):
            with pytest.raises(SecurityError, match=cause), up.access(credential, far=far):
                pass
            assert cause in up.events("credential.refused")[-1].text
    with up.access(bound, key) as head:
        assert head.nodes
    for wrong in (None, stranger):
        refused = pytest.raises(SecurityError, match="bound to the key")
        with refused as caught, up.access(bound, wrong):
            pass
        assert holder_text(key.public) in str(caught.value)


def test_a_stranger_is_told_nothing(up: UpHead) -> None:
    for call in CALLS:
        with up.raw() as raw:
            raw.sendall(framed(call, {"name": "n1"}))
            said = msgspec.msgpack.decode(received(raw))
            assert "needs a credential" in said["error"]["what"]
    with pytest.raises(SecurityError, match="needs a credential"), up.access(None):
        pass


@pytest.mark.parametrize(
    "said",
    [
        PREFIX.pack(MAGIC, FRAME_VERSION, 16, MAX_STRANGE_MESSAGE + 1, 0),
        b"".join(framed_bytes(16, b"\xa3\xff\xfe\xfd")),
        b"".join(framed_bytes(16, b"\xc1\xc1\xc1")),
        b"GET / HTTP/1.1\r\n\r\n",
        framed(greeting.PRESENT, {"chain": b"", "proof": b""}),
        framed(greeting.PRESENT, 7),
    ],
    ids=["long", "no-text", "garbage", "foreign", "unasked", "no-credential"],
)
def test_a_stranger_that_breaks_the_protocol_is_cut_off(up: UpHead, said: bytes) -> None:
    with up.raw() as raw:
        raw.sendall(said)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while raw.recv(4096):
                pass
    with up.access(up.issue("connect")) as head:
        assert head.nodes


def test_strangers_do_not_keep_others_out(up: UpHead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_STRANGERS", 3)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(up.raw()) for _ in range(6)]
        with up.access(up.issue("connect")) as head:
            assert head.nodes
        for raw in silent[:2]:  # the first of them made room
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while raw.recv(4096):
                    pass
    monkeypatch.setattr(service, "STRANGER_PATIENCE", 0.05)
    with up.raw() as raw, contextlib.suppress(ConnectionError, ssl.SSLError):
        while raw.recv(4096):  # it says why, and ends
            pass


def test_a_credential_is_not_shown_to_another_head(up: UpHead) -> None:
    credential = up.issue("connect")
    way = TlsWay([up.address], "0" * 64)
    client = ServiceClient(way)
    try:
        with pytest.raises(SecurityError, match="not the head that the credential is for"):
            remote.show(client, credential, None, way, PATIENCE)
    finally:
        client.close()
    with pytest.raises(CommunicationError, match="cannot be reached"):
        TlsWay(["127.0.0.1:1"], "0" * 64)
    for wrong in ("sapwood://", "sapwood://host", "sapwood://a:b", "host:1"):
        with pytest.raises(ConfigurationError, match="write sapwood://host:port"):
            remote.addresses_of(wrong)


def test_what_was_shown_to_one_challenge_is_no_good_for_the_next(up: UpHead) -> None:
    credential = up.issue("connect")
    way = TlsWay([up.address], up.head.control.authority.pin)
    client = ServiceClient(way)
    try:
        found = typed.convert(client.call_raw(greeting.GREET, None, PATIENCE), greeting.Greeting)
        shown = credential.show(found.challenge, context(found.cluster))
        client.call_raw(greeting.GREET, None, PATIENCE)
        with pytest.raises(SecurityError, match="cannot prove"):
            client.call_raw(greeting.PRESENT, shown, PATIENCE)
    finally:
        client.close()


# --- what ends ------------------------------------------------------------------------------------


@pytest.mark.row("C5-CRED")
def test_a_revoked_credential_is_refused_everywhere_within_a_second(up: UpHead) -> None:
    root = up.issue("connect", "allocate", "spawn", subject="eve")
    narrowed = root.attenuate(rights=["connect", "allocate", "spawn"], subject="eve's script")
    other = up.issue("connect")
    with up.access(narrowed) as cut, up.access(other) as stays:
        sleep = messages.StartCommand(command=5, arguments=[b"sleep", b"100"])
        cut.ask(1, messages.COMMAND_START, messages.to_value(sleep)).result(PATIENCE)
        began = time.monotonic()
        done = up.head.part(IssuedCredentials).revoked(root.id, "me")
        assert (done.known, done.clients) == (True, 1)
        assert (done.nodes, done.missing) == (["n1", "n2"], [])
        until(lambda: cut.gone and root.id in stays.denials)
        with pytest.raises(SecurityError, match="was revoked"), up.access(narrowed):
            pass
        assert time.monotonic() - began < 1.0
        with pytest.raises(SecurityError, match="its credential was revoked"):
            cut.client.call_within(PATIENCE, Nodes.every)
        assert stays.client.call_within(PATIENCE, Nodes.every)
    # A node refuses it, whatever the head says.
    order = msgspec.structs.replace(opening("s"), credential=narrowed.claims.ids)
    with pytest.raises(SecurityError, match="was revoked"):
        up.head.control.ask(1, messages.OPEN, messages.to_value(order)).result(PATIENCE)
    until(lambda: not up.head.commands.are_on(1))  # and what it had begun has ended
    assert up.events("credential.revoked")[-1].facts["by"] == "me"
    assert next(one for one in up.head.credentials.list() if one.id == root.id).revoked


def test_a_block_that_the_head_never_saw_is_revoked_alone(up: UpHead) -> None:
    root = up.issue("connect")
    theirs, mine = root.attenuate(subject="lost laptop"), root.attenuate(subject="mine")
    done = up.head.part(IssuedCredentials).revoked(theirs.id)
    assert not done.known
    with pytest.raises(SecurityError, match="revoked"), up.access(theirs):
        pass
    with up.access(mine) as head:
        assert head.nodes
    with pytest.raises(SecurityError, match="not the id"):
        up.head.part(IssuedCredentials).revoked("nonsense")


def test_a_connection_ends_with_its_credential(up: UpHead) -> None:
    with up.access(up.issue("connect", lifetime=1.0)) as head:
        until(lambda: head.gone)
        with pytest.raises(SecurityError, match="has expired"):
            head.client.call_within(PATIENCE, Nodes.every)


# --- events and policy ----------------------------------------------------------------------------


@pytest.mark.row("C4-POLICY")
def test_the_policy_is_changed_while_all_runs_and_clients_are_told(up: UpHead) -> None:
    heard: list[tuple[str, Any]] = []
    with up.access(None, far=False) as head, up.access(up.issue("connect")) as other:
        other.subscribe(lambda name, value: heard.append((name, value)))

        def change(key: str, value: str) -> Any:
            return head.client.call_within(PATIENCE, Policy.change, key, value)

        (row,) = change("limits.credential_life", "1h")
        assert row.value == '"1 h"'
        assert "the user of the head" in row.origin
        wanted = calls.IssueCredential(rights=["run"], lifetime=7200.0)
        with pytest.raises(ConfigurationError, match="credential lives a second to"):
            head.client.call_within(PATIENCE, IssuedCredentials.issue, wanted)
        until(lambda: any(name == calls.POLICY_CHANGED for name, _ in heard))
        change("limits.credential_life", "")
        rows = head.client.call_within(PATIENCE, Policy.rows, "limits.credential_life")
        assert rows[0].origin == "default"
        with pytest.raises(ConfigurationError, match="cannot be 'soon'") as caught:
            change("idle.session", "soon")
        assert "expected a duration" in caught.value.hint
        with pytest.raises(ConfigurationError, match="unknown setting"):
            change("idle.sesion", "1h")
    assert up.events("policy.changed")[-1].facts["key"] == "limits.credential_life"


@pytest.mark.row("C4-EVENT")
def test_events_are_found_and_followed(up: UpHead) -> None:
    heard: list[LedgerEvent] = []
    assert {one.node for one in up.events("node.joined")} == {"n1", "n2"}
    assert up.events("head.started")

    def noticed(name: str, value: Any) -> None:
        if name == calls.EVENT_NOTED:
            heard.append(typed.convert(value, LedgerEvent))

    with up.access(None, far=False) as head:
        head.subscribe(noticed)
        head.client.call_within(PATIENCE, Events.follow, EventQuery(kinds=["credential.issued"]))
        up.issue("run", subject="zoe")
        up.head.ledger.note("node.lost", "not asked for", node="n1")
        up.issue("run", subject="yan")
        until(lambda: len(heard) == 2)
        assert [one.text for one in heard] == [
            "issued a credential for zoe: run",
            "issued a credential for yan: run",
        ]
        with pytest.raises(ConfigurationError, match="is not a kind of event"):
            head.client.call_within(PATIENCE, Events.follow, EventQuery(kinds=["x"]))
        page = head.client.call_within(
            PATIENCE, Events.find, EventQuery(nodes=["n1"], kinds=["node.lost"])
        )
        assert page.events[-1].text == "not asked for"
        assert page.state.trouble == ""


def test_a_process_that_ends_is_noted_and_so_is_the_one_in_its_place(up: UpHead) -> None:
    with sapwood.connect().start(agents=2, settings=up.settings) as cluster:
        os.kill(cluster.agents[0].pid, signal.SIGKILL)
        until(lambda: up.events("process.replaced"))
    lost = up.events("process.lost")[-1]
    assert "killed by SIGKILL" in lost.text
    assert lost.node in {"n1", "n2"}
    assert up.events("process.replaced")[-1].session == lost.session


def test_a_runner_that_is_killed_is_noted_and_one_that_its_agent_ends_is_not(up: UpHead) -> None:
    def spin() -> None:
        while True:
            pass

    with sapwood.connect().start(agents=2, settings=up.settings) as cluster:
        with pytest.raises(TimeLimitError):
            cluster.options(time_limit=0.2).submit(spin).result(PATIENCE)
        pid = cluster.submit(os.getpid).result(PATIENCE)
        os.kill(pid, signal.SIGKILL)
        until(lambda: up.events("runner.lost"))
    (lost,) = up.events("runner.lost")
    assert "killed by SIGKILL" in lost.text
    assert lost.facts["process"] == str(pid)
    assert lost.node in {"n1", "n2"}


# --- commands on the nodes of a session -----------------------------------------------------------


@pytest.mark.row("C5-SESS")
def test_who_may_run_code_in_a_session_runs_commands_on_its_nodes(
    up: UpHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(app, ["exec", "--session", "cmds", *words, "--", *ECHO])
        assert done.exit_code == status, done.output
        return done.output

    def give(*rights: str, **more: Any) -> Capability:
        shown = up.issue("connect", *rights, **more)
        file = tmp_path / shown.id
        file.touch(mode=0o600)
        file.write_text(shown.text)
        monkeypatch.setenv("SAPWOOD_CREDENTIAL_FILE", str(file))
        return shown

    with sapwood.connect().create_session(1, name="cmds", settings=up.settings) as cluster:
        found = sapwood.execute(ECHO, on="session:cmds")
        assert {name: one.stdout for name, one in found.nodes.items()} == {"n1": b"here\n"}
        far = ("--cluster", up.url)
        runs = give("run", session="cmds")
        assert run(*far) == "here\n"
        give("attach", "spawn", session="cmds")
        assert "does not give the right 'run'" in run(*far, status=6)
        give("run", session="another")
        assert "is for the session 'another'" in run(*far, status=6)
        give("run")
        assert "belongs to another client" in run(*far, status=6)
        give("run", nodes="n2", session="cmds")
        assert "on no node" in run(*far, status=2)
        with up.access(runs) as head:
            record = head.client.call_within(PATIENCE, Sessions.find, "cmds")
            start = messages.to_value(messages.StartCommand(command=9, arguments=[b"true"]))
            with pytest.raises(ConfigurationError, match="is not on the node n2"):
                head.ask(2, messages.COMMAND_START, start, record.id).result(PATIENCE)
            with pytest.raises(SecurityError, match="right 'spawn'"):
                head.ask(1, messages.COMMAND_START, start).result(PATIENCE)
            spawn = messages.to_value(messages.SpawnProcesses("cmds", []))
            with pytest.raises(SecurityError, match="right 'spawn'"):
                head.ask(1, messages.SPAWN, spawn, record.id).result(PATIENCE)
        cluster.expand(2)
        until(lambda: len(sapwood.execute(ECHO, on="session:cmds").nodes) == 2)
    until(lambda: up.head.sessions.find("cmds").state == "ended")
    assert "has ended" in run(status=6)


ECHO = ["echo", "here"]
