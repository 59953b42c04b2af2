"""The server of a session polls the statistics of its agents periodically, by one wave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final

from sapwood.activity import agent_requests
from sapwood.activity.agent_metrics import BUCKETS, REDUCE
from sapwood.comm.loop import Timer
from sapwood.comm.messages import PARTIAL, TIME_OUT, Synchronisation
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import when_done
from sapwood.head.session_records import WorkMetrics
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.interface import StreamInterface
from sapwood.session.streams import StreamOptions
from sapwood.session.wave_result import WaveResult

INTERVAL: Final = 15.0
"""Seconds between two rounds."""

PATIENCE: Final = 5.0
"""Seconds that agents have to answer; late answers count in the next round."""


class MetricRounds:
    """Asks by waves of a separate stream; all on the loop's thread.

    Args:
        session: Whose agents.
        tell: Told after each round, and at first, what all agents together have done.
        interval: Seconds between two rounds.
    """

    def __init__(
        self,
        session: EmbeddedSession,
        tell: Callable[[WorkMetrics], object],
        interval: float = INTERVAL,
    ) -> None:
        self._session = session
        self._tell = tell
        self._interval = interval
        self._stream: StreamInterface | None = None
        self._timer: Timer | None = None
        self._sum = WorkMetrics(buckets=[0] * len(BUCKETS))

    def start(self) -> None:
        """Begin: nothing was done yet."""
        self._tell(self._sum)
        self._timer = self._session.loop.call_later(self._interval, self._ask)

    def close(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stream is not None:
            self._stream.close()

    def _ask(self) -> None:
        self._timer = self._session.loop.call_later(self._interval, self._ask)
        if not self._session.tree.agent_ranks:
            return
        try:
            stream = self._opened()
            if not stream.open_waves:
                when_done(stream.broadcast({}), self._came)
        except SapwoodError:  # it is closed; agents have gone for good
            self._stream = None

    def _opened(self) -> StreamInterface:
        if self._stream is None or self._stream.closed is not None:
            sync = Synchronisation(TIME_OUT, PATIENCE, "next")
            options = StreamOptions(sync=sync, on_loss=PARTIAL, follows=True)
            self._stream = self._session.open_stream(
                agent_requests.METRICS, REDUCE, options=options
            )
        return self._stream

    def _came(self, done: Future[WaveResult]) -> None:
        if done.cancelled() or done.exception() is not None:
            return  # increments of this round come with the next one, or are lost
        total = done.result().total
        if isinstance(total, Mapping):
            self._sum = added(self._sum, total)
            self._tell(self._sum)


def added(before: WorkMetrics, came: Mapping[str, float]) -> WorkMetrics:
    """Return the sums so far, with the gauges of the last round."""
    return WorkMetrics(
        agents=int(came["agents"]),
        busy=int(came["busy"]),
        memory=int(came["memory"]),
        calls=before.calls + int(came["calls"]),
        errors=before.errors + int(came["errors"]),
        seconds=before.seconds + float(came["seconds"]),
        bytes_in=before.bytes_in + int(came["bytes_in"]),
        bytes_out=before.bytes_out + int(came["bytes_out"]),
        buckets=[
            count + int(came[name]) for count, name in zip(before.buckets, BUCKETS, strict=True)
        ],
    )
