"""The console script: an interrupt is an answer of its own, even while modules are imported."""

import codecs
import contextlib
import io
import os
import sys

from sapwood.cli import starting

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        write_anything(stream)
    try:
        starting.begin(sys.argv[1:])
        from sapwood.cli.main import main as run  # noqa: PLC0415 - the import may be interrupted

        starting.clear()
        run()
    except KeyboardInterrupt:
        starting.clear()
        with contextlib.suppress(OSError):
            sys.stderr.write("sapwood: interrupted\n")
        sys.exit(INTERRUPTED)


def open_closed_streams() -> None:
    """Open standard streams that are closed, as some supervisors leave them, on /dev/null.

    Else the next file that is opened would be standard error.
    """
    for name, mode in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, mode)
            text_mode = "r" if mode == os.O_RDONLY else "w"
            setattr(sys, name, os.fdopen(descriptor, text_mode, encoding="utf-8"))


def write_anything(stream: object) -> None:
    """Make a text stream write something like what its encoding lacks, instead of failing.

    Where all characters can be written, names of files that are no text are written as their bytes.

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
