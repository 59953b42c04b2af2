"""A changed library never meets an old one in the same process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sapwood

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

PATIENCE = 60.0


def source(number: int) -> str:
    return f"""#include <stdint.h>
#include <stdlib.h>
static int calls = 0;
int number(void) {{ return {number}; }}
int counted(void) {{ return ++calls; }}
/** @array data[n] */
void scaled(const double *data, int64_t n, double *total) {{
    for (int64_t i = 0; i < n; i++) *total += {number} * data[i];
}}
"""


PROGRAM = """
import time
from pathlib import Path
from sapwood import Program, native, parameter

class Scaled(Program):
    sources = ["a.c"]
    reduce = {"total": "sum"}
    map = native("scaled")
    rounds: int = parameter(20)

    def init(self, data):
        return {"totals": []}

    def update(self, state, total):
        return {"totals": [*state["totals"], float(total["total"])]}

    def done(self, state):
        return len(state["totals"]) == self.rounds
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text(source(1))
    (tmp_path / "p.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def libraries() -> Callable[[], tuple[int, list[str]]]:
    """Return a function that says which process it is in and which built libraries that has."""

    def find() -> tuple[int, list[str]]:
        with open("/proc/self/maps", encoding="utf-8") as file:  # noqa: PTH123 - no regular file
            paths = {line.split()[-1] for line in file if "/entries/" in line}
        return os.getpid(), sorted(path for path in paths if b"counted" in Path(path).read_bytes())

    return find


@pytest.mark.row("A-CODE-4")
def test_a_new_version_gets_a_new_process(
    make_cluster: Callable[..., sapwood.Cluster],
    folder: Path,
    libraries: Callable[[], tuple[int, list[str]]],
) -> None:
    cluster = make_cluster(1)

    def number(program: sapwood.Program) -> int:
        return int(cluster.submit(program["number"]).result(PATIENCE))

    old = sapwood.load_program(folder / "p.py")
    assert number(old) == 1
    first = cluster.submit(libraries).result(PATIENCE)
    (folder / "a.c").write_text(source(2))
    new = sapwood.load_program(folder / "p.py")
    assert number(new) == 2
    second = cluster.submit(libraries).result(PATIENCE)
    assert number(old) == 1  # a holder of the old version may continue to use it
    third = cluster.submit(libraries).result(PATIENCE)
    assert [len(found) for _, found in (first, second, third)] == [1, 1, 1]
    assert len({pid for pid, _ in (first, second, third)}) == 3
    assert cluster.agents[0].incarnation == 1


@pytest.mark.row("A-CODE-4")
def test_a_library_stays_loaded_while_its_version_is_used(
    make_cluster: Callable[..., sapwood.Cluster], folder: Path
) -> None:
    cluster = make_cluster(1)
    program = sapwood.load_program(folder / "p.py")
    calls = [cluster.submit(program["counted"]) for _ in range(5)]
    assert [each.result(PATIENCE) for each in calls] == [1, 2, 3, 4, 5]


def test_runs_of_two_versions_at_once_each_keep_theirs(
    make_cluster: Callable[..., sapwood.Cluster], folder: Path
) -> None:
    cluster = make_cluster(2)
    data = np.arange(10.0)
    old = cluster.run(folder / "p.py", data)
    (folder / "a.c").write_text(source(7))
    new = cluster.run(folder / "p.py", data)
    assert old.result(PATIENCE)["totals"] == [45.0] * 20
    assert new.result(PATIENCE)["totals"] == [315.0] * 20
