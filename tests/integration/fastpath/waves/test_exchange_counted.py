"""Streams whose places count what passes, as all of ``cluster.stream`` do, are exchanged too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.comm.messages import PlaceStatistics
from sapwood.comm.streams.control import QUERY
from sapwood.session.embedded import EmbeddedSession, embedded
from sapwood.session.streams import StreamHandle, StreamOptions

MakeSession = Callable[..., EmbeddedSession]
Until = Callable[[Callable[[], object]], None]

TIMEOUT = 60.0
ROUNDS = 150
COUNTED = ("rank", "messages_down", "bytes_down", "messages_up", "bytes_up", "late", "repeated")


def counted(stream: StreamHandle) -> list[tuple[Any, ...]]:
    """Return what each place of a stream counted."""
    reports: list[PlaceStatistics] = sorted(
        stream.sweep(QUERY).result(TIMEOUT).reports, key=lambda report: report.rank
    )
    return [tuple(getattr(report, name) for name in COUNTED) for report in reports]


@pytest.mark.parametrize(("agents", "fanout"), [(4, 0), (5, 2)])
def test_places_count_what_was_exchanged(make: MakeSession, agents: int, fanout: int) -> None:
    session = make(agents, fanout)
    options = StreamOptions(counted=True)
    exchanged, common = (
        session.open_stream("echo", {"x": "sum", "all": "concat"}, options=options)
        for _ in range(2)
    )
    for number in range(ROUNDS):
        size = 40_000 if number % 40 == 7 else 1 + 6 * number
        sent = {"x": np.full(size, float(number)), "all": [number]}
        result = exchanged.exchange(sent, TIMEOUT)
        assert (result.total["x"] == agents * number).all()
        assert result.total["all"].tolist() == [number] * agents
        if number % 50 == 0:  # asked for while waves are exchanged
            assert counted(exchanged)[0][1] == number + 1
    assert session.shortcut.passed > 20
    for number in range(ROUNDS):
        size = 40_000 if number % 40 == 7 else 1 + 6 * number
        common.broadcast({"x": np.full(size, float(number)), "all": [number]}).result(TIMEOUT)
    assert counted(exchanged) == counted(common)


def test_streams_of_a_cluster_are_exchanged(until: Until) -> None:
    with sapwood.local(agents=3) as cluster, cluster.stream("echo", reduce={"x": "sum"}) as stream:

        def passes() -> bool:
            for number in range(20):
                assert stream.exchange({"x": number}, TIMEOUT).total == {"x": 3 * number}
            return embedded(cluster.session).shortcut.passed > 100

        until(passes)
        places = stream.counters(TIMEOUT).places
        waves = places[0].messages_down
        assert waves > 100
        assert places[0].messages_up == 3 * waves
        assert [place.messages_up for place in places[1:]] == [waves] * 3
