"""How runs and clusters end, and what is refused before they begin."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    CancelledError,
    ClosedError,
    ConfigurationError,
    InputError,
    SapwoodError,
    TimeLimitError,
)
from sapwood.environment.settings import ClusterSettings, LimitSettings, PlaceSettings, Settings

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (3, 0)
MakeCluster = Callable[..., sapwood.Cluster]
Programs = Callable[..., sapwood.Program]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Three agents."""
    return standing


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=shape)


# --- ends ----------------------------------------------------------------------------------------


def test_a_run_can_be_cancelled_in_the_middle_of_a_map(
    cluster: sapwood.Cluster, program: Programs, until: Until, tmp_path: Path
) -> None:
    run = cluster.run(program("Endless", folder=str(tmp_path)), np.arange(9))
    until(lambda: len(list(tmp_path.iterdir())) == 3)
    assert not run.done()
    assert run.cancel()
    with pytest.raises(CancelledError):
        run.result(TIMEOUT)
    assert run.cancelled()
    assert run.progress.state is sapwood.types.RunState.CANCELLED
    assert not run.cancel()
    until(lambda: not any(Path(f"/proc/{path.name}").exists() for path in tmp_path.iterdir()))
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8


def blocks_mapped() -> int:
    """Return how many blocks of others a runner has mapped."""
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        return sum("memfd:sapwood" in line and " r--s " in line for line in maps)


def test_the_data_of_a_run_are_gone_with_it(cluster: sapwood.Cluster, program: Programs) -> None:
    for _ in range(4):
        data = numbers(3000, 50)
        result = cluster.run(program("Moments"), data).result(TIMEOUT)
        assert np.allclose(result["sum"], data.sum(axis=0))
        for agent in range(1, cluster.session.tree.agents + 1):
            assert cluster.submit_to(agent, blocks_mapped).result(TIMEOUT) == 0


def test_a_run_that_takes_too_long_is_ended_and_says_how_far_it_came(
    cluster: sapwood.Cluster, program: Programs, until: Until, tmp_path: Path
) -> None:
    run = cluster.run(program("Endless", folder=str(tmp_path)), np.arange(9), run_time_limit=1.0)
    with pytest.raises(
        TimeLimitError, match=r"longer than 1 s and was ended (after 0|while|before)"
    ):
        run.result(TIMEOUT)
    assert run.progress.state is sapwood.types.RunState.FAILED
    assert not run.cancelled()
    until(lambda: not any(Path(f"/proc/{path.name}").exists() for path in tmp_path.iterdir()))
    steps = cluster.run(program("Steps", steps=1_000_000), np.ones(3), run_time_limit=0.5)
    with pytest.raises(TimeLimitError, match=r"ended (after \d+ iterations?|before|while)"):
        steps.result(TIMEOUT)
    early = cluster.run(program("Steps", steps=3), np.ones(3), run_time_limit=1e-6)
    with pytest.raises(
        TimeLimitError, match=r"ended (while its program was being built|before|after 0)"
    ):
        early.result(TIMEOUT)
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8


