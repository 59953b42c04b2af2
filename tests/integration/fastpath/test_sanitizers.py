"""The library of shortcuts under the sanitizers of the compiler: its own tests find nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from sapwood.fastpath import native

ROOT = Path(__file__).parents[3]
TESTS = ("tests/unit/fastpath", "tests/integration/fastpath/calls")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing"),
]


def runtime(name: str) -> str:
    """Return the compiler's library of a sanitizer."""
    command = ["gcc", f"-print-file-name=lib{name}.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("sanitizers", "libraries"),
    [("address,undefined", ("asan", "ubsan")), ("thread", ("tsan",))],
    ids=["asan-ubsan", "tsan"],
)
def test_a_sanitizer_finds_nothing(
    tmp_path: Path, sanitizers: str, libraries: tuple[str, ...]
) -> None:
    built = tmp_path / "fastpath.so"
    flags = (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g", "-O1", "-std=gnu11")
    with as_file(files("sapwood.fastpath").joinpath("native", "fastpath.c")) as source:
        command = ["gcc", *flags, "-fPIC", "-shared", "-o", str(built), str(source), "-lm"]
        subprocess.run(command, check=True, timeout=120)
    environment = {
        **os.environ,
        native.LIBRARY: str(built),
        "LD_PRELOAD": ":".join(runtime(name) for name in libraries),
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:allocator_may_return_null=1",
        "TSAN_OPTIONS": "report_bugs=1:exitcode=66:die_after_fork=0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "Sanitizer" not in done.stderr
