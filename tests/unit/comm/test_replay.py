"""What a shortcut sent is written again by the protocol's core, and not sent twice."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.comm.replay import Expectation, Sent
from sapwood.core.errors import SapwoodError


def test_only_what_was_not_sent_is_sent() -> None:
    written: list[Any] = []
    expected = Expectation([Sent(b"abcd", 4), Sent(b"efgh", 1)], written.extend)
    expected.write([b"ab", b"cd"])
    assert written == []
    expected.write([b"efgh"])
    assert [bytes(one) for one in written] == [b"fgh"]
    expected.write([b"new"])
    assert [bytes(one) for one in written] == [b"fgh", b"new"]
    expected.check()


def test_another_message_goes_out_between_whole_ones_only() -> None:
    written: list[Any] = []
    expected = Expectation([Sent(b"abcd", 4), Sent(b"efgh", 1)], written.extend)
    expected.write([b"other"])
    assert written == [b"other"]
    expected.write([b"abcd"])
    with pytest.raises(SapwoodError, match="should have been another"):
        expected.write([b"other"])


def test_what_is_not_written_again_is_an_error() -> None:
    expected = Expectation([Sent(b"abcd", 4)], lambda _buffers: None)
    with pytest.raises(SapwoodError, match="1 messages were sent by a shortcut"):
        expected.check()
