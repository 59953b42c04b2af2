"""A-DATA-2: arrays of the other byte order are inputs like any others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sapwood

from .test_versions import PATIENCE

pytestmark = pytest.mark.row("A-DATA-2")

TREE = (3, 2)
ORDERS = [">f8", ">f4", ">i4", ">u2", ">c16"]
SOURCE = """
#include <stdint.h>

/** @array x[n] */
double total(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/** @array data[n] */
void sums(const double *data, int64_t n, double *total) {
    for (int64_t i = 0; i < n; i++) *total += data[i];
}
"""
PROGRAM = """
import sapwood

class Sums(sapwood.Program):
    sources = ["sums.c"]
    reduce = {"total": "sum"}
    map = sapwood.native("sums")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    (folder / "sums.c").write_text(SOURCE)
    (folder / "sums.py").write_text(PROGRAM)
    return folder / "sums.py"


def test_data_of_a_native_program(standing: sapwood.Cluster, path: Path) -> None:
    data = np.random.default_rng(8).random(30_001)
    found = standing.run(path, data.astype(">f8")).result(PATIENCE)
    np.testing.assert_allclose(found["total"], data.sum(), rtol=1e-12)


def test_arguments_of_a_native_function(standing: sapwood.Cluster, path: Path) -> None:
    program = sapwood.load_program(path)
    data = np.arange(5000.0)
    task = standing.submit(program["total"], data.astype(">f8"), len(data))
    assert task.result(PATIENCE) == data.sum()


@pytest.mark.parametrize("dtype", ORDERS)
def test_values_of_waves_and_tasks(standing: sapwood.Cluster, dtype: str) -> None:
    data = np.arange(40_000).astype(dtype)
    with standing.stream(lambda x: x[::2], reduce="sum") as stream:
        total = stream.exchange(data, timeout=PATIENCE).total
    assert total.dtype.isnative
    np.testing.assert_array_equal(total, 3 * data[::2])
    task = standing.submit(lambda x: (x.dtype.str, x.sum().item(), x[:3]), data)
    order, whole, first = task.result(PATIENCE)
    assert order == dtype
    assert whole == pytest.approx(data.sum().item())
    np.testing.assert_array_equal(first, data[:3])
