"""The runtime as an archive: what a node needs of Sapwood, and of the libraries that it uses.

The archive is made once, of the files that this interpreter has, and known by its hash. It fits
nodes whose Python has the same ABI. For those of another architecture, the libraries come from a
folder that the user has made. Nothing is resolved or installed on a node.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import sys
import tarfile
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from sapwood.core.errors import ResourceError

LIBRARIES = ("msgspec", "numpy", "cloudpickle", "structlog", "psutil", "cryptography", "cffi")
"""Libraries that nodes use; parsers of languages, tables and colours stay at the head."""

_LEFT_OUT = ("/tests/", "/__pycache__/", "/testing/", "/docs/", "/include/", "/_pyinstaller/")
"""Parts of libraries that nobody needs on a node."""

_AT_THE_HEAD = "/sapwood/server/"
"""What of Sapwood nobody needs there."""


class Runtime:
    """The runtime of this interpreter.

    Args:
        files: Where the files of the archive lie, by their names in it.
        stamps: Some of them, by which a node tells whether it sees the same files.
        abi: Of the Pythons that it is for; by default that of this one.

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
        """Return what the stub on a node is told first.

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
    home = Path(__file__).parents[1]
    for path in sorted(home.rglob("*")):
        name = f"sapwood/{path.relative_to(home)}"
        if path.is_file() and not _is_left_out(f"/{name}"):
            files[name] = path
    stamps = [home / "__init__.py"]
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


@functools.cache
def runtime_for(abi: str, version: str, folders: tuple[str, ...]) -> Runtime:
    """Return the runtime for a Python of another ABI than this one.

    Args:
        abi: That of the Python, for example ``cpython-311-aarch64-linux-gnu``.
        version: Its version, for people.
        folders: Those with libraries for other machines; each is for one ABI.

    Raises:
        ResourceError: There is none; the error says why, and what to do about it.
    """
    here, minor = own_abi(), f"{sys.version_info.major}.{sys.version_info.minor}"
    if abi.split("-")[:2] != here.split("-")[:2]:
        raise ResourceError(
            f"its Python is {version} ({abi}), and that of the head is {minor} ({here}): name a "
            f"Python {minor} of that machine in nodes.python, for functions do not travel between "
            "versions"
        )
    known = [Path(one).expanduser() for one in folders]
    fitting = [one for one in known if [*(one / "msgspec").glob(f"*.{abi}.so")]]
    if not fitting:
        raise ResourceError(
            f"its Python is {version} for {abi}, for which the head has no libraries: make a "
            f"folder by `{packages_command(abi, minor)}` and name it in nodes.packages"
        )
    folder = fitting[0]
    missing = [one for one in LIBRARIES if not (folder / one).is_dir()]
    if missing:
        raise ResourceError(
            f"the folder {folder} of nodes.packages lacks {', '.join(missing)}: make it again by "
            f"`{packages_command(abi, minor)}`"
        )
    own = {name: path for name, path in own_runtime().files.items() if _is_sapwood(name)}
    found = {
        name: path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not _is_left_out(f"/{(name := str(path.relative_to(folder)))}")
    }
    return Runtime({**found, **own}, [], abi)


def packages_command(abi: str, minor: str) -> str:
    """Return the command that makes a folder with libraries for machines of another architecture.

    Example:
        >>> packages_command("cpython-311-aarch64-linux-gnu", "3.11").split(" --platform ")[1]
        'manylinux2014_aarch64'
    """
    _, _, architecture, *rest = [*abi.split("-"), "", "", ""]
    gnu, musl = ("manylinux2014", "manylinux_2_28", "manylinux_2_34"), ("musllinux_1_2",)
    kinds = musl if "musl" in rest else gnu
    platforms = "".join(f" --platform {kind}_{architecture}" for kind in kinds)
    return (
        f"pip install --target FOLDER --only-binary=:all:{platforms} --python-version {minor} "
        f"{' '.join(LIBRARIES)}"
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
    return name.partition("/")[0].startswith("sapwood") and not name.endswith(".so")


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
