"""Nodes through Dask: a scheduler and two workers, each at its own address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.system.hosts.network import until

import sapwood
from sapwood.contexts.launchers.allocation import AllocationState
from sapwood.contexts.launchers.dask import DaskLauncher
from sapwood.contexts.launchers.dask_holder import machines_of
from sapwood.contexts.launchers.specs import machines
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.environment.settings import CommSettings, NodeSettings, Settings
from sapwood.testing.launchers import CHECKS

distributed = pytest.importorskip("distributed")

HOSTS = ("127.0.0.2", "127.0.0.3")
SETTINGS = Settings(
    nodes=NodeSettings(listen="127.0.0.1:0", node_listen="127.0.0.1:0", dask_timeout=1.0),
    comm=CommSettings(grace=0.5),
)

pytestmark = [pytest.mark.row("D-5"), pytest.mark.timeout(240)]


class DaskCluster:
    """A scheduler and workers, as processes.

    Args:
        folder: Where they work.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        scheduler = folder / "scheduler.json"
        self._begin("dask_scheduler", "--host=127.0.0.1", "--port=0", "--no-dashboard", scheduler)
        until(lambda: scheduler.exists() and scheduler.stat().st_size > 0)
        self.workers = {host: self._worker(host, scheduler) for host in HOSTS}
        self.address = json.loads(scheduler.read_text())["address"]
        until(lambda: self.asked() == set(HOSTS))

    def asked(self) -> set[str]:
        """Return the machines that the scheduler has."""
        with distributed.Client(self.address, set_as_default=False, timeout=60) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            return {one["host"] for one in workers.values()}

    def close(self) -> None:
        """End them."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)

    def _worker(self, host: str, scheduler: Path) -> subprocess.Popen[bytes]:
        options = ("--nthreads=2", "--no-nanny", "--no-dashboard", "--death-timeout=60")
        return self._begin("dask_worker", f"--host={host}", *options, scheduler)

    def _begin(self, module: str, *words: str | Path) -> subprocess.Popen[bytes]:
        *options, file = words
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", f"distributed.cli.{module}"),
                *options,
                *("--scheduler-file", file),
            ],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._processes.append(process)
        return process


@pytest.fixture(scope="module")
def dask(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaskCluster]:
    """A scheduler, and two workers with two threads each."""
    del nothing_is_left_behind_by_all  # it looks when these have ended
    made = DaskCluster(tmp_path_factory.mktemp("dask"))
    yield made
    made.close()


def test_conformance(dask: DaskCluster) -> None:
    launcher = DaskLauncher(dask.address)
    launcher.request()
    try:
        assert launcher.hosts == HOSTS
        assert launcher.cpus == 2
        for check in CHECKS:
            check(launcher)  # the last one closes it
    finally:
        launcher.close()
    assert launcher.state is AllocationState.RELEASED
    with pytest.raises(ResourceError, match="given back"):
        launcher.start(HOSTS[0], "true")


def test_a_cluster_over_its_machines(dask: DaskCluster) -> None:
    with sapwood.start(f"dask:{dask.address}", agents=2, settings=SETTINGS) as cluster:
        assert list(cluster.map(pow, range(4), [2] * 4)) == [0, 1, 4, 9]
    assert dask.asked() == set(HOSTS)


@pytest.mark.nightly
def test_a_client_says_where_its_cluster_is(dask: DaskCluster) -> None:
    with (
        distributed.Client(dask.address, set_as_default=False) as client,
        sapwood.dask(client, nodes=1, settings=SETTINGS) as cluster,
    ):
        assert len(cluster.agents) == 2  # as many as the worker has threads
        assert client.submit(pow, 2, 10).result() == 1024  # Dask works on


@pytest.mark.nightly
def test_machines_that_are_not_there_are_waited_for_and_named(dask: DaskCluster) -> None:
    told: list[str] = []
    with pytest.raises(ResourceError, match="Dask did not have 3 machines within 1 s") as caught:
        sapwood.dask(
            dask.address, 3, settings=SETTINGS, on_wait=lambda what, _seconds: told.append(what)
        )
    assert caught.value.where == "3 machines wanted; 2 in the cluster"
    assert "Dask: 3 machines wanted; 2 in the cluster" in told


@pytest.mark.nightly
def test_when_the_client_is_killed_its_commands_end(dask: DaskCluster, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        "import sys\n"
        "from sapwood.contexts.launchers.dask import DaskLauncher\n"
        f"launcher = DaskLauncher({dask.address!r}, 1)\n"
        "launcher.request()\n"
        f"launcher.start(launcher.hosts[0], 'echo $$ > {mark}; exec cat')\n"
        "sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        until(lambda: mark.exists() and mark.read_text() != "")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists())


@pytest.mark.nightly
def test_a_worker_that_is_killed_takes_its_commands_along(tmp_path: Path) -> None:
    dask = DaskCluster(tmp_path)
    try:
        launcher = DaskLauncher(dask.address)
        launcher.request()
        process = launcher.start(HOSTS[1], "echo $$; exec cat")
        with process:
            assert process.stdout is not None
            pid = process.stdout.readline().decode().strip()
            os.kill(dask.workers[HOSTS[1]].pid, signal.SIGKILL)
            assert process.wait(60) != 0
            assert process.stderr is not None
            assert b"Dask" in process.stderr.read()
        until(lambda: not Path(f"/proc/{pid}").exists())
        launcher.close()
    finally:
        dask.close()


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ("10.0.0.5:8786", "not an address of a Dask scheduler"),
        ("inproc://x", "not an address of a Dask scheduler"),
        (SimpleNamespace(scheduler=SimpleNamespace(address="inproc://x")), "no Dask client"),
        (7, "no Dask client"),
    ],
)
def test_what_names_no_cluster(cluster: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        DaskLauncher(cluster)


def test_a_scheduler_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="names no machines"):
        machines("dask:4")
    assert machines("dask:tcp://h:8786") == ("dask", "tcp://h:8786")
    with pytest.raises(ConfigurationError):
        DaskLauncher("tcp://127.0.0.1:1", nodes=0)
    assert machines_of({}) == []
