"""Directories in which a program's files lie in folders, and helpers beside them."""

import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.compat.lizard.execution import Outcome
from sapwood.compat.lizard.structures import b64_json_dec

PROGRAMS = Path(__file__).with_name("programs")

RunFunction = Callable[..., Outcome]
MakeCluster = Callable[..., sapwood.Cluster]


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize("agents", [1, 3, 7])
def test_sources_in_folders_and_structures_in_structures(
    make_cluster: MakeCluster, outcome: RunFunction, agents: int
) -> None:
    count = 515
    settings = {"steps": 3, "seed": 4, "n": count}
    found = outcome(make_cluster(agents), PROGRAMS / "bodies", settings)
    rng = random.Random(4)  # noqa: S311 - the numbers that the runner draws
    rows = [
        [*(rng.uniform(-1, 1) for _ in range(6)), rng.randrange(1, 5), rng.randrange(2)]
        for _ in range(count)
    ]
    table = np.array(rows)
    at = table[:, :3] + 0.5 * table[:, 3:6] + 0.125 * np.array([0, 0, -1])
    cube = np.zeros((2, 2, 2))
    np.add.at(cube, tuple((at > 0).astype(int).T), 1)
    state = b64_json_dec(found.end_global_state)
    mass = table[:, 6:7]
    assert state["c"] == pytest.approx((mass * at).sum(0) / mass.sum(), abs=1e-5)
    assert b64_json_dec(state["dynamic"]) == cube.tolist()


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize("agents", [1, 2, 4])
def test_several_sources_and_a_package_of_helpers(
    make_cluster: MakeCluster, outcome: RunFunction, tmp_path: Path, agents: int
) -> None:
    values = np.random.default_rng(3).normal(size=997)
    file = tmp_path / "values.txt"
    np.savetxt(file, values)
    settings = {"k": 5, "input_file": str(file)}
    found = outcome(make_cluster(agents), PROGRAMS / "top", settings)
    state = b64_json_dec(found.end_global_state)
    assert state["limit"] == pytest.approx(np.sort(values)[-15], rel=1e-6)


@pytest.mark.row("B-RUN-2")
def test_a_prompt_finds_the_python_module_whatever_it_is_called(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "values.txt", np.arange(100.0))
    command = [sys.executable, "-m", "sapwood", "lizard", "load", str(PROGRAMS / "top")]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    checksum = re.findall(r"[0-9a-f]{40}", loaded.stdout)[0]
    code = (
        "from sapwood.compat.lizard.runtime_helper import run_using_runner_module as run\n"
        "run('top.runner', {'k': 5, 'input_file': %r}, 'localhost:5000', %r)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code % (str(tmp_path / "values.txt"), checksum)],
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines()[1:] == ["85.00000 3"], done.stderr
