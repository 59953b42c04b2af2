"""Time-outs of the waves of one stream at one place, and waves whose time is over. State only."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container

from sapwood.comm.messages import LATE_IN_NEXT, TIME_OUT, Failed, StreamSpec, Up
from sapwood.comm.payload import Payload
from sapwood.comm.streams.wave import Wave

LATE_WAVES = 64
"""Waves whose time is over of which a place remembers who was missing."""

TIME_LOST_PER_LEVEL = 0.1
"""Part of a time-out by which each level passes on earlier than the one above it."""

SHORTEST_PART = 0.3
"""Part of a time-out that even the deepest place waits."""


def time_at(seconds: float, depth: int) -> float:
    """Return how long a place of some depth waits for a wave of a stream with a time-out.

    A place answers before the time above it is over. Where the way up takes longer than the
    difference, all below that place are late above, and not only whom it waited for.

    Example:
        >>> [round(time_at(1.0, depth), 1) for depth in (0, 1, 2, 9)]
        [1.0, 0.9, 0.8, 0.3]
    """
    return seconds * max(SHORTEST_PART, 1.0 - TIME_LOST_PER_LEVEL * depth)


class LateWaves:
    """The time-outs of a stream at one place, and its waves whose time was over before all came.

    Args:
        spec: What the stream is.
        depth: Levels between this place and the root.
        is_root: Whether this place is the root, which owns the values of waves.

    Attributes:
        timeout: Seconds that this place waits for a wave; 0 without a time-out.
        counts: Whether late contributions count, in a later wave.
        waves: Waves whose time was over before all had contributed.
        for_next: Root: late contributions, and failures in their place, that wait for a wave.
        deadlines: When which wave's time is over.
        wake_at: When the wake-up that is under way is due; minus infinity without one.
    """

    __slots__ = ("_owns_values", "counts", "deadlines", "for_next", "timeout", "wake_at", "waves")

    def __init__(self, spec: StreamSpec, depth: int, *, is_root: bool) -> None:
        self.timeout = time_at(spec.sync.seconds, depth) if spec.sync.kind == TIME_OUT else 0.0
        self.counts = self.timeout > 0 and spec.sync.late == LATE_IN_NEXT
        self._owns_values = is_root and self.counts
        self.waves: dict[int, Wave] = {}
        self.for_next: list[tuple[Up | Failed, Payload | None]] = []
        self.deadlines: deque[tuple[float, int]] = deque()
        self.wake_at = -math.inf

    def postpone(self, quiet: float, now: float) -> None:
        """Give waves back the time that the stream was quiet: nothing could come meanwhile.

        Args:
            quiet: How long that was, seconds.
            now: The time, seconds.
        """
        latest = now + self.timeout
        self.deadlines = deque((min(due + quiet, latest), wave) for due, wave in self.deadlines)

    def next_deadline(self, open_waves: Container[int]) -> float:
        """Return when the time of the first open wave is over; forget those that are complete."""
        deadlines = self.deadlines
        while deadlines and deadlines[0][1] not in open_waves:
            deadlines.popleft()
        return deadlines[0][0] if deadlines else math.inf

    def time_is_over(self, wave: Wave) -> list[Payload]:
        """Record who is missing in a wave that is passed on without them.

        Returns:
            Root: values of waves that are no longer awaited.
        """
        known = self.waves.get(wave.number)
        if known is not None and known is not wave:  # this is one more part of it
            known.missing |= wave.unanswered()
        elif wave.waiting or wave.missing:
            self.waves[wave.number] = wave
            if len(self.waves) > LATE_WAVES:
                return self._forget(next(iter(self.waves)))
        return []

    def drop_complete(self, wave: Wave) -> list[Payload]:
        """Forget a late wave without missing members; returns the same as :meth:`time_is_over`."""
        return [] if wave.waiting or wave.missing else self._forget(wave.number)

    def forget_confirmed(self, confirmed: int) -> None:
        """Forget late waves for which the root does not wait any more."""
        if self.counts:
            for number in [number for number in self.waves if number <= confirmed]:
                del self.waves[number]

    def _forget(self, number: int) -> list[Payload]:
        payload = self.waves.pop(number).value.payload
        return [payload] if payload is not None and self._owns_values else []
