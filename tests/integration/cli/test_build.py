"""``sapwood build`` as a user calls it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sapwood.cli.main import app
from sapwood.code.installed_tools import find_zig

MAIN = "from sapwood.cli.main import main; main()"
SOURCE = "int twice(int x) { return 2 * x; }\n"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text(SOURCE)
    path = tmp_path / "p.py"
    path.write_text("from sapwood import Program\nclass P(Program):\n    sources = ['a.c']\n")
    return path


def build(program: Path, *options: str) -> Result:
    place = f"cache.folder={program.parent / 'cache'}"
    return CliRunner().invoke(app, ["build", str(program), "--set", place, *options])


def test_it_builds_once(program: Path) -> None:
    first = json.loads(build(program, "--json").stdout)
    second = json.loads(build(program, "--json").stdout)
    assert [first["builds"][0]["cached"], second["builds"][0]["cached"]] == [False, True]
    assert Path(first["builds"][0]["libraries"][0]["path"]).is_file()
    shown = build(program)
    assert "cached" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.row("A-TOOL-1")
@pytest.mark.skipif(find_zig({}) is None, reason="needs zig: pip install 'sapwood[cross]'")
def test_it_builds_for_several_targets(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(Path(__file__).parents[3] / "build" / "zig"))
    answer = build(program, "--target", "native", "--target", "aarch64-linux-gnu", "--json")
    assert answer.exit_code == 0, answer.stderr
    builds = json.loads(answer.stdout)["builds"]
    assert builds[1]["target"] == "aarch64 glibc 2.17 cpu-generic"
    assert len({each["libraries"][0]["sha256"] for each in builds}) == 2


def test_a_target_that_is_none_is_wrong_input(program: Path) -> None:
    answer = build(program, "--target", "abacus-linux-gnu")
    assert answer.exit_code == 2
    assert "'abacus-linux-gnu' is not a target" in answer.stderr


def test_a_source_that_does_not_compile_shows_the_compiler_s_text(program: Path) -> None:
    (program.parent / "a.c").write_text("int f(void) { return y; }\n")
    answer = build(program)
    assert answer.exit_code == 3
    assert "a.c:1:22: error" in answer.stderr


def test_a_program_without_sources_has_nothing_to_build(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text("from sapwood import Program\nclass P(Program):\n    pass\n")
    assert build(path).stdout == "P has no sources to build\n"


@pytest.fixture
def counting(tmp_path: Path) -> dict[str, str]:
    """Return variables of a compiler that notes each start, and waits while a file is there."""
    compiler = tmp_path / "counting-cc"
    compiler.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then exec cc --version; fi\n'
        f"echo start >> {tmp_path}/starts\n"
        f"while [ -e {tmp_path}/wait ]; do sleep 0.01; done\n"
        'exec cc "$@"\n'
    )
    compiler.chmod(0o755)
    return {**os.environ, "CC": str(compiler)}


def start_build(program: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    place = f"cache.folder={program.parent / 'cache'}"
    command = [sys.executable, "-c", MAIN, "build", str(program), "--set", place, "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
    )


@pytest.mark.row("A-CODE-1")
def test_processes_that_ask_at_once_share_one_build(
    program: Path, counting: dict[str, str], until: Callable[[Callable[[], object]], None]
) -> None:
    (program.parent / "wait").touch()
    asking = [start_build(program, counting) for _ in range(2)]
    until((program.parent / "starts").exists)
    (program.parent / "wait").unlink()
    answers = [process.communicate(timeout=60) for process in asking]
    assert [errors for _, errors in answers] == ["", ""]
    built = [json.loads(answer)["builds"][0]["cached"] for answer, _ in answers]
    assert sorted(built) == [False, True]
    assert (program.parent / "starts").read_text().count("start") == 2  # compile and link, once


def test_a_build_that_is_terminated_ends_its_compiler(
    program: Path, counting: dict[str, str], until: Callable[[Callable[[], object]], None]
) -> None:
    (program.parent / "wait").touch()
    with start_build(program, counting) as process:
        until((program.parent / "starts").exists)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "sapwood: interrupted\n")
    compiler = f"{program.parent}/counting-cc".encode()
    until(lambda: not any(compiler in words for words in commands()))


def commands() -> Iterator[bytes]:
    """Yield the command lines of this machine's processes."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield (process / "cmdline").read_bytes()


@pytest.mark.row("A-CODE-1")
def test_a_build_that_is_killed_leaves_nothing_that_the_next_one_meets(
    program: Path, counting: dict[str, str], until: Callable[[Callable[[], object]], None]
) -> None:
    (program.parent / "wait").touch()
    with start_build(program, counting) as first:
        until((program.parent / "starts").exists)
        first.kill()
        first.communicate()
    left = list((program.parent / "cache" / "building").iterdir())
    assert len(left) == 1
    with start_build(program, counting) as second:
        until(lambda: (program.parent / "starts").read_text().count("start") == 2)
        (program.parent / "wait").unlink()  # the compiler of the killed build also continues
        answer, errors = second.communicate(timeout=60)
    assert errors == ""
    assert not json.loads(answer)["builds"][0]["cached"]
    assert list((program.parent / "cache" / "building").iterdir()) == []


@pytest.mark.row("A-CODE-2")
def test_watching_builds_after_each_edit_until_it_is_interrupted(
    program: Path, edit: Callable[[Path, str], None]
) -> None:
    source = program.parent / "a.c"
    command = [sys.executable, "-c", MAIN, "build", str(program), "--watch", "--json"]
    command += ["--set", f"cache.folder={program.parent / 'cache'}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None

        def next_version() -> dict[str, Any]:
            assert process.stdout is not None
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        try:
            first = next_version()
            edit(source, "int twice(int x) { return 2 * y; }\n")
            broken = next_version()
            edit(source, SOURCE + "/* edited */\n")
            third = next_version()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert first["error"] is None
    assert "a.c:1:31: error" in broken["error"]["details"]["compiler output"]
    assert third["error"] is None
    assert len({first["hash"], broken["hash"], third["hash"]}) == 3
