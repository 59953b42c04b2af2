"""The streams that the last owner of a session has left open, at the next owner."""

from __future__ import annotations

from concurrent.futures import Future

from sapwood.core.errors import SapwoodError
from sapwood.session.streams import StreamHandle, StreamTable
from sapwood.session.wave_result import WaveResult
from sapwood.session_server import wire


class AdoptedStream:
    """A stream that the last owner of a session has left open.

    Args:
        handle: The hold on it.
        waves: Futures of its waves, in their order.
        dropped: Number of results that were dropped meanwhile.
        paced: Whether agents push no faster than the client reads.

    Attributes:
        early: Results that arrived before they were awaited; on the session's thread.
    """

    def __init__(
        self,
        handle: StreamHandle,
        waves: list[Future[WaveResult]],
        dropped: int,
        *,
        paced: bool,
    ) -> None:
        self.handle = handle
        self.waves = waves
        self.dropped = dropped
        self.paced = paced
        self.early: list[WaveResult | SapwoodError] = []


class AdoptedStreams:
    """Such streams of a session, and the numbers of new ones; on the session's thread.

    Attributes:
        streams: The adopted streams.
    """

    def __init__(self) -> None:
        self.streams: list[AdoptedStream] = []
        self._next = 1

    def new_number(self) -> int:
        """Return a number for a stream."""
        number = self._next
        self._next += 1
        return number

    def adopt(self, table: StreamTable, message: wire.StreamsKept) -> None:
        """Hold the streams that the last owner has left."""
        for one in message.streams:
            handle, futures = table.adopt(one.spec, one.begun, one.waiting)
            adopted = AdoptedStream(handle, futures, one.dropped, paced=one.paced)
            handle.on_contribution = adopted.early.append
            self._next = max(self._next, one.spec.stream + 1)
            self.streams.append(adopted)
