"""C3-SESS-4: two sessions that are merged, with streams over both, and split again."""

from __future__ import annotations

import math
import operator
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import msgspec
import numpy as np
import pytest

import sapwood
from sapwood.environment.settings import Settings
from sapwood.merging import line as merge_line
from sapwood.merging.merged import Merged
from sapwood.merging.orders import MergeOrder
from sapwood.session_server import server_link, session_calls, wire
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.server_link import SessionAddress
from sapwood_simulation.local_session_server import attach_here, local_session_server, root_of

from .conftest import PATIENCE, Until

pytestmark = pytest.mark.row("C3-SESS-4")

Pair = tuple[sapwood.Cluster, Merged]
Addresses = tuple[SessionAddress, SessionAddress]


def socket_of(address: SessionAddress) -> str:
    return str(Path(os.environ["XDG_RUNTIME_DIR"]) / f"{address.session}.sock")


def merged_here(cluster: sapwood.Cluster, other: SessionAddress) -> Merged:
    """Merge a session whose root is in this process, too."""
    order = MergeOrder(socket=socket_of(other), session=other.session, name=other.name)
    return cluster._merges().merge_by(order)


def served(cluster: sapwood.Cluster) -> int:
    """How many streams clients, and sessions above, have at a root."""
    root = root_of(cluster)
    assert isinstance(root, ServedSession)
    return len(root.of_stream)


def ranks(merged: Merged, result: Any) -> list[list[int]]:
    return list(merged.ranks_of(result).values())


ALL = [[1, 2], [1, 2, 3]]


