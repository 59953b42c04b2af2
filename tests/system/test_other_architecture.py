"""Whole sessions whose agents are of another architecture than the client.

The zygote, the agents and the runners are real processes of the session, each with its place
in the tree; they run an aarch64 Python under the user-mode emulator of qemu. Only the client
is of this machine's architecture. ``scripts/prepare_arm64.sh`` gets what that needs.
"""

from __future__ import annotations

import os
import platform
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.code.installed_tools import find_zig
from sapwood.code.shared_library import machine_of
from sapwood.core.errors import RunnerCrashError
from sapwood.environment.settings import ClusterSettings, CommSettings, PlaceSettings, Settings
from sapwood.session.embedded import embedded

ROOT = Path(__file__).parents[2]
EMULATED = ROOT / "build" / "arm64"
INTERPRETER = [
    str(EMULATED / "qemu"),
    *("-L", str(EMULATED / "root")),
    *("-E", f"PYTHONPATH={EMULATED / 'site'}"),
    str(EMULATED / "root" / "usr" / "bin" / "python3"),
]
PATIENCE = 400.0
SOURCE = """
#include <math.h>
#include <stdint.h>

/** @array data[n]
 *  @array counts[bins] */
void spread(const double *data, int64_t n, int64_t bins, double *total, int64_t *counts) {
    for (int64_t i = 0; i < n; i++) {
        *total += sqrt(data[i]);
        counts[(int64_t)data[i] % bins]++;
    }
}

/** What the compiler built it for. */
int architecture(void) {
#ifdef __aarch64__
    return 64;
#else
    return 0;
#endif
}

int added(int x) { return x + architecture(); }

int crash(int x) { return *(volatile int *)(intptr_t)x; }
"""
PROGRAM = """
from sapwood import Program, native, parameter

class Spread(Program):
    sources = ["spread.c"]
    reduce = {"total": "sum", "counts": "sum"}
    map = native("spread")
    bins: int = parameter(7)
    rounds: int = parameter(3)

    def init(self, data):
        return {"round": 0, "bins": self.bins}

    def update(self, state, total):
        return {**state, **total, "round": state["round"] + 1}

    def done(self, state):
        return state["round"] == self.rounds
"""

pytestmark = [
    pytest.mark.timeout(500),  # a C library for another architecture is compiled first, or C++'s
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulator set is for x86-64"),
    pytest.mark.skipif(
        not (EMULATED / "ready").exists(),
        reason="no aarch64 Python: sh scripts/prepare_arm64.sh build/arm64 .venv",
    ),
    pytest.mark.skipif(find_zig({}) is None, reason="needs zig: pip install 'sapwood[cross]'"),
]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "spread.c").write_text(SOURCE)
    (tmp_path / "p.py").write_text(PROGRAM)
    return tmp_path / "p.py"


@pytest.fixture(scope="module", autouse=True)
def zig_cache(own_surroundings: None) -> Iterator[None]:
    """Keep the C libraries of other machines from one run of the tests to the next."""
    del own_surroundings
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ROOT / "build" / "zig"))
        yield


