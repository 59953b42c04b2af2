"""The front end's hold on a stream: broadcast a value, get the reduced answer."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.cached_codec import CachedEncoder
from sapwood.comm.messages import (
    REPLACE,
    FilterAt,
    PlaceReport,
    StreamSpec,
    Synchronisation,
)
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.rankset import Ranges, from_ranges, to_ranges
from sapwood.session.gate import Gate
from sapwood.session.loop_thread import LoopThread
from sapwood.session.shortcut import Shortcut
from sapwood.session.wave_result import WaveResult


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream can be besides handler, reduction and members.

    Attributes:
        code: What the handler runs.
        sync: When places pass waves on.
        on_loss: What becomes of waves that wait for a place that is lost.
        filters: Own filters.
        parameters: Their first parameters, encoded.
        counted: Whether places count what passes.
        paced: Whether agents send of themselves no faster than :meth:`StreamHandle.read` says.
    """

    code: bytes = b""
    sync: Synchronisation = Synchronisation()
    on_loss: str = REPLACE
    filters: tuple[FilterAt, ...] = ()
    parameters: bytes = b""
    counted: bool = False
    paced: bool = False


class Swept(msgspec.Struct, frozen=True):
    """What a sweep came back with: the agents that it reached, and what places reported."""

    reached: Ranges
    reports: tuple[PlaceReport, ...]


def _nothing() -> None:
    pass


