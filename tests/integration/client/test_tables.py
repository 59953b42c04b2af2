"""Data frames and sparse matrices as data and as arguments of native functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood

TREE = (3, 0)
SOURCE = """
#include <stdint.h>
/* @array A_data[nnz]
 * @array A_indices[nnz]
 * @array A_indptr[count+1]
 * @array x[columns]
 * @array y[count] */
void multiply(const double *A_data, const int32_t *A_indices, const int32_t *A_indptr,
              const double *x, int64_t count, double *y) {
    for (int64_t i = 0; i < count; i++)
        for (int32_t k = A_indptr[i]; k < A_indptr[i + 1]; k++)
            y[i] += A_data[k] * x[A_indices[k]];
}
"""
PROGRAM = """
import numpy as np
import sapwood

class Multiply(sapwood.Program):
    sources = ["multiply.c"]
    inputs = ["A_data", "A_indices", "A_indptr"]
    reduce = {"y": "concat"}
    map = sapwood.native("multiply")

    def init(self, data):
        return {"x": np.arange(float(data.meta["A_shape"][1]))}
"""

pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")


@pytest.fixture
def multiply(tmp_path: Path) -> sapwood.Program:
    (tmp_path / "multiply.c").write_text(SOURCE)
    (tmp_path / "multiply.py").write_text(PROGRAM)
    return sapwood.load_program(tmp_path / "multiply.py")


def test_a_native_map_gets_the_rows_of_a_sparse_matrix(
    standing: sapwood.Cluster, multiply: sapwood.Program
) -> None:
    matrix = sparse.random(50, 8, density=0.2, format="csr", random_state=1)
    result = standing.run(multiply, {"A": matrix}).result(60)
    np.testing.assert_allclose(result["y"], matrix @ np.arange(8.0))


def test_a_native_function_gets_a_sparse_matrix_and_a_column(
    standing: sapwood.Cluster, multiply: sapwood.Program
) -> None:
    matrix = sparse.random(50, 8, density=0.2, format="csr", random_state=1)
    frame = pandas.DataFrame({"x": np.arange(8.0), "name": list("abcdefgh")})
    call = standing.submit(multiply["multiply"], A=matrix, x=frame["x"], count=50)
    np.testing.assert_allclose(call.result(60)["y"], matrix @ np.arange(8.0))


class Means(sapwood.Program):
    inputs = ("height", "weight")
    reduce = {"height": "mean", "weight": "mean"}  # noqa: RUF012 - as users write it

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {name: float(slice[name].mean()) for name in self.inputs}


def test_a_program_gets_the_columns_of_a_frame_that_it_names(standing: sapwood.Cluster) -> None:
    frame = pandas.DataFrame(
        {"name": list("abcd"), "weight": [4.0, 5, 6, 7], "height": [1.0, 2, 3, 4]}
    )
    result = standing.run(Means, frame).result(60)
    assert result == {"height": pytest.approx(2.5), "weight": pytest.approx(5.5)}
