"""Staging: files on the nodes of a head by name, from node to node, and collected back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import make_wheel, write_lock

import sapwood
from sapwood.code import locked_packages
from sapwood.content.staged import STAGE_TEXTS
from sapwood.content.store import ContentStore
from sapwood.environment.settings import EnvironmentSettings, Settings

from .conftest import Cli, Until

LOOPBACK = "127.0.0.1:0"


@pytest.fixture(scope="module")
def standing(_standing: tuple[Cli, Any]) -> Iterator[Cli]:
    """A cluster with the nodes n1 and n2, whose staged files are in the test's folder."""
    cli, _ = _standing
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", cli.environment["XDG_STATE_HOME"])
        cli.environment["XDG_CACHE_HOME"] = str(cli.folder / "cache")
        cli.environment["SAPWOOD_NODES__NODE_LISTEN"] = LOOPBACK
        line = cli.json("token", "create", "--uses", "2")["text"]
        try:
            for name in ("n1", "n2"):
                cli.join(line, name)
            cli.run("exec", "--on", "head", "--", "true")  # what commands need stays
            yield cli
            cli.forget()
        finally:
            cli.close()


@pytest.fixture
def two(standing: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The cluster; nothing is staged there, and each test leaves it so."""
    monkeypatch.setenv("XDG_STATE_HOME", standing.environment["XDG_STATE_HOME"])
    yield standing
    for name in {one["name"] for one in standing.json("stage", "list")["staged"]}:
        standing.run("stage", "delete", name)


@pytest.fixture
def folders(two: Cli) -> dict[str, Path]:
    """Where the nodes keep what is staged."""
    facts = two.json("stage", "list")["nodes"]
    return {name: Path(one["folder"]) for name, one in facts.items()}


def random_file(path: Path, nbytes: int, seed: int = 1) -> Path:
    """Write bytes that nothing has yet."""
    path.write_bytes(random.Random(seed).randbytes(nbytes))  # noqa: S311
    return path


@pytest.mark.row("C3-STAGE")
def test_files_are_put_found_by_commands_collected_and_removed(two: Cli, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\necho "tool: $1"\n')
    tool.chmod(0o755)
    tree = tmp_path / "mesh"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "a.dat").write_bytes(b"a" * 100_000)
    (tree / "link").symlink_to("inner/a.dat")
    (tree / "empty").touch()
    large = random_file(tmp_path / "large", 5_000_000)

    said = two.json("stage", "put", str(tool), str(tree), str(large))["staged"]
    assert [one["name"] for one in said] == ["tool", "mesh", "large"]
    assert all(one["nodes"] == ["n1", "n2"] for one in said)
    # A small file goes to both of them from here; a large one to one, which passes it on.
    assert [one["sent"] for one in said[:2]] == [2 * tool.stat().st_size, 100_000]
    assert [one["passed_on"] for one in said] == [0, 100_000, 5_000_000]
    assert said[2]["sent"] == 5_000_000

    again = two.json("stage", "put", str(tree), str(large))["staged"]
    assert [(one["sent"], one["passed_on"]) for one in again] == [(0, 0), (0, 0)]

    with contextlib.chdir(tmp_path):
        script = 'test -h "$SAPWOOD_STAGE/mesh/link" && "$SAPWOOD_STAGE/tool" "$(id -u)"'
        said = two.run("exec", "--on", "head", "--", "sh", "-c", script)
    assert f"tool: {os.getuid()}" in said

    listed = two.json("stage", "list")["staged"]
    assert [(one["name"], one["files"], one["nodes"]) for one in listed] == [
        ("large", 1, ["n1", "n2"]),
        ("mesh", 2, ["n1", "n2"]),
        ("tool", 1, ["n1", "n2"]),
    ]
    assert "n[1-2]" in two.run("stage", "list")
    assert "staged" in two.run("node", "status")

    alike = two.json("stage", "get", "$SAPWOOD_STAGE/mesh", str(tmp_path / "back"))["collected"]
    assert [(one["path"], one["nodes"]) for one in alike] == [
        (str(tmp_path / "back" / "mesh"), ["n1", "n2"])
    ]
    back = tmp_path / "back" / "mesh"
    assert (back / "inner" / "a.dat").read_bytes() == b"a" * 100_000
    assert (back / "link").readlink() == Path("inner/a.dat")

    assert "removed mesh from n[1-2]" in two.run("stage", "delete", "mesh")
    assert "nothing is staged as 'mesh'" in two.run("stage", "delete", "mesh", status=2)
    assert "mesh" not in two.run("stage", "list")


PROGRAM = """
import numpy as np
from sapwood import Program

class Acorns(Program):
    reduce = {"count": "sum"}

    def default_data(self):
        return range(4)

    def map(self, data, state):
        import acorn
        return {"count": np.full(1, acorn.COUNT)}

    def update(self, state, total):
        return {"count": int(total["count"][0])}

    def done(self, state):
        return True

    def result(self, state):
        return {"acorns": state["count"]}
"""


def test_an_environment_is_installed_once_and_used_by_commands_and_runners(
    two: Cli, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.environment["UV_CACHE_DIR"] = str(tmp_path / "uv")
    acorn = make_wheel(
        tmp_path / "wheels",
        "acorn",
        {"acorn.py": "COUNT = 5\ndef main(): print('oak', __import__('sys').version_info[:2])\n"},
        scripts="acorn=acorn:main",
    )
    lock = write_lock(tmp_path / "grove.lock", tmp_path / "wheels", acorn)
    first = two.run("stage", "environment", str(lock))
    assert "installed by uv" in first
    assert "is on n[1-2]" in first
    # Again: no bytes go, and uv is not there to be run.
    monkeypatch.setattr(locked_packages, "find_uv", lambda: str(tmp_path / "no-uv"))
    (again,) = two.json("stage", "environment", str(lock))["staged"]
    assert (again["nodes"], again["installed"]) == (["n1", "n2"], False)
    assert (again["sent"], again["passed_on"]) == (0, 0)
    assert "environment" in two.run("stage", "list")

    def ran(*words: str, status: int = 0) -> str:
        return two.run("exec", "--on", "head", *words, status=status)

    code = "import acorn; print(acorn.__file__)"
    said = ran("--packages", "grove", "--no-label", "--", "python", "-c", code)
    for folder in folders.values():
        assert str(folder / "trees") in said
    said = ran("--environment", "grove", "--", "acorn")  # the old name
    assert f"oak {sys.version_info[:2]}" in said
    ran("--", "python", "-c", "import acorn", status=1)
    error = ran("--packages", "other", "--", "true", status=126)
    assert "no environment 'other' is staged on this node" in error

    program = tmp_path / "acorns.py"
    program.write_text(PROGRAM)
    run = ("run", str(program), "--on", "head", "--agents", "2", "--json")
    assert json.loads(two.run(*run, "--packages", "grove"))["result"] == {"acorns": 10}
    assert "No module named 'acorn'" in two.run(*run, status=4)
    error = two.run(*run, "--packages", "other", status=6)
    assert "no environment 'other' is staged on this node" in error
    error = two.run("run", str(program), "--packages", "grove", status=2)
    assert "environments are staged on nodes of a head" in error

    error = two.run("run", str(program), "--session", "s", "--packages", "grove", status=2)
    assert "a session has its agents" in error

    data = random_file(tmp_path / "data", 1000)
    two.run("stage", "put", str(data), "--as", "taken")
    error = two.run("stage", "environment", str(lock), "--as", "taken", status=2)
    assert "not an environment" in error
    assert "n[1-2]" in error


@pytest.mark.row("C3-STAGE")
def test_a_staged_program_is_run_by_its_name(two: Cli, tmp_path: Path) -> None:
    tool = tmp_path / "tool-of-ours"
    tool.write_text('#!/bin/sh\necho "tool: $1"\n')
    tool.chmod(0o755)
    own = tmp_path / "true"
    own.write_text("#!/bin/sh\nexit 9\n")
    own.chmod(0o755)
    two.run("stage", "put", str(tool), str(own))
    assert "tool: 7" in two.run("exec", "--on", "head", "--", "tool-of-ours", "7")
    assert "tool: 8" in two.run("exec", "--on", "head", "--", "sh", "-c", "tool-of-ours 8")
    two.run("exec", "--on", "head", "--", "true")  # what the node has itself comes first
    two.run("stage", "delete", "tool-of-ours")
    error = two.run("exec", "--on", "head", "--", "tool-of-ours", status=127)
    assert "command not found: 'tool-of-ours'" in error


@pytest.mark.nightly
def test_what_differs_comes_from_each_node_and_what_is_missing_is_named(
    two: Cli, tmp_path: Path
) -> None:
    for node, text in (("n1", "one"), ("n2", "two")):
        folder = tmp_path / node
        folder.mkdir()
        (folder / "result").mkdir()
        (folder / "result" / "own").write_text(text)
        (folder / "result" / "same").write_text("same")
        two.run("stage", "put", str(folder / "result"), "--nodes", node)
    out = tmp_path / "out"
    said = two.run("stage", "get", "$SAPWOOD_STAGE/result", str(out), "--on", "head")
    assert [(out / one / "result/own").read_text() for one in ("n1", "n2")] == ["one", "two"]
    assert str(out / "n1" / "result") in said
    first, second = (out / one / "result" / "same" for one in ("n1", "n2"))
    assert first.samefile(second)  # it came once

    two.run("stage", "put", str(tmp_path / "n1/result/own"), "--as", "rare", "--nodes", "n1")
    error = two.run("stage", "get", "$SAPWOOD_STAGE/rare", str(out), status=2)
    assert "n2" in error
    assert "No such file" in error
    assert (out / "n1" / "rare").read_text() == "one"
    assert "cannot be read" in two.run("stage", "put", str(tmp_path / "nothing"), status=2)
    assert "node n9 does not exist" in two.run("stage", "put", str(out), "--nodes", "n9", status=2)


def test_the_component_can_be_stopped_and_goes_on_with_what_was_there(
    two: Cli, tmp_path: Path
) -> None:
    path = random_file(tmp_path / "data", 1_000_000, seed=6)
    two.run("stage", "put", str(path))
    two.run("node", "stop", "stage", "--nodes", "n1")
    error = two.run("stage", "put", str(path), status=5)
    assert "component 'stage' is stopped" in error
    assert "n1" in error
    two.run("node", "start", "stage", "--nodes", "n1")
    (again,) = two.json("stage", "put", str(path))["staged"]
    assert (again["nodes"], again["sent"]) == (["n1", "n2"], 0)
    two.run("node", "restart", "stage")
    other = random_file(tmp_path / "other", 1_000_000, seed=7)
    (made,) = two.json("stage", "put", str(other))["staged"]
    assert (made["sent"], made["passed_on"]) == (1_000_000, 1_000_000)


@pytest.mark.nightly
def test_python_has_the_same(two: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_NODES__NODE_LISTEN", LOOPBACK)
    path = random_file(tmp_path / "data", 1_500_000, seed=2)
    with sapwood.connect().stage() as stage:
        (made,) = stage.put(path, name="input")
        assert (made.name, made.nodes, made.sent) == ("input", ["n1", "n2"], 1_500_000)
        (listed,) = stage.list()
        assert listed.nbytes == 1_500_000
        (found,) = stage.get("$SAPWOOD_STAGE/input", tmp_path / "back", nodes="n2")
        assert Path(found.path).read_bytes() == path.read_bytes()
        assert stage.remove("input") == ["n1", "n2"]
        acorn = make_wheel(tmp_path / "wheels", "acorn", {"acorn.py": "COUNT = 5"})
        lock = write_lock(tmp_path / "grove.lock", tmp_path / "wheels", acorn)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        (staged,) = stage.environment(lock)
        assert (staged.nodes, staged.installed) == (["n1", "n2"], True)
        with pytest.raises(sapwood.errors.InputError, match="one name is given for several"):
            stage.put(path, path, name="both")
    chosen = Settings(environment=EnvironmentSettings(packages="grove"))
    words = ["python", "-c", "import acorn; print(acorn.COUNT)"]
    answers = sapwood.execute(words, "head", settings=chosen).nodes
    assert [one.stdout for one in answers.values()] == [b"5\n", b"5\n"]
    with sapwood.connect().start(agents=2) as cluster:
        found_in = {one.result() for one in [cluster.submit(os.getenv, "SAPWOOD_STAGE")]}
    assert all(str(two.folder / "cache") in str(one) for one in found_in)


def test_a_full_disk_is_named_and_the_other_node_has_the_file(
    two: Cli, folders: dict[str, Path], tmp_path: Path
) -> None:
    folders["n2"].mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folders["n2"])]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets us mount no file system")
    try:
        large = random_file(tmp_path / "large", 5_000_000, seed=4)
        error = two.run("stage", "put", str(large), status=5)
        assert "the disk of the folder for staged files is full" in error
        assert "n2" in error
        assert [one["nodes"] for one in two.json("stage", "list")["staged"]] == [["n1"]]
        small = random_file(tmp_path / "small", 100_000, seed=5)
        assert two.json("stage", "put", str(small))["staged"][0]["nodes"] == ["n1", "n2"]
    finally:
        subprocess.run(["umount", "-l", str(folders["n2"])], check=True)


@pytest.mark.nightly  # the loss of a node takes seconds; tests/unit/head has the rest
def test_when_a_daemon_is_killed_the_others_go_on_and_it_does_so_later(
    two: Cli, tmp_path: Path, until: Until, folders: dict[str, Path]
) -> None:
    size = 100_000_000
    path = random_file(tmp_path / "large", size, seed=3)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    part = folders["n1"] / "objects" / f"{sha256}.part"

    def here() -> int:
        return ContentStore(part.parent, 0, STAGE_TEXTS).arrived(sha256, size) or 0

    def kill() -> None:
        until(lambda: part.exists() and here() > size // 10)
        two.nodes[0].kill()

    killing = threading.Thread(target=kill)
    killing.start()
    error = two.run("stage", "put", str(path), status=6)
    killing.join()
    assert "the node is gone" in error
    assert "where: n1" in error
    assert hashlib.sha256((folders["n2"] / "names/large").read_bytes()).hexdigest() == sha256
    had = here()
    assert size // 10 < had < size

    killed = two.nodes.pop(0)
    killed.communicate()
    two.join(two.json("token", "create")["text"], "n1")
    (said,) = two.json("stage", "put", str(path))["staged"]
    assert len(said["nodes"]) == 2
    assert (said["sent"], said["passed_on"]) == (0, size - had)  # the rest came from n2
    assert hashlib.sha256((folders["n1"] / "names/large").read_bytes()).hexdigest() == sha256