@pytest.fixture(scope="module")
def emulated(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    """A cluster of two aarch64 agents below one junction of the same kind."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    settings = Settings(
        cluster=ClusterSettings(interpreter=INTERPRETER, ready_timeout=PATIENCE),
        comm=CommSettings(heartbeat=2.0, failure_after=30.0),  # emulation is slow
    )
    with sapwood.local(2, fanout=2, settings=settings) as cluster:
        machines(cluster)  # every agent has a runner now
        yield cluster


@pytest.mark.row("A-TOOL-1")
@pytest.mark.row("A-CODE-3")
@pytest.mark.nightly
def test_agents_of_another_architecture_give_the_results_of_this_machine_s(
    emulated: sapwood.Cluster, program: Path
) -> None:
    data = np.random.default_rng(4).uniform(0, 1000, 20_001)
    with sapwood.local(2) as here:
        expected = here.run(program, data).result(PATIENCE)
    run = emulated.run(program, data)
    found = run.result(PATIENCE)
    np.testing.assert_array_equal(found["counts"], expected["counts"])
    np.testing.assert_allclose(found["total"], expected["total"], rtol=1e-12)
    np.testing.assert_allclose(found["total"], np.sqrt(data).sum(), rtol=1e-12)
    assert len(run.statistics.agents) == 2


@pytest.mark.row("A-CODE-3")
@pytest.mark.nightly
def test_code_is_built_for_what_the_agents_are(emulated: sapwood.Cluster, program: Path) -> None:
    assert emulated.target.architecture == "aarch64"
    loaded = sapwood.load_program(program)
    where = emulated.submit(lambda: (os.uname().machine, np.arange(5).sum().item()))
    assert where.result(PATIENCE) == ("aarch64", 10)
    assert emulated.submit(loaded["architecture"]).result(PATIENCE) == 64
    with sapwood.local(1) as here:
        assert here.target.architecture == platform.machine()
        assert here.submit(loaded["architecture"]).result(PATIENCE) == 0
    entries = Path(os.environ["XDG_CACHE_HOME"], "sapwood", "entries").glob("*/library.so")
    assert {machine_of(path) for path in entries} >= {"aarch64", platform.machine()}


@pytest.mark.nightly
def test_a_crash_there_is_reported_and_the_agent_lives(
    emulated: sapwood.Cluster, program: Path
) -> None:
    loaded = sapwood.load_program(program)
    with pytest.raises(RunnerCrashError, match="SIGSEGV"):
        emulated.submit(loaded["crash"], 8).result(PATIENCE)
    assert emulated.submit(loaded["architecture"]).result(PATIENCE) == 64
    assert {agent.incarnation for agent in emulated.agents} == {1}


# --- one tree of several architectures ------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    """Four agents below two junctions: the last agent is of another architecture."""
    del nothing_is_left_behind_by_all  # as above
    settings = Settings(
        cluster=ClusterSettings(
            places={"4": PlaceSettings(interpreter=INTERPRETER)}, ready_timeout=PATIENCE
        ),
        comm=CommSettings(heartbeat=2.0, failure_after=30.0),
    )
    with sapwood.local(4, fanout=2, settings=settings) as cluster:
        machines(cluster)  # as above
        yield cluster


def machines(cluster: sapwood.Cluster) -> list[str]:
    group = cluster.group()
    return [each.result(PATIENCE) for each in group.call(lambda: os.uname().machine)]


@pytest.mark.row("A-CODE-3")
@pytest.mark.row("A-TOOL-1")
@pytest.mark.nightly
def test_a_tree_of_two_architectures_computes_one_result(
    mixed: sapwood.Cluster, program: Path
) -> None:
    here = platform.machine()
    assert machines(mixed) == [here, here, here, "aarch64"]
    assert {target.architecture for target in mixed.targets} == {here, "aarch64"}
    data = np.random.default_rng(5).uniform(0, 1000, 20_003)
    run = mixed.run(program, data)
    found = run.result(PATIENCE)
    np.testing.assert_allclose(found["total"], np.sqrt(data).sum(), rtol=1e-12)
    np.testing.assert_array_equal(found["counts"], np.bincount(data.astype(int) % 7, minlength=7))
    assert [agent.errors for agent in run.statistics.agents] == [0, 0, 0, 0]
    loaded = sapwood.load_program(program)
    with mixed.stream(loaded["added"], reduce="gather") as stream:
        assert stream.broadcast(1).result(PATIENCE).total == [1, 1, 1, 65]


CUDA = """
__global__ void squares(const double *x, int n, double *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
// @array x[n], total[1]
extern "C" int sums(const double *x, int n, double *total) {
    double *y;
    cudaMallocManaged(&y, n * sizeof(double));
    squares<<<(n + 255) / 256, 256>>>(x, n, y);
    cudaDeviceSynchronize();
    for (int i = 0; i < n; i++) total[0] += y[i];
    cudaFree(y);
    return 0;
}
"""


@pytest.mark.nightly  # where that was never done, a C++ library is compiled first: a minute
@pytest.mark.row("A-GPU-3")
def test_a_cuda_source_runs_on_both(
    mixed: sapwood.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O1")  # that it is right everywhere needs no optimiser
    (tmp_path / "sums.cu").write_text(CUDA)
    (tmp_path / "sums.py").write_text(
        "from sapwood import Program, native\n\n\nclass Sums(Program):\n"
        '    sources = ("sums.cu",)\n    inputs = ("x",)\n    reduce = {"total": "sum"}\n'
        '    map = native("sums")\n'
    )
    data = np.arange(10_001.0)
    found = mixed.run(tmp_path / "sums.py", {"x": data}).result(PATIENCE)
    np.testing.assert_allclose(found["total"][0], (data**2).sum(), rtol=1e-12)


@pytest.mark.row("A-CODE-3")
@pytest.mark.nightly
def test_an_edit_is_built_for_both(mixed: sapwood.Cluster, program: Path) -> None:
    with mixed.watch(program) as watch:
        first = watch.wait(1, PATIENCE)
        new = program.parent / "spread.c.new"  # no reader may see a half of it
        new.write_text(SOURCE.replace("+= sqrt", "+= 2 * sqrt"))
        new.replace(program.parent / "spread.c")
        second = watch.wait(2, PATIENCE)
    for version in (first, second):
        assert {built.target.architecture for built in version.builds} == {
            platform.machine(),
            "aarch64",
        }
    data = np.full(100, 4.0)
    assert mixed.run(program, data).result(PATIENCE)["total"] == 400.0


@pytest.mark.nightly
def test_places_of_both_kinds_are_replaced_by_their_own(
    mixed: sapwood.Cluster, program: Path
) -> None:
    data = np.full(400, 9.0)
    for rank in (1, 4):
        agent = next(agent for agent in mixed.agents if agent.rank == rank)
        os.kill(agent.pid, signal.SIGKILL)
        assert mixed.run(program, data).result(PATIENCE)["total"] == 1200.0
    emulated = next(
        z for z in embedded(mixed.session).supervisor.zygotes if z.architecture == "aarch64"
    )
    os.kill(emulated.pid, signal.SIGKILL)
    assert mixed.run(program, data).result(PATIENCE)["total"] == 1200.0
    here = platform.machine()
    assert machines(mixed) == [here, here, here, "aarch64"]
    assert {agent.rank: agent.incarnation for agent in mixed.agents} == {1: 2, 2: 1, 3: 1, 4: 3}
