"""The runtime as an archive: what a node needs of Sapwood, and of the libraries that it uses.

The archive is made once, of the files that this interpreter has, and known by its hash. It fits
nodes whose Python has the same ABI. For nodes of another architecture or minor version, the
libraries come from a folder that was made for their Python. Nothing is resolved or installed on a
node.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import io
import os
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import msgspec

from sapwood.core import extras
from sapwood.core.errors import ResourceError
from sapwood.core.extras import is_own
from sapwood.environment.folders import expand_user

LIBRARIES = ("msgspec", "numpy", "cloudpickle", "structlog", "psutil", "cryptography", "cffi")
"""Libraries that nodes use; parsers of languages, tables and colours stay at the head."""

_LEFT_OUT = ("/tests/", "/__pycache__/", "/testing/", "/docs/", "/include/", "/_pyinstaller/")
"""Parts of libraries that a node does not need."""

_AT_THE_HEAD = "/sapwood/server/"
"""The part of Sapwood that a node does not need."""


class Runtime:
    """The runtime of this interpreter.

    Args:
        files: Where the files of the archive lie, by their names in it.
        stamps: Some of them, by which a node tells whether it sees the same files.
        abi: Of the Pythons that it is for; by default this one's.

    Attributes:
        identity: A hash of what the archive is made of; nodes keep it under this name.
    """

    def __init__(self, files: Mapping[str, Path], stamps: Sequence[Path], abi: str = "") -> None:
        self._files = dict(files)
        self._abi = abi or own_abi()
        self._stamps = [_stamp(path) for path in stamps]
        self._lock = threading.Lock()
        self._archive: tuple[bytes, str] | None = None
        listing = [(name, *_stamp(path)[1:]) for name, path in sorted(self._files.items())]
        self.identity = hashlib.sha256(repr((listing, self._abi)).encode()).hexdigest()

    @property
    def files(self) -> Mapping[str, Path]:
        """Where its files lie, by their names in the archive."""
        return self._files

    @property
    def archive(self) -> tuple[bytes, str]:
        """The archive, a compressed tar file, and its SHA-256; made when it is first wanted."""
        with self._lock:
            if self._archive is None:
                packed = _pack(self._files)
                self._archive = packed, hashlib.sha256(packed).hexdigest()
            return self._archive

    def offer(self, mode: str) -> dict[str, Any]:
        """Return the first message to the stub on a node.

        Args:
            mode: ``auto``, or ``send`` to send the archive even where the files are shared.
        """
        return {
            "identity": self.identity,
            "files": self._stamps,
            "path": [entry for entry in sys.path if entry],
            "abi": self._abi,
            "mode": mode,
        }


@functools.cache
def own_runtime() -> Runtime:
    """Return the runtime of this interpreter.

    Raises:
        ResourceError: A library has no files, as in a frozen application.
    """
    files: dict[str, Path] = {}
    stamps: list[Path] = []
    for home in (Path(__file__).parents[1], *_extra_packages()):
        for path in sorted(home.rglob("*")):
            name = f"{home.name}/{path.relative_to(home)}"
            if path.is_file() and not _is_left_out(f"/{name}"):
                files[name] = path
        stamps.append(home / "__init__.py")
    for library in ("sapwood", *LIBRARIES):
        try:
            distribution = metadata.distribution(library)
        except metadata.PackageNotFoundError:
            continue
        for entry in distribution.files or ():
            name = str(entry)
            if name.startswith("..") or name.endswith((".pyc", ".pth")) or _is_left_out(f"/{name}"):
                continue
            path = Path(str(distribution.locate_file(entry)))
            if path.is_file():
                files.setdefault(name, path)
                if library != "sapwood" and name.endswith("/__init__.py") and name.count("/") == 1:
                    stamps.append(path)
    if "msgspec/__init__.py" not in files:
        raise ResourceError("the files of Sapwood's libraries are not on this disk")
    return Runtime(files, stamps)


def _extra_packages() -> Iterator[Path]:
    """Yield the folders of the extra packages that are installed: nodes run their code, too."""
    for package in extras.PACKAGES.values():
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(folder)


class PythonBuild(msgspec.Struct, frozen=True):
    """The Python of a node, as its stub tells of it.

    Attributes:
        abi: As the names of its extensions have it, for example
            ``cpython-312-x86_64-linux-gnu``.
        version: For example ``3.12.1``.
        c_library: Name and version, for example ``glibc 2.36``.
    """

    abi: str
    version: str
    c_library: str = ""

    @property
    def minor(self) -> str:
        """Its version without the last number.

        Example:
            >>> PythonBuild("cpython-312-aarch64-linux-gnu", "3.12.1").minor
            '3.12'
        """
        return ".".join(self.version.split(".")[:2])

    @property
    def architecture(self) -> str:
        """That of the processor.

        Example:
            >>> PythonBuild("cpython-312-aarch64-linux-gnu", "3.12.1").architecture
            'aarch64'
        """
        return [*self.abi.split("-"), "", "", ""][2]

    def __str__(self) -> str:
        return f"Python {self.version} ({self.abi or 'unknown ABI'})"


def folder_for(python: PythonBuild, folders: Sequence[str]) -> Path | None:
    """Return the folder that has libraries for a Python, or None.

    Args:
        python: The Python.
        folders: Those with libraries; each is for one ABI.

    Raises:
        ResourceError: Sapwood cannot run there, whatever libraries there are.
    """
    _, digits, *_ = [*python.abi.split("-"), ""]
    if not python.abi.startswith("cpython-3") or digits != python.minor.replace(".", ""):
        raise ResourceError(
            f"its {python} is not an ordinary build of CPython: name another one in nodes.python"
        )
    known = [expand_user(one) for one in folders]
    return next((one for one in known if [*(one / "msgspec").glob(f"*.{python.abi}.so")]), None)


@functools.cache
def runtime_for(python: PythonBuild, folder: Path) -> Runtime:
    """Return the runtime for a Python of another ABI than this one.

    Args:
        python: The Python.
        folder: What :func:`folder_for` returns.

    Raises:
        ResourceError: The folder lacks libraries; the error has the command that makes it.
    """
    missing = [one for one in LIBRARIES if not (folder / one).is_dir()]
    if missing:
        raise ResourceError(
            f"the folder {folder} of nodes.packages lacks {', '.join(missing)}: make it again by "
            f"`{packages_command(python)}`"
        )
    own = {name: path for name, path in own_runtime().files.items() if _is_sapwood(name)}
    found = {
        name: path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not _is_left_out(f"/{(name := str(path.relative_to(folder)))}")
    }
    return Runtime({**found, **own}, [], python.abi)


def packages_command(python: PythonBuild) -> str:
    """Return the command that makes a folder with libraries for another Python.

    Example:
        >>> python = PythonBuild("cpython-312-aarch64-linux-gnu", "3.12.1")
        >>> packages_command(python).split(" --platform ")[1]
        'manylinux2014_aarch64'
    """
    gnu, musl = ("manylinux2014", "manylinux_2_28", "manylinux_2_34"), ("musllinux_1_2",)
    kinds = musl if python.abi.endswith("musl") else gnu
    platforms = "".join(f" --platform {kind}_{python.architecture}" for kind in kinds)
    return (
        f"pip install --target FOLDER --only-binary=:all:{platforms} "
        f"--python-version {python.minor} {' '.join(LIBRARIES)}"
    )


def own_abi() -> str:
    """Return the ABI of this interpreter, as its extensions' names have it.

    ``sysconfig`` would say the same, but not while another thread asks it for the first time.

    Example:
        >>> own_abi().startswith("cpython-3")
        True
    """
    return EXTENSION_SUFFIXES[0].removeprefix(".").removesuffix(".so")


def _is_sapwood(name: str) -> bool:
    """Whether a file is of Sapwood, and for all architectures."""
    return is_own(name.partition("/")[0]) and not name.endswith(".so")


def _is_left_out(name: str) -> bool:
    if name.startswith(_AT_THE_HEAD):
        return True
    return any(part in name.replace("/numpy/testing/", "/numpy/") for part in _LEFT_OUT)


def _stamp(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def _pack(files: Mapping[str, Path]) -> bytes:
    """Return a tar file whose bytes depend on names and content only."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in sorted(files):
            content = files[name].read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if os.access(files[name], os.X_OK) else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
