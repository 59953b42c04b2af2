"""A head in this process, and sessions with session servers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.environment.configuration import load_configuration
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.head.folder import head_folder
from sapwood.head.front import SLOW_CALLS
from sapwood.head.head import Head
from sapwood.session_server.making import session_options

PATIENCE = 60.0

Until = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def until() -> Until:
    """Wait for a condition."""

    def wait(condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it does not happen"
            threading.Event().wait(0.02)

    return wait


def new_head(name: str = "default", *, nodes: int = 0) -> Head:
    """Return a head of this test's folder, with some local nodes."""
    settings = Settings(nodes=NodeSettings(listen="127.0.0.1:0"))
    folder = head_folder(name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    launcher = LocalLauncher(nodes) if nodes else None
    configuration = load_configuration({"policy.limits.head_machine": "shared"})
    return Head(
        name, folder, session_options(settings, {}), settings.nodes, launcher, configuration
    )


def warm_up(head: Head) -> None:
    """Have the threads of a head there before the tests that would begin them."""
    head.sessions._roots._restarts.submit(int).result()
    everybody = threading.Barrier(SLOW_CALLS)
    wait([head.front.pool.submit(everybody.wait, PATIENCE) for _ in range(SLOW_CALLS)])


@pytest.fixture(scope="module")
def head(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Head]:
    """A head for all tests of a module, without nodes."""
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        made = new_head()
        made.start()
        warm_up(made)
        yield made
        made.close()


class Script:
    """A program in a separate process."""

    def __init__(self, folder: Path, text: str, *words: str) -> None:
        file = folder / "script.py"
        file.write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, str(file), *words], stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        """The next line that it writes."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip()

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Start programs in separate processes, which end with the test."""
    begun: list[Script] = []

    def make(text: str, *words: str) -> Script:
        begun.append(Script(tmp_path, text, *words))
        return begun[-1]

    yield make
    for script in begun:
        script.kill()
