"""Watching the sources of a program: an edit builds the new version in the background.

A thread waits for changes in the folders of the program's files. When the content has become
another one, it builds the new version for every target in use and tells whoever asked. Runs
need not know: they read the files when they begin and find the new version built, or wait for
that same build; a run that has begun keeps what it read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from sapwood.code.build import Built, build
from sapwood.code.bundle import Bundle
from sapwood.code.cache import BuildCache
from sapwood.code.load import load_program
from sapwood.code.program import Program
from sapwood.code.target import Target, host_target
from sapwood.core.errors import ProgramError, ResourceError, SapwoodError
from sapwood.core.extras import LazyModule, check_installed
from sapwood.core.failures import new_thread
from sapwood.environment.folders import expand_user

if TYPE_CHECKING:
    import watchfiles
else:
    watchfiles = LazyModule("watchfiles", "watch")

QUIET_MILLISECONDS: Final = 10
"""A change counts once no other came for this long: editors write in several steps."""

BUSY_MILLISECONDS: Final = 200
"""Longest time for which changes are gathered while more of them come."""

LOOK_MILLISECONDS: Final = 1000
"""Interval of polling the files even without notifications: some file systems send none."""

REPLACING_SECONDS: Final = 0.05
"""How long a file may be away while an editor replaces it."""

_Stamp = tuple[tuple[str, int, int, int], ...]

_NO_PARAMETERS: Final[Mapping[str, Any]] = {}


class VersionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a watched program, built or not.

    Attributes:
        number: Counts the versions from 1.
        program: The program as it was read; None when it cannot be loaded.
        builds: The builds, one for each target, as far as they came.
        error: Why it cannot be used; None when it can.
        seconds: From the change until it was ready, or known not to be.
    """

    number: int
    program: Program | None
    builds: tuple[Built, ...]
    error: SapwoodError | None
    seconds: float

    @property
    def hash(self) -> str:
        """Identity of the program; empty when it cannot be loaded."""
        return self.program.hash if self.program is not None else ""


