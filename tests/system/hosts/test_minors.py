"""Hosts with Python 3.12 and 3.13 beside a client with another one, and one with 3.10."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pythons import LIBRARIES, find_python
from tests.system.hosts.network import Network

from sapwood.contexts.process import c_library
from sapwood.contexts.runtime import PythonBuild
from sapwood.core.errors import ResourceError
from sapwood.environment.settings import CacheSettings
from sapwood.nodes.fetched_libraries import FetchedLibraries

ROOT = Path(__file__).parents[3]
PROGRAM = (str(ROOT / "examples" / "quantize"), "--json", "-p", "colours=8")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"

SCRIPT = """
import json, math, sys
import sapwood
from sapwood.environment.settings import CacheSettings, NodeSettings, Settings

python, folder, *ssh = sys.argv[1:]
settings = Settings(
    nodes=NodeSettings(ssh=ssh, python=[python, "-I"]), cache=CacheSettings(folder=folder)
)
with sapwood.ssh(["n1", "n2"], 4, settings=settings) as cluster:
    with cluster.stream(eval, reduce="gather") as stream:
        told = stream.broadcast("__import__('platform').python_version()").result(60).total
    versions = {one.rpartition(".")[0] for one in told}
    with cluster.stream("echo", reduce="sum") as stream:
        total = stream.broadcast(1.5).result(60).total
    try:
        cluster.submit(lambda: 1)
        refused = ""
    except sapwood.SapwoodError as error:
        refused = str(error)
    roots = list(cluster.map(math.sqrt, range(16)))
print(json.dumps([sorted(versions), total, refused, roots == [n**0.5 for n in range(16)]]))
"""

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.fixture(scope="module")
def pythons() -> tuple[str, str]:
    """Interpreters 3.12 and 3.13, whose libraries are in the cache: hosts have no index."""
    made = []
    for minor in (12, 13):
        path = find_python(minor)
        if not path or minor == sys.version_info.minor:
            pytest.skip(f"no other Python 3.{minor}: python3.{minor} on PATH, or one of pyenv")
        told = "import sys, sysconfig; print(sysconfig.get_config_var('SOABI'), sys.version)"
        done = subprocess.run([path, "-c", told], capture_output=True, text=True, check=True)
        abi, version = done.stdout.split()[:2]
        try:
            known = FetchedLibraries(CacheSettings(folder=str(LIBRARIES)))
            known.folder(PythonBuild(abi, version, c_library()), "here")
        except ResourceError as error:
            if "the package index is not reached" not in error.what:
                raise
            pytest.skip("libraries for another Python come from the package index")
        made.append(path)
    return made[0], made[1]


@pytest.fixture
def python(pythons: tuple[str, str], tmp_path: Path) -> str:
    """A path that is Python 3.12 on the first host and 3.13 on the second one."""
    made = tmp_path / "python"
    first, second = pythons
    made.write_text(
        f'#!/bin/sh\ncase "$XDG_CACHE_HOME" in *cache1) exec {first} "$@";; '
        f'*) exec {second} "$@";; esac\n'
    )
    made.chmod(0o755)
    return str(made)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.row("D-5")
def test_the_picture_is_that_of_one_machine(hosts: Network, python: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here.png", tmp_path / "there.png"
    alone = answer(hosts.sapwood("run", *PROGRAM, "--agents", "4", "-o", str(here)))
    words = ("--set", f'nodes.python=["{python}", "-I"]', "--set", f"cache.folder={LIBRARIES}")
    run = ("run", *PROGRAM, "--agents", "4", "-o", str(there), *hosts.on("n1", "n2"), *words)
    several = answer(hosts.sapwood(*run))
    assert several["progress"]["iteration"] == alone["progress"]["iteration"]
    assert several["result"] == alone["result"]
    assert there.read_bytes() == here.read_bytes()
    told = "import sys; print(*sys.version_info[:2])"
    done = hosts.sapwood("exec", *hosts.on("n1", "n2"), *words, "--", python, "-c", told)
    assert sorted(done.stdout.splitlines()) == ["n1: 3 12", "n2: 3 13"], done.stderr


def test_what_travels_by_name_works_and_by_value_is_refused(hosts: Network, python: str) -> None:
    words = (sys.executable, "-c", SCRIPT, python, str(LIBRARIES), *hosts.ssh_options)
    versions, total, refused, equal = answer(hosts.run("head", *words, check=False))
    assert versions == ["3.12", "3.13"]
    assert (total, equal) == (6.0, True)
    assert f"code that Python {HERE} compiled" in refused
    assert "Python 3.12, 3.13, which do not run that" in refused


def test_without_an_index_it_is_said_what_to_do(
    hosts: Network, pythons: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of these tests reaches nothing but its hosts."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    words = ("--set", f'nodes.python=["{pythons[0]}", "-I"]')
    done = hosts.sapwood("run", *PROGRAM, *hosts.on("n3"), *words)
    assert done.returncode == 6, done.stderr
    said = " ".join(done.stderr.split())
    assert "n3: its Python 3.12." in said
    assert "the package index is not reached" in said
    assert "--python-version 3.12 msgspec" in said


def test_a_host_with_an_old_python_is_named_with_its_version(hosts: Network) -> None:
    old = find_python(10)
    if not old:
        pytest.skip("there is no Python 3.10 here")
    done = hosts.sapwood("run", *PROGRAM, *hosts.on("n1"), "--set", f'nodes.python=["{old}"]')
    assert done.returncode == 6, done.stderr
    said = " ".join(done.stderr.split())
    assert "n1: its Python is 3.10." in said
    assert "Sapwood needs 3.11 or newer: install one there" in said
