"""Sessions with session servers: made, left, found again, ended."""

from __future__ import annotations

import itertools
import operator
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    ProtocolError,
    SecurityError,
    StoreFullError,
)
from sapwood.head import session_records, session_registry
from sapwood.head.head import Head
from sapwood.head.parts.sessions import Sessions
from sapwood.head.sessions import HeadSessions
from sapwood.head.watched import started
from sapwood.session_server import session_calls
from sapwood.session_server.session_life import ABANDONED
from sapwood.store.opening import open_store

from .conftest import PATIENCE, Script, Until

Begin = Callable[..., Script]


def total(cluster: sapwood.Cluster) -> Any:
    with cluster.stream(abs, reduce=operator.add) as stream:
        return stream.broadcast(-1).result(PATIENCE).total


@pytest.fixture(scope="module")
def night(head: Head) -> Iterator[str]:
    """A session of two agents without clients; its handle."""
    with sapwood.connect().create_session(2, name="night", on="local") as cluster:
        total(cluster)  # runners, and those of filters, are there from now on
        handle = cluster.detach()
    yield handle
    head.sessions.end("night").result(PATIENCE)


@pytest.fixture
def left(night: str, head: Head, until: Until) -> str:
    """The same, once its last client is gone."""
    until(lambda: head.sessions.find(night).state == "detached")
    return night


def test_what_is_left_goes_on(left: str, head: Head, until: Until) -> None:
    name, _, number = left.partition("#")
    assert name == "night"
    processes = []
    for handle in (left, name, number):
        with sapwood.attach(handle) as cluster:
            assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024
            assert total(cluster) == 2
            assert f'{head.control.addresses[0]}/#/sessions/{number}"' in cluster._repr_html_()
            processes.append(tuple(agent.pid for agent in cluster.agents))
            assert [(one.kind, one.pid) for one in places_of(head, number)] == [
                ("root", 0),
                *(("agent", agent.pid) for agent in cluster.agents),
            ]
            until(lambda: head.sessions.find(left).state == "ready")
    assert len(set(processes)) == 1


def places_of(head: Head, session: str) -> list[session_records.SessionPlace]:
    found = head.part(Sessions).trees.changed(
        session_records.KnownTrees(session=session), head.sessions.records()
    )
    return found.changed[0].places if found.changed else []


@pytest.mark.nightly
@pytest.mark.row("D-7")
def test_the_head_knows_the_places_of_a_session(head: Head, until: Until) -> None:
    def places() -> list[session_records.SessionPlace]:
        return places_of(head, "deep")

    def shape() -> list[tuple[int, int, str, str]]:
        return [(one.rank, one.parent, one.kind, one.state) for one in places()]

    with sapwood.connect().create_session(4, name="deep", on="local", fanout=2) as cluster:
        whole = [(0, -1, "root", "ready")]
        whole += [(rank, 5 + (rank > 2), "agent", "ready") for rank in (1, 2, 3, 4)]
        whole += [(5, 0, "junction", "ready"), (6, 0, "junction", "ready")]
        until(lambda: shape() == whole)
        os.kill(places()[1].pid, signal.SIGKILL)
        until(lambda: [one.incarnation for one in places()] == [1, 2, 1, 1, 1, 1, 1])
        until(lambda: shape() == whole)
        (more,) = cluster.expand(1)
        until(lambda: (more, "agent") in [(rank, kind) for rank, _, kind, _ in shape()])
    until(lambda: places() == [])  # it is over


FRONT_END = """
import operator, sapwood, sys
cluster = sapwood.attach(sys.argv[1])
stream = cluster.stream(abs, reduce=operator.add)
print(stream.broadcast(-1).result().total, flush=True)
cluster.submit(input)  # under way, as all of the rest
stream.broadcast(-2)
group = cluster.group()
sys.stdin.read()
"""


