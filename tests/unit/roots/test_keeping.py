"""What a root keeps while nobody is attached."""

from __future__ import annotations

from sapwood.roots import wire
from sapwood.roots.keeping import KeptOutput


def test_the_last_output_of_each_agent_is_kept_and_the_rest_is_counted() -> None:
    kept = KeptOutput(10)
    kept.add(1, b"abcdef")
    kept.add(1, b"ghijkl")
    kept.add(2, b"x" * 25)
    assert (kept.nbytes, kept.dropped) == (16, {1: 6, 2: 15})
    assert list(kept.take(1)) == [
        wire.OutputDropped({1: 6, 2: 15}),
        wire.PlaceWrote(1, b"ghijkl"),
        wire.PlaceWrote(2, b"x" * 10),
    ]
    assert (kept.nbytes, kept.dropped, list(kept.take(1))) == (0, {}, [])
