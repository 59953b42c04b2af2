"""Programs of users in separate processes: interrupted, killed, left alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0

SCRIPT = """
import os, signal, sys, time
import numpy as np
import sapwood

FOLDER = sys.argv[1]

class Endless(sapwood.Program):
    reduce = {"x": "sum"}

    def init(self, data):
        return {}

    def map(self, slice, state):
        if os.fork() == 0:
            os.setsid()
            open(f"{FOLDER}/{os.getpid()}", "w").close()
            signal.pause()
        open(f"{FOLDER}/{os.getpid()}", "w").close()
        while True:
            pass

    def update(self, state, total):
        return state
"""

RUN = """
with sapwood.local(agents=2, fanout=int(sys.argv[2])) as cluster:
    run = cluster.run(Endless, np.arange(4))
    print("started", flush=True)
    run.result()
"""

WITHOUT_CLOSING = """
cluster = sapwood.local(agents=2)
future = cluster.submit(pow, 2, 10)
print(future.result(), flush=True)
"""

EXCEPTION = """
with sapwood.local(agents=2) as cluster:
    cluster.run(Endless, np.arange(4))
    while len(os.listdir(FOLDER)) < 4:
        time.sleep(0.002)
    raise RuntimeError("the user's own mistake")
"""

FAILING = """
def fail(how):
    if how == "exception":
        raise ValueError("told")
    if how == "crash":
        os.abort()
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()

from sapwood.environment.settings import RestartSettings, Settings
with sapwood.local(agents=2, settings=Settings(restart=RestartSettings(limit=50))) as cluster:
    for how in ("exception", "crash", "zygote"):
        try:
            cluster.submit(fail, how).result(60)
        except sapwood.SapwoodError as error:
            print(how, error.code, flush=True)
        print(cluster.submit(pow, 2, 10).result(60), flush=True)
"""


class Script:
    """A user's program that runs."""

    def __init__(self, folder: Path, body: str, *arguments: str) -> None:
        self.folder = folder / "notes"
        self.folder.mkdir()
        (folder / "script.py").write_text(textwrap.dedent(SCRIPT + body))
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "script.py"), str(self.folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def noted(self) -> list[int]:
        """Return the processes of user code that told of themselves."""
        return [int(path.name) for path in self.folder.iterdir()]

    def everybody(self) -> set[int]:
        """Return all processes of the program, those of user code included."""
        return {self.process.pid} | descendants(self.process.pid) | set(self.noted())

    def finish(self) -> tuple[str, str]:
        """Wait for the end and return what was printed."""
        return self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    begun: list[Script] = []

    def start(body: str, *arguments: str) -> Script:
        begun.append(Script(tmp_path, body, *arguments))
        return begun[-1]

    yield start
    for script in begun:
        if script.process.poll() is None:
            script.process.kill()
            script.finish()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found |= {child} | descendants(child)
    return found


def folders() -> list[Path]:
    return list(Path(os.environ["XDG_RUNTIME_DIR"]).glob("sapwood-*"))


def in_the_middle(script: Script) -> set[int]:
    """Wait until user code runs on both agents and has started its own processes."""
    until(lambda: len(script.noted()) == 4)
    everybody = script.everybody()
    assert len(everybody) >= 8
    assert folders()
    return everybody


def test_an_interrupt_in_the_middle_of_a_run_leaves_nothing(start: Callable[..., Script]) -> None:
    script = start(RUN, "2")
    everybody = in_the_middle(script)
    assert script.process.stdout is not None
    assert script.process.stdout.readline() == "started\n"  # user code may be there before
    script.process.send_signal(signal.SIGINT)
    out, err = script.finish()
    assert out == ""
    assert "KeyboardInterrupt" in err
    assert "internal error" not in err
    assert not any(alive(pid) for pid in everybody)
    assert folders() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_that_is_killed_leaves_nothing(
    start: Callable[..., Script], number: signal.Signals
) -> None:
    script = start(RUN, "0")
    everybody = in_the_middle(script)
    script.process.send_signal(number)
    script.finish()
    assert script.process.returncode == -number
    until(lambda: not any(alive(pid) for pid in everybody))
    until(lambda: folders() == [])


def test_an_exception_of_the_user_leaves_nothing(start: Callable[..., Script]) -> None:
    script = start(EXCEPTION)
    _, err = script.finish()
    assert "the user's own mistake" in err
    assert script.process.returncode == 1
    assert not any(alive(pid) for pid in script.noted())
    assert folders() == []


def test_a_program_that_forgets_to_close_ends_and_leaves_nothing(
    start: Callable[..., Script],
) -> None:
    script = start(WITHOUT_CLOSING)
    out, err = script.finish()
    assert out == "1024\n"
    assert err == ""
    assert script.process.returncode == 0
    until(lambda: folders() == [])


def test_errors_of_user_code_arrive_even_if_it_kills_its_zygote(
    start: Callable[..., Script],
) -> None:
    out, err = start(FAILING).finish()
    told = ["exception SW201", "1024", "crash SW202", "1024", "zygote SW402", "1024"]
    assert out.splitlines() == told, err