def test_a_client_that_is_killed_is_only_detached(
    left: str, head: Head, begin: Begin, until: Until
) -> None:
    script = begin(FRONT_END, left)
    assert script.says() == "2"
    script.kill()
    until(lambda: head.sessions.find(left).state == "detached")
    with sapwood.attach(left) as cluster:
        assert total(cluster) == 2
        assert cluster.submit(pow, 3, 2).result(PATIENCE) == 9
        for stream in cluster.kept_streams:
            stream.close()


def test_large_arrays(left: str) -> None:
    with sapwood.attach(left) as cluster, cluster.stream("echo", reduce={"x": "sum"}) as stream:
        for size in (1, 10_000, 300_000):
            sent = np.arange(float(size))
            for _ in range(3):  # in memory that is used again
                got = stream.broadcast({"x": sent}).result(PATIENCE).total["x"]
                assert np.array_equal(got, 2 * sent)


def test_one_owner_and_others_beside_it(left: str, head: Head, until: Until) -> None:
    with sapwood.attach(left) as owner:
        with pytest.raises(ConfigurationError, match="has an owner") as caught:
            sapwood.attach(left)
        assert 'role="user"' in caught.value.hint
        with sapwood.attach(left, role="user") as user:
            assert [total(owner), total(user), total(owner)] == [2, 2, 2]
            (more,) = user.expand(
                1
            )  # a client with the right to own it changes it, also beside its owner
            assert total(user) == 3
            until(lambda: more in owner.session.tree.agent_ranks)
            assert total(owner) == 3
            user.contract([more])
            assert total(user) == 2
            until(lambda: more not in owner.session.tree.agent_ranks)
            with pytest.raises(SecurityError, match="only the owner"):
                user.session.link.ask(session_calls.END).result(PATIENCE)  # type: ignore[attr-defined]
        with sapwood.attach(left, role="watch") as watcher:
            assert len(watcher.agents) == 2
            with pytest.raises(SecurityError, match="watches"):
                watcher.session.expand([])
        mine = f"process {os.getpid()}"
        until(lambda: (report := head.sessions.find(left).report) and report.owner == mine)
        assert total(owner) == 2


RUN_THAT_IS_LEFT = """
import pathlib, sapwood, sys


class Left(sapwood.Program):
    reduce = {"n": "sum"}
    folder = sapwood.parameter("")

    def map(self, slice, state):
        return {"n": len(slice)}

    def close(self):
        (pathlib.Path(self.folder) / f"closed-{sapwood.here().rank}").touch()

    def done(self, state):
        print("running", flush=True)
        sys.stdin.read()


with sapwood.attach(sys.argv[1], role=sys.argv[3]) as cluster:
    cluster.run(Left(folder=sys.argv[2]), range(10)).result()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("role", ["owner", "user"])
def test_a_run_ends_at_its_agents_when_its_client_is_killed(
    left: str, head: Head, tmp_path: Path, begin: Begin, until: Until, role: str
) -> None:
    """A run that is restarted each time its process is killed must leave nothing there."""
    script = begin(RUN_THAT_IS_LEFT, left, str(tmp_path), role)
    assert script.says() == "running"
    script.kill()
    until(lambda: head.sessions.find(left).state == "detached")
    with sapwood.attach(left) as cluster:
        assert cluster.kept_streams == ()
    until(lambda: len(list(tmp_path.glob("closed-*"))) == 2)


class Summed(sapwood.Program):
    """Sums its data again and again; the first time it waits for a file."""

    inputs = ("x",)
    gate = sapwood.parameter("")
    reduce: ClassVar = {"x": "sum"}

    def init(self, data: Any) -> dict[str, Any]:
        return {"sums": []}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        while not Path(self.gate).exists():
            time.sleep(0.01)
        return {"x": slice.x.sum()}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return {"sums": [*state["sums"], float(total["x"])]}

    def done(self, state: dict[str, Any]) -> bool:
        return len(state["sums"]) == 5


def test_runs_of_the_same_name_of_several_clients(
    left: str, tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process counts its runs from 1, so their names are the same."""
    monkeypatch.setattr("sapwood.activity.run._numbers", itertools.repeat(1))
    gate = tmp_path / "open"
    with sapwood.attach(left) as owner, sapwood.attach(left, role="user") as user:
        runs = []
        for cluster, value in ((owner, 1.0), (user, 7.0)):
            data = {"x": np.full(10, value)}
            runs.append(cluster.run(Summed(gate=str(gate)), data))
            until(lambda: runs[0].progress.state == "running")
        assert {run.name for run in runs} == {"Summed-1"}
        gate.touch()
        assert [run.result(PATIENCE)["sums"] for run in runs] == [[10.0] * 5, [70.0] * 5]


