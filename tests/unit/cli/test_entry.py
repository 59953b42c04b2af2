from __future__ import annotations

import io
import os
import threading

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


@pytest.mark.parametrize("kind", ["full", "pipe", "closed"])
def test_standard_error_that_takes_nothing_raises_nothing(kind: str) -> None:
    if kind == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, descriptor = os.pipe()
        os.close(reading)
    stream = os.fdopen(descriptor, "w", encoding="ascii", closefd=False)
    tolerant = entry.tolerant(stream)
    if kind == "closed":
        os.close(descriptor)
    tolerant.write("one line\n" * 10_000)
    tolerant.flush()
    assert tolerant.encoding == "ascii"
    if kind != "closed":
        os.close(descriptor)


def test_standard_error_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    tolerant = entry.tolerant(os.fdopen(writing, "w", encoding="ascii", closefd=False))
    size = 1 << 20  # more than a pipe holds
    received = bytearray()

    def read() -> None:
        while len(received) < size:
            received.extend(os.read(reading, size))

    thread = threading.Thread(target=read)
    thread.start()
    tolerant.write("x" * size)
    tolerant.flush()
    thread.join()
    assert len(received) == size
    os.close(reading)
    os.close(writing)
