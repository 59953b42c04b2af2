"""D-1: one CUDA source over agents with and without a GPU, each with as much as it is fast.

This machine has no GPU. So nvcc is stood in for by a script that builds for the processor too, by
the other of the two ways in which Sapwood runs kernels there (a stack for each thread), and marks
what it built. Which agents get which of the two libraries, and that both give equal results in
one run, is as with real GPUs; test_nvcc.py checks what nvcc makes of the sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.activity.rate_history import FileHistory
from sapwood.environment.settings import LimitSettings, NodeSettings, Settings

TIMEOUT = 120.0
ITEMS = 4200
ROUNDS = 5

SOURCE = """
#include <cuda_runtime.h>

__global__ void add_squares(const double *x, double *total, int n) {
  __shared__ double part[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] * x[i] : 0.0;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

/* Adds up squares.
 *
 * @array x[n], total[1]
 */
extern "C" int squares(const double *x, int n, double *total) {
  double *on_device, *sum;
  cudaMalloc(&on_device, n * sizeof(double));
  cudaMalloc(&sum, sizeof(double));
  cudaMemcpy(on_device, x, n * sizeof(double), cudaMemcpyHostToDevice);
  cudaMemset(sum, 0, sizeof(double));
  add_squares<<<(n + 63) / 64, 64>>>(on_device, sum, n);
  cudaMemcpy(total, sum, sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(on_device);
  cudaFree(sum);
  return cudaGetLastError();
}
"""

PROGRAM = """
import time
from pathlib import Path

import numpy as np

from sapwood import Program, native


class Squares(Program):
    sources = ("squares.cu",)
    inputs = ("x",)
    reduce = {"total": "sum", "items": "sum", "by_gpu": "sum"}
    movable = True
    squares = native("squares")

    def init(self, data):
        return {"round": 0, "counted": 0, "totals": [], "by_gpu": []}

    def map(self, slice, state):
        by_gpu = Path(self.library_path).read_bytes().endswith(b"by nvcc")
        total = self.squares(slice.x)["total"][0]
        time.sleep(len(slice) / (80_000 if by_gpu else 4_000))
        return {"total": total, "items": len(slice), "by_gpu": len(slice) * by_gpu}

    def update(self, state, total):
        return {
            "round": state["round"] + 1,
            "counted": state["counted"] + total["items"],
            "totals": [*state["totals"], float(total["total"])],
            "by_gpu": [*state["by_gpu"], int(total["by_gpu"])],
        }

    def done(self, state):
        return state["round"] >= 5
"""

NVCC = """#!{python}
import os, pathlib, shutil, sys
from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.languages import compiled
compiled._split_debug = lambda request: compiled.LIBRARY
os.environ.update(SAPWOOD_CUDA="cpu", SAPWOOD_CUDA_MODE="fiber", CXXFLAGS="-O0")
built = build(load_program("{program}"), cache=BuildCache(pathlib.Path("{cache}")))
target = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
shutil.copy(built.libraries[0].image.path, target)
target.write_bytes(target.read_bytes() + b"by nvcc")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program, where what it finds as nvcc is the script above."""
    (tmp_path / "squares.cu").write_text(SOURCE)
    (tmp_path / "squares.py").write_text(PROGRAM)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        NVCC.format(
            python=sys.executable, program=tmp_path / "squares.py", cache=tmp_path / "cache"
        )
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("NVCC", str(nvcc))
    monkeypatch.delenv("SAPWOOD_CUDA", raising=False)
    return tmp_path / "squares.py"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[sapwood.Cluster]:
    """Two agents of this machine, and one that joins and says that it has a GPU."""
    settings = Settings(nodes=NodeSettings(listen="127.0.0.1:0"), limits=LimitSettings(agents=3))
    with sapwood.local(2, settings=settings) as made:
        (line,) = made.invite()
        joined = subprocess.Popen(
            [sys.executable, "-m", "sapwood", "agent", "join", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SAPWOOD_CUDA": "gpu"},
        )
        try:
            assert joined.stdin is not None
            assert joined.stdout is not None
            joined.stdin.write(line)
            joined.stdin.close()
            assert joined.stdout.readline().startswith("Agent 3 ")
            made.history = FileHistory(tmp_path / "rates")
            yield made
        finally:
            joined.kill()
            joined.wait(TIMEOUT)
            if joined.stdout is not None:
                joined.stdout.close()


@pytest.mark.row("D-1")
def test_one_source_runs_on_both_and_most_of_it_where_it_is_fast(
    cluster: sapwood.Cluster, program: Path
) -> None:
    x = np.arange(float(ITEMS))
    run = cluster.run(program, {"x": x}, delegate="measured")
    result = run.result(TIMEOUT)
    assert result["counted"] == ROUNDS * ITEMS
    assert result["totals"] == [float(np.dot(x, x))] * ROUNDS  # whole numbers: no rounding at all
    assert result["by_gpu"][0] == ITEMS // 3, "the library of GPUs is where there is one"
    assert result["by_gpu"][-1] > ITEMS // 2
    parts = {one.agent: one.stop - one.start for one in run.record.agents}
    assert parts[3] > parts[1] + parts[2]
    assert sum(parts.values()) == ITEMS
    assert all(one.device is not None and one.device.launches for one in run.statistics.agents)
    again = cluster.run(program, {"x": x}, delegate="measured")
    assert again.result(TIMEOUT)["totals"] == result["totals"]
    assert again.result(TIMEOUT)["by_gpu"][0] > ITEMS // 2, "it begins with what was measured"


@pytest.mark.nightly
def test_without_nvcc_all_agents_run_it_on_their_processors(
    cluster: sapwood.Cluster, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", "there-is-no-nvcc")
    run = cluster.run(program, {"x": np.arange(float(ITEMS))})
    assert run.result(TIMEOUT)["by_gpu"] == [0] * ROUNDS
