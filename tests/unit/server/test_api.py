"""What endpoints make of the files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.head.calls import RunRecord
from sapwood.head.runs import OUTPUT
from sapwood.server import api


def record_in(folder: Path, state: str) -> RunRecord:
    facts: dict[str, Any] = {"id": "ab", "program": "p", "session": "", "created": 0.0}
    return RunRecord(**facts, folder=str(folder), state=state, machine="")


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_output_comes_in_pieces_that_cut_no_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(api, "MAX_OUTPUT", size)
    printed = "größer 😀 als — ﬁ"
    (tmp_path / OUTPUT).write_bytes(printed.encode())
    record, after, found = record_in(tmp_path, "done"), 0, ""
    while (piece := api._piece(record, after)).more:
        assert piece.next > after
        after, found = piece.next, found + piece.text
    assert found + piece.text == printed


def test_the_begin_of_a_character_waits_for_its_end(tmp_path: Path) -> None:
    """An agent prints while a client reads."""
    first, rest = "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve".encode()[:3], b"\xafve"
    (tmp_path / OUTPUT).write_bytes(first)
    piece = api._piece(record_in(tmp_path, "running"), 0)
    assert (piece.text, piece.next, piece.more) == ("na", 2, False)
    assert api._piece(record_in(tmp_path, "done"), 0).text == "na\N{REPLACEMENT CHARACTER}"
    (tmp_path / OUTPUT).write_bytes(first + rest)
    assert api._piece(record_in(tmp_path, "running"), 2).text == "\u00efve"
