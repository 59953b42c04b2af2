"""No module of the current folder runs in the processes of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sapwood.head.folder import find_head

from .conftest import PATIENCE, Cli

NAMES = ("json", "msgspec", "numpy", "sapwood", "sitecustomize", "types", "usercustomize")


def test_modules_of_another_user_in_the_current_folder_do_not_run(
    own_cli: Cli, tmp_path: Path
) -> None:
    """Not in the head, the daemon of its node, a session, a command or the driver of a run."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')")
    (folder / "their.pth").write_text("import their_module\n")
    program = tmp_path / "mine"
    own_cli.run("new", str(program))

    def sapwood(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "sapwood", *words, "--cluster", "foreign"],
            cwd=folder,
            env=own_cli.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    sapwood("up")
    try:
        os.kill(find_head("foreign").pid, 0)
        sapwood("session", "create", "day", "--agents", "1")
        sapwood("run", str(program), "-q", "--session", "day")
        sapwood("exec", "--", sys.executable, "-P", "-c", "import json")
        sapwood("run", str(program), "--detach", "--agents", "1")
    finally:
        sapwood("down")
    assert not (tmp_path / "ran").exists()
