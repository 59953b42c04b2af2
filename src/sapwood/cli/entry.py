"""The console script: an interrupt has a separate exit code, even while modules are imported."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from sapwood.cli import starting

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    standard_error = sys.__stderr__
    if standard_error is not None and sys.stderr is standard_error:
        sys.stderr = tolerant(standard_error)
    for stream in (sys.stdout, sys.stderr):
        write_anything(stream)
    try:
        starting.begin(sys.argv[1:])
        from sapwood.cli.main import main as run  # noqa: PLC0415 - the import may be interrupted

        run()
    except KeyboardInterrupt:
        starting.clear()
        sys.stderr.write("sapwood: interrupted\n")
        sys.exit(INTERRUPTED)
    except OSError as error:  # standard output takes no more, while a command is looked for
        from sapwood.cli.failures import show_error  # noqa: PLC0415 - as above

        sys.exit(1 if isinstance(error, BrokenPipeError) else show_error(error))
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # reported where it was written; the interpreter must not fail again
            from sapwood.cli.present import discard  # noqa: PLC0415 - as above

            discard(sys.stdout)


class _TolerantFile(io.FileIO):
    """A file for which the bytes that it does not take are lost without an exception."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            while (written := super().write(data)) is None:  # it does not block, and is full
                select.select([], [self], [])
        except OSError:
            return memoryview(data).nbytes
        return written


def tolerant(stream: TextIO) -> TextIO:
    """Return a standard stream once more, one to which a write never raises.

    Standard error may be on a full disk, or a pipe without a reader. No command ends, and no run
    is lost, because a message cannot be written.
    """
    with contextlib.suppress(OSError):
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_TolerantFile(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def open_closed_streams() -> None:
    """Open standard streams that are closed, as some supervisors leave them, on /dev/null.

    Else the next file that is opened would be standard error.
    """
    for name, mode in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, mode)
            text_mode = "r" if mode == os.O_RDONLY else "w"
            stream = os.fdopen(descriptor, text_mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def write_anything(stream: object) -> None:
    """Make a text stream write something like what its encoding lacks, instead of failing.

    Where all characters can be written, names of files that are not text are written as their
    bytes.

    Example:
        >>> ascii = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        >>> write_anything(ascii)
        >>> ascii.write("5 µs"), ascii.flush(), ascii.buffer.getvalue()
        (4, None, b'5 us')
    """
    if isinstance(stream, io.TextIOWrapper):
        whole = codecs.lookup(stream.encoding).name == "utf-8"
        stream.reconfigure(errors="surrogateescape" if whole else _SIMILAR)


_SIMILAR = "sapwood-similar"
_STAND_INS = {"µ": "u", "✓": "+", "✗": "x", "…": "...", "→": ">"}


def _similar(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in lacking), error.end


codecs.register_error(_SIMILAR, _similar)
