"""One stream at one place: waves down, contributions up, reduced on the way.

A wave is exactly once: a contribution is known by (stream, wave, attempt, child); what comes
twice or from an older attempt is dropped. Contributors keep their contribution until a later
wave confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sapwood.comm import values
from sapwood.comm.messages import StreamSpec, Up
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import Accumulator
from sapwood.core.rankset import Ranges, joined


class Wave:
    """A wave that waits for contributions.

    Args:
        number: Counts the waves of its stream from 1.
        attempt: Attempt in which this place was asked.
        body: The value that went down.
        payload: Its arrays.
        waiting: Attempt that is expected of each child that has not contributed.
        accumulator: What came so far.
    """

    __slots__ = (
        "_ranks",
        "accumulator",
        "attempt",
        "body",
        "number",
        "payload",
        "waiting",
        "weight",
    )

    def __init__(
        self,
        number: int,
        attempt: int,
        body: bytes,
        payload: Payload | None,
        waiting: dict[int, int],
        accumulator: Accumulator,
    ) -> None:
        self.number = number
        self.attempt = attempt
        self.body = body
        self.payload = payload
        self.waiting = waiting
        self.accumulator = accumulator
        self._ranks: list[tuple[int, int]] = []
        self.weight = 0.0

    @property
    def ranks(self) -> Ranges:
        """Agents whose contributions are in."""
        return joined(self._ranks)

    def accepts(self, child: int, attempt: int) -> bool:
        """Whether a contribution of a child in an attempt is wanted."""
        return self.waiting.get(child) == attempt

    def add(self, child: int, message: Up, payload: Payload | None) -> bool:
        """Take a contribution in; return whether it was the last one that was missing."""
        value = values.decode(message.body, payload.view if payload is not None else b"")
        self.accumulator.add(value, message.ranks[0][0], message.weight)
        del self.waiting[child]
        self._ranks += message.ranks
        self.weight += message.weight
        return not self.waiting

    def __repr__(self) -> str:
        return f"Wave({self.number}, attempt {self.attempt}, waits for {sorted(self.waiting)})"


class Stream:
    """State of a stream at one place.

    Args:
        spec: What the stream is.
        children: Children of this place with members at or below them.
    """

    __slots__ = ("children", "held", "last_wave", "spec", "waves")

    def __init__(self, spec: StreamSpec, children: Iterable[int]) -> None:
        self.spec = spec
        self.children = tuple(children)
        self.waves: dict[int, Wave] = {}
        self.held: dict[int, Payload] = {}
        self.last_wave = 0

    def begin(self, number: int, attempt: int, body: bytes, payload: Payload | None) -> Wave:
        """Begin a wave that all children of this place take part in."""
        waiting = dict.fromkeys(self.children, attempt)
        wave = Wave(number, attempt, body, payload, waiting, Accumulator(self.spec.reduce))
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
