"""Arrays that functions make for themselves: what is found, and what AddressSanitizer finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import RunnerCrashError

SOURCE = """#include <stdint.h>
#include <stdlib.h>
static int table[10];
__attribute__((noinline)) void set(int *p, int64_t i) { p[i] = 7; }
/** @array data[n]
 *  @array out[2] */
void work(const double *data, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[0] += data[i];
    WHAT
}
"""
PROGRAM = """
from sapwood import Program, native

class Work(Program):
    sources = ["work.c"]
    reduce = {"out": "sum"}
    map = native("work")
"""
LOCAL = "int a[8]; for (int i = 0; i < 12; i++) set(a, i); out[1] = a[3];"
BEFORE_LOCAL = "int b[8], a[8]; set(b, 0); set(a, -1); out[1] = a[3] + b[0];"
STATIC = "set(table, 10); out[1] = table[3];"
HEAP = "int *a = malloc(40); set(a, 10); out[1] = a[0]; free(a);"
BEFORE_HEAP = "int *a = malloc(40); set(a, -1); out[1] = a[0]; free(a);"
FREED = "int *a = malloc(40); free(a); set(a, 1); out[1] = a[0];"


def write(folder: Path, what: str) -> Path:
    (folder / "work.c").write_text(SOURCE.replace("WHAT", what))
    (folder / "p.py").write_text(PROGRAM)
    return folder / "p.py"


def test_a_local_array_written_beyond_its_end(tmp_path: Path) -> None:
    data = np.arange(10.0)
    with sapwood.local(1) as cluster:
        with pytest.raises(RunnerCrashError) as caught:
            cluster.run(write(tmp_path, LOCAL), data).result(timeout=90)
        assert "killed by SIG" in str(caught.value)
        assert "stack smashing detected" in caught.value.details["output"]
        assert [agent.incarnation for agent in cluster.agents] == [1]
        result = cluster.run(write(tmp_path, "out[1] = 1;"), data).result(timeout=90)
    assert result["out"].tolist() == [45, 1]


@pytest.mark.parametrize(
    ("what", "found"),
    [
        (LOCAL, "stack-buffer-overflow"),
        (BEFORE_LOCAL, "stack-buffer"),
        (STATIC, "global-buffer-overflow"),
        (HEAP, "heap-buffer-overflow"),
        (BEFORE_HEAP, "heap-buffer-overflow"),
        (FREED, "heap-use-after-free"),
        ("out[1] = 1;", ""),
    ],
)
def test_address_sanitizer_finds_the_others(what: str, found: str, tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("this machine has no gcc")
    asked = subprocess.check_output([gcc, "-print-file-name=libasan.so"], text=True)
    library = Path(asked.strip())
    if not library.is_absolute():
        pytest.skip("this machine has no AddressSanitizer")
    np.save(tmp_path / "data.npy", np.arange(10.0))
    words = [
        "run",
        str(write(tmp_path, what)),
        "--data",
        str(tmp_path / "data.npy"),
        "--agents",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sapwood", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "CC": gcc,
            "CFLAGS": "-fsanitize=address -O1",
            "LD_PRELOAD": str(library),
            "ASAN_OPTIONS": "detect_leaks=0",
        },
    )
    said = done.stdout + done.stderr
    if not found:
        assert done.returncode == 0, said
        return
    assert done.returncode != 0
    assert f"AddressSanitizer: {found}" in said
    assert "in work work.c:" in said
