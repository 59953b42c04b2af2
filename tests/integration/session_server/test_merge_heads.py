"""C3-SESS-4: sessions with session servers are merged, under one head and under two."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.head import calls, session_records
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.security.rights import ALL_RIGHTS

from .conftest import PATIENCE, Until, new_head, warm_up

pytestmark = pytest.mark.row("C3-SESS-4")


@pytest.fixture(scope="module", autouse=True)
def pickled_by_value() -> Iterator[None]:
    """Send the functions of this file as code: runners cannot import a test."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def far(head: Head) -> Iterator[Head]:
    """Another cluster, with its own head."""
    del head  # it has chosen the folder
    made = new_head("far")
    made.start()
    warm_up(made)
    yield made
    made.close()


@pytest.fixture(scope="module", autouse=True)
def roots_stay_dead(head: Head) -> None:
    """Disable restarts of session servers that tests kill."""
    head.policy.set("restarts.limit", "0", "")


@contextlib.contextmanager
def begun(head: Head, name: str, agents: int, cluster: str = "", **more: Any) -> Iterator[str]:
    """Create a session without clients; return its handle."""
    at = sapwood.connect(cluster) if cluster else sapwood.connect()
    with at.create_session(agents, name=name, on="local", **more) as made:
        with made.stream(waits, reduce="sum") as stream:
            stream.broadcast(0.0).result(PATIENCE)  # all runners are there from now on
        handle = made.detach()
    yield handle
    with contextlib.suppress(sapwood.errors.ClosedError):
        head.sessions.end(handle).result(PATIENCE)


@pytest.fixture(scope="module")
def night(head: Head) -> Iterator[str]:
    """A session of two agents."""
    with begun(head, "night", 2) as handle:
        yield handle


@pytest.fixture(scope="module")
def day(head: Head) -> Iterator[str]:
    """A session of three agents under the same head."""
    with begun(head, "day", 3) as handle:
        yield handle


@pytest.fixture(scope="module")
def theirs(far: Head) -> Iterator[str]:
    """A session of one agent under the other head."""
    with begun(far, "theirs", 1, cluster="far") as handle:
        yield handle


def waits(seconds: float) -> int:
    threading.Event().wait(seconds)
    return 1


def credential(head: Head, file: Path, rights: str, **more: Any) -> calls.IssuedCredential:
    """Write a credential that the owner of a session gives to another user."""
    more = {"lifetime": 3600.0, **more}
    wanted = calls.IssueCredential(rights=rights.split(), **more)
    made = head.credentials.issue(wanted, ALL_RIGHTS, [], 86_400.0)
    file.touch(mode=0o600)
    file.write_text(made.text)
    return made


def at(handle: str, head: Head) -> str:
    return f"{handle}@{head.control.addresses[0]}"


def events(head: Head, session: str) -> list[str]:
    query = EventQuery(session=session, kinds=["session.merged", "session.split"])
    return [one.kind.partition(".")[2] for one in head.ledger.find(query)]


def report_of(head: Head, session: str) -> session_records.SessionReport:
    found = head.sessions.find(session).report
    assert found is not None
    return found


def command(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["session", *words], prog_name="sapwood")
    assert done.exit_code == status, done.output
    return done.stdout if "--json" in words else done.output  # the head logs here, too


def test_merged_and_split_by_commands(night: str, day: str, head: Head, until: Until) -> None:
    made = json.loads(command("merge", "night", "day", "--json"))
    assert (made["merged"], made["agents"]) == (day, 3)
    until(lambda: events(head, "night") == events(head, "day") == ["merged"])
    assert f"merged with {day}" in " ".join(command("show", "night").split())
    listed = json.loads(command("list", "--json"))["sessions"]
    of = {one["name"]: (one["merged"], one["part_of"]) for one in listed}
    assert (of["night"], of["day"]) == (([day], []), ([], [night]))
    assert "already" in command("merge", "night", "day", status=2)
    assert "with itself" in command("merge", "night", night, status=2)
    with sapwood.attach("night") as cluster:
        (merged,) = cluster.merged
        with merged.stream("echo", reduce="sum") as stream:
            assert stream.broadcast(2).result(PATIENCE).total == 10
    assert "are split" in command("split", "night", "day")
    until(lambda: events(head, "night") == events(head, "day") == ["merged", "split"])
    assert "is not merged with 'day'" in command("split", "night", "day", status=2)
    command("merge", "night", "day")
    command("split", "day", "night")  # so does the owner of the other one
    until(lambda: events(head, "night") == events(head, "day") == ["merged", "split"] * 2)


