"""C3-JUNC: the code of a stream's filters is replaced between two waves."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import BuildError, ConfigurationError, SapwoodError
from sapwood.session.embedded import embedded

TIMEOUT = 60.0
TREE = (4, 2)
PLACES = [0, 5, 6]
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]

SOURCE = """
#include <stddef.h>
void first(double *into, const double *from, size_t n) {
  for (size_t i = 0; i < n; i++) into[i] += from[i];
}
void second(double *into, const double *from, size_t n) {
  for (size_t i = 0; i < n; i++) into[i] *= from[i];
}
"""
MANIFEST = '[program]\nsources = ["combine.c"]\n[map]\nfunction = "first"\n'


def total(stream: sapwood.Stream, value: Any = None) -> Any:
    return stream.broadcast(value).result(TIMEOUT).total


def added(left: Any, right: Any) -> Any:
    return left + right


def multiplied(left: Any, right: Any) -> Any:
    return left * right


class Counting(sapwood.Filter):
    """Count the waves, and say which code this is."""

    name = "old"
    count = 0

    def up(self, values: list[Any]) -> Any:
        self.count += 1
        below = {one for value in values if isinstance(value, tuple) for one in value[1]}
        return self.count, sorted(below | {self.name})


class Newer(Counting):
    name = "new"


class Once(sapwood.Filter):
    """Can be made at one place only."""

    def up(self, values: list[Any]) -> Any:
        return values[0]


class Unloadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))

    def __call__(self, left: Any, right: Any) -> Any:
        return left


@pytest.mark.row("C3-JUNC")
def test_code_is_replaced_between_two_waves(standing: sapwood.Cluster) -> None:
    with standing.stream("echo", reduce=added, parameters={}) as stream:
        before = stream.filters(TIMEOUT)
        assert sorted(before) == PLACES
        first = stream.broadcast(3).result(TIMEOUT)
        assert (first.total, first.version) == (12, 1)
        assert stream.update_filter(multiplied, timeout=TIMEOUT) == 2
        second = stream.broadcast(3).result(TIMEOUT)
        assert (second.total, second.version) == (81, 2)
        after = stream.filters(TIMEOUT)
        assert sorted(after) == PLACES
        assert len({*before.values(), *after.values()}) == 2
        stream.update_filter(added, timeout=TIMEOUT)
        assert stream.filters(TIMEOUT) == before
        assert total(stream, 3) == 12


@pytest.mark.row("C3-JUNC")
def test_waves_go_through_one_version_while_code_is_replaced(standing: sapwood.Cluster) -> None:
    with standing.stream("echo", reduce=Counting) as stream:
        over = threading.Event()
        updated = threading.Event()
        seen: dict[int, set[tuple[str, ...]]] = {}

        def run() -> None:
            while not over.is_set():
                several = [stream.broadcast(1) for _ in range(5)]
                for wave in several:
                    result = wave.result(TIMEOUT)
                    seen.setdefault(result.version, set()).add(tuple(result.total[1]))
                updated.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            for kind in (Newer, Counting) * 3:
                updated.clear()
                stream.update_filter(kind, timeout=TIMEOUT)
                updated.wait(TIMEOUT)
                updated.clear()
                updated.wait(TIMEOUT)
        finally:
            over.set()
            thread.join(TIMEOUT)
        assert seen[1] == {("old",)}
        for version, names in seen.items():
            assert names == {("old",) if version % 2 else ("new",)}, version
        assert len(seen) == 7
        count, names = total(stream, 1)
        assert names == ["old"]
        assert count >= 1  # it began without state


@pytest.mark.row("C3-JUNC")
def test_native_code_is_replaced(standing: sapwood.Cluster, tmp_path: Path) -> None:
    (tmp_path / "combine.c").write_text(SOURCE)
    (tmp_path / "program.toml").write_text(MANIFEST)
    program = sapwood.load_program(tmp_path)
    with standing.stream("echo", reduce=program["first"]) as stream:
        np.testing.assert_array_equal(total(stream, np.full(3, 2.0)), np.full(3, 8.0))
        stream.update_filter(program["second"], timeout=TIMEOUT)
        np.testing.assert_array_equal(total(stream, np.full(3, 2.0)), np.full(3, 16.0))
        (tmp_path / "combine.c").write_text("void first(")
        with pytest.raises(BuildError):
            stream.update_filter(sapwood.load_program(tmp_path)["first"], timeout=TIMEOUT)
        np.testing.assert_array_equal(total(stream, np.full(3, 2.0)), np.full(3, 16.0))
        stream.update_filter(added, timeout=TIMEOUT)
        np.testing.assert_array_equal(total(stream, np.full(3, 2.0)), np.full(3, 8.0))


@pytest.mark.row("C3-JUNC")
@pytest.mark.parametrize(("broken", "what"), [(Once, "FileExists"), (Unloadable(), "no number")])
def test_code_that_cannot_be_loaded_changes_nothing(
    standing: sapwood.Cluster, tmp_path: Path, broken: Any, what: str
) -> None:
    if broken is Once:
        once = tmp_path / "only-once"
        broken = type("Once", (Once,), {"__init__": lambda _self: once.touch(exist_ok=False)})
    with standing.stream("echo", reduce=added) as stream:
        before = stream.filters(TIMEOUT)
        with pytest.raises(SapwoodError, match=what):
            stream.update_filter(broken, timeout=TIMEOUT)
        assert stream.filters(TIMEOUT) == before
        assert total(stream, 3) == 12
        assert stream.update_filter(multiplied, timeout=TIMEOUT) == 2
        assert total(stream, 3) == 81


@pytest.mark.row("C3-JUNC")
@pytest.mark.parametrize("lost", [1, 5])
def test_who_is_replaced_has_the_code_of_now(
    make_cluster: MakeCluster, until: Until, lost: int
) -> None:
    cluster = make_cluster(4, fanout=2)
    with cluster.stream("echo", reduce=added) as stream:
        assert total(stream, 3) == 12
        stream.update_filter(multiplied, timeout=TIMEOUT)
        supervisor = embedded(cluster.session).supervisor
        os.kill(supervisor.processes[lost].pid, signal.SIGKILL)
        assert total(stream, 3) == 81
        until(
            lambda: (
                supervisor.processes[lost].is_ready and supervisor.processes[lost].incarnation > 1
            )
        )
        until(lambda: sorted(stream.filters(TIMEOUT)) == PLACES)
        assert len(set(stream.filters(TIMEOUT).values())) == 1
        assert total(stream, 3) == 81
        stream.update_filter(added, timeout=TIMEOUT)
        assert total(stream, 3) == 12


def test_filters_of_some_places_and_of_the_way_down_are_replaced(
    standing: sapwood.Cluster,
) -> None:
    def more(value: Any) -> Any:
        return value + 1

    def per_child(value: Any, child: int) -> Any:
        return value + 10 * (child == 6)

    up = {"rank 5": added, "rank 6": added, "rank 0": added}
    with standing.stream("echo", reduce="sum", up=up, down={"rank 0": more}) as stream:
        assert total(stream, 1) == 8
        stream.update_filter({"rank 6": multiplied}, timeout=TIMEOUT)
        assert total(stream, 1) == 2 + 2 + 2 * 2
        stream.update_filter(down={"rank 0": per_child}, timeout=TIMEOUT)
        assert total(stream, 1) == 1 + 1 + 11 * 11
        assert len(set(stream.filters(TIMEOUT).values())) == 3
        for wrong in ({"rank 0": more}, {"*": more}):
            with pytest.raises(ConfigurationError, match="no filter"):
                stream.update_filter(down=wrong if "*" in wrong else {"rank 5": more})
        with pytest.raises(ConfigurationError, match="no new filter"):
            stream.update_filter()


def test_a_stream_without_filters_gets_none(standing: sapwood.Cluster) -> None:
    with standing.stream("echo", reduce="sum") as stream:
        with pytest.raises(ConfigurationError, match="no filter"):
            stream.update_filter(added)
        assert stream.filters(TIMEOUT) == {}
        assert stream.broadcast(1).result(TIMEOUT).version == 0
