"""What the launcher for Slurm asks of Slurm's programs, and how it reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.contexts.launchers.allocation import TRANSITIONS, AllocationEvent, AllocationState
from sapwood.contexts.launchers.slurm import JobView, SlurmLauncher, stripped
from sapwood.core.errors import ConfigurationError, InternalError


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name in ("salloc", "srun", "squeue", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin"}


def test_whole_machines_are_asked_for_unless_cores_are_known(environment: dict[str, str]) -> None:
    whole = SlurmLauncher(2, environment=environment).allocation_command()
    assert whole[:5] == ["salloc", "--nodes=2", "--job-name=sapwood", "--no-kill", "--exclusive"]
    some = SlurmLauncher(2, cores=3, limit="1:00", environment=environment).allocation_command()
    assert {"--time=1:00", "--cpus-per-task=3"} <= set(some)
    assert "--exclusive" not in some
    own = SlurmLauncher(2, ["-c4"], environment=environment).allocation_command()
    assert "-c4" in own
    assert "--exclusive" not in own


def test_a_step_is_for_one_machine(environment: dict[str, str]) -> None:
    launcher = SlurmLauncher(
        step_options=["--oversubscribe"], environment=environment | {"SLURM_JOB_ID": "5"}
    )
    words = launcher.step_command("n1", "true")
    assert {"--jobid=5", "--nodelist=n1", "--overlap", "--oversubscribe"} <= set(words)
    assert words[-3:] == ["sh", "-c", "true"]
    assert not launcher.owns_job


def test_a_job_without_a_start_has_none() -> None:
    view = JobView.parse("6|PENDING|2026-11-23T17:26:03||main|Resources\n")
    assert view.start is not None
    assert "2026-11-23 17:26" in view.describe()
    assert JobView.parse("6|PENDING|N/A||main|Priority").start is None


def test_a_reason_that_may_last_forever_is_explained() -> None:
    text = JobView.parse("6|PENDING|N/A||main|PartitionConfig").describe()
    assert text == (
        "job 6 waits in partition main: PartitionConfig (no machine there has the cores and memory "
        "that the job wants on each; see `sinfo -l`)"
    )


def test_variables_of_another_job_are_stripped() -> None:
    poison = {"SLURM_NTASKS": "1", "SRUN_DEBUG": "1", "SBATCH_ACCOUNT": "a"}
    assert stripped(poison | {"SALLOC_ACCOUNT": "b"}) == {"SALLOC_ACCOUNT": "b"}


def test_a_released_allocation_is_not_granted() -> None:
    with pytest.raises(InternalError, match="an allocation got grant while released"):
        TRANSITIONS.after(AllocationState.RELEASED, AllocationEvent.GRANT)


def test_no_slurm_and_no_allocation_are_named(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="no program salloc"):
        SlurmLauncher(2, environment={"PATH": "/nowhere"})
    with pytest.raises(ConfigurationError, match="in no allocation"):
        SlurmLauncher(environment=environment)
