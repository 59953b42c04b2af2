"""Where user code is now, on all agents: asked of the cluster, of a session and by signal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.code.runner import py_spy
from sapwood.core.errors import ClosedError, ConfigurationError, TimeLimitError
from sapwood.types import StackInfo, StackResult

MakeCluster = Callable[..., sapwood.Cluster]
PATIENCE = 60.0

SPIN = """
static volatile int never;
static int inner(int x) {
  while (never == 0) x++;
  return x;
}
int spin(int x) {
  return inner(x) + 1;
}
"""


def hang(path: str) -> None:
    Path(path, str(os.getpid())).touch()
    threading.Event().wait()


def until(cluster: sapwood.Cluster, condition: Callable[[StackResult], bool]) -> StackResult:
    """Ask until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition(found := cluster.stacks()):
        assert time.monotonic() < deadline, f"it does not become so:\n{found}"
    return found


def functions(info: StackInfo) -> list[str]:
    return [frame.function for thread in info.threads for frame in thread.frames]


@pytest.mark.row("D-13")
def test_equal_stacks_of_agents_are_one(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(4, fanout=2)
    calls = [cluster.submit_to(rank, hang, str(tmp_path)) for rank in (1, 2, 4)]
    found = until(cluster, lambda all_: sum("hang" in functions(one) for one in all_.agents) == 3)
    shown = dict(found.folded())
    assert set(shown) == {(1, 2, 4), (3,)}
    assert shown[3,].state == "idle"
    assert shown[3,].threads == ()
    busy = shown[1, 2, 4]
    assert (busy.state, busy.function.rpartition(".")[2]) == ("busy", "hang")
    assert busy.pid in {int(path.name) for path in tmp_path.iterdir()}
    assert f"agent[1-2,4]: busy in {busy.function} for" in str(found)
    assert f"hang ({__file__}:" in str(found)
    (only,) = cluster.stacks(agents=[3]).agents
    assert only.agent == 3
    assert not wait(calls, 0).done


def test_a_stopped_runner_does_not_delay_the_others(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    cluster.submit_to(1, hang, str(tmp_path))
    cluster.submit_to(2, hang, str(tmp_path))
    found = until(cluster, lambda all_: all("hang" in functions(one) for one in all_.agents))
    os.kill(found.agents[0].pid, signal.SIGSTOP)
    first, second = until(cluster, lambda all_: all_.agents[0].state == "stopped").agents
    assert "kill -CONT" in first.note
    assert first.threads == ()
    assert second.state == "busy"


def test_an_agent_that_does_not_answer_is_lost(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    os.kill(cluster.agents[0].pid, signal.SIGSTOP)
    try:
        first, second = cluster.stacks(0.3).agents
    finally:
        os.kill(cluster.agents[0].pid, signal.SIGCONT)
    assert (first.state, second.state) == ("lost", "idle")
    assert first.note == "the agent did not answer within 0.3 s"


@pytest.mark.parametrize("agents", [[0], [9], [1, 1], "x"])
def test_only_agents_have_stacks(make_cluster: MakeCluster, agents: Any) -> None:
    with pytest.raises(ConfigurationError):
        make_cluster(1).stacks(agents=agents)


def test_a_closed_cluster_has_no_stacks(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    cluster.close()
    with pytest.raises(ClosedError):
        cluster.stacks()


def native_program(folder: Path) -> sapwood.Program:
    (folder / "spin.c").write_text(SPIN)
    (folder / "program.toml").write_text(
        '[program]\nsources = ["spin.c"]\n[parameters.x]\ndefault = 1\n'
        '[map]\nfunction = "spin"\n[reduce]\nreturn = "sum"\n'
    )
    return sapwood.load_program(folder)


def test_a_native_loop_is_shown_with_its_line(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(2)
    run = cluster.run(native_program(tmp_path), range(10))
    found = until(cluster, lambda all_: all("inner" in str(one) for one in all_.agents))
    ((ranks, one),) = found.folded()
    assert ranks == (1, 2)
    (frame,) = one.threads[0].frames
    assert frame.native
    assert frame.function.startswith("inner")
    assert (frame.file, frame.line) == ("spin.c", 4)
    run.cancel()


def test_a_native_loop_is_named_in_the_error_of_its_time_limit(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    run = make_cluster(1).run(native_program(tmp_path), range(10), time_limit=1.0)
    with pytest.raises(TimeLimitError) as caught:
        run.result(PATIENCE)
    assert "spin.c:" in caught.value.details["stack"]


@pytest.mark.skipif(not py_spy.installed(), reason="py-spy is not installed")
def test_py_spy_shows_native_frames_of_any_library(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(1)
    cluster.submit_to(1, time.sleep, 1000)
    found = until(cluster, lambda all_: "nanosleep" in str(all_))
    assert found.agents[0].note == ""
    assert found.agents[0].threads[0].frames[0].native
