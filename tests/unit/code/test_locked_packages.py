"""Locks, the machines that packages are for, and what uv installs: without a network."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.wheels import make_wheel, write_lock

from sapwood.code import locked_packages
from sapwood.code.cache import BuildCache
from sapwood.code.locked_packages import PACKAGES, MachineKind, PackageLock, find_uv
from sapwood.content.file_trees import MARK
from sapwood.core.errors import (
    CommunicationError,
    DataMissingError,
    DataValueError,
    InputError,
    ResourceError,
)

KIND = MachineKind("x86_64-manylinux_2_36", "3.11")
OTHER = MachineKind("aarch64-manylinux_2_28", "3.11")

try:
    find_uv()
except ResourceError:
    NO_UV = True
else:
    NO_UV = False
needs_uv = pytest.mark.skipif(NO_UV, reason="uv is missing; `pip install uv` installs it")


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    return tmp_path / "wheels"


def fake_uv(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace uv by a shell script."""
    uv = folder / "uv-of-the-test"
    uv.write_text(f"#!/bin/sh\n{script}\n")
    uv.chmod(0o755)
    monkeypatch.setattr(locked_packages, "find_uv", lambda: str(uv))


def lock_of(folder: Path) -> PackageLock:
    """Return a lock of a package that is nowhere."""
    path = folder / "some.lock"
    path.write_text(f"acorn==1.0 --hash=sha256:{'0' * 64}\n")
    return PackageLock(path)


@pytest.mark.parametrize(
    ("machine", "platform"),
    [
        (("x86_64", "glibc 2.17"), "x86_64-manylinux_2_17"),
        (("x86_64", "glibc 2.30"), "x86_64-manylinux_2_28"),
        (("aarch64", "glibc 2.99"), "aarch64-manylinux_2_40"),
        (("x86_64", "musl"), "x86_64-unknown-linux-musl"),
    ],
)
def test_machines_are_of_the_kind_that_their_c_library_allows(
    machine: tuple[str, str], platform: str
) -> None:
    assert MachineKind.of(*machine, "3.12.1") == MachineKind(platform, "3.12")


@pytest.mark.parametrize(
    "machine", [("x86_64", "glibc 2.5"), ("x86_64", ""), ("ppc64le", "glibc 2.36"), ("x86_64", "?")]
)
def test_machines_that_nobody_makes_wheels_for_are_refused(machine: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="packages cannot be chosen for a machine with"):
        MachineKind.of(*machine, "3.11.2")


@needs_uv
@pytest.mark.slow
def test_a_lock_is_installed_once_for_each_kind_of_machine(
    tmp_path: Path, cache: BuildCache, wheels: Path
) -> None:
    acorn = make_wheel(
        wheels, "acorn", {"acorn.py": "def main(): print('oak')\n"}, scripts="acorn=acorn:main"
    )
    lock = PackageLock(write_lock(tmp_path / "grove.lock", wheels, acorn))
    assert lock.name == "grove"
    entry = lock.install(KIND, cache)
    folder = entry.path(PACKAGES)
    assert entry.built
    assert (folder / "acorn.py").is_file()
    assert (folder / MARK).is_file()
    # Nothing says on which machine, where or when it was made.
    program = folder / "bin" / "acorn"
    assert program.read_text().startswith("#!/usr/bin/env python3.11\n")
    assert program.stat().st_mode & 0o111
    names = {path.name for path in folder.rglob("*")}
    assert not names & {".lock", "uv_cache.json"}
    record = (folder / "acorn-1.0.dist-info" / "RECORD").read_text()
    assert "bin/acorn,,\n" in record
    assert "uv_cache" not in record
    assert not [path for path in folder.rglob("*") if path.is_file() and _tells(path, tmp_path)]
    assert not lock.install(KIND, cache).built
    assert lock.install(OTHER, cache).built


def _tells(path: Path, folder: Path) -> bool:
    data = path.read_bytes()
    return str(folder).encode() in data or sys.prefix.encode() in data


@needs_uv
@pytest.mark.slow
def test_the_same_lock_gives_the_same_files(tmp_path: Path, wheels: Path) -> None:
    acorn = make_wheel(wheels, "acorn", {"acorn.py": ""}, scripts="acorn=acorn:main")
    lock = PackageLock(write_lock(tmp_path / "grove.lock", wheels, acorn))
    found = [
        lock.install(KIND, BuildCache(tmp_path / one)).manifest.files for one in ("one", "two")
    ]
    assert found[0] == found[1]
    assert f"{PACKAGES}/acorn.py" in found[0]


@needs_uv
@pytest.mark.slow
def test_locks_of_uv_and_pylock_are_installed(
    tmp_path: Path, cache: BuildCache, wheels: Path
) -> None:
    sha256 = make_wheel(wheels, "acorn", {"acorn.py": ""}).rpartition(":")[2]
    wheel = wheels / "acorn-1.0-py3-none-any.whl"
    project = tmp_path / "grove"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "grove"\nversion = "0"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["acorn @ {wheel.as_uri()}"]\n'
    )
    (project / "uv.lock").write_text(
        'version = 1\nrevision = 2\nrequires-python = ">=3.11"\n\n'
        f'[[package]]\nname = "acorn"\nversion = "1.0"\nsource = {{ path = "{wheel}" }}\n'
        f'wheels = [{{ filename = "{wheel.name}", hash = "sha256:{sha256}" }}]\n\n'
        '[[package]]\nname = "grove"\nversion = "0"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "acorn" }]\n\n[package.metadata]\n'
        f'requires-dist = [{{ name = "acorn", path = "{wheel}" }}]\n'
    )
    (project / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "test"\n\n[[packages]]\nname = "acorn"\n'
        f'version = "1.0"\nwheels = [{{ path = "{wheel}", hashes = {{ sha256 = "{sha256}" }} }}]\n'
    )
    for name in ("uv.lock", "pylock.toml"):
        lock = PackageLock(project / name)
        assert lock.name == "grove"
        assert (lock.install(KIND, cache).path(PACKAGES) / "acorn.py").is_file()


