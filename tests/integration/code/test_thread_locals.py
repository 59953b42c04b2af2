"""Values survive a read of a thread-local variable, whatever the C library does in it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from sapwood.code.target import host_target
from sapwood.code.toolchain import find_compiler, processor_flags

SOURCE = """
thread_local float table[256] = {1};
extern "C" void scale(const float *x, float *y, int n) {
    for (int b = 0; b < n; b += 64) {
        table[b & 255] = b;
        for (int i = b; i < b + 64; i++) y[i] = 3 * x[i] + 5;
    }
}
"""
LIBRARIES = 80
"""More than a thread has room for when it starts, so that the C library has to allocate and copy
its table of thread-local variables in a read."""


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_constants_survive_the_first_read_of_a_thread_local_variable(
    name: str, tmp_path: Path
) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"this machine has no {name}")
    compiler = find_compiler("c++", {"PATH": os.environ["PATH"], "CXX": name})
    (tmp_path / "scale.cpp").write_text(SOURCE)
    library = tmp_path / "scale.so"
    flags = processor_flags(compiler, host_target())
    command = [
        *compiler.command,
        "-O3",
        *flags,
        "-fPIC",
        "-shared",
        "scale.cpp",
        "-o",
        str(library),
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    given, result = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    x, y = (ctypes.c_void_p(each.ctypes.data) for each in (given, result))

    def call() -> None:
        for number in range(LIBRARIES):
            copy = shutil.copy(library, tmp_path / f"scale{number}.so")
            opened = ctypes.CDLL(str(copy))
        opened.scale(x, y, len(given))

    thread = threading.Thread(target=call)  # whose table is as small as when it starts
    thread.start()
    thread.join()
    np.testing.assert_array_equal(result, 3 * given + 5)
