"""Where answers go while a program may print: JSON stays alone on standard output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final, TextIO

_kept: Final[list[TextIO]] = []


@contextlib.contextmanager
def answers_alone() -> Iterator[None]:
    """Let everything that is printed go to standard error, but for answers."""
    _kept.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


def answer_stream() -> TextIO:
    """Return the stream that answers are written to."""
    return _kept[-1] if _kept else sys.stdout
