"""Bodies of requests that no handler expects: each is that request's error, and no more."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import msgspec
import pytest

import sapwood
from sapwood.activity import agent_requests
from sapwood.comm import values
from sapwood.content import messages
from sapwood.core.errors import SapwoodError
from sapwood.session.agent import END_AGENT, LEAVE, LEAVE_SESSION
from sapwood.session.embedded import embedded
from sapwood.session.member import READDRESS
from sapwood.session.requests import PendingRequests
from sapwood_simulation.hostile import HostilePeer
from sapwood_simulation.hostile_requests import answers_of_root

PATIENCE = 30.0
SHORT = 2.0
"""Seconds for answers that may come later, or never, as what they are about does not end."""

BODIES = 40
AGENT_HANDLERS = (
    "ping",
    "nonsense",
    READDRESS,
    LEAVE,
    END_AGENT,
    agent_requests.OPEN_RUN,
    agent_requests.CLOSE_RUN,
    agent_requests.RELEASE_DATA,
    agent_requests.PULSE,
    agent_requests.FLUSH_TRACES,
    agent_requests.MACHINE,
    agent_requests.CALL_TASK,
    agent_requests.HELP,
    agent_requests.DELIVER,
    agent_requests.TASK_STATISTICS,
    agent_requests.GIVE_BACK_TASK,
)
ROOT_HANDLERS = ("nonsense", messages.GET, messages.NAME, agent_requests.OUTPUT, LEAVE_SESSION)


def works(cluster: sapwood.Cluster) -> None:
    """Check that tasks, streams and agents are as ever."""
    assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024
    with cluster.stream(abs, reduce=operator.add) as stream:
        assert stream.broadcast(-1).result(PATIENCE).total == len(cluster.agents)


def pids(cluster: sapwood.Cluster) -> dict[int, int]:
    return {one.rank: one.pid for one in embedded(cluster.session).supervisor.processes}


def record(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have the bodies of requests noted, by handler."""
    found: dict[str, Any] = {}
    original = PendingRequests.ask

    def ask(
        self: PendingRequests, rank: int, handler: str, body: bytes, *more: Any, **named: Any
    ) -> Any:
        found.setdefault(handler, msgspec.msgpack.decode(body, strict=False))
        return original(self, rank, handler, body, *more, **named)

    monkeypatch.setattr(PendingRequests, "ask", ask)
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_an_agent_survives_whatever_it_is_asked(
    seed: int, make_cluster: Callable[..., sapwood.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(2)
    session, source = embedded(cluster.session), HostilePeer(seed)
    with monkeypatch.context() as patched:
        valid = record(patched)
        works(cluster)
    assert agent_requests.CALL_TASK in valid
    before = pids(cluster)
    for handler in dict.fromkeys((*AGENT_HANDLERS, *valid)):
        answers = [
            session.ask_encoded(
                1,
                handler,
                source.body(valid.get(handler) if number % 2 else None),
                values.encode(None),
            )
            for number in range(BODIES)
        ]
        wait(answers, PATIENCE if handler not in valid else SHORT)
        for answer in [one for one in answers if not one.done()]:
            session.withdraw(answer)  # a task that is really called, for example
        _, left = wait(answers, PATIENCE)
        assert not left, f"{handler} is not answered"
        errors = [answer.exception() for answer in answers]
        assert all(error is None or isinstance(error, SapwoodError) for error in errors)
        assert pids(cluster) == before, f"{handler} ended the agent"
    works(cluster)


@pytest.mark.parametrize("handler", ROOT_HANDLERS)
def test_the_session_survives_whatever_an_agent_asks(
    handler: str, make_cluster: Callable[..., sapwood.Cluster]
) -> None:
    """Any user may run an invited agent."""
    cluster = make_cluster(1)
    session, source = embedded(cluster.session), HostilePeer(7)
    bodies = [source.body() for _ in range(200)]
    answers = answers_of_root(session, 1, handler, bodies, PATIENCE)
    refused = [answer for answer in answers if answer.error is not None]
    assert len(refused) > len(answers) // 20
    works(cluster)
