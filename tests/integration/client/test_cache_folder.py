"""The folder of the build cache may have any name that the file system takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import RunnerCrashError
from sapwood.environment.settings import CacheSettings

SOURCE = """#include <stdint.h>
/* @array data[n] */
void add(const double *data, int64_t n, double *total) {
  if (data[0] < 0) *(volatile int *)0 = 1;
  for (int64_t i = 0; i < n; i++) *total += data[i];
}
"""
PROGRAM = """from sapwood import Program, native


class Add(Program):
    sources = ("add.c",)
    reduce = {"total": "sum"}
    map = native("add")
"""


def test_a_cache_whose_folder_has_a_name_that_is_no_text(
    make_cluster: Callable[..., sapwood.Cluster], tmp_path: Path
) -> None:
    (tmp_path / "add.c").write_text(SOURCE)
    (tmp_path / "add.py").write_text(PROGRAM)
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    cluster = make_cluster(2, cache=CacheSettings(folder=str(folder)))
    program = tmp_path / "add.py"
    assert cluster.run(program, np.arange(5.0)).result(60)["total"] == 10
    with pytest.raises(RunnerCrashError, match=r"add\.c:4") as caught:
        cluster.run(program, np.full(5, -1.0)).result(60)
    assert "add (add.c:4)" in caught.value.details["backtrace"]
    assert (folder / "entries").is_dir()
