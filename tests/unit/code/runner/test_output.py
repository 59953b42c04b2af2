import asyncio
import os
from collections.abc import Iterator

import pytest

from sapwood.code.runner import output as module
from sapwood.code.runner.output import OutputCapture


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_what_is_printed_is_kept_up_to_the_limit(loop: asyncio.AbstractEventLoop) -> None:
    seen = bytearray()
    capture = OutputCapture(loop, 10, seen.extend)
    os.write(capture.write_end, b"0123456789abcdef")
    capture.drain()
    assert capture.text() == "… 6 bytes left out …\n6789abcdef"
    assert bytes(seen) == b"0123456789abcdef"
    capture.close()


def test_gigabytes_are_not_passed_on(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PASSED_ON", 8)
    seen: list[bytes] = []
    capture = OutputCapture(loop, 100, seen.append)
    for _ in range(2):
        for part in (b"12345678", b"more", b"and more"):
            os.write(capture.write_end, part)
            capture.drain()
        assert capture.text() == "12345678moreand more"
        capture.begin()
    capture.close()
    assert [len(part) for part in seen] == [8, 43, 8, 43]
    assert b"not shown" in seen[1]


def test_a_new_call_begins_with_nothing(loop: asyncio.AbstractEventLoop) -> None:
    capture = OutputCapture(loop, 10)
    os.write(capture.write_end, b"0123456789abcdef")
    capture.drain()
    capture.begin()
    assert capture.text() == ""
    capture.close()


def test_broken_text_is_shown_as_well_as_it_can_be(loop: asyncio.AbstractEventLoop) -> None:
    capture = OutputCapture(loop, 100)
    os.write(capture.write_end, "ä".encode()[:1] + b"ok")
    capture.drain()
    assert capture.text().endswith("ok")
    capture.close()


def test_closing_twice_closes_nothing_else(loop: asyncio.AbstractEventLoop) -> None:
    capture = OutputCapture(loop, 100)
    read, write = capture._read, capture.write_end
    capture.close()
    capture.close()
    for descriptor in (read, write):
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_the_last_line_of_a_runner_is_ended(loop: asyncio.AbstractEventLoop) -> None:
    seen = bytearray()
    capture = OutputCapture(loop, 100, seen.extend)
    os.write(capture.write_end, b"one\ntw")
    capture.drain()
    capture.close()
    capture.close()
    assert bytes(seen) == b"one\ntw\n"
