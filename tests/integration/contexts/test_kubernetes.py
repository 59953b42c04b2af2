"""Nodes through Kubernetes: the real ``kubectl`` and a small part of the API, served here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.system.hosts.network import until

import sapwood
from sapwood.contexts.launchers.allocation import AllocationState
from sapwood.contexts.launchers.kubernetes import (
    IMAGE,
    KubernetesLauncher,
    PodOptions,
    PodView,
    job_of,
)
from sapwood.contexts.launchers.specs import machines
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.environment.settings import CommSettings, NodeSettings, Settings
from sapwood.testing.launchers import CHECKS

from .kubernetes_api import Job, KubernetesApi

pytestmark = [
    pytest.mark.row("D-5"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing"),
]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    """The API, which ``kubectl`` finds by its configuration."""
    made = KubernetesApi(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(made.configuration))
    monkeypatch.setenv("HOME", str(tmp_path))  # kubectl keeps a cache there
    yield made
    made.close()


def test_conformance(api: KubernetesApi) -> None:
    launcher = KubernetesLauncher(2)
    launcher.request()
    try:
        assert launcher.hosts == (f"{launcher.job}-0", f"{launcher.job}-1")
        for check in CHECKS:
            check(launcher)  # the last one closes it
    finally:
        launcher.close()
    assert launcher.state is AllocationState.RELEASED
    assert not api.jobs
    with pytest.raises(ResourceError, match="are released"):
        launcher.start(launcher.hosts[0], "true")


def test_the_job_is_one_of_batch_v1() -> None:
    plain = msgspec.convert(job_of("sapwood-1", 4, PodOptions()), Job)
    assert (plain.apiVersion, plain.kind) == ("batch/v1", "Job")
    assert (plain.spec.completions, plain.spec.parallelism) == (4, 4)
    assert plain.spec.completionMode == "Indexed"
    assert plain.spec.template.spec.restartPolicy == "Never"
    assert not plain.spec.template.spec.automountServiceAccountToken
    (container,) = plain.spec.template.spec.containers
    assert container.image == IMAGE
    options = PodOptions(image="lab/own:1", cpus=2, memory="4Gi", gpus=1, deadline=3600)
    large = msgspec.convert(job_of("sapwood-1", 1, options), Job)
    assert large.spec.activeDeadlineSeconds == 3600
    (container,) = large.spec.template.spec.containers
    assert container.image == "lab/own:1"
    assert container.resources.requests == {"cpu": "2", "memory": "4Gi"}
    assert container.resources.limits == {"nvidia.com/gpu": "1", "memory": "4Gi"}


def test_a_cluster_over_pods(api: KubernetesApi) -> None:
    settings = Settings(
        nodes=NodeSettings(listen="127.0.0.1:0", node_listen="127.0.0.1:0"),
        comm=CommSettings(grace=0.5),
    )
    with sapwood.start("kubernetes:2", agents=2, settings=settings) as cluster:
        (job,) = api.jobs.values()
        (container,) = job.spec.template.spec.containers
        assert container.resources.requests == {"cpu": "1"}
        assert list(cluster.map(pow, range(4), [2] * 4)) == [0, 1, 4, 9]
    assert not api.jobs


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {
                        "ready": False,
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such"}},
                    }
                ],
            },
            "ImagePullBackOff: no such",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "Evicted: low on"),
    ],
)
def test_pods_that_will_not_run(api: KubernetesApi, status: dict[str, object], why: str) -> None:
    api.status = status
    launcher = KubernetesLauncher(2)
    with pytest.raises(ResourceError, match=why):
        launcher.request()
    assert not api.jobs


def test_pods_that_do_not_run_in_time(api: KubernetesApi) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    api.status = {
        "phase": "Pending",
        "conditions": [{**condition, "message": "2 Insufficient cpu"}],
    }
    launcher = KubernetesLauncher(2, timeout=0.1)
    told: list[str] = []
    with pytest.raises(ResourceError, match=f"job {launcher.job} did not run") as caught:
        launcher.request(lambda what, _seconds: told.append(what))
    waits = "0 of 2 pods run; Unschedulable: 2 Insufficient cpu"
    assert caught.value.where == waits
    assert told[0] == f"Kubernetes: {waits}"
    assert not api.jobs


def test_a_cluster_that_refuses(api: KubernetesApi) -> None:
    api.refused = 'jobs.batch is forbidden: User "me" cannot create resource "jobs"'
    with pytest.raises(ConfigurationError, match="create has failed") as caught:
        KubernetesLauncher(1).request()
    assert "cannot create resource" in caught.value.where
    assert "pods/exec" in caught.value.hint


@pytest.mark.usefixtures("api")
def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    file = Path(os.environ["KUBECONFIG"])
    file.write_text(file.read_text().replace("http://127.0.0.1:", "http://127.0.0.1:1#"))
    assert tmp_path in file.parents
    with pytest.raises(ResourceError, match="kubectl create has failed"):
        KubernetesLauncher(1).request()


def test_when_the_client_is_killed_the_job_is_deleted(api: KubernetesApi) -> None:
    code = (
        "import sys, time\n"
        "from sapwood.contexts.launchers.kubernetes import KubernetesLauncher\n"
        "launcher = KubernetesLauncher(1)\n"
        "launcher.request()\n"
        "print(launcher.job, flush=True)\n"
        "sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        job = process.stdout.readline().strip()
        assert set(api.jobs) == {job}
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    until(lambda: not api.jobs)


def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (
        PodOptions(cpus=-1),
        PodOptions(gpus=True),
        PodOptions(image="--help"),
        PodOptions(memory="much"),
    ):
        with pytest.raises(ConfigurationError, match="cannot be"):
            KubernetesLauncher(1, options)
    for spec in ("kubernetes", "kubernetes:", "kubernetes:0", "kubernetes:x"):
        with pytest.raises(ConfigurationError, match="names no machines"):
            machines(spec)
    ended = {"metadata": {"name": "a", "deletionTimestamp": "x"}, "status": {"phase": "Running"}}
    assert not PodView.of(ended).ready
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigurationError, match="kubectl is not installed"):
        KubernetesLauncher(1)
