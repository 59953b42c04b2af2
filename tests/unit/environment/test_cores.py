import os
from pathlib import Path

import pytest

from sapwood.environment.cores import usable_cores


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n"},
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/a\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        },
    ],
)
def test_a_quota_limits_the_cores(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    assert usable_cores(write(tmp_path, files)) == 1


@pytest.mark.parametrize("quota", ["max 100000\n", "nonsense"])
def test_no_quota_leaves_the_affinity(
    tmp_path: Path, quota: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": quota}
    assert usable_cores(write(tmp_path, files)) == 8


def test_a_tiny_quota_is_one_core(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "1000 100000\n"}
    assert usable_cores(write(tmp_path, files)) == 1
