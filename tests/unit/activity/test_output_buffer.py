"""Output on its way to the client: bounded, in order, and nothing is lost silently."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sapwood.activity.output_buffer import OutputBuffer

LINES = st.lists(st.text("ab", max_size=9).map(lambda text: f"{text}\n".encode()), max_size=30)


@given(LINES, st.integers(1, 60))
def test_what_is_kept_and_what_was_dropped_is_everything(lines: list[bytes], limit: int) -> None:
    printed = OutputBuffer(limit)
    for line in lines:
        printed.add(line)
    taken = printed.take()
    everything = b"".join(lines)
    note = re.match("… ([0-9]+) bytes left out …\n".encode(), taken)
    kept = taken[note.end() :] if note else taken
    assert everything.endswith(kept)
    assert len(kept) <= limit
    assert len(everything) - len(kept) == (int(note[1]) if note else 0)
    assert printed.take() == b""


def test_it_is_cut_between_lines() -> None:
    printed = OutputBuffer(10)
    printed.add(b"first\nsecond\nlast\n")
    assert printed.take().endswith(" …\nlast\n".encode())


def test_a_note_begins_a_line() -> None:
    printed = OutputBuffer(4)
    printed.add(b"half")
    printed.take()
    printed.add(b"ly\nnext\n1\n")
    assert printed.take() == "\n… 8 bytes left out …\n1\n".encode()


def test_one_long_line_keeps_its_end() -> None:
    printed = OutputBuffer(4)
    printed.add(b"0123456789")
    assert printed.take().endswith(b"\n6789")