def test_a_run_within_its_limits_does_not_notice_them(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    run = cluster.run(
        program("Steps", steps=3), np.ones(3), run_time_limit=TIMEOUT, max_iterations=3
    )
    assert run.result(TIMEOUT) == 3 * (1 + 2 + 3)
    assert not run.statistics.cut_short
    assert run.progress.iterations is None or run.progress.iterations <= 3


def test_a_run_ends_after_the_most_iterations_with_the_result_so_far(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    run = cluster.run(program("Steps", steps=1000), np.ones(3), max_iterations=2)
    assert run.result(TIMEOUT) == 3 * (1 + 2)
    assert run.progress.state is sapwood.types.RunState.DONE
    assert run.progress.iteration == run.statistics.iterations == 2
    assert run.statistics.cut_short
    assert "2 iterations (max_iterations)" in str(run.statistics)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"run_time_limit": -1}, "run_time_limit is -1"),
        ({"run_time_limit": float("nan")}, "run_time_limit is nan"),
        ({"run_time_limit": "1"}, "run_time_limit is '1'"),
        ({"max_iterations": -1}, "max_iterations is -1"),
        ({"max_iterations": 1.5}, "max_iterations is 1.5"),
        ({"max_iterations": True}, "max_iterations is True"),
    ],
)
def test_limits_of_a_run_are_checked(
    cluster: sapwood.Cluster, program: Programs, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        cluster.run(program("Steps"), np.ones(3), **limits)


def test_limits_of_all_runs_are_settings(make_cluster: MakeCluster, program: Programs) -> None:
    cluster = make_cluster(1, limits=LimitSettings(iterations=2, run_time=60.0))
    assert cluster.run(program("Steps"), np.ones(3)).result(TIMEOUT) == 3 * (1 + 2)
    again = cluster.run(program("Steps", steps=3), np.ones(3), max_iterations=0)
    assert again.result(TIMEOUT) == 3 * (1 + 2 + 3)


def test_an_interrupt_of_who_waits_cancels_the_run(
    cluster: sapwood.Cluster, program: Programs, until: Until, tmp_path: Path
) -> None:
    run = cluster.run(program("Endless", folder=str(tmp_path)), np.arange(9))
    main = threading.main_thread().ident or 0

    def waits() -> bool:
        """Whether the main thread is inside what ``result`` calls."""
        frame = sys._current_frames()[main].f_back
        while frame is not None and frame.f_code is not sapwood.Run.result.__code__:
            frame = frame.f_back
        return frame is not None

    def interrupt() -> None:
        until(lambda: len(list(tmp_path.iterdir())) == 3 and waits())
        signal.pthread_kill(main, signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        run.result(TIMEOUT)
    watcher.join()
    assert run.wait(TIMEOUT)
    assert run.cancelled()
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8


def test_a_run_can_be_cancelled_before_it_begins(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    run = cluster.run(program("Steps", steps=1_000_000), np.arange(9))
    run.cancel()
    with pytest.raises(CancelledError):
        run.result(TIMEOUT)


def test_cancelling_one_run_spares_the_others(cluster: sapwood.Cluster, program: Programs) -> None:
    doomed = cluster.run(program("Steps", steps=1_000_000), np.ones(9))
    other = cluster.run(program("Steps", steps=50), np.ones(9))
    doomed.cancel()
    assert other.result(TIMEOUT) == 9.0 * sum(range(1, 51))
    assert doomed.wait(TIMEOUT)


def test_closing_ends_what_runs(
    make_cluster: MakeCluster, program: Programs, until: Until, tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    run = cluster.run(program("Endless", folder=str(tmp_path)), np.arange(9))
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    cluster.close()
    assert isinstance(run.exception(TIMEOUT), (CancelledError, ClosedError))
    cluster.close()
    for attempt in (
        lambda: cluster.run(program("Steps"), np.arange(3)),
        lambda: cluster.submit(pow, 2, 3),
        lambda: cluster.map(abs, [1]),
    ):
        with pytest.raises(ClosedError, match="the cluster is closed"):
            attempt()


def test_clusters_do_not_disturb_each_other(
    cluster: sapwood.Cluster, make_cluster: MakeCluster, program: Programs
) -> None:
    first, second = make_cluster(2), cluster
    runs = [cluster.run(program("Steps"), np.ones(6)) for cluster in (first, second)]
    assert [run.result(TIMEOUT) for run in runs] == [6.0 * 55] * 2
    first.close()
    assert second.run(program("Steps"), np.ones(6)).result(TIMEOUT) == 6.0 * 55


def test_a_cluster_belongs_to_all_threads(cluster: sapwood.Cluster, program: Programs) -> None:
    results: list[float] = []

    def work() -> None:
        results.append(cluster.run(program("Steps"), np.ones(6)).result(TIMEOUT))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [6.0 * 55] * 4


@pytest.mark.parametrize("agents", [0, -1, 100_000])
def test_impossible_numbers_of_agents_are_refused(agents: int) -> None:
    with pytest.raises(ConfigurationError, match="agent"):
        sapwood.local(agents)


@pytest.mark.parametrize(
    "section",
    [
        ClusterSettings(interpreter=["/nowhere/python"]),
        ClusterSettings(places={"1": PlaceSettings(interpreter=["/nowhere/python"])}),
    ],
)
def test_an_interpreter_that_is_not_there_is_refused(section: ClusterSettings) -> None:
    with pytest.raises(ConfigurationError, match="/nowhere/python is not a program"):
        sapwood.local(2, settings=Settings(cluster=section))


@pytest.mark.parametrize("ranks", ["0", "3", "1-9", "first", ""])
def test_only_places_of_the_tree_can_have_an_interpreter(ranks: str) -> None:
    places = {ranks: PlaceSettings(interpreter=[sys.executable])}
    settings = Settings(cluster=ClusterSettings(places=places))
    with pytest.raises(ConfigurationError, match="gives no place of this tree an interpreter"):
        sapwood.local(2, settings=settings)


@pytest.mark.parametrize(
    ("where", "code", "message"),
    [
        ("exit", "SW201", r"sys\.exit\(5\) \(Odd\.init\)"),
        ("done", "SW201", "truth value of an array.*done"),
        ("metrics", "SW120", "metrics must be a dictionary of numbers"),
        ("array", "SW120", "metrics must be a dictionary of numbers"),
        ("complex", "SW120", "metrics must be a dictionary of numbers"),
        ("iterations", "SW120", r"iterations\(\) is 'many'"),
        ("iterations raise", "SW201", "ValueError: no number.*iterations"),
    ],
)
def test_what_a_program_must_not_return_is_an_error_that_names_the_method(
    cluster: sapwood.Cluster, program: Programs, where: str, code: str, message: str
) -> None:
    with pytest.raises(SapwoodError, match=message) as caught:
        cluster.run(program("Odd", where=where), np.ones(3)).result(TIMEOUT)
    assert caught.value.code == code


def test_a_time_limit_may_be_longer_than_any_timer(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    run = cluster.run(program("Steps", steps=1), np.ones(3), run_time_limit=1e300)
    assert run.result(TIMEOUT) == 3
