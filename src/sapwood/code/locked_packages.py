"""Packages of a lock file, installed into a folder for the machines of one kind.

A lock names each package with the hash of its content, so the same lock gives the same files for
the same kind of machine, and is installed once: the folder is an entry of the build cache. Only
wheels are installed, because nothing can be built here for another machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.interruption import run_to_end
from sapwood.content.file_trees import MARK
from sapwood.core.errors import (
    CommunicationError,
    DataMissingError,
    DataValueError,
    InputError,
    ResourceError,
    SapwoodError,
)

PACKAGES: Final = "packages"
"""The folder of packages in an entry of the cache."""

INSTALL_SECONDS: Final = 3600.0
"""Longest time of one run of uv, which may have to fetch some gigabytes."""

MAX_LOCK: Final = 64 * 2**20
"""Bytes of a lock file."""

FORMAT: Final = "1"
"""Of the folders: another one makes all of them anew."""

GLIBC_MINORS: Final = (17, 28, *range(31, 41))
"""The versions 2.N of glibc that uv knows as platforms."""

_NAME_ONLY = {"uv.lock", "pylock.toml"}
_NO_NETWORK = ("error sending request", "dns error", "Network connectivity is disabled")
_NO_WHEEL = ("no wheels with a matching", "has no usable wheels", "marked as `--no-build`")
_NO_WHEEL_OF = re.compile(r"Because (\S+) has no (?:usable )?wheels")
_INCLUDE = re.compile(rb"^\s*(-r|-c|-e|--requirements?|--constraints?|--editable)\b", re.MULTILINE)


class MachineKind(msgspec.Struct, frozen=True, order=True):
    """Machines for which the same packages are right.

    Attributes:
        platform: What uv calls them.
        python: Version of their Python, for example ``3.11``.

    Example:
        >>> MachineKind.of("x86_64", "glibc 2.36", "3.11.4")
        MachineKind(platform='x86_64-manylinux_2_36', python='3.11')
        >>> MachineKind.of("aarch64", "musl", "3.12.0").platform
        'aarch64-unknown-linux-musl'
    """

    platform: str
    python: str

    @classmethod
    def of(cls, architecture: str, c_library: str, python: str) -> MachineKind:
        """Return the kind of a machine.

        Raises:
            InputError: uv knows no such machines.
        """
        name, _, version = c_library.partition(" ")
        platform = ""
        if architecture in {"x86_64", "aarch64"}:
            _, _, text = version.partition("2.")
            minor = int(text) if text.isdigit() else -1
            fitting = [one for one in GLIBC_MINORS if one <= minor]
            if name == "glibc" and fitting:
                platform = f"{architecture}-manylinux_2_{fitting[-1]}"
            elif name == "musl":
                platform = f"{architecture}-unknown-linux-musl"
        if not platform:
            what = f"{architecture} with {c_library or 'a C library that is not known'}"
            raise InputError(
                f"packages cannot be chosen for a machine with {what}",
                hint="environments are for x86_64 and aarch64 with glibc or musl",
            )
        return cls(platform, ".".join(python.split(".")[:2]))


class PackageLock:
    """A lock file.

    Args:
        path: The file: requirements with hashes, ``pylock.toml`` or ``uv.lock``.

    Attributes:
        path: The same.
        sha256: Of its content.

    Raises:
        DataMissingError: It cannot be read.
        InputError: It does not say all that is to be installed, and by its hash.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                data = file.read(MAX_LOCK + 1)
        except OSError as error:
            raise DataMissingError(
                f"the lock file cannot be read: {error.strerror or error}", where=str(path)
            ) from error
        if len(data) > MAX_LOCK:
            raise InputError("the lock file is too large", where=str(path))
        self.sha256 = hashlib.sha256(data).hexdigest()
        if self._is_table:
            self._check_table(data)
        elif found := _INCLUDE.search(data):
            raise InputError(
                f"the lock file refers to something else by {found[1].decode()}",
                where=str(path),
                hint="`uv pip compile --generate-hashes` writes all into one file",
            )
        elif b"--hash" not in data:
            raise self._without_hash("")

    @property
    def name(self) -> str:
        """What it is a lock of: the project, or what the file is called."""
        if self.path.name in _NAME_ONLY:
            return self.path.absolute().parent.name
        return self.path.name.removeprefix("pylock.").partition(".")[0]

    @property
    def _is_uv(self) -> bool:
        return self.path.name == "uv.lock"

    @property
    def _is_table(self) -> bool:
        return self._is_uv or self.path.name.startswith("pylock.")

    def install(self, kind: MachineKind, cache: BuildCache) -> CacheEntry:
        """Return the packages for machines of a kind: the folder :data:`PACKAGES` of an entry.

        The first time uv installs them; after that they are there.

        Raises:
            InputError: They cannot be installed, for example because no wheel exists for such
                machines; the details have what uv says.
            CommunicationError: No index is reached.
            ResourceError: uv is missing, or the disk is full.
        """

        def fill(entry: Path, scratch: Path) -> dict[str, str]:
            folder = entry / PACKAGES
            self._install(kind, folder, scratch)
            _make_alike(folder, kind)
            made = {"lock": self.sha256, "platform": kind.platform, "python": kind.python}
            (folder / MARK).write_bytes(msgspec.json.encode(made))
            return {"language": f"python {kind.python} {kind.platform}", "sources": str(self.path)}

        parts = (FORMAT, self.sha256, kind.platform, kind.python)
        key = hashlib.sha256("\0".join(("packages", *parts)).encode()).hexdigest()
        return cache.get_or_build(key, fill)

    def _install(self, kind: MachineKind, folder: Path, scratch: Path) -> None:
        uv = find_uv()
        wanted = self.path.absolute()
        if self._is_uv:
            wanted = scratch / "requirements.txt"
            words = ["export", "--frozen", "--no-dev", "--no-emit-project", "--no-header"]
            self._run(uv, [*words, "--output-file", str(wanted)], scratch, kind)
        words = ["pip", "install", "--target", str(folder), "--requirements", str(wanted)]
        words += ["--require-hashes", "--no-build", "--no-compile-bytecode"]
        words += ["--python", sys.executable, "--python-version", kind.python]
        self._run(uv, [*words, "--python-platform", kind.platform], scratch, kind)
        folder.mkdir(exist_ok=True)  # of a lock without packages

    def _run(self, uv: str, words: Sequence[str], scratch: Path, kind: MachineKind) -> None:
        command = [uv, *words, "--quiet", "--no-progress", "--color", "never"]
        variables = {**os.environ, "TMPDIR": str(scratch)}
        # In the folder of the lock: there is what says which index is meant.
        folder = self.path.absolute().parent
        try:
            status, said = run_to_end(command, folder, variables, INSTALL_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ResourceError(
                f"uv took more than {INSTALL_SECONDS:.0f} s", where=str(self.path)
            ) from error
        if status:
            raise self._failed(said, kind)

    def _failed(self, said: str, kind: MachineKind) -> SapwoodError:
        """Return what it means that uv ended so."""
        said = said.strip() or "uv said nothing"
        where, details = str(self.path), {"uv": said}
        if "all requirements must have a hash" in said:
            return self._without_hash(said)
        if "No space left on device" in said:
            return ResourceError(
                "the disk is full",
                where=where,
                hint="free space, or choose another folder by cache.folder and UV_CACHE_DIR",
                details=details,
            )
        if any(text in said for text in _NO_NETWORK):
            return CommunicationError(
                "uv does not reach the index of the packages",
                where=where,
                hint="see whether this machine is on the network; UV_DEFAULT_INDEX names another "
                "index, and UV_FIND_LINKS a folder of wheels",
                details=details,
            )
        if "Hash mismatch" in said:
            return DataValueError(
                "a package is not what the lock says",
                where=where,
                hint="make the lock anew if the package has changed for good reasons",
                details=details,
            )
        if any(text in said for text in _NO_WHEEL):
            package = _NO_WHEEL_OF.search(said)
            return InputError(
                f"no wheel of {package[1] if package else 'a package'} for nodes of "
                f"{kind.platform} with Python {kind.python}",
                where=where,
                hint="lock a version that has one, or stage for other nodes by --nodes",
                details=details,
            )
        return InputError("uv cannot install the lock", where=where, details=details)

    def _check_table(self, data: bytes) -> None:
        """Refuse a table with a package that no hash names."""
        try:
            table = tomllib.loads(data.decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"the lock file is no TOML: {error}", where=str(self.path)) from error
        found = table.get("package" if self._is_uv else "packages", [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise InputError("the lock file has no list of packages", where=str(self.path))
        for package in found:
            if not _has_hashes(package, own=self._is_uv):
                raise self._without_hash(f"{package.get('name', 'a package')} has no hash")

    def _without_hash(self, said: str) -> InputError:
        return InputError(
            "the lock file names a package without a hash",
            where=str(self.path),
            hint="`uv pip compile --generate-hashes`, `uv lock` and `uv export` write hashes",
            details={"uv": said} if said else {},
        )


def find_uv() -> str:
    """Return the path of uv: of the package, or else of a program of that name.

    Raises:
        ResourceError: There is none.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise ResourceError(
            "uv is missing, which installs the packages of a lock",
            hint="`pip install 'sapwood[uv]'` installs it",
        )
    return found


def _has_hashes(package: dict[str, object], *, own: bool) -> bool:
    """Whether each file of a package has a hash.

    Args:
        package: A package of a lock.
        own: Whether the lock is one of uv, which also lists the project itself.
    """
    source = package.get("source", {})
    if own and isinstance(source, dict) and source.keys() & {"virtual", "editable"}:
        return True
    files = list(_files_of(package))
    key = "hash" if own else "hashes"
    return bool(files) and all(isinstance(one, dict) and one.get(key) for one in files)


def _files_of(package: dict[str, object]) -> Iterator[object]:
    wheels = package.get("wheels", [])
    if isinstance(wheels, list):
        yield from wheels
    yield from (package[key] for key in ("sdist", "archive") if key in package)


def _make_alike(folder: Path, kind: MachineKind) -> None:
    """Take out of a folder what depends on this machine and on the time."""
    (folder / ".lock").unlink(missing_ok=True)
    changed = set()
    for path in folder.glob("*.dist-info/uv_cache.json"):
        path.unlink()
    programs = folder / "bin"
    for path in programs.iterdir() if programs.is_dir() else ():
        data = path.read_bytes()
        first, newline, rest = data.partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            _replace(path, f"#!/usr/bin/env python{kind.python}".encode() + newline + rest)
            changed.add(f"bin/{path.name}")
    for path in folder.glob("*.dist-info/RECORD"):
        lines = []
        for line in path.read_bytes().splitlines(keepends=True):
            name, _, _ = line.partition(b",")
            if not name.endswith(b"/uv_cache.json"):
                lines.append(name + b",,\n" if os.fsdecode(name) in changed else line)
        _replace(path, b"".join(lines))


def _replace(path: Path, data: bytes) -> None:
    """Write another file at a path: the one that is there may be one of uv's cache as well."""
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)