def test_by_a_credential_of_another_cluster(
    night: str, theirs: str, far: Head, head: Head, tmp_path: Path, until: Until
) -> None:
    good = tmp_path / "good"
    issued = credential(far, good, "connect merge", session="theirs", subject="ann")
    handle = at(theirs, far)
    with sapwood.attach(night) as cluster:
        with cluster.merge(handle, credential=good) as merged:
            until(lambda: events(far, "theirs") == ["merged"])
            with merged.stream(waits, reduce="sum") as stream:
                result = stream.broadcast(0.0).result(PATIENCE)
                assert (result.total, merged.ranks_of(result)) == (
                    3,
                    {night: [1, 2], theirs: [1]},
                )
            with pytest.raises(sapwood.errors.ConfigurationError, match="already"):
                cluster.merge(handle, credential=good)
        until(lambda: events(far, "theirs") == ["merged", "split"])
        until(lambda: events(head, "night")[-1:] == ["split"])
        # a credential for merging allows nothing else
        for wrong, why, more in (
            ("connect attach run", "does not give the right 'merge'", {"session": "theirs"}),
            ("connect merge", "is for the session 'other'", {"session": "other"}),
        ):
            file = tmp_path / why.replace(" ", "-").replace("'", "")
            credential(far, file, wrong, **more)
            with pytest.raises(sapwood.errors.SecurityError, match=why):
                cluster.merge(handle, credential=file)
        with pytest.raises(sapwood.errors.SecurityError, match="not the head"):
            cluster.merge(at(theirs, head), credential=good)  # of another cluster
        with pytest.raises(sapwood.errors.ConfigurationError, match="does not exist"):
            cluster.merge(at("nobody#0000", far), credential=good)
        until(lambda: not report_of(far, "theirs").part_of)
        far.part(IssuedCredentials).revoked(issued.facts.id)
        with pytest.raises(sapwood.errors.SecurityError, match="revoked"):
            cluster.merge(handle, credential=good)
        assert far.sessions.find("theirs").state == "detached"
        assert not cluster.merged


def test_who_is_elsewhere_shows_a_credential(night: str, day: str) -> None:
    line = json.loads(command("credential", "night", "--json"))["credential"]
    with sapwood.attach(line) as cluster:
        with pytest.raises(sapwood.errors.SecurityError, match="needs a credential of the other"):
            cluster.merge(day)  # the session's own user could, and this may be another user
        merges = json.loads(command("credential", "day", "--json"))["credential"]
        with cluster.merge(merges) as merged, merged.stream("echo", reduce="sum") as stream:
            assert stream.broadcast(1).result(PATIENCE).total == 5


def test_a_credential_that_ends(
    night: str, theirs: str, far: Head, tmp_path: Path, until: Until
) -> None:
    short = tmp_path / "short"
    credential(far, short, "connect merge", session="theirs", lifetime=2.0)
    with sapwood.attach(night) as cluster:
        merged = cluster.merge(at(theirs, far), credential=short)
        stream = merged.stream("echo", reduce="sum")
        assert stream.broadcast(1).result(PATIENCE).total == 3
        until(lambda: not cluster.merged)
        with pytest.raises(sapwood.errors.AgentLostError, match="credential has expired"):
            stream.broadcast(1).result(PATIENCE)
        stream.close()
        with pytest.raises(sapwood.errors.SecurityError, match="expired"):
            cluster.merge(at(theirs, far), credential=short)
    until(lambda: report_of(far, "theirs").streams == 0)