@pytest.fixture(scope="module", autouse=True)
def pickled_by_value() -> Iterator[None]:
    """Send the functions of this file as code: runners cannot import a test."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def two(nothing_is_left_behind_by_all: None, pickled_by_value: None) -> Iterator[Addresses]:
    """A session of two agents, and one of three below two junctions."""
    del nothing_is_left_behind_by_all, pickled_by_value
    settings = Settings()
    with (
        local_session_server(settings, agents=2) as one,
        local_session_server(settings, agents=3, fanout=2) as other,
    ):
        with (
            attach_here(one, settings) as cluster,
            merged_here(cluster, other) as merged,
            merged.stream(waits, reduce=operator.add) as stream,
        ):
            stream.broadcast(0.0).result(PATIENCE)  # all runners are there from now on
        yield one, other


@pytest.fixture
def cluster(two: Addresses) -> Iterator[sapwood.Cluster]:
    """A client of the first."""
    with attach_here(two[0], Settings()) as found:
        yield found


@pytest.fixture
def other(two: Addresses) -> Iterator[sapwood.Cluster]:
    """A client of the other."""
    with attach_here(two[1], Settings()) as found:
        yield found


@pytest.fixture
def merged(cluster: sapwood.Cluster, two: Addresses) -> Iterator[Merged]:
    """The two merged."""
    with merged_here(cluster, two[1]) as found:
        yield found


@pytest.fixture
def brief(cluster: sapwood.Cluster) -> Iterator[Merged]:
    """The first, merged with one that ends with the test: its runners may be killed."""
    with local_session_server(Settings(), agents=3) as third, merged_here(cluster, third) as found:
        yield found


# --- waves over both ----------------------------------------------------------------------------


def test_a_sum_over_both(merged: Merged) -> None:
    assert merged.agents == [1, 2, 3]
    with merged.stream("echo", reduce="sum") as stream:
        for value in (1, 2.5):
            result = stream.broadcast(value).result(PATIENCE)
            assert result.total == 5 * value
            assert ranks(merged, result) == ALL
            assert not result.missing


def rank_and_double(value: Any) -> dict[str, Any]:
    rank = sapwood.here().rank
    return {"rank": rank, "twice": 2 * value, "half": value / 2}


def test_each_reduction_is_that_of_one_tree(merged: Merged) -> None:
    reduce = {"rank": "gather", "twice": "classes", "half": "mean"}
    with merged.stream(rank_and_double, reduce=reduce) as stream:
        result = stream.broadcast(3.0).result(PATIENCE)
        assert list(result.total["rank"]) == [1, 2, 1, 2, 3]
        (group,) = result.total["twice"]
        first = merged.first
        assert list(group["agents"]) == [1, 2, first + 1, first + 2, first + 3]
        assert (group["value"], result.total["half"]) == (6.0, 1.5)
        assert (result.weight, ranks(merged, result)) == (5, ALL)


@pytest.mark.parametrize("kind", ["sum", "mean", "variance", "sum:reproducible"])
def test_large_arrays_of_both(merged: Merged, kind: str) -> None:
    sent = np.arange(300_000.0)
    with merged.stream("echo", reduce={"x": kind}) as stream:
        for _ in range(2):
            got = stream.broadcast({"x": sent}).result(PATIENCE).total["x"]
    wanted = {"sum": 5 * sent, "sum:reproducible": 5 * sent, "mean": sent}
    if kind == "variance":
        assert got["count"] == 5 * len(sent)
        assert np.isclose(got["variance"], np.var(sent))
    else:
        assert np.allclose(got, wanted[kind])


class Counted(sapwood.Filter):
    """Adds up, and counts at how many places."""

    def up(self, values: list[Any]) -> Any:
        pairs = [one if isinstance(one, tuple | list) else (one, 0) for one in values]
        return [sum(one[0] for one in pairs), 1 + max(one[1] for one in pairs)]


class Scaled(sapwood.Filter):
    def up(self, values: list[Any]) -> Any:
        return sum(values) * self.parameters["factor"]


def test_own_filters_work_once_more_above_both(merged: Merged) -> None:
    with merged.stream("echo", reduce=operator.add) as stream:
        assert stream.broadcast(7).result(PATIENCE).total == 35
    with merged.stream("echo", reduce=Counted) as stream:
        # a junction of the other session, the two roots, and above both
        assert list(stream.broadcast(2).result(PATIENCE).total) == [10, 3]
    with merged.stream("echo", up={"depth 0": operator.add}) as stream:  # once, above both
        assert stream.broadcast(3).result(PATIENCE).total == 15


def test_parameters_and_code_of_filters_change_between_waves(merged: Merged) -> None:
    with merged.stream("echo", up={"depth 0": Scaled}, parameters={"factor": 10}) as stream:
        first = stream.broadcast(1)
        stream.configure(factor=100)
        second = stream.broadcast(1)
        assert [one.result(PATIENCE).total for one in (first, second)] == [50, 500]
        assert [one.result(PATIENCE).version for one in (first, second)] == [1, 2]
    with merged.stream("echo", reduce=operator.add) as stream:
        assert stream.broadcast(1).result(PATIENCE).total == 5
        assert stream.update_filter(max, timeout=PATIENCE) == 2
        result = stream.broadcast(1).result(PATIENCE)
        assert (result.total, result.version) == (1, 2)
        assert len(set(stream.filters(PATIENCE).values())) == 1
        with pytest.raises(sapwood.SapwoodError):
            stream.update_filter(Broken, timeout=PATIENCE)
        assert stream.broadcast(4).result(PATIENCE).total == 4


class Broken(sapwood.Filter):
    def __init__(self) -> None:
        raise ValueError("it does not load")

    def up(self, values: list[Any]) -> Any:
        return values


def test_native_functions_travel_to_both(merged: Merged, tmp_path: Path) -> None:
    (tmp_path / "twice.c").write_text("double twice(double x) { return 2 * x; }\n")
    (tmp_path / "program.toml").write_text(
        '[program]\nsources = ["twice.c"]\n[map]\nfunction = "twice"\n'
    )
    program = sapwood.load_program(tmp_path)
    with merged.stream(program["twice"], reduce="sum") as stream:
        assert stream.broadcast(4.0).result(PATIENCE).total == 40.0


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


def test_a_stream_that_waits_for_nobody(merged: Merged) -> None:
    with merged.stream(numbers, sync="none") as stream:
        done = stream.broadcast(100)
        found: dict[int, list[int]] = {}
        for result in stream.waves(PATIENCE):
            (agent,) = result.agents
            found.setdefault(agent, []).append(result.total)
            if sum(map(len, found.values())) == 500:
                break
        first = merged.first
        assert found == {one: list(range(100)) for one in (1, 2, first + 1, first + 2, first + 3)}
        assert ranks(merged, done.result(PATIENCE)) == ALL


def test_a_time_out(brief: Merged) -> None:
    with brief.stream(waits, reduce="sum") as stream:
        stream.broadcast(0.0).result(PATIENCE)  # runners are there from now on
    with brief.stream(slow_at_three, reduce="sum", sync=1.5) as stream:
        result = stream.broadcast(1).result(PATIENCE)
        assert (result.total, ranks(brief, result)) == (4, [[1, 2], [1, 2]])
        assert result.missing_agents == [brief.first + 3]


def slow_at_three(value: int) -> int:
    if sapwood.here().rank == 3:
        threading.Event().wait(PATIENCE)
    return value


def fails_at_three(value: int) -> int:
    if sapwood.here().rank == 3:
        raise ValueError("not three")
    return value


def test_an_agent_of_the_other_session_that_fails(merged: Merged) -> None:
    with merged.stream(fails_at_three, reduce="sum") as stream:
        for _ in range(2):
            with pytest.raises(ValueError, match="not three") as failed:
                stream.broadcast(1).result(PATIENCE)
            assert f"agent {merged.first + 3}" in str(failed.value)


def test_sweeps_reach_both(merged: Merged) -> None:
    with merged.stream("echo", reduce="sum") as stream:
        stream.broadcast(1).result(PATIENCE)
        assert stream.flush(PATIENCE) == []
        assert stream.quiesce(PATIENCE) == []
        with pytest.raises(sapwood.errors.InputError):
            stream.quiesce(PATIENCE)
        waiting = stream.broadcast(2)
        stream.resume(PATIENCE)
        assert waiting.result(PATIENCE).total == 10
        counted = stream.counters(PATIENCE)
        assert counted[1].messages_up == counted[merged.first + 1].messages_up == 2
        assert {one.rank for one in counted.places} >= {0, merged.first}


def test_the_other_session_goes_on_with_its_own(merged: Merged, other: sapwood.Cluster) -> None:
    with (
        merged.stream("echo", reduce="sum") as both,
        other.stream("echo", reduce="sum") as own,
    ):
        waves = [(both.broadcast(number), own.broadcast(number)) for number in range(50)]
        for number, (of_both, of_own) in enumerate(waves):
            assert of_both.result(PATIENCE).total == 5 * number
            assert of_own.result(PATIENCE).total == 3 * number
    assert other.submit(pow, 2, 5).result(PATIENCE) == 32


def test_a_stream_closed_is_closed_at_both(
    merged: Merged, cluster: sapwood.Cluster, other: sapwood.Cluster, until: Until
) -> None:
    with merged.stream("echo", reduce="sum") as stream:
        stream.broadcast(1).result(PATIENCE)
        assert (served(cluster), served(other)) == (1, 1)
    until(lambda: (served(cluster), served(other)) == (0, 0))


# --- who may, and what cannot be ---------------------------------------------------------------


def test_what_cannot_be_merged(
    cluster: sapwood.Cluster, other: sapwood.Cluster, two: Addresses, until: Until
) -> None:
    with pytest.raises(sapwood.errors.ConfigurationError, match="with itself"):
        merged_here(cluster, two[0])
    elsewhere = msgspec.structs.replace(two[1], session="0000")
    with pytest.raises(sapwood.SapwoodError):
        merged_here(cluster, elsewhere)
    with merged_here(cluster, two[1]):
        with pytest.raises(sapwood.errors.ConfigurationError, match="merged into this one already"):
            merged_here(cluster, two[1])
        with pytest.raises(sapwood.errors.ConfigurationError, match="cannot have others in it"):
            merged_here(other, two[0])  # a circle
        with (
            local_session_server(Settings(), agents=1) as third,
            attach_here(third, Settings()) as one,
        ):
            with pytest.raises(
                sapwood.errors.ConfigurationError, match="cannot be merged into one more"
            ):
                merged_here(one, two[0])
            again = merged_here(one, two[1])  # in two others at a time
            with again, again.stream("echo", reduce="sum") as stream:
                assert stream.broadcast(1).result(PATIENCE).total == 4
    assert not cluster.merged

    def split() -> bool:  # the other one hears of it a moment later
        try:
            merged_here(other, two[0]).split()
        except sapwood.errors.ConfigurationError:
            return False
        return True

    until(split)
    with merged_here(other, two[0]) as turned, turned.stream("echo", reduce="sum") as stream:
        assert stream.broadcast(1).result(PATIENCE).total == 5


def test_who_watches_merges_nothing(two: Addresses) -> None:
    watching = attach_here(two[0], Settings(), ClientRole.WATCHER)
    with watching, pytest.raises(sapwood.errors.SecurityError):
        merged_here(watching, two[1])


def test_what_a_session_above_may_not_do(two: Addresses) -> None:
    for said, why in (
        (wire.SessionCall(1, session_calls.EXPAND, []), "may not change"),
        (wire.SessionCall(1, session_calls.MERGE, {}), "may not change"),
        (wire.AskToAttach(version=1, session=two[1].session, role="merge"), "version 1"),
    ):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(socket_of(two[1]))
            asked = wire.AskToAttach(version=wire.VERSION, session=two[1].session, role="merge")
            if not isinstance(said, wire.AskToAttach):
                sock.sendall(b"".join(wire.pack(asked, sharing=False)))
            sock.sendall(b"".join(wire.pack(said, sharing=False)))
            reader = wire.WireReader(wire.TO_CLIENT)
            errors: list[str] = []
            while not errors and (data := sock.recv(65536)):
                errors += [
                    one.error.what
                    for one in reader.feed(data)
                    if isinstance(one, wire.SessionAnswer | wire.NotAdmitted) and one.error
                ]
            assert why in errors[0]


def test_a_session_of_another_major_version_is_neither_merged_nor_attached_to(
    two: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first message has its version; both sessions continue as before."""

    def speaks(of: ModuleType, version: int) -> None:
        monkeypatch.setattr(of, "wire", SimpleNamespace(**(vars(wire) | {"VERSION": version})))

    with attach_here(two[0], Settings()) as cluster:
        for version in (wire.VERSION - 1, wire.VERSION + 1):
            speaks(merge_line, version)
            with pytest.raises(
                sapwood.errors.ProtocolError, match=f"speaks version {version}"
            ) as refused:
                merged_here(cluster, two[1])
            assert "use the same version of Sapwood in both" in str(refused.value)
        with attach_here(two[1], Settings()) as other:
            for one in (cluster.session, other.session):
                assert isinstance(one, AttachedSession)
                assert one.link.ask(session_calls.MERGED).result(PATIENCE) == []
            assert other.submit(pow, 2, 3).result(PATIENCE) == 8
        speaks(server_link, wire.VERSION + 1)
        with pytest.raises(sapwood.errors.ProtocolError, match=f"the session {wire.VERSION}"):
            attach_here(two[1], Settings())
        monkeypatch.undo()
        with merged_here(cluster, two[1]) as again, again.stream("echo", reduce="sum") as stream:
            assert stream.broadcast(1).result(PATIENCE).total == 5


