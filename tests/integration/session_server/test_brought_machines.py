"""Sessions that bring their machines along: asked for, waited for, lost, given back."""

from __future__ import annotations

import operator
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import sapwood
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    NotReadyError,
    SecurityError,
)
from sapwood.head import calls, session_records
from sapwood.head.folder import find_head
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.sessions import Sessions
from sapwood.head_client.access import HeadAccess
from sapwood.security.capabilities import Capability
from sapwood.security.rights import ALL_RIGHTS

from .conftest import PATIENCE, Until
from .slurm_programs import SlurmPrograms
from .test_head_killed import asked, kill, state, up

__all__ = ["state"]  # a fixture

pytestmark = pytest.mark.row("C1-RES-2")


@pytest.fixture
def slurm(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmPrograms]:
    """A cluster of Slurm whose jobs wait for a word, and which has none after the test."""
    made = SlurmPrograms(tmp_path_factory.mktemp("slurm"))
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    yield made
    assert not made.has_job


def kinds(head: Head, session: str) -> list[str]:
    return [one.kind for one in head.ledger.find(EventQuery(session=session))]


def test_a_session_begins_when_its_job_does(head: Head, slurm: SlurmPrograms, until: Until) -> None:
    handle = sapwood.connect().request_session(2, name="waits", on="slurm:2", idle=0.1)
    record = head.sessions.find(handle)
    assert (record.state, record.socket) == ("delayed", "")
    until(lambda: "job 7 waits in partition main: Resources" in waits_for(head, handle))
    with pytest.raises(NotReadyError, match="waits for its machines: Slurm: job 7"):
        sapwood.attach(handle, wait=False)
    said: list[str] = []

    def grant(what: str, seconds: float) -> None:
        assert seconds >= 0
        if not said:
            slurm.answer()
        said.append(what)

    with sapwood.attach(handle, on_wait=grant) as cluster:
        assert "job 7 waits" in said[0]
        with cluster.stream(abs, reduce=operator.add) as stream:
            assert stream.broadcast(-1).result(PATIENCE).total == 2
        report = head.sessions.find(handle).report
        assert report is not None
        assert (report.nodes, report.waits) == (["n1", "n2"], "")
        subprocess.run(["scancel", "7"], check=True)
        until(lambda: head.sessions.find(handle).state == "ended")
    assert head.sessions.find(handle).reason == "Slurm's job 7 was cancelled"
    assert kinds(head, "waits") == [
        "session.created",
        "session.delayed",
        "session.allocated",
        "session.ended",
    ]


def waits_for(head: Head, handle: str) -> str:
    report = head.sessions.find(handle).report
    return "" if report is None else report.waits


def test_nothing_is_left_of_a_job_that_waits(
    head: Head, slurm: SlurmPrograms, until: Until
) -> None:
    handle = sapwood.connect().request_session(2, name="gone", on="slurm:2")
    record, job = head.sessions.find(handle), slurm.pid
    kill(record.pid)
    until(lambda: slurm.pid not in {0, job})  # its next root asks again
    until(lambda: head.sessions.find(handle).state == "delayed")
    assert not Path(f"/proc/{job}").exists()
    assert len(head.sessions.find(handle).restarts) == 1
    ended = asked("session", "delete", "gone")
    assert (ended["state"], ended["reason"]) == ("ended", "it was deleted")
    assert not slurm.has_job
    with pytest.raises(ClosedError, match="it was deleted"):
        sapwood.attach(handle)


@pytest.mark.nightly
def test_who_does_not_want_to_wait_any_more_leaves_no_job(head: Head, slurm: SlurmPrograms) -> None:
    def enough(_what: str, _seconds: float) -> None:
        assert slurm.has_job
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sapwood.connect().create_session(2, name="enough", on="slurm:2", on_wait=enough)
    assert head.sessions.find("enough").state == "ended"
    assert not slurm.has_job


@pytest.mark.nightly
def test_a_job_that_is_refused_is_no_session(
    head: Head, slurm: SlurmPrograms, until: Until
) -> None:
    with pytest.raises(ConfigurationError, match="9 nodes are wanted, and partition main"):
        sapwood.connect().create_session(9, name="large", on="slurm:9")
    handle = sapwood.connect().request_session(2, name="refused", on="slurm:2")
    slurm.answer("it is not for you")
    with pytest.raises(ClosedError, match="Slurm's job 7 is over"):
        sapwood.attach(handle)
    record = head.sessions.find(handle)
    assert (record.state, record.restarts) == ("failed", ())


@pytest.mark.nightly
def test_a_job_is_not_lost_with_the_head(state: Path, slurm: SlurmPrograms, until: Until) -> None:
    head = up()
    made = asked("session", "create", "kept", "--on", "slurm:2", "--agents", "2")
    job = slurm.pid
    kill(head)
    with pytest.raises(NotReadyError, match="waits still, and its head is gone"):
        sapwood.attach(made["handle"], wait=False)
    up()
    assert asked("session", "show", "kept")["state"] == "delayed"
    assert (slurm.pid, slurm.has_job) == (job, True)
    kill(find_head().pid)
    slurm.answer()
    with sapwood.attach(made["handle"]) as cluster:  # the session has begun without a head
        assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
    up()
    assert asked("session", "show", "kept")["state"] in {"ready", "detached"}
    with sapwood.attach("kept") as cluster:
        assert cluster.submit(pow, 2, 6).result(PATIENCE) == 64
    assert asked("session", "delete", "kept")["state"] == "ended"
    assert not list((state / "sapwood/heads/default/sessions").iterdir())


@pytest.mark.row("C5-RES")
def test_machines_are_asked_for_with_the_rights_of_a_credential(
    head: Head, slurm: SlurmPrograms, until: Until
) -> None:
    """They are given back when it is revoked, also before they are there."""

    def requested(
        rights: tuple[str, ...], on: str, user: str = ""
    ) -> session_records.SessionRecord:
        wanted = calls.IssueCredential(rights=["connect", *rights], subject="ann", user=user)
        shown = Capability.parse(head.credentials.issue(wanted, ALL_RIGHTS, [], 1e9).text)
        with closing(HeadAccess("default", shown)) as access:
            return access.client.call_within(
                PATIENCE, Sessions.create, session_records.CreateSession(name="hers", on=on)
            )

    for rights, on, said in (
        (("create", "spawn"), "slurm:2", "allocate"),
        (("create", "allocate"), "slurm:2", "spawn"),
        (("create", "allocate", "spawn"), "ssh:n1", "admin"),
        (("create", "allocate", "spawn"), "nodes:2", "admin"),
    ):
        with pytest.raises(SecurityError, match=said):
            requested(rights, on)
    with pytest.raises(SecurityError, match="as the user of the head"):
        requested(("create", "allocate", "spawn"), "slurm:2", user="nobody")
    assert not slurm.pid, "machines were requested"
    record = requested(("create", "allocate", "spawn"), "slurm:2")
    assert (record.state, slurm.has_job) == ("delayed", True)
    assert record.creator is not None
    head.part(IssuedCredentials).revoked(record.creator.ids[0])
    until(lambda: not slurm.has_job)
    until(lambda: head.sessions.find(record.handle).state == "failed")
    assert "the credential that made it was revoked" in head.sessions.find(record.handle).reason