class StreamHandle:
    """An open stream; made by :meth:`Session.open_stream`.

    Args:
        spec: What the stream is.
        thread: The loop's thread.
        post: Gives the front end's node an event; to be called on the loop's thread.
        pool: Where large values are put.
        forget: Called when the stream is closed.
        gate: What the bytes of open waves go through.
        shortcut: May exchange waves in the place of the event loop.

    Attributes:
        on_single: Told of each contribution to a stream that does not wait, on the loop's thread.
        explain: Given each error of a wave before it is told, to add to it.
        new_future: Makes the future of a wave.
    """

    def __init__(
        self,
        spec: StreamSpec,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        pool: BlockPool,
        forget: Callable[[int], None],
        gate: Gate,
        shortcut: Shortcut,
    ) -> None:
        self.spec = spec
        self.on_single: Callable[[WaveResult | SapwoodError], None] = _nobody
        self.explain: Callable[[SapwoodError], None] = _as_it_is
        self.new_future: Callable[[], Future[WaveResult]] = Future
        self._thread = thread
        self._post = post
        self._pool = pool
        self._forget = forget
        self.gate = gate
        self._shortcut = shortcut
        self._encoder = CachedEncoder()
        self._waves: dict[int, tuple[Future[WaveResult], int]] = {}
        self._next_wave = 1
        self._sweeps: dict[int, Future[Swept]] = {}
        self._next_sweep = 1
        self._members = from_ranges(spec.members)
        self._closed: SapwoodError | None = None

    @property
    def open_waves(self) -> int:
        """Waves that are not over."""
        return len(self._waves)

    @property
    def waves_begun(self) -> int:
        """Waves that were broadcast so far."""
        return self._next_wave - 1

    @property
    def closed(self) -> SapwoodError | None:
        """Why the stream is closed; None while it is open."""
        return self._closed

    def broadcast(self, value: Any) -> "Future[WaveResult]":
        """Send a value to all members; the future is the reduction of their answers.

        Waits while the waves of this stream that are not complete hold more bytes than
        ``comm.backlog``: a slow reader slows its writer down.

        Raises:
            DataValueError: The value cannot travel.
            ClosedError: The cluster is closed.
        """
        return self._sent(values.encode(value), self._begin)

    def exchange(
        self,
        value: Any,
        timeout: float | None = None,
        meanwhile: Callable[[], object] = _nothing,
    ) -> WaveResult:
        """Send a value to all members and return the reduction of their answers.

        As :meth:`broadcast` and ``result()``, and sooner: while a stream has one such wave after
        the other, the thread that waits for them sends and gathers them by itself.

        Args:
            value: What to send.
            timeout: Seconds to wait; by default for ever.
            meanwhile: Called when the value is on its way; what it raises is raised.

        Raises:
            DataValueError: The value cannot travel.
            ClosedError: The cluster is closed.
            SapwoodError: The wave failed, or this is the session's own thread.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        if self._thread.is_current:
            raise SapwoodError(
                "the cluster's own thread cannot wait for the cluster",
                hint="call broadcast() there, and wait for its future somewhere else",
            )
        encoded = self._encoder.encode(value)
        done = self._shortcut.exchange(self, encoded, timeout, meanwhile)
        if isinstance(done, WaveResult):
            return done
        if done is None:
            done = self._sent(encoded, self._begin_awaited)
            meanwhile()
        return done.result(timeout)

    def _sent(
        self,
        encoded: values.Encoded,
        begin: Callable[[values.Encoded, "Future[WaveResult]"], None],
    ) -> "Future[WaveResult]":
        self.gate.enter(_size(encoded))
        future = self.new_future()
        future.set_running_or_notify_cancel()  # a wave cannot be taken back; its stream can
        self._thread.post(begin, encoded, future)
        return future

    def sweep(self, action: str) -> "Future[Swept]":
        """Flush, quiesce, resume or query the stream; the future is done when that is."""
        future: Future[Swept] = Future()
        future.set_running_or_notify_cancel()
        self._thread.post(self._begin_sweep, action, future)
        return future

    def read(self, counts: dict[int, int]) -> None:
        """Say how many values that agents have sent of themselves were read; from any thread."""
        with contextlib.suppress(ClosedError):  # what has come can be read after the end
            self._thread.post(self._read, counts)

    def configure(self, parameters: bytes) -> None:
        """Give the filters other parameters, from the next wave on."""
        self._thread.post(self._post, ev.ConfigureStream(self.spec.stream, parameters))

    def close(self) -> None:
        """Close the stream; what its agents do for it is cancelled."""
        self._thread.post(self.abandon, ClosedError("the stream was closed"))

    # --- on the loop's thread ----------------------------------------------------------------

    def abandon(self, reason: SapwoodError) -> None:
        """Close the stream and fail its open waves; on the loop's thread."""
        if self._closed is not None:
            return
        self._closed = reason
        self._forget(self.spec.stream)
        self._post(ev.CloseStream(self.spec.stream))
        self.gate.close(reason)
        for future, _ in self._waves.values():
            future.set_exception(reason)
        self._waves.clear()
        for sweep in self._sweeps.values():
            sweep.set_exception(reason)
        self._sweeps.clear()
        self.on_single(reason)

    def completed(self, effect: ev.WaveCompleted) -> None:
        """Take the end of a wave in; on the loop's thread."""
        future = self._ended(effect.wave)
        if future is None:
            return
        missing: Ranges = ()
        if effect.ranks != self.spec.members:
            missing = to_ranges(self._members - from_ranges(effect.ranks))
        total = effect.total
        if effect.body:
            try:
                total = decoded(effect.body, effect.payload)
            except SapwoodError as error:
                future.set_exception(error)
                return
        ranks, late = effect.ranks, effect.late
        result = WaveResult(total, ranks, effect.weight, effect.wave, missing, late)
        self._shortcut.deliver(self, future, result)

    def contributed(self, effect: ev.Contributed) -> None:
        """Take one contribution in; on the loop's thread."""
        try:
            value = decoded(effect.body, effect.payload)
        except SapwoodError as error:
            self.on_single(error)
            return
        self.on_single(WaveResult(value, effect.ranks, effect.weight, effect.wave))

    def failed(self, effect: ev.WaveFailed) -> None:
        """Take the failure of a wave in; on the loop's thread."""
        error = SapwoodError.from_record(effect.error).located(self._name_of(effect.rank))
        self.explain(error)
        future = self._ended(effect.wave)
        if future is not None:
            future.set_exception(error)
        else:
            self.on_single(error)

    def exchanged(self, waves: int) -> None:
        """Note that waves were exchanged; on the loop's thread."""
        self._next_wave += waves

    def go_on(self, body: bytes, payload: Payload | None, future: "Future[WaveResult]") -> None:
        """Begin a wave that somebody else has begun already; on the loop's thread."""
        self.gate.enter(0)  # as it leaves it in the end
        self._waves[self._next_wave] = (future, 0)
        self._next_wave += 1
        self._post(ev.Broadcast(self.spec.stream, body, payload))

    def swept(self, effect: ev.SweepDone) -> None:
        """Take the end of a sweep in; on the loop's thread."""
        future = self._sweeps.pop(effect.number, None)
        if future is not None:
            future.set_result(Swept(effect.reached, effect.reports))

    def _name_of(self, rank: int) -> str:
        if not rank:
            return "the front end's filter"
        return f"agent {rank}" if rank in self._members else f"junction {rank}"

    def _ended(self, wave: int) -> "Future[WaveResult] | None":
        future, nbytes = self._waves.pop(wave, (None, 0))
        if future is not None:
            self.gate.leave(nbytes)
        return future

    def _begin_awaited(self, encoded: values.Encoded, future: "Future[WaveResult]") -> None:
        self._shortcut.wanted(self)
        self._begin(encoded, future)

    def _begin(self, encoded: values.Encoded, future: "Future[WaveResult]") -> None:
        if self._closed is not None:
            future.set_exception(self._closed)
            return
        try:
            payload: Payload | None = self._pool.place(encoded)
        except SapwoodError as error:
            self.gate.leave(_size(encoded))
            future.set_exception(error)
            return
        self._waves[self._next_wave] = (future, _size(encoded))
        self._next_wave += 1
        self._post(ev.Broadcast(self.spec.stream, encoded.body, payload))

    def _read(self, counts: dict[int, int]) -> None:
        if self._closed is None:
            for rank, count in counts.items():
                self._post(ev.Read(self.spec.stream, rank, count))

    def _begin_sweep(self, action: str, future: "Future[Swept]") -> None:
        if self._closed is not None:
            future.set_exception(self._closed)
            return
        number = self._next_sweep
        self._next_sweep += 1
        self._sweeps[number] = future
        try:
            self._post(ev.SweepStream(self.spec.stream, number, action))
        except SapwoodError as error:
            del self._sweeps[number]
            future.set_exception(error)


def decoded(body: bytes, payload: Payload | None) -> Any:
    """Return a value that does not need the memory it came in.

    Raises:
        ProtocolError: It is malformed.
    """
    return values.decode(body, bytearray(payload.view) if payload is not None else b"")


def _nobody(_result: WaveResult | SapwoodError) -> None:
    pass


def _as_it_is(_error: SapwoodError) -> None:
    pass


def _size(encoded: values.Encoded) -> int:
    return len(encoded.body) + encoded.nbytes