# --- split --------------------------------------------------------------------------------------


def waits(seconds: float) -> int:
    threading.Event().wait(seconds)
    return 1


def test_a_split_waits_for_open_waves(merged: Merged) -> None:
    with merged.stream(waits, reduce="sum") as stream:
        wave = stream.broadcast(0.3)
        merged.split(PATIENCE)
        result = wave.result(0)
        assert (result.total, ranks(merged, result)) == (5, ALL)
        with pytest.raises(sapwood.errors.ClosedError, match="split off"):
            stream.broadcast(0.0).result(PATIENCE)
    with pytest.raises(sapwood.errors.ClosedError, match="not merged any more"):
        merged.stream("echo")


@pytest.mark.parametrize("seconds", [-1.0, 1e9, math.nan])
def test_a_split_waits_for_some_time(
    merged: Merged, cluster: sapwood.Cluster, seconds: float
) -> None:
    session = cluster.session
    assert isinstance(session, AttachedSession)
    asked = session.link.ask(session_calls.SPLIT, {"session": merged.id, "seconds": seconds})
    with pytest.raises(sapwood.errors.ConfigurationError, match="cannot wait"):
        asked.result(PATIENCE)
    assert [one.id for one in cluster.merged] == [merged.id]


def waits_at_three(seconds: float) -> int:
    return waits(seconds if sapwood.here().rank == 3 else 0.0)


