"""What a place knows of one stream: its counters."""

from __future__ import annotations

from sapwood.comm.payload import Payload
from sapwood.comm.streams.stream import Counters


def test_counters_begin_at_nothing_and_count_bodies_and_arrays() -> None:
    counters = Counters()
    assert [getattr(counters, name) for name in Counters.__slots__] == [0] * 8
    counters.down(b"abc", None)
    counters.down(b"abc", Payload(b"12345"))
    counters.up(b"ab", None)
    counters.up(b"ab", Payload(b"1"))
    counters.offered(b"a", 100)
    assert (counters.messages_down, counters.bytes_down) == (2, 3 + 3 + 5)
    assert (counters.messages_up, counters.bytes_up) == (3, 2 + 2 + 1 + 1 + 100)
    assert (counters.filtered, counters.late, counters.repeated) == (0, 0, 0)
