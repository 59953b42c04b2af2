"""C3-AGENT: processes that a user starts become agents of a session of a head."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import SecurityError
from sapwood.environment.settings import CommSettings, NodeSettings, Settings
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery

from .conftest import PATIENCE, Until

pytestmark = pytest.mark.row("C3-AGENT")


def said(*words: str) -> str:
    """What a command writes."""
    done = CliRunner().invoke(app, words, prog_name="sapwood")
    assert done.exit_code == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def day(head: Head) -> Iterator[sapwood.Cluster]:
    """A session of one agent that gives a broken link up soon."""
    del head  # that is where it is
    settings = Settings(comm=CommSettings(grace=0.1), nodes=NodeSettings(listen="127.0.0.1:0"))
    with sapwood.connect().create_session(1, name="day", on="local", settings=settings) as cluster:
        with cluster.stream(abs, reduce=operator.add) as stream:
            stream.broadcast(-1).result(PATIENCE)  # runners are there from now on
        yield cluster


def test_agents_join_a_session_beside_its_owner(
    head: Head, day: sapwood.Cluster, until: Until
) -> None:
    cluster = day
    lines = said("agent", "invite", "day", "--count", "2").splitlines()
    assert len(lines) == 2
    words = lines[0].split()
    assert words[:3] == ["sapwood", "agent", "join"]
    process = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        joined = f"Agent 2 of the session day: process {process.pid}.\n"
        assert process.stdout.readline() == joined
        until(lambda: [one.joined for one in cluster.agents] == [False, True])
        with cluster.stream(abs, reduce=operator.add, follow=True) as stream:
            assert stream.broadcast(-1).result(PATIENCE).agents == [1, 2]
        until(lambda: "agent.joined" in kinds(head))
        assert f"agent 2: process {process.pid}" in said("session", "show", "day")
        assert f": process {process.pid} on " in said("node", "status", "--links")
        shown = json.loads(said("agent", "list", "day", "--json"))["invitations"]
        assert [(one["state"], one["rank"]) for one in shown] == [("joined", 2), ("open", 0)]
        assert f"2: process {process.pid}" in said("agent", "list", "day")
        assert shown[1]["id"] in said("agent", "revoke", "day", shown[1]["id"])
        process.kill()
        until(lambda: kinds(head) == ["agent.joined", "agent.lost"])
        until(lambda: [one.rank for one in cluster.agents] == [1])
        (lost,) = head.ledger.find(EventQuery(kinds=["agent.lost"]))
        assert lost.session == "day"
        assert lost.facts["pid"] == str(process.pid)
        assert lost.facts["rank"] == "2"
        refused = CliRunner().invoke(app, ["agent", "join", "swa1.nonsense"])
        assert refused.exit_code == SecurityError.exit_code
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def kinds(head: Head) -> list[str]:
    """The events of agents."""
    return [one.kind for one in head.ledger.find(EventQuery(kinds=["agent"]))]
