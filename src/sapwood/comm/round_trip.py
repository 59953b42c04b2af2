"""How long a message takes to a neighbour and back: an estimate from heartbeats.

Each heartbeat has the sender's clock, and returns the clock of the heartbeat that the sender
received last, with the time since then. So both ends measure, no two clocks are compared,
and nothing more is sent. The estimate is smoothed as RFC 6298 does it.
"""

from __future__ import annotations

GAIN = 1 / 8
"""Part of a new sample in the smoothed round trip (alpha in RFC 6298)."""

VARIATION_GAIN = 1 / 4
"""Part of a new sample in the variation (beta in RFC 6298)."""

LONGEST = 3600.0
"""Seconds of a sample that is believed at most: a peer can say what it likes."""


class RoundTrip:
    """An estimate of a round trip; all times in seconds.

    Attributes:
        smoothed: The moving mean of the samples.
        variation: The moving mean of their distance from it.
        least: The least of them: the time of the network without queues.
        samples: How many there were.

    Example:
        >>> trip = RoundTrip()
        >>> trip.add(0.100)
        >>> trip.add(0.180)
        >>> round(trip.smoothed, 4), round(trip.variation, 4), trip.least, trip.samples
        (0.11, 0.0575, 0.1, 2)
    """

    __slots__ = ("least", "samples", "smoothed", "variation")

    def __init__(self) -> None:
        self.smoothed = 0.0
        self.variation = 0.0
        self.least = 0.0
        self.samples = 0

    def add(self, seconds: float) -> None:
        """Take a sample in; one that cannot be is left out."""
        if not 0.0 <= seconds <= LONGEST:  # also false for NaN
            return
        if not self.samples:
            self.smoothed = self.least = seconds
            self.variation = seconds / 2
        else:
            distance = abs(self.smoothed - seconds)
            self.variation += VARIATION_GAIN * (distance - self.variation)
            self.smoothed += GAIN * (seconds - self.smoothed)
            self.least = min(self.least, seconds)
        self.samples += 1
