"""A client that does not read slows agents down, loses nothing and cannot wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import as_completed, wait
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.client.unread import UNREAD
from sapwood.comm.streams.stream import WINDOW
from sapwood.core.errors import ConfigurationError, ResourceError

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (2, 0)
Until = Callable[[Callable[[], object]], None]

COUNT = 1000


def numbers(folder: str) -> Iterator[int]:
    """Send numbers, and note in a file how many."""
    with (Path(folder) / str(sapwood.here().rank)).open("a") as sent:
        for number in range(COUNT):
            sent.write("x")
            sent.flush()
            yield number


def first_of(stream: sapwood.Stream, count: int) -> list[Any]:
    return list(islice(stream.waves(TIMEOUT), count))


def by_agent(events: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for event in events:
        found.setdefault(event.agents[0], []).append(event.total)
    return found


@pytest.mark.row("C3-STREAM")
def test_agents_wait_for_whoever_reads_and_nothing_is_lost(
    standing: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    with standing.stream(numbers, sync="none") as stream:
        stream.broadcast(str(tmp_path))
        sent = [tmp_path / "1", tmp_path / "2"]
        until(lambda: all(path.exists() and path.stat().st_size >= WINDOW for path in sent))
        # Others use the same agents meanwhile; what a reader does not take stays where it is.
        assert [one.result(TIMEOUT) for one in standing.submit_each(abs, range(-4, 0))] == [
            4,
            3,
            2,
            1,
        ]
        assert [path.stat().st_size for path in sent] == [WINDOW] * 2
        assert stream.flush(TIMEOUT) == []
        events = first_of(stream, 2 * COUNT)
        assert stream.query().dropped == 0
    assert by_agent(events) == {1: list(range(COUNT)), 2: list(range(COUNT))}


@pytest.mark.parametrize(
    "awaited",
    [
        lambda future: future.result(TIMEOUT),
        lambda future: future.exception(TIMEOUT),
        lambda future: wait([future], TIMEOUT),
        lambda future: list(as_completed([future], TIMEOUT)),
    ],
    ids=["result", "exception", "wait", "as_completed"],
)
def test_who_waits_for_the_end_of_a_wave_waits_for_no_reader(
    standing: sapwood.Cluster, tmp_path: Path, awaited: Callable[[Any], object]
) -> None:
    with standing.stream(numbers, sync="none") as stream:
        awaited(stream.broadcast(str(tmp_path)))
        events = first_of(stream, 2 * COUNT)
    assert by_agent(events) == {1: list(range(COUNT)), 2: list(range(COUNT))}


def test_a_stream_that_nobody_reads_can_be_closed(
    standing: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    stream = standing.stream(numbers, sync="none")
    stream.broadcast(str(tmp_path))
    until(lambda: (tmp_path / "2").exists() and (tmp_path / "2").stat().st_size >= WINDOW)
    stream.close()
    assert len(list(stream.waves())) >= WINDOW


def test_of_what_nobody_reads_the_latest_may_be_kept(
    standing: sapwood.Cluster, tmp_path: Path
) -> None:
    with standing.stream(numbers, sync="none", keep="latest") as stream:
        stream.broadcast(str(tmp_path)).result(TIMEOUT)
        assert stream.query().dropped == 2 * COUNT - UNREAD
        events = first_of(stream, UNREAD)
    assert max(event.total for event in events) == COUNT - 1


def test_a_reader_hears_of_results_that_were_dropped(standing: sapwood.Cluster) -> None:
    with standing.stream("echo") as stream:
        for number in range(UNREAD + 20):
            stream.broadcast(number)
        stream.flush()
        stream.broadcast(-1).result(TIMEOUT)
        with pytest.raises(ResourceError, match="21 results of the stream were dropped"):
            next(stream.waves())
        assert len(list(stream.waves())) == UNREAD


def test_results_that_futures_have_told_are_not_lost(standing: sapwood.Cluster) -> None:
    with standing.stream("echo", agents=[1]) as stream:
        for number in range(UNREAD + 20):
            assert stream.broadcast(number).result(TIMEOUT).total == [number]
        assert len(list(stream.waves())) == UNREAD
        assert stream.query().dropped == 0


def test_what_is_to_be_kept_is_all_or_the_latest(standing: sapwood.Cluster) -> None:
    keep: Any = "oldest"
    with pytest.raises(ConfigurationError, match="keep is 'oldest'"):
        standing.stream("echo", keep=keep)
