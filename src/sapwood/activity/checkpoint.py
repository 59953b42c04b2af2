"""Checkpoints of runs: the state after an iteration in a file, from which a process continues.

A file is a line that names its format, the checksum of the rest, a header in msgpack and the bytes
of the arrays. It is written beside the one before and takes its place when it is whole; the one
before is kept. A checksum detects a file that was written in part.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from sapwood.code.program import Program
from sapwood.comm import values
from sapwood.core import typed
from sapwood.core.errors import DataMissingError, DataValueError, ProtocolError, SapwoodError
from sapwood.data.dataset import Dataset
from sapwood.environment.logs import logger

FORMAT: Final = 1
"""Version of the format of the file."""

MAGIC: Final = b"sapwood checkpoint\n"

FIRST_COST: Final = 0.005
"""Seconds that the first checkpoint of a small state is expected to take."""

HASHED: Final = 5e8
"""Bytes of data that are hashed in a second, at least."""

RETRY: Final = 1.0
"""Seconds that a checkpoint counts that could not be written: the next try is not too soon."""

_PREFIX = struct.Struct("<HQQ32s")
"""Format, bytes of the header, bytes of the arrays, SHA-256 of both."""

_log = logger("activity")


class _Damage(Exception):  # noqa: N818 - users get a DataValueError
    """A file is not a complete checkpoint."""


class CheckpointFiles(Protocol):
    """Where checkpoints lie: the disk, or what a simulation has in its place."""

    def write(self, file: Path, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write a new file that only its user may read; it is whole on the disk in the end.

        Raises:
            OSError: It cannot be written.
        """

    def read(self, file: Path) -> bytes:
        """Return what is in a file.

        Raises:
            OSError: It cannot be read, or is not there.
        """

    def exists(self, file: Path) -> bool:
        """Return whether a file is there."""

    def rename(self, file: Path, to: Path) -> None:
        """Put a file in the place of another one, in one step."""

    def remove(self, file: Path) -> None:
        """Remove a file if it is there."""