class Watch:
    """Watches a program until it is closed; made by ``cluster.watch``.

    Use it as a context manager, or call :meth:`close`. All methods may be called from any
    thread.

    Args:
        source: A program's folder or file, or its class, whose sources are watched.
        parameters: Values of its parameters.
        targets: Returns what to build for, each time.
        cache: Where built things are kept.
        environment: Variables of the builds.
        on_version: Told each version as soon as it is known, on the thread of the watch.

    Raises:
        ConfigurationError: The package watchfiles is not installed.
    """

    def __init__(
        self,
        source: str | Path | type[Program] | Program,
        *,
        parameters: Mapping[str, Any] = _NO_PARAMETERS,
        targets: Callable[[], Sequence[Target]] = lambda: (host_target(),),
        cache: BuildCache | None = None,
        environment: Mapping[str, str] | None = None,
        on_version: Callable[[VersionInfo], object] | None = None,
    ) -> None:
        check_installed("watch", "watchfiles")
        self.source = source
        self._parameters = dict(parameters)
        self._targets = targets
        self._cache = cache if cache is not None else BuildCache()
        self._environment = environment
        self._on_version = on_version
        self._changed = threading.Condition()
        self._count = 0
        self._newest: VersionInfo | None = None
        self._stop = threading.Event()
        self._files: tuple[Path, ...] = ()
        self._thread = new_thread("sapwood-watch", self._work)
        self._thread.start()

    @property
    def version(self) -> VersionInfo | None:
        """The newest version; None until the first is known."""
        with self._changed:
            return self._newest

    def wait(self, number: int = 1, timeout: float | None = None) -> VersionInfo:
        """Wait for a version of this number or a later one and return the newest.

        Raises:
            TimeoutError: There is none after ``timeout`` seconds, or the watch was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._count >= number or self._stop.is_set(), timeout)
            if self._newest is None or self._count < number:
                raise TimeoutError(f"version {number} did not come")
            return self._newest

    def close(self) -> None:
        """Stop watching; a build that has begun is waited for."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- the thread of the watch ---------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - whoever waits gets it, and the watch ends
            reason = ResourceError(
                f"the sources cannot be watched any more: {error}",
                where=str(self.source),
                hint="sysctl fs.inotify.max_user_watches and max_user_instances are the limits",
            )
            self._publish(None, (), reason, 0.0)
            self._stop.set()

    def _watch(self) -> None:
        known = ""
        while not self._stop.is_set():
            began = time.monotonic()
            folders = _stamp(
                self._folders()
            )  # before reading: what changes meanwhile is seen later
            stamp = self._settled()
            program, error = self._load()
            identity = program.hash if program is not None else str(error)
            if known and _stamp(self._files) != stamp:
                continue  # half of an edit may have been read
            if identity != known:
                known = identity
                self._note(program, error, began)
                continue  # it may have changed meanwhile
            for _ in watchfiles.watch(
                *self._folders(),
                watch_filter=None,
                debounce=BUSY_MILLISECONDS,
                step=QUIET_MILLISECONDS,
                rust_timeout=LOOK_MILLISECONDS,
                yield_on_timeout=True,
                stop_event=self._stop,
                raise_interrupt=False,
                recursive=False,
            ):
                if _stamp(self._files) != stamp or _stamp(self._folders()) != folders:
                    break

    def _load(self) -> tuple[Program | None, SapwoodError | None]:
        for last in (False, True):
            try:
                program = load_program(self.source, self._parameters)
            except SapwoodError as error:
                if last or not isinstance(error, ProgramError):
                    return None, error
                self._stop.wait(REPLACING_SECONDS)
            else:
                self._files = tuple(_files_of(program.bundle))
                return program, None
        raise AssertionError("the loop above ends by return")

    def _note(self, program: Program | None, error: SapwoodError | None, began: float) -> None:
        builds: list[Built] = []
        if program is not None:
            try:
                for target in self._targets():
                    builds.append(  # noqa: PERF401 - what was built before an error counts
                        build(
                            program,
                            cache=self._cache,
                            environment=self._environment,
                            target=target,
                        )
                    )
            except SapwoodError as problem:
                error = problem
        self._publish(program, tuple(builds), error, time.monotonic() - began)

    def _publish(
        self,
        program: Program | None,
        builds: tuple[Built, ...],
        error: SapwoodError | None,
        seconds: float,
    ) -> None:
        with self._changed:
            self._count += 1
            version = self._newest = VersionInfo(
                number=self._count, program=program, builds=builds, error=error, seconds=seconds
            )
            self._changed.notify_all()
        if self._on_version is not None and not self._stop.is_set():
            self._on_version(version)

    def _folders(self) -> list[Path]:
        """Return the folders to watch: the files' folders, or the program's when it is broken."""
        folders = {path.parent for path in self._files}
        if isinstance(self.source, str | Path):
            named = expand_user(str(self.source).partition("::")[0]).resolve()
            folders.add(named if named.is_dir() else named.parent)
        return sorted(folder for folder in folders if folder.is_dir()) or [Path.cwd()]

    def _settled(self) -> _Stamp:
        """Return the stamp of the files once it stays the same for a moment."""
        before = None
        while (stamp := _stamp(self._files)) != before and not self._stop.is_set():
            before = stamp
            if self._newest is not None:  # the first time no edit is under way
                self._stop.wait(QUIET_MILLISECONDS / 1000)
        return stamp


def _stamp(paths: Iterable[Path]) -> _Stamp:
    """Return what changes when a file is written or replaced, or something appears in a folder."""
    return tuple(_state(path) for path in paths)


def _files_of(bundle: Bundle) -> Iterable[Path]:
    return (Path(bundle.origin) / name for name in bundle.files)


def _state(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
