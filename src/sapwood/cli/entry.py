"""The console script: an interrupt is an answer of its own, even while modules are imported."""

import codecs
import io
import sys

from sapwood.cli import starting

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        write_anything(stream)
    try:
        starting.begin(sys.argv[1:])
        from sapwood.cli.main import main as run  # noqa: PLC0415 - the import may be interrupted

        starting.clear()
        run()
    except KeyboardInterrupt:
        starting.clear()
        sys.stderr.write("sapwood: interrupted\n")
        sys.exit(INTERRUPTED)


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