@needs_uv
@pytest.mark.slow
def test_what_cannot_be_installed_is_refused_and_leaves_nothing(
    tmp_path: Path, cache: BuildCache, wheels: Path
) -> None:
    acorn = make_wheel(wheels, "acorn", {"acorn.py": ""})
    nut = make_wheel(wheels, "nut", {"nut.py": ""}, tag="cp311-cp311-manylinux_2_17_aarch64")
    hint = "no wheel of nut==1.0 for nodes of x86_64-manylinux_2_36 with Python 3.11"
    for lines, error, what in (
        ([nut], InputError, hint),
        ([acorn, "nut==1.0"], InputError, "names a package without a hash"),
        ([acorn.replace("1.0", "2.0")], InputError, "uv cannot install the lock"),
        (["acorn==1.0 " + nut.partition(" ")[2]], DataValueError, "not what the lock says"),
    ):
        path = write_lock(tmp_path / "bad.lock", wheels, *lines)
        with pytest.raises(error, match=re.escape(what)) as caught:
            PackageLock(path).install(KIND, cache)
        assert "acorn" in caught.value.details["uv"] or "nut" in caught.value.details["uv"]
        assert caught.value.where == str(path)
    assert not cache.entries()
    assert not list((cache.folder / "building").iterdir())
    PackageLock(write_lock(tmp_path / "good.lock", wheels, nut)).install(OTHER, cache)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("plain.txt", "acorn==1.0\n", "names a package without a hash"),
        ("more.txt", "-r other.txt\nacorn==1 --hash=sha256:0\n", "refers to something else by -r"),
        ("uv.lock", "][", "is no TOML"),
        ("uv.lock", "package = 3", "has no list of packages"),
        ("uv.lock", '[[package]]\nname = "a"\nwheels = [{ path = "a.whl" }]', "without a hash"),
        ("uv.lock", '[[package]]\nname = "a"\nsource = { git = "x" }', "without a hash"),
        ("pylock.toml", '[[packages]]\nname = "a"\nwheels = [{ path = "a" }]', "without a hash"),
        ("pylock.x.toml", '[[packages]]\nname = "a"\ndirectory = { path = "a" }', "without a hash"),
    ],
)
def test_a_lock_that_does_not_fix_everything_is_refused_before_uv_is_run(
    tmp_path: Path, name: str, text: str, what: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=what):
        PackageLock(tmp_path / name)


def test_a_lock_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="No such file"):
        PackageLock(tmp_path / "nothing.lock")
    with pytest.raises(DataMissingError, match="Is a directory"):
        PackageLock(tmp_path)


def test_without_uv_the_error_says_how_to_get_it(
    tmp_path: Path, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResourceError, match=r"uv is missing.*pip install 'sapwood\[uv\]'"):
        lock_of(tmp_path).install(KIND, cache)


@pytest.mark.parametrize(
    ("said", "error", "what"),
    [
        ("cause: error sending request for url (x)", CommunicationError, "does not reach"),
        ("cause: No space left on device (os error 28)", ResourceError, "the disk is full"),
        ("", InputError, "uv cannot install the lock"),
    ],
)
def test_what_uv_says_becomes_an_error_of_ours(
    tmp_path: Path,
    cache: BuildCache,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    error: type[Exception],
    what: str,
) -> None:
    fake_uv(tmp_path, f"echo '{said}' >&2; exit 2", monkeypatch)
    with pytest.raises(error, match=what):
        lock_of(tmp_path).install(KIND, cache)


@needs_uv
@pytest.mark.slow
def test_without_a_network_the_error_says_so(
    tmp_path: Path, cache: BuildCache, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    assert not wheels.exists()
    with pytest.raises(CommunicationError, match="does not reach the index"):
        lock_of(tmp_path).install(KIND, cache)


@pytest.mark.slow
def test_when_the_process_is_killed_meanwhile_nothing_half_is_left(
    tmp_path: Path, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed while uv has written a part; the next one starts from nothing."""
    # The script of before its end: it writes a part, tells its number, and waits for ever.
    script = 'mkdir -p "$4"; echo half >"$4/acorn.py"; echo $$ >"$SAYS"; exec sleep 1000'
    says = tmp_path / "says"
    os.mkfifo(says)
    monkeypatch.setenv("SAYS", str(says))
    fake_uv(tmp_path, script, monkeypatch)
    lock = lock_of(tmp_path)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            lock.install(KIND, cache)
        os._exit(1)
    number = int(says.read_text())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert list((cache.folder / "building").glob("*/entry/packages/acorn.py"))
    assert not cache.entries()
    fake_uv(tmp_path, 'mkdir -p "$4"; echo whole >"$4/acorn.py"', monkeypatch)
    made = lock.install(KIND, cache)
    assert made.built
    assert (made.path(PACKAGES) / "acorn.py").read_text() == "whole\n"
    assert not list((cache.folder / "building").iterdir())
    os.kill(number, signal.SIGKILL)  # what stood for uv: the kernel ends no children
