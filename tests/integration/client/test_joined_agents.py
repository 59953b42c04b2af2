"""C3-AGENT: processes that a user starts become agents of a cluster."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.activity.joined_agent import JoinedAgentProcess
from sapwood.core.errors import CommunicationError, ConfigurationError, SecurityError
from sapwood.environment.settings import CommSettings, LimitSettings, NodeSettings, Settings
from sapwood.nodes import invitations
from sapwood.nodes.joining import join_session
from sapwood.security.invitations import AGENTS, Invitation
from sapwood.session.embedded import embedded

TIMEOUT = 60.0
Until = Callable[[Callable[[], object]], None]
Programs = Callable[..., sapwood.Program]

pytestmark = pytest.mark.row("C3-AGENT")


@pytest.fixture
def cluster() -> Iterator[sapwood.Cluster]:
    """A cluster of one agent, which gives a broken link up soon, and has room for three more."""
    settings = Settings(
        comm=CommSettings(grace=0.1),
        nodes=NodeSettings(listen="127.0.0.1:0"),
        limits=LimitSettings(agents=4),
    )
    with contextlib.closing(sapwood.local(1, settings=settings)) as made:
        yield made


class Joining:
    """``sapwood agent join`` in a separate process."""

    def __init__(self, line: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sapwood", "agent", "join", "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.close()
        self.process.stdin = None

    def says(self) -> str:
        """The next line that it writes."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ended(self) -> tuple[int, str]:
        """Exit code, and what it said meanwhile."""
        rest, _ = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, rest + self.log.read_text()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[str], Joining]]:
    """Begin processes that are agents, which end with the test."""
    begun: list[Joining] = []

    def make(line: str) -> Joining:
        begun.append(Joining(line, tmp_path / f"{len(begun)}.log"))
        return begun[-1]

    yield make
    for one in begun:
        one.process.kill()
        one.process.wait(TIMEOUT)
        if one.process.stdout is not None:
            one.process.stdout.close()


def where() -> tuple[int, int]:
    return sapwood.here().rank, os.getpid()


def agents(cluster: sapwood.Cluster) -> list[int]:
    return [agent.rank for agent in cluster.agents if agent.state == "ready"]


def events(cluster: sapwood.Cluster) -> list[tuple[str, str]]:
    hosted = embedded(cluster.session).invited
    assert hosted is not None
    return [(event.kind, event.text) for event in hosted.events]


def test_they_work_as_all_others_are_killed_and_come_again(
    cluster: sapwood.Cluster,
    begin: Callable[[str], Joining],
    until: Until,
    program: Programs,
) -> None:
    first, second = cluster.invite(2)
    one = begin(first)
    assert one.says().startswith("Agent 2 of the session ")
    other = begin(second)
    assert other.says().startswith("Agent 3 ")
    until(lambda: agents(cluster) == [1, 2, 3])
    assert [agent.joined for agent in cluster.agents] == [False, True, True]
    assert [agent.pid for agent in cluster.agents][1:] == [one.process.pid, other.process.pid]
    assert [(view.state, view.rank, view.pid) for view in cluster.invitations] == [
        ("joined", 2, one.process.pid),
        ("joined", 3, other.process.pid),
    ]

    data = np.random.default_rng(1).normal(size=(60, 3))
    with cluster.stream(abs, reduce=operator.add, follow=True) as stream:
        assert stream.broadcast(-1).result(TIMEOUT).agents == [1, 2, 3]
        result = cluster.run(program("Moments"), data).result(TIMEOUT)
        np.testing.assert_allclose(result["sum"], data.sum(axis=0))
        assert result["agents"] == 3
        at = cluster.query(where, timeout=TIMEOUT).answers
        assert [at[rank][0] for rank in (1, 2, 3)] == [1, 2, 3]
        group = cluster.group()
        assert [each.result(TIMEOUT)[0] for each in group.call(where)] == [1, 2, 3]

        runner = at[2][1]
        os.kill(one.process.pid, signal.SIGKILL)
        until(lambda: agents(cluster) == [1, 3])
        until(lambda: not Path(f"/proc/{runner}").exists())
        assert stream.broadcast(-1).result(TIMEOUT).agents == [1, 3]
        until(lambda: "agent.lost" in [kind for kind, _ in events(cluster)])
        assert events(cluster)[-1][1].startswith("agent 2 is lost: ")
        assert cluster.invitations[0].state == "open"

        again = begin(first)
        assert again.says().startswith("Agent 4 ")
        until(lambda: agents(cluster) == [1, 3, 4])
        assert stream.broadcast(-1).result(TIMEOUT).agents == [1, 3, 4]
        again.process.send_signal(signal.SIGTERM)
        assert again.ended() == (0, "It has ended: it left.\n")
        until(lambda: agents(cluster) == [1, 3])
    assert ("agent.left", "agent 4 left: it left") in events(cluster)
    assert cluster.invitations[0].joined == 2
    cluster.close()
    assert other.ended() == (0, "It has ended: the session has ended.\n")


