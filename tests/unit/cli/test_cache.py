from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from sapwood.cli.cache import app
from sapwood.code.cache import BuildCache


def fill(output: Path, _scratch: Path) -> dict[str, str]:
    (output / "lib.so").write_bytes(b"x" * 2048)
    return {"language": "c", "sources": "a.c b.c"}


def test_show_and_prune(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    for key in ("a" * 64, "b" * 64):
        cache.get_or_build(key, fill).close()
    place = ["--set", f"cache.folder={tmp_path}"]

    shown = CliRunner().invoke(app, ["show", *place])
    assert shown.exit_code == 0
    assert "aaaaaaaaaaaa 2 KiB" in shown.stdout
    assert "4 KiB of at most 2 GiB" in shown.stdout.replace("\n", "")

    pruned = CliRunner().invoke(app, ["prune", "--to", "2 KiB", *place])
    assert pruned.stdout == "removed 1 builds, 2 KiB\n"

    pruned = CliRunner().invoke(app, ["prune", "--to", "2 KiB", "--json", *place])
    assert json.loads(pruned.stdout) == {"folder": str(tmp_path), "removed": 0, "bytes": 0}

    listed = json.loads(CliRunner().invoke(app, ["show", "--json", *place]).stdout)
    assert listed["bytes"] == 2048
    assert len(listed["entries"]) == 1


def test_a_size_that_is_none(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["prune", "--to", "x", "--set", f"cache.folder={tmp_path}"])
    assert answer.exit_code == 2
    assert "where: --to" in answer.stderr
