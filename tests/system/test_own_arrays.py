"""Arrays that functions allocate: overruns found by guards and by AddressSanitizer."""

from __future__ import annotations

import json
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
void work(const double *data, int64_t n, int64_t which, double *out) {
    for (int64_t i = 0; i < n; i++) out[0] += data[i];
    switch (which) {
CASES
    }
}
"""
PROGRAM = """
from sapwood import Program, native, parameter

class Work(Program):
    sources = ["work.c"]
    reduce = {"out": "sum"}
    which: int = parameter(0)
    map = native("work")
"""
CASES = {
    "out[1] = 1;": "",
    "int a[8]; for (int i = 0; i < 12; i++) set(a, i); out[1] = a[3];": "stack-buffer-overflow",
    "int b[8], a[8]; set(b, 0); set(a, -1); out[1] = a[3] + b[0];": "stack-buffer",
    "set(table, 10); out[1] = table[3];": "global-buffer-overflow",
    "int *a = malloc(40); set(a, 10); out[1] = a[0]; free(a);": "heap-buffer-overflow",
    "int *a = malloc(40); set(a, -1); out[1] = a[0]; free(a);": "heap-buffer-overflow",
    "int *a = malloc(40); free(a); set(a, 1); out[1] = a[0];": "heap-use-after-free",
}
"""What a function does, and what AddressSanitizer calls it."""

GOOD, LOCAL = 0, 1

SCRIPT = """
import json
import numpy as np
import sapwood
from sapwood.environment.settings import RestartSettings, Settings

restart = RestartSettings(limit=20, backoff=0.01, backoff_max=0.05)
with sapwood.local(1, settings=Settings(restart=restart)) as cluster:
    for which in range(%d):
        run = cluster.run(sapwood.load_program("p.py", {"which": which}), np.arange(10.0))
        error = run.exception(timeout=90)
        told = "" if error is None else f"{error} {error.details}"
        print(json.dumps([told, None if error else run.result()["out"].tolist()]), flush=True)
"""


def write(folder: Path) -> Path:
    """Write a program that does one of these things, as its parameter says."""
    cases = "\n".join(f"    case {i}: {{ {what} break; }}" for i, what in enumerate(CASES))
    (folder / "work.c").write_text(SOURCE.replace("CASES", cases))
    (folder / "p.py").write_text(PROGRAM)
    return folder / "p.py"


def test_a_local_array_written_beyond_its_end(tmp_path: Path) -> None:
    data, program = np.arange(10.0), write(tmp_path)
    wrong = sapwood.load_program(program, {"which": LOCAL})
    right = sapwood.load_program(program, {"which": GOOD})
    with sapwood.local(1) as cluster:
        with pytest.raises(RunnerCrashError) as caught:
            cluster.run(wrong, data).result(timeout=90)
        assert "killed by SIG" in str(caught.value)
        assert "stack smashing detected" in caught.value.details["output"]
        assert [agent.incarnation for agent in cluster.agents] == [1]
        result = cluster.run(right, data).result(timeout=90)
    assert result["out"].tolist() == [45, 1]


@pytest.mark.nightly
def test_address_sanitizer_finds_the_others(tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("this machine has no gcc")
    asked = subprocess.check_output([gcc, "-print-file-name=libasan.so"], text=True)
    library = Path(asked.strip())
    if not library.is_absolute():
        pytest.skip("this machine has no AddressSanitizer")
    write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT % len(CASES)],
        cwd=tmp_path,
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
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[GOOD] == ["", [45.0, 1.0]]
    for (said, result), (what, found) in zip(answers, CASES.items(), strict=True):
        if found:
            assert result is None, what
            assert f"AddressSanitizer: {found}" in said, what
            assert "in work work.c:" in said, what
