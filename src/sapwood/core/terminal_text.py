"""Text of other processes and machines, made harmless for a terminal.

Escape sequences can change the title, clipboard and scrollback of a terminal, or have it send
input. So control characters are written as carets, like ``cat -v`` does. Colours are harmless, and
are kept where the caller can end them.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

RESET: Final = "\x1b[0m"
"""Ends all colours."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_UNFINISHED: Final = re.compile(r"\x1b(\[[0-9;:]{0,64})?\Z")
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udc9f]")


def printable(text: str, *, colours: bool = False, returns: bool = False) -> str:
    r"""Return text whose control characters do nothing to a terminal.

    Line feeds and tabs stay.

    Args:
        text: The text.
        colours: Whether sequences that choose colours stay; otherwise they are removed.
        returns: Whether carriage returns stay.

    Example:
        >>> printable("done\x1b]0;owned\x07 \x1b[31mred\x1b[0m\n")
        'done^[]0;owned^G red\n'
    """
    if text.isprintable():
        return text
    parts, end = [], 0
    for found in _COLOUR.finditer(text):
        parts += [_visible(text[end : found.start()], returns), found[0] if colours else ""]
        end = found.end()
    return "".join([*parts, _visible(text[end:], returns)])


def has_colours(text: str) -> bool:
    """Whether a text chooses colours."""
    return _COLOUR.search(text) is not None


class TerminalFilter:
    r"""A stream of bytes that is made harmless for a terminal, piece by piece.

    Args:
        colours: As for :func:`printable`.
        returns: Likewise.

    Example:
        >>> stream = TerminalFilter()
        >>> stream.take(b"one \x1b[3"), stream.take(b"1mtwo\x1b[2J"), stream.rest()
        (b'one ', b'two^[[2J', b'')
    """

    def __init__(self, *, colours: bool = False, returns: bool = False) -> None:
        self._colours = colours
        self._returns = returns
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""
        self._coloured = False

    def take(self, data: bytes) -> bytes:
        """Return a piece; an unfinished sequence at its end waits for the next piece."""
        text = self._held + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        self._held = unfinished[0] if unfinished else ""
        return self._shown(text.removesuffix(self._held))

    def rest(self) -> bytes:
        """Return what still waits, and end all colours; the stream is over."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        shown = self._shown(text)
        return shown + RESET.encode() if self._coloured else shown

    def _shown(self, text: str) -> bytes:
        self._coloured = self._coloured or (self._colours and has_colours(text))
        shown = printable(text, colours=self._colours, returns=self._returns)
        return shown.encode("utf-8", "surrogateescape")


def _visible(text: str, returns: bool) -> str:  # noqa: FBT001 - by printable() alone
    return _UNSAFE.sub(_kept if returns else _caret, text)


def _kept(found: re.Match[str]) -> str:
    return "\r" if found[0] == "\r" else _caret(found)


def _caret(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    return "\N{REPLACEMENT CHARACTER}"