@pytest.mark.row("C3-SESS-2")
def test_agents_that_are_removed_do_first_what_any_client_asked_of_them(
    left: str, tmp_path: Path, until: Until
) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    script = (
        "import pathlib; pathlib.Path(begun).touch()\nwhile not pathlib.Path(gate).exists(): pass\n"
    )
    names = {"begun": str(begun), "gate": str(gate)}
    with sapwood.attach(left) as owner, sapwood.attach(left, role="user") as user:
        other = min(owner.session.tree.agent_ranks)
        (more,) = owner.expand(1)
        until(lambda: more in user.session.tree.agent_ranks)
        (asked,) = user.group([more]).call(exec, script, names)
        with user.stream(abs, agents=[more], reduce="sum") as stream:
            until(begun.exists)
            wave = stream.broadcast(-1)  # behind that call
            (after,) = user.group([other]).call(abs, -1)
            assert after.result(PATIENCE) == 1  # so the root has the wave
            with ThreadPoolExecutor(1) as pool:
                leaving = pool.submit(owner.contract, [more], PATIENCE)
                until(lambda: more not in owner.session.tree.agent_ranks)
                assert not any(one.done() for one in (leaving, asked, wave))
                gate.touch()
                leaving.result(PATIENCE)
                assert asked.result(PATIENCE) is None
                assert wave.result(PATIENCE).total == 1


def test_who_watches_does_not_work(left: str) -> None:
    with (
        sapwood.attach(left, role="watch") as watcher,
        pytest.raises(SecurityError, match="cut this client off: a client that watches"),
    ):
        watcher.submit(pow, 2, 2).result(PATIENCE)
    with sapwood.attach(left) as cluster:
        assert total(cluster) == 2


@pytest.mark.row("C4-LOOKUP")
def test_names_that_nobody_has(head: Head, left: str) -> None:
    with pytest.raises(ConfigurationError, match="session 'day' does not exist") as caught:
        sapwood.attach("day")
    assert "night" in caught.value.hint
    with pytest.raises(ConfigurationError, match="a session 'night' already"):
        sapwood.connect().create_session(1, name="night", on="local")
    with pytest.raises(ConfigurationError, match="cannot be the name of a session"):
        sapwood.connect().create_session(1, name="a/b", on="local")
    with pytest.raises(ConfigurationError, match="cannot be on 'moon'"):
        sapwood.connect().create_session(1, on="moon")
    with pytest.raises(ConfigurationError, match="no nodes"):
        sapwood.connect().create_session(1)
    with pytest.raises(ConfigurationError, match="cannot be 'boss'"):
        sapwood.attach(left, role="boss")  # type: ignore[arg-type]  # that is the test


@pytest.mark.row("C3-SESS-1")
@pytest.mark.parametrize("state", ["moon", "", "ended", "failed", "starting", "requested"])
def test_a_root_tells_of_no_state_that_it_cannot_be_in(left: str, head: Head, state: str) -> None:
    record = head.sessions.find(left)
    with pytest.raises(ProtocolError, match=f"reports the state '{state}' after detached"):
        head.sessions.report(session_records.SessionReport(id=record.id, state=state))
    assert head.sessions.find(left) == record


