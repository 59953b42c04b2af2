"""What travels to a node: all that it imports, nothing that it does not, the same each time."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.contexts.runtime import (
    LIBRARIES,
    PythonBuild,
    Runtime,
    folder_for,
    own_abi,
    own_runtime,
    runtime_for,
)
from sapwood.core.errors import ResourceError
from sapwood.session_server.making import (
    AGENT_ENTRY,
    JUNCTION_ENTRY,
    RUNNER_ENTRY,
    RUNNER_LIBRARIES,
)

Make = Callable[[], Runtime]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("x = 1\n")
    program = tmp_path / "a" / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (tmp_path / "a").iterdir():
        os.utime(path, ns=(10**18, 10**18))
    return tmp_path


@pytest.fixture
def make(folder: Path) -> Make:
    def runtime() -> Runtime:
        files = {f"a/{path.name}": path for path in (folder / "a").iterdir()}
        return Runtime(files, [folder / "a" / "__init__.py"])

    return runtime


def test_the_same_files_have_the_same_identity_and_archive(make: Make, folder: Path) -> None:
    first, again = make(), make()
    assert first.identity == again.identity
    assert first.archive == again.archive
    packed, digest = first.archive
    assert hashlib.sha256(packed).hexdigest() == digest
    other = folder / "b"
    (folder / "a").rename(other)
    moved = Runtime({f"a/{path.name}": path for path in other.iterdir()}, [other / "__init__.py"])
    assert (moved.identity, moved.archive) == (first.identity, first.archive)


@pytest.mark.parametrize("change", ["content", "time", "name", "one more"])
def test_other_files_have_another_identity(make: Make, folder: Path, change: str) -> None:
    before = make().identity
    file = folder / "a" / "__init__.py"
    if change == "content":
        file.write_text("x = 12\n")
        os.utime(file, ns=(10**18, 10**18))
    elif change == "time":
        os.utime(file, ns=(10**18, 10**18 + 1))
    elif change == "name":
        (folder / "a" / "tool").rename(folder / "a" / "other")
    else:
        (folder / "a" / "more.py").touch()
    assert make().identity != before


def test_the_archive_holds_content_and_who_may_run_it_and_no_owner(make: Make) -> None:
    with tarfile.open(fileobj=io.BytesIO(make().archive[0])) as archive:
        entries = {entry.name: entry for entry in archive.getmembers()}
        content = archive.extractfile("a/__init__.py")
        assert content is not None
        assert content.read() == b"x = 1\n"
    assert entries["a/tool"].mode == 0o755
    assert entries["a/__init__.py"].mode == 0o644
    assert all((one.uid, one.gid, one.mtime) == (0, 0, 0) for one in entries.values())


def test_an_offer_has_all_that_a_stub_asks_for(make: Make) -> None:
    offer = make().offer("send")
    assert offer["mode"] == "send"
    assert offer["abi"] == sysconfig.get_config_var("SOABI")
    assert offer["files"][0][0].endswith("a/__init__.py")
    assert "" not in offer["path"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("runtime")
    with tarfile.open(fileobj=io.BytesIO(own_runtime().archive[0])) as archive:
        archive.extractall(target, filter="data")
    return target


@pytest.mark.slow
def test_nothing_of_tests_and_caches_travels(unpacked: Path) -> None:
    names = [str(path.relative_to(unpacked)) for path in unpacked.rglob("*")]
    assert "sapwood/nodes/daemon.py" in names
    for part in ("tests", "__pycache__", "docs", "include"):
        assert not [name for name in names if f"/{part}/" in f"/{name}/"], part
    assert not [name for name in names if name.endswith((".pyc", ".pth"))]
    assert not [name for name in names if name.startswith("sapwood/testing")]


NODE_IMPORTS = """
import importlib, sys
sys.path[:] = [sys.argv[1], *(one for one in sys.path if one and "-packages" not in one)]
for name in sys.argv[2:]:
    importlib.import_module(name)
