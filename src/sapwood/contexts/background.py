"""Processes that a command starts in the background: what they say before it returns, and logs.

It imports little: the process in the background imports what it needs.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ErrorRecord, ResourceError, SapwoodError
from sapwood.environment.interpreter import python_command

LOG_END = 2000
"""Characters of its log that are shown if it ends without a word."""

MAX_LOG = 2**20
"""Bytes of a log file; a longer one is rotated, and the former rotated one is removed."""

LOOK = 0.5
"""Seconds between two words about a process that is waited for."""

END_PATIENCE = 30.0
"""Seconds that it gets to end when the command is interrupted."""


class Failure(msgspec.Struct, frozen=True):
    """It cannot do what it was started for."""

    error: ErrorRecord


_read_failure: Callable[[bytes], Failure] = typed.json_reader(Failure)


def own_command(*words: str) -> list[str]:
    """Return the words that run Sapwood by this interpreter, whatever the current folder holds."""
    return python_command("-m", "sapwood", *words)


def start(
    words: Sequence[str],
    log: Path,
    given: bytes,
    timeout: float,
    waiting: Callable[[float], None] = lambda _seconds: None,
) -> bytes:
    """Start a process that stays, and return the line that it says when it is ready.

    Args:
        words: Its command; ``--ready-descriptor`` and a number are added.
        log: What it writes is added to this file.
        given: Its standard input.
        timeout: Seconds until it must be ready.
        waiting: Told every :data:`LOOK` seconds for how long it has been waited for.

    Raises:
        SapwoodError: It said why it cannot do this.
        ResourceError: It cannot be started, or is not ready in time.
    """
    _put_aside(log)
    log.touch(mode=0o600)
    reading, writing = os.pipe()
    try:
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*words, "--ready-descriptor", str(writing)],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                pass_fds=[writing],
                start_new_session=True,
            )
    except OSError as error:
        os.close(reading)
        raise ResourceError(f"cannot start a process: {error.strerror}") from error
    finally:
        os.close(writing)
    try:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(given)
        line = _read_line(reading, timeout, waiting)
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_PATIENCE)
        raise
    finally:
        os.close(reading)
    if not line:
        _explain(process, log, timeout)
    try:
        failure = _read_failure(line)
    except msgspec.ValidationError:
        process.returncode = 0  # it stays, and is not waited for here
        return line
    process.wait()
    raise SapwoodError.from_record(failure.error)


def tell(descriptor: int, message: msgspec.Struct) -> bool:
    """Tell the command that started this process; return whether it is there to hear that.

    Args:
        descriptor: What ``--ready-descriptor`` says.
        message: That it is ready, or a :class:`Failure`.
    """
    try:
        os.write(descriptor, msgspec.json.encode(message) + b"\n")
        os.close(descriptor)
    except OSError:
        return False
    return True


def _put_aside(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > MAX_LOG:
            log.replace(log.with_name(f"{log.name}.1"))


def _read_line(descriptor: int, timeout: float, waiting: Callable[[float], None]) -> bytes:
    """Return the next line of a descriptor; nothing if the other side ends or is too slow."""
    data = b""
    begun = time.monotonic()
    while not data.endswith(b"\n"):
        waited = time.monotonic() - begun
        ready, _, _ = select.select([descriptor], [], [], max(0.0, min(LOOK, timeout - waited)))
        if ready:
            more = os.read(descriptor, 65536)
            if not more:
                return b""
            data += more
        elif waited >= timeout:
            return b""
        else:
            waiting(time.monotonic() - begun)
    return data


def _explain(process: subprocess.Popen[bytes], log: Path, timeout: float) -> None:
    """Raise an error that says why a process did not become ready."""
    try:
        status: int | None = process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        status = None
    said = log.read_text("utf-8", "replace")[-LOG_END:]
    raise ResourceError(
        f"the process in the background was not ready within {timeout:g} s"
        if status is None
        else f"the process in the background ended with status {status}",
        where=str(log),
        details={"end of its log": said} if said else {},
    )
