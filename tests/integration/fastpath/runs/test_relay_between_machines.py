"""Waves that pass agents of several machines without the interpreter, on links with TLS."""

from __future__ import annotations

import threading

from sapwood.client.hosts import several
from sapwood.environment.settings import CommSettings, NodeSettings, RestartSettings, Settings
from sapwood.session.embedded import embedded

from .test_relay import TIMEOUT, Growing, Until, flow, history, relayed

ROUNDS = 600
SETTINGS = Settings(
    comm=CommSettings(heartbeat=0.5, failure_after=30.0),
    restart=RestartSettings(limit=100, backoff=0.01, backoff_max=0.05),
    nodes=NodeSettings(start_timeout=60.0),
)


def test_links_break_while_waves_are_relayed(until: Until) -> None:
    with several(2, 2, settings=SETTINGS) as cluster:
        flow(cluster, until)
        session = embedded(cluster.session)
        pids = [place.pid for place in session.supervisor.processes]
        over = threading.Event()

        def cut() -> None:
            for line in list(session.host.driver.links.connections.values()):
                line.connection.abort()

        def cut_now_and_then() -> None:
            while not over.wait(0.05):
                session.on_loop(cut)

        thread = threading.Thread(target=cut_now_and_then)
        thread.start()
        try:
            run = cluster.run(Growing(rounds=ROUNDS), range(10))
            assert run.result(TIMEOUT) == history(2, 10, ROUNDS)
        finally:
            over.set()
            thread.join()
        assert all(agent.relayed for agent in run.statistics.agents)
        assert relayed(run) > 20
        assert [agent.calls for agent in run.statistics.agents] == [ROUNDS] * 2
        assert [place.pid for place in session.supervisor.processes] == pids