import numpy
from cryptography.hazmat.primitives.asymmetric import ec
ec.generate_private_key(ec.SECP256R1())
numpy.linalg.inv(numpy.eye(3)) @ numpy.random.default_rng(1).random((3, 3))
print(chr(10).join(
    str(module.__file__) for module in sys.modules.values() if getattr(module, "__file__", None)
))
"""


@pytest.mark.slow
def test_all_that_a_node_imports_is_in_the_archive(unpacked: Path) -> None:
    entries = (AGENT_ENTRY, JUNCTION_ENTRY, RUNNER_ENTRY, "sapwood.session.junction:main")
    modules = [entry.partition(":")[0] for entry in entries] + list(RUNNER_LIBRARIES)
    modules += ["sapwood.nodes.daemon", "sapwood.contexts.zygote", "sapwood.comm.transport.tls"]
    modules += ["numpy.testing", "sapwood", "sapwood.environment.memory"]
    modules += ["sapwood_lizard.program", "sapwood_lizard.dataset"]  # what its runners import
    modules += ["sapwood_cuda_cpu.language"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", NODE_IMPORTS, str(unpacked), *modules],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search("-packages|/src/|/extras/", done.stdout)
    assert str(unpacked / "sapwood" / "nodes" / "daemon.py") in done.stdout


# --- for Pythons of other machines ----------------------------------------------------------------

OTHER = PythonBuild("cpython-399-riscv64-linux-gnu", "3.99.1", "glibc 2.36")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """What `pip install --target` makes for another machine."""
    for library in LIBRARIES:
        (tmp_path / "made" / library / "tests").mkdir(parents=True)
        (tmp_path / "made" / library / "__init__.py").touch()
        (tmp_path / "made" / library / "tests" / "test_it.py").touch()
    (tmp_path / "made" / "msgspec" / f"_core.{OTHER.abi}.so").write_bytes(b"\x7fELF")
    return tmp_path / "made"


@pytest.mark.row("A-CODE-3")
@pytest.mark.slow
def test_another_machine_gets_this_sapwood_and_its_own_libraries(packages: Path) -> None:
    folder = folder_for(OTHER, ("/nowhere", str(packages)))
    assert folder == packages
    found = runtime_for(OTHER, folder)
    with tarfile.open(fileobj=io.BytesIO(found.archive[0])) as archive:
        names = set(archive.getnames())
    assert {"sapwood/__init__.py", "msgspec/__init__.py", f"msgspec/_core.{OTHER.abi}.so"} <= names
    assert not [name for name in names if "/tests/" in name]
    assert not [name for name in names if own_abi() in name]
    offer = found.offer("send")
    assert offer["abi"] == OTHER.abi
    assert offer["identity"] != own_runtime().identity


def test_a_folder_that_lacks_libraries_is_named(packages: Path) -> None:
    (packages / "cffi").rename(packages.parent / "away")
    with pytest.raises(ResourceError, match=r"lacks cffi: make it again by `pip install"):
        runtime_for(OTHER, packages)


def test_the_folder_of_another_python_is_not_taken(packages: Path) -> None:
    other = PythonBuild("cpython-398-riscv64-linux-gnu", "3.98.1")
    assert folder_for(other, (str(packages),)) is None


@pytest.mark.parametrize(
    ("abi", "version"),
    [
        ("", "3.12.1"),
        ("cpython-313t-x86_64-linux-gnu", "3.13.0"),
        ("cpython-312d-x86_64-linux-gnu", "3.12.0"),
        ("pypy311-pp73-x86_64-linux-gnu", "3.11.1"),
    ],
)
def test_what_is_no_ordinary_cpython_is_refused(abi: str, version: str) -> None:
    with pytest.raises(ResourceError, match="not an ordinary build of CPython"):
        folder_for(PythonBuild(abi, version), ())


def test_the_abi_is_known_while_another_thread_asks_sysconfig_for_the_first_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = sysconfig.get_config_var("SOABI")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _name: None)  # as it is then
    assert own_abi() == known
