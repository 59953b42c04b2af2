"""Processes that hold keys leave no core dump."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood.environment.core_dumps import NO_DUMP

SCRIPT = """
import os, resource, sys
hard = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
from sapwood.environment.core_dumps import leave_no_core_dump
leave_no_core_dump()
print(*resource.getrlimit(resource.RLIMIT_CORE), flush=True)
os.abort()
"""


@pytest.mark.parametrize(("hard", "limit"), [(2**30, NO_DUMP), (0, 0)])
def test_a_crash_leaves_no_dump(tmp_path: Path, hard: int, limit: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(hard)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert child.stdout is not None
    with child.stdout:
        said = child.stdout.read()
    _, status = os.waitpid(child.pid, 0)
    child.returncode = status  # it was waited for
    assert [int(word) for word in said.split()] == [limit, hard]
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert not os.WCOREDUMP(status)
    assert list(tmp_path.iterdir()) == []