@pytest.mark.parametrize("policy", ["fail", "replace", "partial"])
def test_a_split_that_does_not_wait(brief: Merged, policy: Any) -> None:
    with brief.stream(waits_at_three, reduce="sum", on_loss=policy) as stream:
        wave = stream.broadcast(1.0)
        brief.split(0.05)
        if policy == "partial":
            for one in (wave, stream.broadcast(0.0)):
                result = one.result(PATIENCE)
                assert (result.total, ranks(brief, result)) == (2, [[1, 2], []])
                assert result.missing_agents == [brief.first + rank for rank in (1, 2, 3)]
        else:
            for one in (wave, stream.broadcast(0.0)):
                with pytest.raises(sapwood.errors.ClosedError, match="split off"):
                    one.result(PATIENCE)


def test_the_owner_of_the_other_session_splits_them(
    merged: Merged, other: sapwood.Cluster, cluster: sapwood.Cluster, until: Until
) -> None:
    with merged.stream("echo", reduce="sum") as stream:
        stream.broadcast(1).result(PATIENCE)
        other.split("here")
        until(lambda: not cluster.merged)
        with pytest.raises(sapwood.errors.AgentLostError, match="has split the two"):
            stream.broadcast(1).result(PATIENCE)
    with pytest.raises(sapwood.errors.ConfigurationError, match="is not merged with"):
        other.split("here")