def test_a_session_ends_with_who_made_it_and_did_not_leave(head: Head, until: Until) -> None:
    with sapwood.connect().create_session(1, name="short", on="local") as cluster:
        record = head.sessions.find("short")
        assert total(cluster) == 1
    until(lambda: head.sessions.find("short").state == "ended")
    assert not Path(record.socket).exists()
    assert "has ended it" in head.sessions.find("short").reason
    with pytest.raises(ClosedError, match=r"'short#.*' has ended"):
        sapwood.attach("short")
    with pytest.raises(ClosedError, match="has ended already"):
        head.sessions.end("short")


def test_a_session_that_is_deleted_tells_its_clients(head: Head, until: Until) -> None:
    handle = sapwood.connect().create_session(1, name="gone", on="local").detach()
    cluster = sapwood.attach(handle)
    task = cluster.submit(signal.pause)
    head.sessions.end(handle).result(PATIENCE)
    with pytest.raises(ClosedError, match="the session has ended: it was deleted"):
        task.result(PATIENCE)
    with pytest.raises(ClosedError, match="the session has ended"):
        cluster.submit(pow, 2, 2).result(PATIENCE)
    cluster.close()
    assert head.sessions.find(handle).state == "ended"


def test_a_root_that_is_killed_begins_again_under_its_handle(head: Head, until: Until) -> None:
    cluster = sapwood.connect().create_session(1, name="killed", on="local")
    record = head.sessions.find("killed")
    secret = head.sessions.secret_of(record)
    agent = cluster.agents[0].pid
    os.kill(record.pid, signal.SIGKILL)
    with pytest.raises(
        sapwood.errors.CommunicationError, match="connection to the session has ended"
    ):
        cluster.submit(pow, 2, 2).result(PATIENCE)
    assert cluster.detach() == record.handle
    until(lambda: not Path(f"/proc/{agent}").exists())
    until(lambda: head.sessions.find("killed").pid not in {0, record.pid})
    until(lambda: head.sessions.find("killed").state == "detached")
    again = head.sessions.find("killed")
    assert (again.handle, len(again.restarts)) == (record.handle, 1)
    until(lambda: head.sessions.find("killed").idle == 3600.0)  # it was left, and not lost
    assert head.sessions.secret_of(again) == secret
    assert not Path(record.socket).parent.exists()
    with sapwood.attach(record.handle) as later:
        assert later.submit(pow, 2, 3).result(PATIENCE) == 8
    head.policy.set("restarts.limit", "1", "")
    os.kill(again.pid, signal.SIGKILL)
    until(lambda: head.sessions.find("killed").state == "failed")
    head.policy.set("restarts.limit", "", "")
    assert "signal 9" in head.sessions.find("killed").reason
    with pytest.raises(ClosedError, match="signal 9"):
        sapwood.attach("killed")


