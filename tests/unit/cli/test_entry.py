from __future__ import annotations

import io
import os

import pytest

from sapwood.cli import entry, main


def test_an_interrupt_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "main", interrupted)
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "sapwood: interrupted\n"


def test_names_that_are_no_text_are_written_as_they_are() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    entry.write_anything(stream)
    stream.write(os.fsdecode(b"odd\xff \xc2\xb5s"))
    stream.flush()
    assert bytes(stream.buffer.getbuffer()) == b"odd\xff \xc2\xb5s"


def test_what_a_terminal_cannot_show_is_like_what_was_meant() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    entry.write_anything(stream)
    stream.write("✓✗ 5 µs é")
    stream.flush()
    assert bytes(stream.buffer.getbuffer()) == b"+x 5 us ?"
