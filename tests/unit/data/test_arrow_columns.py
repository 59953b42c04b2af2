"""Columns of Arrow as arrays: the same values as pyarrow's own way, without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sapwood.data.arrow_columns import as_array

COLUMNS = [
    *(pa.array(range(100), kind) for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.float32())),
    pa.array(np.arange(100, dtype=np.float16)),
    pa.array([number % 3 == 0 for number in range(100)]),
    pa.array([None if number % 7 == 0 else number / 2 for number in range(100)]),
    pa.array([[number, number + 1] for number in range(100)], pa.list_(pa.int32(), 2)),
    pa.chunked_array([[1.0, 2.0], [], [3.0]]),
    pa.array([], pa.float64()),
    pa.array([], pa.bool_()),
]


@pytest.mark.parametrize("cut", [(0, 100), (3, 90), (8, 8), (17, 1)], ids=str)
@pytest.mark.parametrize("column", COLUMNS, ids=lambda one: str(one.type))
def test_values_are_those_of_the_column(column: Any, cut: tuple[int, int]) -> None:
    column = column.slice(*cut)
    found = as_array(column, "x", "here")
    assert len(found) == len(column)
    wanted = [np.nan if value is None else value for value in column.to_pylist()]
    np.testing.assert_array_equal(found, np.array(wanted, found.dtype).reshape(found.shape))


@pytest.mark.slow
def test_reading_imports_no_pandas(tmp_path: Path) -> None:
    """It takes a second or more, and tens of MiB, in the process of each agent."""
    file = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"x": [1.0, None, 3.0], "y": [True, False, True]}), file)
    code = (
        "import sys, sapwood\n"
        f"data = sapwood.load({str(file)!r}, fields=['x', 'y'])\n"
        "assert data.rows(0, 3)['y'].tolist() == [True, False, True]\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
