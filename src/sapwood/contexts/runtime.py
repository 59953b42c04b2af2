"""The runtime as an archive: what a node needs of Sapwood, and of the libraries that it uses.

The archive is made once, of the files that this interpreter has, and known by its hash. It fits
nodes whose Python has the same ABI. Nothing is resolved or installed on a node.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import sys
import sysconfig
import tarfile
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from sapwood.core.errors import ResourceError

LIBRARIES = ("msgspec", "numpy", "cloudpickle", "structlog", "psutil", "cryptography", "cffi")
"""Libraries that nodes use; parsers of languages, tables and colours stay at the head."""

_LEFT_OUT = ("/tests/", "/__pycache__/", "/testing/", "/docs/", "/include/", "/_pyinstaller/")
"""Parts of libraries that nobody needs on a node."""


class Runtime:
    """The runtime of this interpreter.

    Args:
        files: Where the files of the archive lie, by their names in it.
        stamps: Some of them, by which a node tells whether it sees the same files.

    Attributes:
        identity: A hash of what the archive is made of; nodes keep it under this name.
    """

    def __init__(self, files: Mapping[str, Path], stamps: Sequence[Path]) -> None:
        self._files = dict(files)
        self._stamps = [_stamp(path) for path in stamps]
        self._lock = threading.Lock()
        self._archive: tuple[bytes, str] | None = None
        listing = [(name, *_stamp(path)[1:]) for name, path in sorted(self._files.items())]
        self.identity = hashlib.sha256(repr((listing, _abi())).encode()).hexdigest()

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
            "abi": _abi(),
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


def _abi() -> str:
    return str(sysconfig.get_config_var("SOABI") or "")


def _is_left_out(name: str) -> bool:
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
