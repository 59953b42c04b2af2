from pathlib import Path

import pytest

from sapwood.environment.memory import available_memory, total_memory

GIB = 2**30


def make_machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    files = {
        "proc/meminfo": f"MemTotal: {16 * 2**20} kB\nMemAvailable: {12 * 2**20} kB\n",
        "proc/self/cgroup": groups,
        **files,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    root = make_machine(tmp_path, "", {})
    assert (total_memory(root), available_memory(root)) == (16 * GIB, 12 * GIB)


@pytest.mark.parametrize(
    ("groups", "limit", "used"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/memory.current"),
        (
            "4:cpu:/\n3:memory:/a\n0::/\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes",
        ),
        # In a container the group's path is the host's, and only the top is there.
        ("0::/host/path\n", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ],
)
def test_a_control_group_limits_it(tmp_path: Path, groups: str, limit: str, used: str) -> None:
    root = make_machine(tmp_path, groups, {limit: f"{4 * GIB}\n", used: f"{3 * GIB}\n"})
    assert (total_memory(root), available_memory(root)) == (4 * GIB, GIB)


def test_file_cache_of_the_group_counts_as_free(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/memory.max": str(4 * GIB),
        "sys/fs/cgroup/a/memory.current": str(4 * GIB),
        "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB}\n",
    }
    assert available_memory(make_machine(tmp_path, "0::/a\n", files)) == GIB


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n"])
def test_no_limit_is_no_limit(tmp_path: Path, limit: str) -> None:
    files = {"sys/fs/cgroup/a/memory.max": limit, "sys/fs/cgroup/a/memory.current": "5"}
    assert available_memory(make_machine(tmp_path, "0::/a\n", files)) == 12 * GIB


def test_this_machine_has_memory() -> None:
    assert 0 < available_memory() <= total_memory()
