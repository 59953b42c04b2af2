"""Text of others for a terminal: nothing that acts on it is left, and nothing else is lost."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.terminal_text import TerminalFilter, printable

ATTACKS = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "report": "\x1b[6n\x1b[c",
    "eight bit": "\x9b2J\x9d0;owned\x9c",
    "charset": "\x0e\x1b(0",
    "backspace": "safe\b\b\b\bevil",
    "order": "\u202etxt.exe\u2066",
    "nested": "\x1b\x1b[31m[2J",
}
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_nothing_acts_on_a_terminal(attack: str) -> None:
    assert not ACTING.search(printable(f"a{attack}b"))
    assert not ACTING.search(printable(f"a{attack}b\r\n"))
    stream = TerminalFilter()
    pieces = [stream.take(bytes([one])) for one in f"a{attack}b".encode()]
    assert not ACTING.search((b"".join(pieces) + stream.rest()).decode())


def test_bytes_that_are_no_text_stay_but_for_controls() -> None:
    stream = TerminalFilter()
    assert stream.take(b"\xff\xe9 \x9b2J \xc2") == b"\xff\xe9 \xef\xbf\xbd2J "
    assert stream.take(b"\x9b2J\n") + stream.rest() == b"\xef\xbf\xbd2J\n"


def test_colours_stay_where_they_are_ended() -> None:
    red = "\x1b[31mred"
    assert printable(red) == "red"
    assert printable(red, colours=True) == red
    stream = TerminalFilter(colours=True)
    assert stream.take(red.encode()) + stream.rest() == b"\x1b[31mred\x1b[0m"


def test_returns_stay_in_a_stream_of_one_node() -> None:
    assert printable("10 %\r20 %\r\n", returns=True) == "10 %\r20 %\r\n"
    assert printable("10 %\rn1: 20 %") == "10 %^Mn1: 20 %"


@given(st.text(), st.integers(1, 5))
@pytest.mark.slow
def test_pieces_are_as_the_whole(text: str, size: int) -> None:
    data = text.encode("utf-8", "surrogatepass")
    stream, whole = TerminalFilter(colours=True), TerminalFilter(colours=True)
    parts = [stream.take(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join(parts) + stream.rest() == whole.take(data) + whole.rest()


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf"])))
@pytest.mark.slow
def test_plain_text_is_not_changed(text: str) -> None:
    assert printable(text) == text
    assert all(unicodedata.category(one) != "Cc" for one in printable(text))
