"""What agents of a session have done, as its root hears it by the tree."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from sapwood.environment.settings import Settings
from sapwood.head.session_records import WorkMetrics
from sapwood.session_server.metric_rounds import MetricRounds
from sapwood.session_server.served_session import ServedSession
from sapwood_simulation.local_session_server import attach_here, local_session_server, root_of

PATIENCE = 30.0


def fail(number: float) -> float:
    raise ValueError(number)


@pytest.mark.row("D-7")
def test_a_root_hears_what_its_agents_have_done() -> None:
    settings = Settings()
    told: list[WorkMetrics] = []
    came = threading.Condition()

    def tell(figures: WorkMetrics) -> None:
        with came:
            told.append(figures)
            came.notify_all()

    def until(calls: int, agents: int) -> WorkMetrics:
        with came:
            assert came.wait_for(
                lambda: (told[-1].calls, told[-1].agents) == (calls, agents), PATIENCE
            ), told[-1]
            return told[-1]

    with local_session_server(settings, 3, 2) as address, attach_here(address, settings) as cluster:
        session = root_of(cluster)
        assert isinstance(session, ServedSession)
        rounds = MetricRounds(session, tell, 0.02)
        session.call(rounds.start)
        assert told[0].calls == 0
        list(cluster.map(math.sqrt, range(10)))
        cluster.submit(np.sum, np.ones(1000)).result()
        assert cluster.submit(fail, 1.0).exception() is not None
        found = until(12, 3)
        assert (found.errors, sum(found.buckets)) == (1, 11)
        assert found.bytes_in > 8000
        assert found.memory > 3 * 2**20
        (added,) = cluster.expand(
            1
        )  # a later agent is asked, too, and a leaving one takes nothing away
        until(12, 4)
        cluster.contract([added])
        until(12, 3)
        session.call(rounds.close)