class Thread:
    """An agent in a thread of this process: as a program has it that wants to be one."""

    def __init__(self, line: str) -> None:
        self.rank = 0
        self.outcome: Any = None
        self._there = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(line,))
        self._thread.start()
        assert self._there.wait(TIMEOUT)

    def _work(self, line: str) -> None:
        try:
            self.outcome = sapwood.join_as_agent(line, on_join=self._joined)
        except sapwood.SapwoodError as error:
            self.outcome = error
        self._there.set()

    def _joined(self, rank: int, _session: str) -> None:
        self.rank = rank
        self._there.set()

    def end(self) -> Any:
        """Return the outcome."""
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        return self.outcome


def test_one_is_removed_and_the_line_lets_in_another(
    cluster: sapwood.Cluster, until: Until
) -> None:
    (line,) = cluster.invite()
    first = Thread(line)
    assert first.rank == 2
    until(lambda: agents(cluster) == [1, 2])
    with pytest.raises(SecurityError, match="agent 2 is there by this invitation: process"):
        join_session(AGENTS.parse(line))
    assert cluster.expand() == (3,)  # by the cluster's own processes, as ever
    cluster.contract([2])
    assert first.end() == "the session has removed it"
    second = Thread(line)
    assert second.rank == 4
    until(lambda: agents(cluster) == [1, 3, 4])
    assert {cluster.submit(where).result(TIMEOUT)[0] for _ in range(20)} <= {1, 3, 4}
    (shown,) = cluster.invitations
    cluster.revoke_invitation(shown.id)
    assert agents(cluster) == [1, 3, 4]  # joined agents stay
    cluster.close()
    assert second.end() == "the session has ended"


def test_who_has_no_invitation_that_counts_is_refused(
    cluster: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    good, revoked, late = (AGENTS.parse(line) for line in cluster.invite(3))
    cluster.revoke_invitation(revoked.id)
    wrong = Invitation(AGENTS, good.id, "a" * 52, good.pin, good.addresses)
    unknown = Invitation(AGENTS, "b" * 8, good.secret, good.pin, good.addresses)
    for invitation, why in (
        (wrong, "has not given the invitation"),
        (unknown, "has not given the invitation"),
        (revoked, "was revoked"),
    ):
        with pytest.raises(SecurityError, match=why):
            join_session(invitation)
    elsewhere = Invitation(AGENTS, good.id, good.secret, "0" * 64, good.addresses)
    with pytest.raises(SecurityError, match="not the session that made the invitation"):
        join_session(elsewhere)
    with pytest.raises(SecurityError, match="not an invitation"):
        sapwood.join_as_agent("swd1.x")
    now = time.time()
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: now + 86401.0)
        with pytest.raises(SecurityError, match="has expired"):
            join_session(late)
        assert cluster.invitations[2].state == "expired"
    with pytest.raises(ConfigurationError, match="cannot be invited"):
        cluster.invite(5)
    with pytest.raises(ConfigurationError, match=r"already admits agents at 127\.0\.0\.1:0"):
        cluster.invite(listen="127.0.0.1:7")
    with pytest.raises(ConfigurationError, match="unknown invitation 'nothing'"):
        cluster.revoke_invitation("nothing")
    refused = [text for kind, text in events(cluster) if kind == "agent.refused"]
    assert len(refused) == 4
    assert agents(cluster) == [1]

    monkeypatch.setattr(invitations, "JOIN_PATIENCE", 0.05)
    join_session(good)  # and nothing more
    until(lambda: agents(cluster) == [1] and len(cluster.agents) == 1)
    until(lambda: any("did not take its place" in text for _, text in events(cluster)))


def test_a_certificate_counts_as_long_as_its_agent_is_there(cluster: sapwood.Cluster) -> None:
    (line,) = cluster.invite()
    gone = join_session(AGENTS.parse(line))
    cluster.session.contract([gone.place.rank], 0.0)
    process = JoinedAgentProcess(AGENTS.parse(line), gone)
    with pytest.raises(CommunicationError, match="the session is lost: its place was removed"):
        process.run()
    assert any("its place was removed" in text for _, text in events(cluster))
    assert agents(cluster) == [1]


@pytest.mark.nightly
def test_one_that_says_nothing_any_more_is_lost_and_ends_when_it_goes_on(
    begin: Callable[[str], Joining], until: Until
) -> None:
    settings = Settings(
        comm=CommSettings(grace=0.1, heartbeat=0.2, failure_after=3.0),
        nodes=NodeSettings(listen="127.0.0.1:0"),
    )
    with contextlib.closing(sapwood.local(1, settings=settings)) as cluster:
        one = begin(*cluster.invite())
        assert one.says().startswith("Agent 2 ")
        one.process.send_signal(signal.SIGSTOP)
        until(lambda: agents(cluster) == [1])
        until(lambda: "agent.lost" in [kind for kind, _ in events(cluster)])
        assert events(cluster)[-1][1].startswith("agent 2 is lost: nothing heard for ")
        one.process.send_signal(signal.SIGCONT)
        status, said = one.ended()
        assert status == CommunicationError.exit_code
        assert "the session is lost: " in said
