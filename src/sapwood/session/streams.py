"""The front end's hold on a stream: broadcast a value, get the reduced answer."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.rankset import Ranges
from sapwood.session.gate import Gate
from sapwood.session.loop_thread import LoopThread


class WaveResult(msgspec.Struct, frozen=True):
    """What came back from a wave.

    Attributes:
        total: The reduced fields.
        ranks: Agents whose contributions are in it.
        weight: Items behind it.
    """

    total: Any
    ranks: Ranges
    weight: float


class StreamHandle:
    """An open stream; made by :meth:`Session.open_stream`.

    Args:
        spec: What the stream is.
        thread: The loop's thread.
        post: Gives the front end's node an event; to be called on the loop's thread.
        pool: Where large values are put.
        forget: Called when the stream is closed.
        gate: What the bytes of open waves go through.
    """

    def __init__(
        self,
        spec: StreamSpec,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        pool: BlockPool,
        forget: Callable[[int], None],
        gate: Gate,
    ) -> None:
        self.spec = spec
        self._thread = thread
        self._post = post
        self._pool = pool
        self._forget = forget
        self._gate = gate
        self._waves: dict[int, tuple[Future[WaveResult], int]] = {}
        self._next_wave = 1
        self._closed: SapwoodError | None = None

    def broadcast(self, value: Any) -> "Future[WaveResult]":
        """Send a value to all members; the future is the reduction of their answers.

        Waits while the waves of this stream that are not complete hold more bytes than
        ``comm.backlog``: a slow reader slows its writer down.

        Raises:
            DataValueError: The value cannot travel.
            ClosedError: The cluster is closed.
        """
        encoded = values.encode(value)
        self._gate.enter(_size(encoded))
        future: Future[WaveResult] = Future()
        future.set_running_or_notify_cancel()  # a wave cannot be taken back; its stream can
        self._thread.post(self._begin, encoded, future)
        return future

    def close(self) -> None:
        """Close the stream; what its agents do for it is cancelled."""
        self._thread.post(self.abandon, ClosedError("the stream was closed"))

    def abandon(self, reason: SapwoodError) -> None:
        """Close the stream and fail its open waves; on the loop's thread."""
        if self._closed is not None:
            return
        self._closed = reason
        self._forget(self.spec.stream)
        self._post(ev.CloseStream(self.spec.stream))
        self._gate.close(reason)
        for future, _ in self._waves.values():
            future.set_exception(reason)
        self._waves.clear()

    def completed(self, effect: ev.WaveCompleted) -> None:
        """Take the end of a wave in; on the loop's thread."""
        future = self._ended(effect.wave)
        if future is not None:
            future.set_result(WaveResult(effect.total, effect.ranks, effect.weight))

    def failed(self, effect: ev.WaveFailed) -> None:
        """Take the failure of a wave in; on the loop's thread."""
        future = self._ended(effect.wave)
        if future is not None:
            error = SapwoodError.from_record(effect.error)
            future.set_exception(error.located(f"agent {effect.rank}"))

    def _ended(self, wave: int) -> "Future[WaveResult] | None":
        future, nbytes = self._waves.pop(wave, (None, 0))
        if future is not None:
            self._gate.leave(nbytes)
        return future

    def _begin(self, encoded: values.Encoded, future: "Future[WaveResult]") -> None:
        if self._closed is not None:
            future.set_exception(self._closed)
            return
        try:
            payload: Payload | None = self._pool.place(encoded)
        except SapwoodError as error:
            self._gate.leave(_size(encoded))
            future.set_exception(error)
            return
        self._waves[self._next_wave] = (future, _size(encoded))
        self._next_wave += 1
        self._post(ev.Broadcast(self.spec.stream, encoded.body, payload))


def _size(encoded: values.Encoded) -> int:
    return len(encoded.body) + encoded.nbytes
