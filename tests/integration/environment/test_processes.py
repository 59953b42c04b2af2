"""Logging, shell files and supervision with real processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.configuration import load_configuration
from sapwood.environment.lifecycle import State
from sapwood.environment.settings import RestartSettings, Settings
from sapwood.environment.shell import source_files
from sapwood.environment.supervisor import ALL_READY, Supervisor


def test_several_processes_log_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    code = (
        "import sys\n"
        "from sapwood.environment.logs import *\n"
        "with configure_logging(LogSettings(file=sys.argv[1])):\n"
        "    for number in range(200):\n"
        "        logger('part').debug('line', number=number, filler='x' * 500)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for writer in writers:
        assert [line["number"] for line in lines if line["pid"] == writer.pid] == list(range(200))


@pytest.mark.row("A-ENV-3")
def test_shell_files_are_chosen_by_configuration_and_host(tmp_path: Path) -> None:
    (tmp_path / "plain.sh").write_text("export KIND=plain\n")
    (tmp_path / "gpu.sh").write_text("export KIND=gpu\n")
    (tmp_path / "sapwood.toml").write_text(
        '[environment]\nsource = ["plain.sh"]\n[host."gpu*".environment]\nsource = ["gpu.sh"]\n'
    )
    for host, kind in (("cpu1", "plain"), ("gpu1", "gpu")):
        settings = load_configuration(
            variables={}, folder=tmp_path, hostname=host, site_file=tmp_path / "none"
        ).settings
        found = source_files(settings.environment.source)
        assert found["KIND"] == kind


class Sleeper:
    """A component that is a process."""

    name = "sleeper"

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, _context: ComponentContext) -> None:
        self.process = subprocess.Popen(["sleep", "1000"])

    def check(self) -> State:
        assert self.process is not None
        return State.READY if self.process.poll() is None else State.FAILED

    def receive(self, _event: ComponentEvent) -> None:
        pass

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def test_a_killed_process_comes_back() -> None:
    part = Sleeper()
    settings = Settings(restart=RestartSettings(backoff=0.0))
    ready: list[ComponentEvent] = []
    with Supervisor([part], settings) as supervisor:
        supervisor.subscribe(
            lambda event: ready.append(event) if event.topic == ALL_READY else None
        )
        assert part.process is not None
        first = part.process
        os.kill(first.pid, signal.SIGKILL)
        first.wait(10)
        supervisor.poll()
        assert supervisor.states["sleeper"] is State.FAILED
        supervisor.poll()
        assert supervisor.states == {"sleeper": State.READY}
        assert part.process.pid != first.pid
        assert len(ready) == 1
    assert part.process.returncode == -signal.SIGKILL
