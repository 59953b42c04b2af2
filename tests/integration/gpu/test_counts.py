"""Copies and launches that a CUDA program makes are in the statistics of its run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.code import load_program, transfers
from sapwood.code.build import build
from sapwood.code.image import make_image, open_image
from sapwood.code.transfers import NOTHING

pytestmark = pytest.mark.row("A-GPU-2")
PATIENCE = 90.0
SOURCE = """
__constant__ double factor;
__global__ void scaled(const double *x, int n, double *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
// @array x[n], total[1]
extern "C" int sums(const double *x, int n, double *total) {
    double *dx, *dy, *y = new double[n], two = 2;
    size_t bytes = n * sizeof(double);
    cudaMalloc(&dx, bytes);
    cudaMalloc(&dy, bytes);
    cudaMemcpyToSymbol(factor, &two, sizeof two);
    cudaMemcpy(dx, x, bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(dy, dx, bytes, cudaMemcpyDeviceToDevice);
    scaled<<<(n + 63) / 64, 64>>>(dx, n, dy);
    scaled<<<(n + 63) / 64, 64>>>(dx, n, dy);
    cudaMemcpy(y, dy, bytes, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) total[0] += y[i];
    cudaFree(dx);
    cudaFree(dy);
    delete[] y;
    return 0;
}
"""
PROGRAM = """
from sapwood import Program, native

class Sums(Program):
    sources = ("sums.cu",)
    inputs = ("x",)
    reduce = {"total": "sum"}
    map = native("sums")
    rounds = 3

    def init(self, data):
        return {"round": 0}

    def update(self, state, total):
        return {**total, "round": state["round"] + 1}

    def done(self, state):
        return state["round"] == self.rounds
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAPWOOD_CUDA", "cpu")
    monkeypatch.setenv("CXXFLAGS", "-O0")
    (tmp_path / "sums.cu").write_text(SOURCE)
    (tmp_path / "sums.py").write_text(PROGRAM)
    return tmp_path / "sums.py"


def test_a_run_counts_copies_and_launches(program: Path) -> None:
    data = np.arange(1000.0)
    with sapwood.local(2) as cluster:
        run = cluster.run(program, {"x": data})
        assert run.result(PATIENCE)["total"][0] == 2 * data.sum()
    for agent in run.statistics.agents:
        moved = agent.device
        assert moved is not None
        assert (moved.copies_in, moved.bytes_in) == (3 * 2, 3 * (500 * 8 + 8))
        assert (moved.copies_out, moved.bytes_out) == (3, 3 * 500 * 8)
        assert moved.launches == 6
        assert moved.seconds_in > 0
        assert moved.seconds_out > 0
        assert moved.launch_seconds > 0


def test_what_an_unloaded_library_did_stays_counted(program: Path) -> None:
    loaded = load_program(program)
    built = build(loaded)
    transfers.since_last_call()
    opened = open_image(make_image(loaded, built))
    opened.call("sums", [np.ones(8)], {})
    opened.close()
    moved = transfers.since_last_call()
    assert moved is not None
    assert (moved.copies_in, moved.copies_out, moved.launches) == (2, 1, 2)
    assert (transfers.since_last_call() or NOTHING) == NOTHING
