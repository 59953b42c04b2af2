"""One stream at one place: its open waves, and what this place contributed.

Contributors keep their contribution until a later wave confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.streams.wave import NewGathering, Wave


class Stream:
    """State of a stream at one place.

    Args:
        spec: What the stream is.
        children: Children of this place with members at or below them.
        gather: Makes the gathering of each wave.
    """

    __slots__ = ("children", "gather", "held", "last_wave", "spec", "waves")

    def __init__(self, spec: StreamSpec, children: Iterable[int], gather: NewGathering) -> None:
        self.spec = spec
        self.gather = gather
        self.children = tuple(children)
        self.waves: dict[int, Wave] = {}
        self.held: dict[int, Payload] = {}
        self.last_wave = 0

    def begin(self, number: int, attempt: int, body: bytes, payload: Payload | None) -> Wave:
        """Begin a wave that all children of this place take part in."""
        waiting = dict.fromkeys(self.children, attempt)
        wave = Wave(number, attempt, body, payload, waiting, self.gather(self.spec.reduce))
        self.waves[number] = wave
        self.last_wave = max(self.last_wave, number)
        return wave

    def confirmed(self) -> int:
        """Highest wave such that it and all before it are complete."""
        return min(self.waves, default=self.last_wave + 1) - 1

    def release(self, confirmed: int) -> list[Payload]:
        """Return the contributions that nobody needs any more, and forget them."""
        done = [number for number in self.held if number <= confirmed]
        return [self.held.pop(number) for number in done]

    def __repr__(self) -> str:
        return f"Stream({self.spec.stream} {self.spec.handler}, {len(self.waves)} waves open)"
