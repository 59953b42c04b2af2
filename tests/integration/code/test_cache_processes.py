"""The build cache among processes: sharing a build, and being killed in the middle of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sapwood.code.cache import BuildCache

BUILDER = """
import sys
from pathlib import Path
from sapwood.code.cache import BuildCache

def fill(entry, scratch):
    (entry / "half").touch()
    print("building", flush=True)
    sys.stdin.readline()
    (entry / "library").write_text("built")
    return {}

entry = BuildCache(Path(sys.argv[1])).get_or_build("k1", fill)
print("built" if entry.built else "found", entry.path("library").read_text(), flush=True)
sys.stdin.readline()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def finish(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.communicate("\n\n")


def test_processes_that_ask_at_once_share_one_build(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]
    # Exactly one says that it builds; the others are silent until it is done.
    first = next(process for process in processes if _builds(process, processes))
    go_on(first)
    assert sorted(line_of(process) for process in processes) == [
        "built built",
        "found built",
        "found built",
    ]
    finish(*processes)


def _builds(process: subprocess.Popen[str], among: list[subprocess.Popen[str]]) -> bool:
    import selectors  # noqa: PLC0415 - only here

    with selectors.DefaultSelector() as selector:
        for each in among:
            assert each.stdout is not None
            selector.register(each.stdout, selectors.EVENT_READ, each)
        ready = [key.data for key, _ in selector.select(30)]
    if process in ready:
        assert line_of(process) == "building"
        return True
    return False


def test_a_killed_build_is_taken_over(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert line_of(first) == "building"
    second = start(tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    assert line_of(second) == "building"
    go_on(second)
    assert line_of(second) == "built built"
    finish(first, second)
    entry = BuildCache(tmp_path).get_or_build("k1", lambda entry, scratch: {})
    assert not entry.built
    assert sorted(path.name for path in entry.folder.iterdir()) == [
        "half",
        "library",
        "manifest.json",
    ]


def test_an_entry_that_another_process_uses_is_not_evicted(tmp_path: Path) -> None:
    user = start(tmp_path)
    assert line_of(user) == "building"
    go_on(user)
    assert line_of(user) == "built built"
    cache = BuildCache(tmp_path)
    assert cache.prune(0) == 0
    finish(user)
    assert cache.prune(0) == 1