class _Disk:
    """The files of this machine."""

    def write(self, file: Path, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        with open(file, "wb", opener=_private) as target:
            target.writelines(pieces)
            target.flush()
            os.fsync(target.fileno())

    def read(self, file: Path) -> bytes:
        return file.read_bytes()

    def exists(self, file: Path) -> bool:
        return file.exists()

    def rename(self, file: Path, to: Path) -> None:
        file.replace(to)

    def remove(self, file: Path) -> None:
        file.unlink(missing_ok=True)


DISK: Final[CheckpointFiles] = _Disk()


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the run of a checkpoint: only the same run continues from it.

    Attributes:
        program: Hash of the program.
        parameters: Its parameters, seeds among them, as text by name.
        data: Hash of the data.
        allow_nan: Whether the data may hold NaN and infinite values.
    """

    program: str
    parameters: dict[str, str]
    data: str
    allow_nan: bool


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a checkpoint before the arrays.

    Attributes:
        version: Of Sapwood.
        identity: What it belongs to.
        iteration: Iterations that were finished.
        written: When that was, seconds since 1970.
        body: The state; its arrays lie behind the header.
        orders: Order of the axes in memory, by number, of arrays whose last axis does not vary
            fastest.
    """

    version: str
    identity: RunIdentity
    iteration: int
    written: float
    body: bytes
    orders: dict[int, tuple[int, ...]] = {}


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was after an iteration.

    Attributes:
        version: Of the Sapwood that wrote it.
        identity: What it belongs to.
        iteration: Iterations that were finished.
        written: When that was, seconds since 1970.
        state: The state then.
    """

    version: str
    identity: RunIdentity
    iteration: int
    written: float
    state: dict[str, Any]


_read_header: Callable[[bytes], _Header] = typed.unpacker(_Header)


def identity_of(program: Program, data: Dataset, *, allow_nan: bool) -> RunIdentity:
    """Return what the checkpoints of a run belong to.

    Files are identified by time and size, because agents map them; data in memory is hashed.
    """
    return RunIdentity(
        program=program.hash,
        parameters={name: repr(value) for name, value in sorted(program.parameters.items())},
        data=data.fingerprint(),
        allow_nan=allow_nan,
    )


def previous(file: Path) -> Path:
    """Return where the checkpoint before the last one is kept."""
    return file.with_name(f"{file.name}.previous")


def write_checkpoint(
    file: Path,
    identity: RunIdentity,
    iteration: int,
    state: dict[str, Any],
    files: CheckpointFiles = DISK,
) -> None:
    """Write a checkpoint; the one before is kept until the next but one.

    Raises:
        OSError: It cannot be written; the former checkpoint is kept.
        DataValueError: The state cannot travel, nor be written.
    """
    encoded = values.encode(state)
    header = msgspec.msgpack.encode(
        _Header(
            version=importlib.metadata.version("sapwood"),
            identity=identity,
            iteration=iteration,
            written=time.time(),
            body=encoded.body,
            orders=_orders(state),
        )
    )
    payload = encoded.payload()
    hasher = hashlib.sha256(header)
    hasher.update(payload)
    prefix = _PREFIX.pack(FORMAT, len(header), len(payload), hasher.digest())
    half = _half(file)
    try:
        files.write(half, (MAGIC, prefix, header, payload))
        if files.exists(file):
            files.rename(file, previous(file))
        files.rename(half, file)
    except BaseException:
        files.remove(half)
        raise


def _half(file: Path) -> Path:
    """Return where a checkpoint is written until it is whole."""
    return file.with_name(f".{file.name}.half")


def _private(path: str, flags: int) -> int:
    """Open a new file that only its user may read, where a link to another one may lie."""
    Path(path).unlink(missing_ok=True)
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def read_checkpoint(file: Path, files: CheckpointFiles = DISK) -> Checkpoint:
    """Return the last whole checkpoint of a file: the one before it where the last is damaged.

    Raises:
        DataMissingError: There is none.
        DataValueError: None is whole, or it is of a version that this one does not read.
    """
    found = _last(file, files)
    if isinstance(found, Checkpoint):
        return found
    raise found or DataMissingError(
        "the checkpoint does not exist",
        where=str(file),
        hint="the run may have ended before the first one: begin it anew",
    )


def find_checkpoint(file: Path, files: CheckpointFiles = DISK) -> Checkpoint | None:
    """Return the last whole checkpoint of a file; None if all are damaged or missing.

    Raises:
        DataValueError: It cannot be read, or is of another version: neither is damage.
    """
    found = _last(file, files)
    return found if isinstance(found, Checkpoint) else None


def _last(file: Path, files: CheckpointFiles) -> Checkpoint | DataValueError | None:
    """Return the last whole checkpoint; else what is damaged about it; None if there is none."""
    damaged: list[DataValueError] = []
    refused: list[DataValueError] = []
    for path in (file, previous(file)):
        try:
            return _parse(bytearray(files.read(path)), str(path))
        except FileNotFoundError:
            continue
        except _Damage as error:
            reason = DataValueError(str(error), where=str(path), hint="begin the run anew")
            damaged.append(reason)
        except OSError as error:
            what = f"the checkpoint cannot be read: {error.strerror}"
            reason = DataValueError(what, where=str(path))
            refused.append(reason)
        except DataValueError as error:
            reason = error
            refused.append(reason)
        _log.warning("checkpoint not used", file=str(path), reason=reason.what)
    if refused:
        raise refused[0]
    return damaged[0] if damaged else None


def _parse(data: bytearray, where: str) -> Checkpoint:
    view = memoryview(data)
    begin = len(MAGIC) + _PREFIX.size
    if not data.startswith(MAGIC) or len(data) < begin:
        raise _Damage("this is not a checkpoint")
    version, size, nbytes, checksum = _PREFIX.unpack_from(data, len(MAGIC))
    if version != FORMAT:
        raise DataValueError(
            f"the checkpoint has the format {version}, and this version of Sapwood reads {FORMAT}",
            where=where,
            hint="resume with the version that wrote it, or restart the run",
        )
    rest = view[begin:]
    if len(rest) != size + nbytes or hashlib.sha256(rest).digest() != checksum:
        raise _Damage("the checkpoint is damaged: its checksum is another one")
    try:
        header = _read_header(bytes(rest[:size]))
        _require_version(header.version, where)
        state = values.decode(header.body, rest[size:])
    except (msgspec.MsgspecError, ProtocolError) as error:
        raise _Damage(f"the checkpoint cannot be read: {error}") from error
    if type(state) is not dict:
        raise _Damage("the checkpoint has no state")
    return Checkpoint(
        version=header.version,
        identity=header.identity,
        iteration=header.iteration,
        written=header.written,
        state=_own(state, header.orders, iter(range(len(data)))),
    )


def _require_version(version: str, where: str) -> None:
    here = importlib.metadata.version("sapwood")
    if _major(version) != _major(here):
        raise DataValueError(
            f"the checkpoint is of Sapwood {version}, and this is {here}",
            where=where,
            hint="resume with that version, or restart the run",
        )


def _major(version: str) -> list[str]:
    """Return what must be the same: before 1.0 each minor version may change everything."""
    parts = version.split(".")
    return parts[:2] if parts[0] == "0" else parts[:1]


def require_same(found: RunIdentity, wanted: RunIdentity, where: str) -> None:
    """Refuse a checkpoint of something else.

    Raises:
        DataValueError: It is of another program, with other parameters, or over other data.
    """
    if found == wanted:
        return
    names = sorted(found.parameters.keys() | wanted.parameters.keys())
    changed = [
        f"{name}: {found.parameters.get(name)} then, {wanted.parameters.get(name)} now"
        for name in names
        if found.parameters.get(name) != wanted.parameters.get(name)
    ]
    what = [
        *["the program has other sources now"] * (found.program != wanted.program),
        *([f"parameters differ ({'; '.join(changed)})"] if changed else []),
        *["the data are others"] * (found.data != wanted.data),
        *["allow_nan is another"] * (found.allow_nan != wanted.allow_nan),
    ]
    raise DataValueError(
        f"the checkpoint is of another run: {', '.join(what)}",
        where=where,
        hint="run the program that wrote it, or restart without it",
    )


# --- the memory layout of arrays ------------------------------------------------------------------


def _arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the arrays of a state, always in the same order."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _arrays(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _arrays(one)


def _orders(state: Any) -> dict[int, tuple[int, ...]]:
    """Return the order of the axes of arrays whose memory layout differs from the file's.

    A sum over an array takes its items as they lie, so its last bits depend on that.
    """
    return {
        number: tuple(int(axis) for axis in np.argsort([-abs(s) for s in a.strides], kind="stable"))
        for number, a in enumerate(_arrays(state))
        if not a.flags.c_contiguous
    }


def _own(value: Any, orders: dict[int, tuple[int, ...]], numbers: Iterator[int]) -> Any:
    """Return a state with its own arrays, in the memory layout of the written ones."""
    if isinstance(value, np.ndarray):
        order = orders.get(next(numbers))
        if order is None:
            return value.copy()
        if sorted(order) != list(range(value.ndim)):
            raise _Damage("the checkpoint has an array of an impossible order")
        return np.ascontiguousarray(value.transpose(order)).transpose(np.argsort(order))
    if isinstance(value, dict):
        return {name: _own(one, orders, numbers) for name, one in value.items()}
    if isinstance(value, list):
        return [_own(one, orders, numbers) for one in value]
    if isinstance(value, tuple):
        return tuple(_own(one, orders, numbers) for one in value)
    return value


# --- when -----------------------------------------------------------------------------------------


class CheckpointWriter:
    """Writes the checkpoints of a run, as far apart as keeps them cheap.

    Args:
        file: Where the last one lies.
        share: Of the time of the run that they may take; 1 writes one after each iteration.
        identity: Returns what they belong to; asked once, when the first one is due.
        nbytes: Bytes that this has to hash.
        clock: Returns seconds.
        files: Where it lies.

    Attributes:
        count: How many were written.
        seconds: What they took.

    Raises:
        OSError: None can be written there.
    """

    def __init__(
        self,
        file: Path,
        share: float,
        identity: Callable[[], RunIdentity],
        nbytes: int,
        clock: Callable[[], float] = time.perf_counter,
        files: CheckpointFiles = DISK,
    ) -> None:
        self.file = file
        self._files = files
        self.count = 0
        self.seconds = 0.0
        self._share = share
        self._identity = identity
        self._known: RunIdentity | None = None
        self._clock = clock
        self._last = clock()
        self._cost = FIRST_COST + nbytes / HASHED
        half = _half(file)
        files.write(half, ())
        files.remove(half)

    def offer(self, iteration: int, state: dict[str, Any]) -> None:
        """Write the state after an iteration, if the last checkpoint is long enough ago.

        If a checkpoint cannot be written, this is logged, and the run continues.
        """
        begun = self._clock()
        if (begun - self._last) * self._share < self._cost * (1 - self._share):
            return
        self.write(iteration, state)

    def write(self, iteration: int, state: dict[str, Any]) -> str:
        """Write the state after an iteration now; return why it cannot be written, if it cannot."""
        begun = self._clock()
        wrong = ""
        try:
            if self._known is None:
                self._known = self._identity()
            hashed = self._clock()
            write_checkpoint(self.file, self._known, iteration, state, self._files)
        except (OSError, SapwoodError) as error:
            wrong = str(error)
            hashed = begun
            _log.warning("no checkpoint", file=str(self.file), reason=wrong)
        else:
            self.count += 1
        self._last = self._clock()
        self.seconds += self._last - begun
        self._cost = RETRY if wrong else self._last - hashed
        return wrong
