"""Nothing is left of a cluster: neither after `sapwood down` nor when all of it was killed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from .conftest import Cli, Until


def processes(cli: Cli) -> set[int]:
    """Return the processes that have the folders of a test, but for this one."""
    mark = f"XDG_STATE_HOME={cli.environment['XDG_STATE_HOME']}".encode()
    found: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
    return found


def sockets(cli: Cli) -> list[str]:
    """Return the sockets in the folders of a test."""
    folders = (Path(cli.environment["XDG_STATE_HOME"]), Path(cli.environment["XDG_RUNTIME_DIR"]))
    return [str(path) for folder in folders for path in folder.rglob("*") if path.is_socket()]


@pytest.mark.nightly  # it starts two clusters with a session; what removes sockets is tested always
@pytest.mark.row("C1-BOOT-1")
def test_nothing_is_left_after_down_nor_after_a_crash(
    own_cli: Cli, until: Until, tmp_path: Path
) -> None:
    """Processes, sockets, folders of sessions, shared memory; with a session that was not ended."""
    cli = own_cli
    cli.environment["XDG_RUNTIME_DIR"] = str(tmp_path / "run")
    (tmp_path / "run").mkdir(mode=0o700)
    shared = {one.name for one in Path("/dev/shm").iterdir()}  # noqa: S108 - looked at only
    for how in ("crash", "down"):
        line = cli.up()["join"]
        cli.run("node", "join", line, "--as", f"n-{how}", "--background")
        cli.json("session", "create", how, "--agents", "2")
        assert len(processes(cli)) > 4  # head, node, root, zygote, agents
        if how == "down":
            cli.run("down")
        else:
            for pid in processes(cli):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        until(lambda: not processes(cli))
    assert not sockets(cli)
    assert not [one for one in (tmp_path / "run").iterdir() if any(one.iterdir())]
    left = {one.name for one in Path("/dev/shm").iterdir()} - shared  # noqa: S108 - as above
    assert not [name for name in left if "sapwood" in name]
