"""The place of a way to the head: for this user alone, and gone with its daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sapwood.comm.transport.tls_identity import parse_address
from sapwood.nodes.head_way import HeadWay


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_it_is_the_last_place_of_every_address_and_gone_in_the_end(folders: Path) -> None:
    way = HeadWay()
    assert Path(way.path).parent.stat().st_mode & 0o777 == 0o700
    address = way.added_to({0: "tls://head.grove@10.0.0.1:7"})[0]
    assert parse_address(address)[1] == [("10.0.0.1", 7), (way.path, 0)]
    way.close()
    assert list(folders.iterdir()) == []


def test_it_is_gone_although_the_process_that_removes_it_was_killed(folders: Path) -> None:
    way = HeadWay()
    os.kill(way.pid, signal.SIGKILL)
    way.close()
    assert list(folders.iterdir()) == []


@pytest.mark.slow
def test_it_is_gone_when_its_daemon_is_killed(folders: Path) -> None:
    text = (
        "import sys; from sapwood.nodes.head_way import HeadWay\n"
        "print(HeadWay().path, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as daemon:
        assert daemon.stdout is not None
        path = Path(daemon.stdout.readline().decode().strip())
        assert path.parent.is_dir()
        daemon.kill()
    end = time.monotonic() + 20
    while list(folders.iterdir()):
        assert time.monotonic() < end, "it still exists"