def test_a_credential_that_is_revoked_while_two_are_merged(
    night: str, theirs: str, far: Head, tmp_path: Path, until: Until
) -> None:
    file = tmp_path / "revoked"
    issued = credential(far, file, "connect merge", session="theirs")
    with sapwood.attach(night) as cluster:
        merged = cluster.merge(at(theirs, far), credential=file)
        stream = merged.stream("echo", reduce="sum")
        assert stream.broadcast(1).result(PATIENCE).total == 3
        far.part(IssuedCredentials).revoked(issued.facts.id)
        until(lambda: not cluster.merged)
        with pytest.raises(sapwood.errors.AgentLostError, match="revoked"):
            stream.broadcast(1).result(PATIENCE)
        stream.close()
    until(lambda: report_of(far, "theirs").streams == 0)


def test_a_session_in_use_by_another_one_is_not_idle(night: str, head: Head, until: Until) -> None:
    with begun(head, "brief", 1, idle=0.3) as handle:
        with (
            sapwood.attach(night) as cluster,
            cluster.merge(handle) as merged,
            merged.stream(waits, reduce="sum") as stream,
        ):
            assert stream.broadcast(0.8).result(PATIENCE).total == 3
        until(lambda: "no client was attached" in report_of(head, handle).reason)


@pytest.mark.parametrize("policy", ["fail", pytest.param("partial", marks=pytest.mark.nightly)])
def test_a_root_that_is_killed_in_a_wave(night: str, head: Head, until: Until, policy: Any) -> None:
    with begun(head, f"gone-{policy}", 3) as handle:
        with sapwood.attach(night) as cluster:
            merged = cluster.merge(handle)
            stream = merged.stream(waits_at_three, reduce="sum", on_loss=policy)
            waves = [stream.broadcast(3.0) for _ in range(3)]
            stream.flush(PATIENCE)
            os.kill(head.sessions.find(handle).pid, signal.SIGKILL)
            for wave in (*waves, stream.broadcast(0.0)):
                if policy == "partial":
                    result = wave.result(PATIENCE)
                    assert (result.total, merged.ranks_of(result)[handle]) == (2, [])
                else:
                    with pytest.raises(sapwood.errors.AgentLostError, match="takes part no more"):
                        wave.result(PATIENCE)
            stream.close()
            assert not cluster.merged
            until(lambda: head.sessions.find(handle).state == "failed")
            with pytest.raises(sapwood.errors.ClosedError, match="has ended"):
                cluster.merge(handle)
            assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
        until(lambda: head.sessions.find(night).state == "detached")


def waits_at_three(seconds: float) -> int:
    return waits(seconds if sapwood.here().rank == 3 else 0.0)


def test_the_one_above_is_killed(day: str, head: Head, until: Until) -> None:
    with begun(head, "above", 1) as handle, sapwood.attach(day) as cluster:
        with sapwood.attach(handle) as above:
            stream = above.merge(day).stream("echo", reduce="sum")
            assert stream.broadcast(1).result(PATIENCE).total == 4
            until(lambda: report_of(head, day).part_of)
            os.kill(head.sessions.find(handle).pid, signal.SIGKILL)
            until(lambda: above.session.failure is not None)
        until(lambda: not report_of(head, day).part_of)
        assert report_of(head, day).streams == 0
        with cluster.stream("echo", reduce="sum") as own:
            assert own.broadcast(1).result(PATIENCE).total == 3


def test_merged_and_split_again_and_again(night: str, day: str) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    turns = 30
    with sapwood.attach(night) as cluster, sapwood.attach(day, role="user") as other:
        for turn in range(turns):
            merged = cluster.merge(day)
            stream = merged.stream("echo", reduce="sum", on_loss=chance.choice(["fail", "partial"]))
            both = [stream.broadcast(turn) for _ in range(chance.randrange(1, 6))]
            if chance.random() < 0.5:
                with other.stream("echo", reduce="sum") as own:
                    assert own.broadcast(turn).result(PATIENCE).total == 3 * turn
            merged.split(PATIENCE if chance.random() < 0.7 else 0.0)
            for number, wave in enumerate(both, start=1):
                try:
                    result = wave.result(PATIENCE)
                except sapwood.errors.ClosedError:
                    continue
                found = merged.ranks_of(result)
                assert result.wave == number
                assert found[night] == [1, 2]
                assert found[day] in ([], [1, 2, 3])
                assert result.total == turn * (2 + len(found[day]))
            stream.close()
            with cluster.stream("echo", reduce="sum") as own:
                assert own.broadcast(turn).result(PATIENCE).total == 2 * turn
        assert not cluster.merged
