"""A-DATA-2: arrays of the other byte order are inputs like any others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood

from .test_versions import PATIENCE

pytestmark = pytest.mark.row("A-DATA-2")

TREE = (3, 2)
ORDERS = [">f8", ">f4", ">i4", ">u2", ">c16"]
SOURCE = """
#include <stdint.h>

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


@pytest.mark.parametrize("kind", ["array", "npy", "npz", "fields"])
def test_data_of_a_native_program(
    standing: sapwood.Cluster, path: Path, tmp_path: Path, kind: str
) -> None:
    data = np.random.default_rng(8).random(30_001)
    swapped: Any = data.astype(">f8")
    if kind == "fields":
        swapped = {"data": swapped}
    elif kind != "array":
        file = tmp_path / f"data.{kind}"
        np.save(file, swapped) if kind == "npy" else np.savez(file, data=swapped)
        swapped = file
    found = standing.run(path, swapped).result(PATIENCE)
    np.testing.assert_allclose(found["total"], data.sum(), rtol=1e-12)


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