def test_a_root_that_is_killed_while_the_disk_is_full_begins_again_later(
    head: Head, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    sapwood.connect().create_session(1, name="full-disk", on="local").detach()
    until(lambda: head.sessions.find("full-disk").state == "detached")
    record = head.sessions.find("full-disk")
    store, refused = head._store.opened, Event()

    def full(key: str, value: bytes, **more: Any) -> int:
        del key, value, more
        refused.set()
        raise StoreFullError("no room")

    monkeypatch.setattr(session_registry, "STORE_RETRY", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(store, "put", full)
        os.kill(record.pid, signal.SIGKILL)
        assert refused.wait(PATIENCE)
        found = head.sessions.find("full-disk")
        assert (found.state, found.pid) == ("starting", 0)
    until(lambda: head.sessions.find("full-disk").state == "detached")
    again = head.sessions.find("full-disk")
    assert len(again.restarts) == 1
    with sapwood.attach(again.handle) as later:
        assert later.submit(pow, 2, 3).result(PATIENCE) == 8
    head.sessions.end("full-disk").result(PATIENCE)


@pytest.mark.parametrize("noticed", [True, False])
def test_closing_a_session_whose_root_was_killed_ends_it(
    head: Head, until: Until, noticed: bool
) -> None:
    cluster = sapwood.connect().create_session(1, name="closed", on="local")
    record = head.sessions.find("closed")
    agent = cluster.agents[0].pid
    os.kill(record.pid, signal.SIGKILL)
    if noticed:
        with pytest.raises(
            sapwood.errors.CommunicationError, match="connection to the session has ended"
        ):
            cluster.submit(pow, 2, 2).result(PATIENCE)
    cluster.close()
    over = head.sessions.find(record.handle)
    assert (over.handle, over.state) == (record.handle, "ended")
    until(lambda: not Path(f"/proc/{agent}").exists())


CREATOR = """
import sapwood, sys
cluster = sapwood.connect().create_session(1, name=sys.argv[1], on="local")
print(cluster.submit(pow, 2, 3).result(), flush=True)
sys.stdin.read()
"""


def test_a_session_does_not_wait_long_when_its_creator_was_killed(
    head: Head, begin: Begin, until: Until
) -> None:
    script = begin(CREATOR, "creator")
    assert script.says() == "8"
    script.kill()
    until(lambda: head.sessions.find("creator").state == "detached")
    until(lambda: head.sessions.find("creator").idle == ABANDONED)
    sapwood.attach("creator").close()  # it has another owner, and waits as others do
    until(lambda: head.sessions.find("creator").idle == 3600.0)
    head.sessions.end("creator").result(PATIENCE)


def test_a_restarted_session_server_knows_that_the_owner_may_be_gone(
    head: Head, begin: Begin, until: Until
) -> None:
    script = begin(CREATOR, "orphan")
    assert script.says() == "8"
    until(lambda: (found := head.sessions.find("orphan").report) is not None and found.owned)
    record = head.sessions.find("orphan")
    os.kill(record.pid, signal.SIGKILL)
    script.kill()
    until(lambda: head.sessions.find("orphan").pid not in {0, record.pid})
    again = head.sessions.find("orphan")
    assert again.report is not None
    assert (again.report.owned, again.idle) == (True, ABANDONED)
    sapwood.attach("orphan").close()
    until(lambda: head.sessions.find("orphan").idle == 3600.0)
    head.sessions.end("orphan").result(PATIENCE)


def test_an_idle_session_ends(head: Head, until: Until) -> None:
    sapwood.connect().create_session(1, name="idle", on="local", idle=0.2).detach()
    until(lambda: head.sessions.find("idle").state == "ended")
    assert head.sessions.find("idle").reason == "no client was attached for 0.2 s"


def test_what_agents_print_is_shown(
    left: str, until: Until, capfd: pytest.CaptureFixture[str]
) -> None:
    said = ""

    def heard() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return said.count("agent 1: here") + said.count("agent 2: here") == 2

    with sapwood.attach(left) as cluster, sapwood.attach(left, role="watch"):
        cluster.submit(print, "here").result(PATIENCE)
        until(heard)  # at the owner, and at the one that watches


def test_a_cluster_in_this_process_cannot_be_left() -> None:
    with sapwood.local(1) as cluster:
        with pytest.raises(ConfigurationError, match="in this process"):
            cluster.detach()
        with (
            pytest.warns(DeprecationWarning, match=r"use sapwood\.connect"),
            pytest.raises(ConfigurationError, match="no head that stays"),
        ):
            cluster.create_session(1)


LEAVING = """
import itertools, sapwood, sys, time
cluster = sapwood.attach(sys.argv[1])

def slow(x):
    time.sleep(0.3)
    return x

def count(n):
    for number in range(n):
        yield number

waves = cluster.stream(slow, reduce="sum")
waves.broadcast(1).result()
values = cluster.stream(count, sync="none", agents=[1])
waves.broadcast(10), waves.broadcast(100), values.broadcast(200)
waves.flush(), values.flush()  # they are on their way now
print(waves.query().waves, flush=True)
sys.stdin.read()
"""


def test_streams_go_on_and_what_comes_of_them_waits(
    left: str, head: Head, begin: Begin, until: Until
) -> None:
    script = begin(LEAVING, left)
    assert script.says() == "3"
    script.kill()
    until(lambda: head.sessions.find(left).state == "detached")
    with sapwood.attach(left) as cluster:
        waves, values = cluster.kept_streams
        assert waves.query().what == "slow"
        assert [one.total for one in waves.waves(PATIENCE)] == [20, 200]
        assert waves.broadcast(3).result(PATIENCE).total == 6
        came = values.waves(PATIENCE)
        assert [next(came).total for _ in range(200)] == list(range(200))
        with cluster.stream(abs, reduce="sum") as other:
            assert other.broadcast(-1).result(PATIENCE).total == 2
        waves.close()
        values.close()
    with sapwood.attach(left) as cluster:
        assert cluster.kept_streams == ()


PRINTING = """
import sapwood, sys, time
cluster = sapwood.attach(sys.argv[1])

def later(_):
    time.sleep(0.5)
    print("no client is here", flush=True)

stream = cluster.stream(later, agents=[1])
stream.broadcast(1)
stream.flush()
print("begun", flush=True)
sys.stdin.read()
"""


def test_what_is_printed_while_nobody_is_attached_waits(
    left: str, head: Head, begin: Begin, until: Until, capfd: pytest.CaptureFixture[str]
) -> None:
    script = begin(PRINTING, left)
    assert script.says() == "begun"
    script.kill()
    until(
        lambda: (
            (report := head.sessions.find(left).report)
            and report.kept == len("no client is here\n")
        )
    )
    with sapwood.attach(left) as cluster:
        until(lambda: "agent 1: no client is here" in capfd.readouterr().err)
        for stream in cluster.kept_streams:
            stream.close()


@pytest.mark.usefixtures("night")
def test_a_session_that_cannot_begin_is_over(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise ConfigurationError("there is no room")

    with monkeypatch.context() as patch:
        patch.setattr(head.sessions.processes, "start", full)
        with pytest.raises(ConfigurationError, match="no room"):
            head.sessions.create(session_records.CreateSession(name="full", on="local")).result(
                PATIENCE
            )
    assert head.sessions.find("full").state == "failed"


@pytest.mark.usefixtures("night")
def test_what_begins_while_its_head_ends_is_ended(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head.sessions, "_closing", True)
    wanted = session_records.CreateSession(name="late", on="local", agents=1)
    head.sessions.create(wanted).result(PATIENCE)
    record = head.sessions.find("late")
    assert (record.state, record.reason, started(record.pid)) == ("ended", "the cluster is down", 0)


def test_a_root_whose_head_was_killed_before_it_was_ready_is_found(
    left: str, head: Head, tmp_path: Path
) -> None:
    known = head.sessions.find(left)
    asked_for = msgspec.structs.replace(known, state="starting", pid=0, started=0, socket="")
    with open_store(tmp_path / "store") as store, ThreadPoolExecutor(1) as pool:
        store.put(f"sessions/{known.id}", msgspec.msgpack.encode(asked_for))
        lost = msgspec.structs.replace(asked_for, id="00000000", name="lost")
        store.put("sessions/00000000", msgspec.msgpack.encode(lost))
        found = HeadSessions(
            lambda: store,
            "default",
            tmp_path,
            head.front.thread,
            pool,
            lambda: head.policy.current,
            head.ledger.note,
        )
        found.start()
        try:
            again = found.find(known.id)
            assert (again.pid, again.socket, again.state) == (known.pid, known.socket, "detached")
            assert found.find("lost").state == "failed"
        finally:
            found.close(keep=True)
    assert found.find(known.id).state == "detached"