def test_the_other_session_ends_in_a_wave(cluster: sapwood.Cluster) -> None:
    with local_session_server(Settings(), agents=3) as third:
        gone = merged_here(cluster, third)
        partial = gone.stream(waits_at_three, reduce="sum", on_loss="partial")
        failing = gone.stream(waits_at_three, reduce="sum")
        waves = [partial.broadcast(2.0), failing.broadcast(2.0)]
        partial.flush(PATIENCE)
    assert waves[0].result(PATIENCE).total == 2
    with pytest.raises(sapwood.errors.AgentLostError, match="takes part no more"):
        waves[1].result(PATIENCE)
    assert not cluster.merged
    gone.split()  # nothing to do
    partial.close()
    failing.close()


def test_a_client_that_merged_and_left(two: Addresses, until: Until) -> None:
    with attach_here(two[0], Settings()) as first:
        merged = merged_here(first, two[1])
        stream = merged.stream(waits, reduce="sum")
        with merged:  # a client that has left splits nothing
            stream.broadcast(0.3)
            first.close()
    with attach_here(two[0], Settings()) as again:
        (kept,) = again.kept_streams
        (there,) = again.merged
        (result,) = kept.waves(PATIENCE)
        assert (result.total, ranks(there, result)) == (5, ALL)
        assert kept.broadcast(0.0).result(PATIENCE).total == 5
        kept.close()
        there.split()
    with attach_here(two[1], Settings()) as other:
        until(lambda: served(other) == 0)
