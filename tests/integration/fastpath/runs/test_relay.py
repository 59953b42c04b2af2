"""Waves that pass agents without the interpreter: the same results, whatever comes between."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import TimeLimitError, UserCodeError
from sapwood.environment.settings import CommSettings
from sapwood.fastpath.relay_library import RelayLibrary, RelayMemory
from sapwood.session.embedded import embedded
from sapwood.session.interface import StreamInterface

TIMEOUT = 60.0
TREE = (2, 0)
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]

ROUNDS = 300
MANY = 1500
PRIME = 2**61 - 1


class Growing(sapwood.Program):
    """What goes down and comes up changes size and way: in the message, in shared memory."""

    reduce = {"values": "sum", "n": "sum"}  # noqa: RUF012 - the declared form of programs
    rounds: int = sapwood.parameter(ROUNDS, minimum=1)
    odd: str = sapwood.parameter("nothing")
    folder: str = sapwood.parameter("")
    marks: str = sapwood.parameter("")

    def init(self, data: Any) -> dict[str, Any]:
        return {"turn": 0, "values": np.zeros(4), "history": 0, "items": data.length}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        turn = state["turn"]
        if self.odd == "prints" and turn % 7 == 0:
            sys.stdout.write(f"turn {turn}\n")
        if self.odd == "fails" and turn == 200:
            raise ValueError("turn 200")
        if self.odd == "hangs" and turn == 200:
            signal.pause()
        if self.odd == "dies" and turn in {100, 150} and slice.start == 0:
            _die_once(Path(self.marks) / f"died-{turn}")
        size = state["values"].size
        return {"values": np.full(size, float(len(slice))) + state["values"], "n": len(slice)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        turn = state["turn"] + 1
        size = 40_000 if turn % 11 == 0 else 20_000 if turn % 13 == 0 else 4 + turn % 3
        history = appended(state["history"], total["values"].sum(), total["n"])
        return {**state, "turn": turn, "values": np.full(size, turn % 5.0), "history": history}

    def done(self, state: dict[str, Any]) -> bool:
        """Whether it has made its rounds or, given a folder, a file says that it may end."""
        if self.folder:
            return os.path.exists(f"{self.folder}/end")  # noqa: PTH110 - in each iteration
        return bool(state["turn"] >= self.rounds)

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        if self.odd == "miscounts" and state["turn"] == 200:
            raise ValueError("metrics of turn 200")
        return {"turn": state["turn"]}

    def result(self, state: dict[str, Any]) -> Any:
        return state["history"]


def _die_once(marker: Path) -> None:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def appended(history: int, total: float, items: int) -> int:
    """Return a number that stands for all turns so far: a list of them would grow with each."""
    return (history * 1_000_003 + int(total) * 1009 + int(items)) % PRIME


def history(agents: int, items: int, rounds: int = ROUNDS) -> int:
    """Return what the run must give."""
    expected = 0
    size, value = 4, 0.0
    for turn in range(1, rounds + 1):
        expected = appended(expected, size * (items + agents * value), items)
        size = 40_000 if turn % 11 == 0 else 20_000 if turn % 13 == 0 else 4 + turn % 3
        value = turn % 5.0
    return expected


def relayed(run: sapwood.Run) -> int:
    """Return how many calls of a run were relayed."""
    return sum(agent.relayed for agent in run.statistics.agents)


def flow(cluster: sapwood.Cluster, until: Until) -> StreamInterface:
    """Return a stream whose waves the agents have begun to relay."""
    stream = cluster.session.open_stream("echo", {"x": "sum"})

    def passes() -> bool:
        for _ in range(20):
            stream.broadcast({"x": 1}).result(TIMEOUT)
        run = cluster.run(Growing(rounds=40), range(10))
        run.result(TIMEOUT)
        return relayed(run) > 0

    until(passes)
    return stream


@pytest.mark.parametrize(("agents", "fanout"), [(1, 0), (4, 2)])
def test_relayed_waves_give_what_waves_give(
    make_cluster: MakeCluster, until: Until, agents: int, fanout: int
) -> None:
    cluster = make_cluster(agents, fanout)
    flow(cluster, until)
    run = cluster.run(Growing(), range(10))
    assert run.result(TIMEOUT) == history(agents, 10)
    assert relayed(run) > ROUNDS * agents // 2
    calls = [agent.calls for agent in run.statistics.agents]
    assert calls == [ROUNDS] * agents
    assert all(agent.wait_seconds > 0 for agent in run.statistics.agents)


def test_what_is_printed_meanwhile_is_shown(
    standing: sapwood.Cluster, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    flow(standing, until)
    run = standing.run(Growing(odd="prints"), range(10))
    assert run.result(TIMEOUT) == history(2, 10)
    said: list[str] = []

    def all_said() -> bool:
        said.append(capsys.readouterr().err)
        text = "".join(said)
        return all(
            f"agent[1-2]: turn {turn}\n" in text or text.count(f": turn {turn}\n") == 2
            for turn in range(0, ROUNDS, 7)
        )

    until(all_said)
    assert relayed(run) > 0


def test_an_exception_names_what_it_always_names(standing: sapwood.Cluster, until: Until) -> None:
    cluster = standing
    flow(cluster, until)
    run = cluster.run(Growing(odd="fails"), range(10))
    with pytest.raises(UserCodeError, match="turn 200") as caught:
        run.result(TIMEOUT)
    assert "agent" in str(caught.value)
    assert cluster.run(Growing(), range(10)).result(TIMEOUT) == history(2, 10)


def test_what_is_noted_meanwhile_may_fail(standing: sapwood.Cluster, until: Until) -> None:
    cluster = standing
    flow(cluster, until)
    run = cluster.run(Growing(odd="miscounts"), range(10))
    with pytest.raises(UserCodeError, match="metrics of turn 200"):
        run.result(TIMEOUT)
    assert run.progress.iteration == 199
    run = cluster.run(Growing(), range(10))
    assert run.result(TIMEOUT) == history(2, 10)
    assert run.progress.metrics == {"turn": ROUNDS}


def test_a_time_limit_holds(standing: sapwood.Cluster, until: Until) -> None:
    flow(standing, until)
    with pytest.raises(TimeLimitError):
        standing.run(Growing(odd="hangs"), range(10), time_limit=0.5).result(TIMEOUT)


def test_a_call_that_never_returns_can_be_cancelled(
    standing: sapwood.Cluster, until: Until
) -> None:
    cluster = standing
    flow(cluster, until)
    run = cluster.run(Growing(odd="hangs"), range(10))
    until(lambda: run.progress.iteration == 200)
    run.cancel()
    run.wait()
    assert cluster.run(Growing(), range(10)).result(TIMEOUT) == history(2, 10)


def test_runners_that_die_are_replaced(
    standing: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    flow(standing, until)
    dying = Growing(odd="dies", marks=str(tmp_path))
    run = standing.run(dying, range(10))
    assert run.result(TIMEOUT) == history(2, 10)  # calls whose runners were killed were repeated
    assert sorted(path.name for path in tmp_path.iterdir()) == ["died-100", "died-150"]
    assert sum(agent.repeated for agent in run.statistics.agents) == 2
    assert relayed(run) > 0


def goes_on(run: sapwood.Run, until: Until) -> None:
    """Wait until a run has made some more rounds."""
    reached = run.progress.iteration
    until(lambda: run.progress.iteration > reached + 80)


def ends_well(run: sapwood.Run, agents: int, folder: Path) -> None:
    """Let a run end, and check what it has come to."""
    (folder / "end").touch()
    assert run.result(TIMEOUT) == history(agents, 10, run.statistics.iterations)


def test_agents_that_die_are_replaced_and_relay_again(
    make_cluster: MakeCluster, until: Until, tmp_path: Path
) -> None:
    cluster = make_cluster(3)
    flow(cluster, until)
    run = cluster.run(Growing(folder=str(tmp_path)), range(10))
    for agent in range(3):
        goes_on(run, until)
        os.kill(cluster.agents[agent].pid, signal.SIGKILL)
        until(lambda agent=agent: cluster.agents[agent].incarnation == 2)  # type: ignore[misc]
    for _ in range(3):
        goes_on(run, until)
    ends_well(run, 3, tmp_path)
    assert run.statistics.replaced_agents == 3
    assert min(agent.relayed for agent in run.statistics.agents) > 0


def test_streams_that_take_turns_keep_apart(standing: sapwood.Cluster, until: Until) -> None:
    cluster = standing
    flow(cluster, until)
    one = cluster.session.open_stream("echo", {"x": "sum"})
    two = cluster.session.open_stream("echo", {"x": "max"})
    for number in range(200):
        assert one.broadcast({"x": number}).result(TIMEOUT).total == {"x": 2 * number}
        if number % 9 < 3:
            assert two.broadcast({"x": number}).result(TIMEOUT).total == {"x": number}


def test_waves_in_a_row_come_back_in_order(standing: sapwood.Cluster, until: Until) -> None:
    stream = flow(standing, until)
    futures = [stream.broadcast({"x": np.full(8, number)}) for number in range(MANY)]
    for number, future in enumerate(futures):
        assert (future.result(TIMEOUT).total["x"] == 2 * number).all()


def test_links_that_break_go_on(standing: sapwood.Cluster, until: Until, tmp_path: Path) -> None:
    cluster = standing
    flow(cluster, until)
    run = cluster.run(Growing(folder=str(tmp_path)), range(10))
    place = embedded(cluster.session).host.driver

    def cut() -> None:
        for line in list(place.links.connections.values()):
            line.connection.abort()

    for _ in range(4):
        goes_on(run, until)
        embedded(cluster.session).on_loop(cut)
    for _ in range(3):
        goes_on(run, until)
    ends_well(run, 2, tmp_path)
    assert run.statistics.replaced_agents == 0
    assert min(agent.relayed for agent in run.statistics.agents) > 80


def test_an_agent_that_stops_for_a_while_goes_on(
    standing: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    cluster = standing
    flow(cluster, until)
    run = cluster.run(Growing(folder=str(tmp_path)), range(10))
    goes_on(run, until)
    pid = cluster.agents[0].pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    os.kill(pid, signal.SIGCONT)
    goes_on(run, until)
    ends_well(run, 2, tmp_path)


def test_where_it_is_turned_off_calls_are_counted_alike(
    standing: sapwood.Cluster, make_cluster: MakeCluster, until: Until
) -> None:
    flow(standing, until)
    found = []
    for cluster in (standing, make_cluster(2, comm=CommSettings(fastpath=False))):
        run = cluster.run(Growing(), range(10))
        assert run.result(TIMEOUT) == history(2, 10)
        functions = [agent.functions[0] for agent in run.statistics.agents]
        found.append([(one.calls, one.errors, one.bytes_in, one.bytes_out) for one in functions])
        assert all(one.total >= one.maximum >= one.p95 >= one.p50 > 0 for one in functions)
        assert (relayed(run) > 0) == (cluster is standing)
    assert found[0] == found[1]


def test_its_memory_is_laid_out_alike_on_both_sides() -> None:
    library = RelayLibrary()
    assert isinstance(library.memory, RelayMemory)
    library.memory.epoll_fd = -1
    library.wait(0)
    assert library.events() == []
    assert list(library.records()) == []
