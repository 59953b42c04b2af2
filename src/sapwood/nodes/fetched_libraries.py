"""Libraries for machines whose Python differs from this one, fetched when they are needed.

They come from the user's package index, as wheels of the versions that are installed here, and stay
in the build cache: each kind of Python is fetched for once. Machines resolve and install nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from importlib import metadata
from pathlib import Path
from typing import Final

from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.interruption import run_to_end
from sapwood.code.locked_packages import PACKAGES, MachineKind, find_uv
from sapwood.contexts.runtime import LIBRARIES, PythonBuild, packages_command
from sapwood.core.errors import CancelledError, InputError, ResourceError
from sapwood.core.futures import CallerFuture
from sapwood.environment.interpreter import python_command
from sapwood.environment.logs import logger
from sapwood.environment.settings import CacheSettings

FETCH_SECONDS: Final = 300.0
"""Longest time that fetching the libraries for one kind of Python may take."""

FETCH_RETRIES: Final = 2
"""How often pip asks an index again that does not answer."""

MAX_SAID: Final = 300
"""Characters of what pip says that an error shows."""

OLDEST_GLIBC: Final = {"x86_64": 5, "aarch64": 17}
"""The oldest versions 2.N of glibc for which there are wheels."""

_NO_NETWORK = (
    *("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ReadTimeout", "ProxyError"),
    *("Connection refused", "SSLError", "error sending request", "dns error"),
    *("Network connectivity is disabled", "Failed to fetch"),
)
_NO_WHEEL = ("No matching distribution", "No solution found", "no wheels")

_log = logger("nodes")


class FetchedLibraries:
    """The libraries for other Pythons that were requested so far.

    Args:
        cache: Where they are kept.
    """

    def __init__(self, cache: CacheSettings) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._wanted: dict[PythonBuild, Future[CacheEntry]] = {}

    def folder(self, python: PythonBuild, host: str) -> Path:
        """Return the folder with the libraries for a Python; of several threads one fetches them.

        Args:
            python: The Python.
            host: The machine that has it, as users name it.

        Raises:
            ResourceError: They cannot be had; the error says what to do about that.
            CancelledError: The thread was interrupted.
        """
        while True:
            with self._lock:
                wanted = self._wanted.get(python)
                mine = wanted is None
                if wanted is None:
                    wanted = self._wanted[python] = CallerFuture()
            if mine:
                self._fetch(python, host, wanted)
            try:
                return wanted.result().path(PACKAGES)  # the entry stays, as long as this does
            except CancelledError:
                if mine:  # else it was another thread that was interrupted
                    raise

    def _fetch(self, python: PythonBuild, host: str, wanted: Future[CacheEntry]) -> None:
        try:
            wanted.set_result(self._entry(python, host))
        except BaseException as error:
            with self._lock:
                del self._wanted[python]  # the next who comes tries again
            wanted.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _entry(self, python: PythonBuild, host: str) -> CacheEntry:
        cache = BuildCache(self._cache.path(), size_limit=self._cache.size)
        pinned = tuple(_pinned())
        try:
            kind = MachineKind.of(python.architecture, python.c_library, python.version)
        except InputError as error:
            raise _failed(python, error.what) from None

        def fill(folder: Path, scratch: Path) -> dict[str, str]:
            _log.info("fetching libraries", host=host, python=python.version, abi=python.abi)
            try:
                _install(pinned, kind, folder / PACKAGES, scratch)
            except _NoWheelError:
                _log.info("other versions than here", host=host, python=python.version)
                _install(tuple(_required()), kind, folder / PACKAGES, scratch)
            return {"language": f"python {kind.python} {kind.platform}", "sources": "sapwood"}

        parts = ("libraries", kind.platform, python.abi, *pinned)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        try:
            return cache.get_or_build(key, fill)
        except _FetchError as error:
            raise _failed(python, str(error)) from None


class _FetchError(Exception):
    """The libraries cannot be had: why."""


class _NoWheelError(_FetchError):
    """A version has no wheel."""


def _pinned() -> Iterator[str]:
    """Yield requirements of the versions that are installed here."""
    for name in LIBRARIES:
        try:
            yield f"{name}=={metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield name


def _required() -> Iterator[str]:
    """Yield Sapwood's own requirements, for versions without wheels."""
    known = {}
    for line in metadata.requires("sapwood") or ():
        found = re.match(r"([\w.-]+)([^;]*)$", line)
        if found is not None:
            known[found[1].lower()] = found[1] + found[2].strip()
    yield from (known.get(name, name) for name in LIBRARIES)


