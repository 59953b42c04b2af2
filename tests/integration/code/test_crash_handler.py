"""A native crash, from the signal to function and line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.crash_handler import CRASH, build_native
from sapwood.code.symbolise import symbolise

SOURCE = r"""
#include <signal.h>
#include <stdlib.h>
static void store(volatile int *p, int at) {
  p[at] = 1;
}
int segv(int at) {
  store(0, at);
  return 1;
}
int outer(int at) {
  return segv(at) + 1;
}
int gives_up(int x) {
  if (x == 0)
    abort();
  return x;
}
int raises(int x) {
  raise(SIGFPE);
  return x;
}
"""

CALLER = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).sapwood_install_crash_handler(2)
ctypes.CDLL(sys.argv[2])[sys.argv[3]](0)
"""


@pytest.mark.parametrize(
    ("function", "status", "lines"),
    [
        ("segv", -11, ["store, inlined in segv (a.c:5)"]),
        ("outer", -11, ["(a.c:5)"]),
        ("gives_up", -6, ["gives_up (a.c:16)"]),
        ("raises", -8, ["raises (a.c:20)"]),
    ],
)
def test_a_crash_names_function_and_line(
    cache: BuildCache, program_of: Any, function: str, status: int, lines: list[str]
) -> None:
    handler = build_native(cache, CRASH)
    assert handler is not None
    assert handler.file is not None
    built = build(program_of({"a.c": SOURCE}), cache=cache)
    files = [os.fsdecode(handler.file.path), built.libraries[0].image.path]
    command = [sys.executable, "-c", CALLER, *files, function]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    text = symbolise(done.stderr, built.debug_files)
    for line in lines:
        assert line in text
    if status == -11:  # abort() and raise() have frames in the C library
        assert lines[0] in text.splitlines()[0]


def test_the_handler_is_built_once(cache: BuildCache) -> None:
    assert build_native(cache, CRASH) == build_native(cache, CRASH)
    assert cache.counters.builds == 1


def test_without_a_compiler_there_is_no_handler(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ZIG", "none")
    assert build_native(cache, CRASH) is None
