"""The answer of a detached run: a whole file, written again while the disk is full."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sapwood.head.runs import ANSWER, PROGRESS

ANSWER_PATIENCE = 600.0
"""Seconds for which a file that cannot be written is tried again."""

PAUSE = 0.5
"""Seconds between two attempts."""


class AnswerFile(io.BytesIO):
    """A binary stream whose whole content is in a file after each flush.

    Where the file cannot be written it is tried again for :data:`ANSWER_PATIENCE`, because a full
    disk must not lose a result. After that, no flush waits any more.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._end = 0.0

    def flush(self) -> None:
        """Write what there is.

        Raises:
            OSError: The file could not be written in time.
        """
        data = self.getvalue()
        pause = threading.Event()
        while data:
            try:
                replace_file(self._path, data)
            except OSError:
                now = time.monotonic()
                self._end = self._end or now + ANSWER_PATIENCE
                if now > self._end:
                    raise
                pause.wait(PAUSE)
            else:
                return


@contextlib.contextmanager
def answering(record: Path) -> Iterator[None]:
    """Write answers of the block to the file of a detached run."""
    stream = AnswerFile(record / ANSWER)
    try:
        with contextlib.redirect_stdout(stream):  # type: ignore[type-var]  # answers are bytes
            yield
    finally:
        _record_progress(record)


def _record_progress(record: Path) -> None:
    """Write the progress that the answer has: the disk may have been full until then."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        answer = msgspec.json.decode((record / ANSWER).read_bytes())
        if isinstance(answer, dict) and answer.get("progress"):
            replace_file(record / PROGRESS, msgspec.json.encode(answer["progress"]))


def replace_file(file: Path, data: bytes) -> None:
    """Write a file that others read, all at once.

    Raises:
        OSError: It cannot be written; a former file is kept.
    """
    half = file.with_suffix(".half")
    try:
        half.write_bytes(data)
        half.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink()
        raise