def _install(wanted: Sequence[str], kind: MachineKind, folder: Path, scratch: Path) -> None:
    """Install wheels for other machines into a folder.

    Raises:
        _FetchError: They cannot be had.
    """
    variables = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PIP_USER": "0",  # the folder is not an environment, whatever the user's settings say
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    try:
        command = [*_installer(kind, folder), *wanted]
        status, said = run_to_end(command, scratch, variables, FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise _FetchError(f"the index did not give them within {FETCH_SECONDS:g} s") from None
    except ResourceError as error:
        raise _FetchError(error.what) from None
    if not status:
        return
    if any(text in said for text in _NO_NETWORK):
        raise _FetchError("the package index is not reached")
    problem = _NoWheelError if any(text in said for text in _NO_WHEEL) else _FetchError
    raise problem(f"the installer says: {_reason(said)}")


def _reason(said: str) -> str:
    """Return what an installer says from its first error on, in one line."""
    start = next((said.find(word) for word in ("ERROR:", "error:") if word in said), 0)
    words = said[start:].replace("\u2570\u2500\u25b6", "").split()  # uv draws an arrow
    return " ".join(words)[:MAX_SAID] or "nothing"


def _installer(kind: MachineKind, folder: Path) -> list[str]:
    """Return the command, less the requirements: of pip, or else of uv.

    Raises:
        ResourceError: There is neither.
    """
    if importlib.util.find_spec("pip") is None:
        try:
            uv = find_uv()
        except ResourceError:
            raise ResourceError(f"{sys.executable} has no pip, and uv is missing") from None
        words = ["pip", "install", "--target", str(folder), "--no-build", "--quiet"]
        words += ["--no-progress", "--color", "never", "--python", sys.executable]
        return [uv, *words, "--python-version", kind.python, "--python-platform", kind.platform]
    words = ["install", "--target", str(folder), "--only-binary=:all:", "--quiet", "--no-input"]
    words += ["--no-compile", "--disable-pip-version-check", "--root-user-action=ignore"]
    words += ["--retries", str(FETCH_RETRIES), "--python-version", kind.python]
    words += ["--implementation", "cp"]
    for tag in platform_tags(kind):
        words += ["--platform", tag]
    return python_command("-m", "pip", *words)


def platform_tags(kind: MachineKind) -> list[str]:
    """Return the platforms whose wheels run on a kind of machines, the newest first.

    Example:
        >>> platform_tags(MachineKind("aarch64-manylinux_2_28", "3.12"))[::11]
        ['manylinux_2_28_aarch64', 'manylinux_2_17_aarch64']
        >>> platform_tags(MachineKind("x86_64-unknown-linux-musl", "3.12"))
        ['musllinux_1_2_x86_64', 'musllinux_1_1_x86_64']
    """
    architecture, _, rest = kind.platform.partition("-")
    if not rest.startswith("manylinux_2_"):
        return [f"musllinux_1_{minor}_{architecture}" for minor in (2, 1)]
    newest = int(rest.removeprefix("manylinux_2_"))
    glibc = range(newest, OLDEST_GLIBC[architecture] - 1, -1)
    names = [f"manylinux_2_{minor}" for minor in glibc]
    names += ["manylinux2014"]
    if architecture == "x86_64":
        names += ["manylinux2010", "manylinux1"]
    return [f"{name}_{architecture}" for name in names]


def _failed(python: PythonBuild, why: str) -> ResourceError:
    return ResourceError(
        f"its {python} needs other libraries than the Python here, and {why}: name a Python "
        f"{sys.version_info.major}.{sys.version_info.minor} of that machine in nodes.python; or "
        f"make a folder, on a machine that reaches an index, by `{packages_command(python)}` and "
        "name it in nodes.packages"
    )
