"""D-4: a reader that is stopped does not make its writer's memory grow."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.core.errors import ClosedError
from sapwood.session.embedded import EmbeddedSession

MEGABYTE = 2**20
WAVE = 64 * 1024
WAVES = 700
Until = Callable[[Callable[[], object]], None]


def resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def pid_of(session: EmbeddedSession, rank: int) -> int:
    return session.supervisor.processes[rank].pid


@pytest.mark.row("D-4")
@pytest.mark.parametrize(
    ("fanout", "inline_limit"),
    [
        pytest.param(0, 2 * WAVE, id="0-inline", marks=pytest.mark.nightly),
        pytest.param(0, 1024, id="0-shared"),
        pytest.param(2, 2 * WAVE, id="2-inline"),
        pytest.param(2, 1024, id="2-shared", marks=pytest.mark.nightly),
    ],
)
def test_a_stopped_agent_stops_the_writer_and_not_for_good(
    make_session: Callable[..., EmbeddedSession], until: Until, fanout: int, inline_limit: int
) -> None:
    session = make_session(4, fanout, backlog=4 * MEGABYTE, inline_limit=inline_limit)
    stream = session.open_stream("echo", {"x": "max"})
    array = np.random.default_rng(1).integers(0, 256, WAVE, "u1")
    value = {"x": array}
    stream.broadcast(value).result(30)
    places = [os.getpid(), *(pid_of(session, rank) for rank in session.tree.junctions)]
    before = {pid: resident(pid) for pid in places}
    os.kill(pid_of(session, 1), signal.SIGSTOP)
    futures: list[Any] = []

    def write() -> None:
        futures.extend(stream.broadcast(value) for _ in range(WAVES))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        until(lambda: stream.limiter.waiting == 1)
        assert len(futures) < 100
        assert writer.is_alive()
        for pid in places:
            assert resident(pid) - before[pid] < 32 * MEGABYTE
    finally:
        os.kill(pid_of(session, 1), signal.SIGCONT)
    writer.join(60)
    assert len(futures) == WAVES
    assert all(np.array_equal(future.result(30).total["x"], array) for future in futures)


def test_who_waits_for_a_stopped_agent_hears_of_the_end_of_the_cluster(
    make_session: Callable[..., EmbeddedSession], until: Until
) -> None:
    session = make_session(2, backlog=MEGABYTE)
    stream = session.open_stream("echo", {})
    os.kill(pid_of(session, 1), signal.SIGSTOP)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(WAVES):
                stream.broadcast({"data": np.zeros(WAVE, "u1")})
        except ClosedError as error:
            failures.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    until(lambda: stream.limiter.waiting == 1)
    session.close()
    writer.join(30)
    assert len(failures) == 1
