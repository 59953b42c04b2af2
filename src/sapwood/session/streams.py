"""The client's hold on a stream: broadcast a value, get the reduced answer."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.cached_codec import CachedEncoder
from sapwood.comm.driver import FailureHandlers
from sapwood.comm.messages import (
    NO_WAIT,
    REPLACE,
    FilterAt,
    PlaceStatistics,
    StreamSpec,
    Synchronisation,
)
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import Accumulator
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core.errors import ClosedError, DataValueError, SapwoodError
from sapwood.core.failures import as_error
from sapwood.core.futures import CallerFuture
from sapwood.core.rankset import Ranges, from_ranges, to_ranges
from sapwood.session.back_pressure import LARGEST, ByteLimiter
from sapwood.session.loop_thread import LoopThread
from sapwood.session.shortcut import Shortcut
from sapwood.session.wave_result import WaveResult

FLOWING = 8
"""Waves after which a stream is taken to have more."""

MAX_PARAMETERS = 256 * 1024
"""Bytes of the parameters of a stream's filters; places keep those of several versions."""


def check_parameters(body: bytes) -> None:
    """Check the parameters of filters before they are sent.

    Raises:
        DataValueError: They are too large.
    """
    if len(body) > MAX_PARAMETERS:
        raise DataValueError(
            f"the parameters of the filters take {len(body)} bytes, which is more than "
            f"{MAX_PARAMETERS}",
            hint="send data in waves",
        )


def check_spec(spec: StreamSpec) -> None:
    """Check a stream before places hear of it.

    Raises:
        DataValueError: It does not fit into a message.
    """
    for body in spec.parameters.values():
        check_parameters(body)
    size = len(msgspec.msgpack.encode(spec))
    if size > plain.MAX_BODY:
        raise DataValueError(
            f"the functions of a stream or run take {size} bytes, which is more than "
            f"{plain.MAX_BODY}",
            hint="refer to fewer or smaller objects in functions and filters; send data in waves",
        )


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream can be besides handler, reduction and members.

    Attributes:
        code: What the handler runs.
        sync: When places pass waves on.
        on_loss: What becomes of waves that wait for a place that is lost.
        filters: Own filters.
        parameters: Their first parameters, encoded.
        counted: Whether places count what passes.
        paced: Whether agents push no faster than :meth:`StreamHandle.read` allows.
        follows: Whether agents that are added take part, and it continues without agents that
        leave.
    """

    code: bytes = b""
    sync: Synchronisation = Synchronisation()
    on_loss: str = REPLACE
    filters: tuple[FilterAt, ...] = ()
    parameters: bytes = b""
    counted: bool = False
    paced: bool = False
    follows: bool = False


class SweepResult(msgspec.Struct, frozen=True):
    """What a sweep came back with: the agents that it reached, and what places reported."""

    reached: Ranges
    reports: tuple[PlaceStatistics, ...]


def _nothing() -> None:
    pass


class StreamHandle:
    """An open stream; made by :meth:`Session.open_stream`.

    Args:
        spec: What the stream is.
        thread: The loop's thread.
        post: Gives the client's node an event; to be called on the loop's thread.
        pool: Where large values are put.
        forget: Called when the stream is closed.
        limiter: What the bytes of open waves go through.
        shortcut: May exchange waves in the place of the event loop.

    Attributes:
        on_contribution: Receives each contribution to an unsynchronised stream, on the loop's
            thread.
        explain: Receives each error of a wave before it is reported, to add to it.
        new_future: Makes the future of a wave.
        members_now: Returns who takes part in a wave that begins now.
    """

    def __init__(
        self,
        spec: StreamSpec,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        pool: BlockPool,
        forget: Callable[[int], None],
        limiter: ByteLimiter,
        shortcut: Shortcut,
    ) -> None:
        self.spec = spec
        self.on_contribution: Callable[[WaveResult | SapwoodError], None] = _nobody
        self.explain: Callable[[SapwoodError], None] = _as_it_is
        self.new_future: Callable[[], CallerFuture[WaveResult]] = CallerFuture
        self._thread = thread
        self._post = post
        self._pool = pool
        self._forget = forget
        self.limiter = limiter
        self._shortcut = shortcut
        self._encoder = CachedEncoder()
        self._waves: dict[int, tuple[Future[WaveResult], int]] = {}
        self._next_wave = 1
        self._sweeps: dict[int, Future[SweepResult]] = {}
        self._next_sweep = 1
        self._members = from_ranges(spec.members)
        self.members_now: Callable[[], AbstractSet[int]] = lambda: self._members
        self._members_of: dict[int, AbstractSet[int]] = {}  # of waves, where that changes
        self._closed: SapwoodError | None = None

    @property
    def open_waves(self) -> int:
        """Waves that are not over."""
        return len(self._waves)

    @property
    def futures(self) -> list["Future[WaveResult]"]:
        """The futures of open waves; on the loop's thread."""
        return [future for future, _ in self._waves.values()]

    @property
    def waves_begun(self) -> int:
        """Waves that were broadcast so far."""
        return self._next_wave - 1

    @property
    def closed(self) -> SapwoodError | None:
        """Why the stream is closed; None while it is open."""
        return self._closed

    def broadcast(self, value: Any) -> "CallerFuture[WaveResult]":
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

        Like :meth:`broadcast` and ``result()``, but faster: while a stream has one such wave after
        the other, the waiting thread sends and gathers them itself.

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
        begin: Callable[[values.Encoded, "CallerFuture[WaveResult]"], None],
    ) -> "CallerFuture[WaveResult]":
        self.limiter.enter(_size(encoded))
        encoded = encoded.owned()
        future = self.new_future()
        future.set_running_or_notify_cancel()  # a wave cannot be taken back; its stream can
        self._thread.post_for(self.abandon, begin, encoded, future)
        return future

    def sweep(self, action: str, filters: tuple[FilterAt, ...] = ()) -> "Future[SweepResult]":
        """Flush, quiesce, resume or query the stream; the future is done when that is.

        With ``stage``, all places load ``filters`` and report whether they can.
        """
        future: Future[SweepResult] = CallerFuture()
        future.set_running_or_notify_cancel()
        self._thread.post_for(self.abandon, self._begin_sweep, action, filters, future)
        return future

    def read(self, counts: dict[int, int]) -> None:
        """Say how many values that agents have sent of themselves were read; from any thread."""
        with contextlib.suppress(ClosedError):  # received values can be read after the end
            self._thread.post(self._read, counts)

    def configure(self, parameters: bytes, code: str = "") -> None:
        """Give the filters other parameters, or staged code, from the next wave on.

        Raises:
            DataValueError: The parameters are too large.
        """
        check_parameters(parameters)
        event = ev.ConfigureStream(self.spec.stream, parameters, code)
        self._thread.post_for(self.abandon, self._post, event)

    def close(self, reason: SapwoodError | None = None) -> None:
        """Close the stream; what its agents do for it is cancelled.

        Args:
            reason: What open waves fail with; by default a ClosedError.
        """
        self._thread.post(self.abandon, reason or ClosedError("the stream was closed"))

    # --- on the loop's thread ----------------------------------------------------------------

    def abandon(self, reason: SapwoodError) -> None:
        """Close the stream and fail its open waves; on the loop's thread."""
        if self._closed is not None:
            return
        self._closed = reason
        self._forget(self.spec.stream)
        self.limiter.close(reason)
        for future, _ in self._waves.values():
            future.set_exception(reason)
        self._waves.clear()
        for sweep in self._sweeps.values():
            sweep.set_exception(reason)
        self._sweeps.clear()
        self._post(ev.CloseStream(self.spec.stream))
        self.on_contribution(reason)

    def completed(self, effect: ev.WaveCompleted) -> None:
        """Take the end of a wave in; on the loop's thread."""
        future = self._ended(effect.wave)
        if future is None:
            return
        missing: Ranges = ()
        members = self._members_of.pop(effect.wave, self._members)
        if effect.ranks != self.spec.members or members is not self._members:
            missing = to_ranges(members - from_ranges(effect.ranks))
        total = effect.total
        if effect.body:
            try:
                total = decoded(effect.body, effect.payload)
            except Exception as exception:  # noqa: BLE001 - it is about this wave only
                future.set_exception(as_error(exception, f"wave {effect.wave}"))
                return
        ranks, late = effect.ranks, effect.late
        weight, wave, version = effect.weight, effect.wave, effect.version
        result = WaveResult(total, ranks, weight, wave, missing, late, version)
        self._shortcut.deliver(self, future, result)

    def contributed(self, effect: ev.Contributed) -> None:
        """Take one contribution in; on the loop's thread."""
        try:
            value = decoded(effect.body, effect.payload)
        except Exception as exception:  # noqa: BLE001 - it is about this contribution only
            self.on_contribution(as_error(exception, f"a contribution to wave {effect.wave}"))
            return
        self.on_contribution(WaveResult(value, effect.ranks, effect.weight, effect.wave))

    def failed(self, effect: ev.WaveFailed) -> None:
        """Take the failure of a wave in; on the loop's thread."""
        error = SapwoodError.from_record(effect.error).located(self._name_of(effect.rank))
        self.explain(error)
        future = self._ended(effect.wave)
        self._members_of.pop(effect.wave, None)
        if future is not None:
            future.set_exception(error)
        else:
            self.on_contribution(error)

    def resume(self, begun: int, waiting: Iterable[int]) -> list["Future[WaveResult]"]:
        """Note what was broadcast before; return what will come of the waves that are not over."""
        self._next_wave = begun + 1
        for wave in sorted(waiting):
            future: Future[WaveResult] = CallerFuture()
            future.set_running_or_notify_cancel()
            self.limiter.enter(0)
            self._waves[wave] = (future, 0)
        return self.futures

    def exchanged(self, waves: int) -> None:
        """Note that waves were exchanged; on the loop's thread."""
        self._next_wave += waves

    def go_on(self, body: bytes, payload: Payload | None, future: "Future[WaveResult]") -> None:
        """Continue a wave that the waiting thread has started; on the loop's thread."""
        self.limiter.enter(0)  # it leaves it in the end
        self._waves[self._next_wave] = (future, 0)
        self._next_wave += 1
        self._post(ev.Broadcast(self.spec.stream, body, payload))

    def swept(self, effect: ev.SweepDone) -> None:
        """Take the end of a sweep in; on the loop's thread."""
        future = self._sweeps.pop(effect.number, None)
        if future is not None:
            future.set_result(SweepResult(effect.reached, effect.reports))

    def sweep_refused(self, number: int, error: SapwoodError) -> None:
        """Fail a sweep; on the loop's thread."""
        future = self._sweeps.pop(number, None)
        if future is not None:
            future.set_exception(error)

    def _name_of(self, rank: int) -> str:
        if not rank:
            return "the client's filter"
        is_agent = rank in self._members or rank in self.members_now()
        return f"agent {rank}" if is_agent else f"junction {rank}"

    def _ended(self, wave: int) -> "Future[WaveResult] | None":
        future, nbytes = self._waves.pop(wave, (None, 0))
        if future is not None:
            self.limiter.leave(nbytes)
        return future

    def _begin_awaited(self, encoded: values.Encoded, future: "Future[WaveResult]") -> None:
        self._shortcut.wanted(self)
        self._begin(encoded, future)

    def _begin(self, encoded: values.Encoded, future: "Future[WaveResult]") -> None:
        if self._closed is not None:
            future.set_exception(self._closed)
            return
        try:
            payload: Payload | None = self._pool.store(encoded)
        except SapwoodError as error:
            self.limiter.leave(_size(encoded))
            future.set_exception(error)
            return
        self._waves[self._next_wave] = (future, _size(encoded))
        if self.spec.follows:
            self._members_of[self._next_wave] = self.members_now()
        self._next_wave += 1
        self._post(ev.Broadcast(self.spec.stream, encoded.body, payload))

    def _read(self, counts: dict[int, int]) -> None:
        if self._closed is None:
            for rank, count in counts.items():
                self._post(ev.Read(self.spec.stream, rank, count))

    def _begin_sweep(
        self, action: str, filters: tuple[FilterAt, ...], future: "Future[SweepResult]"
    ) -> None:
        if self._closed is not None:
            future.set_exception(self._closed)
            return
        number = self._next_sweep
        self._next_sweep += 1
        self._sweeps[number] = future
        try:
            self._post(ev.SweepStream(self.spec.stream, number, action, filters))
        except SapwoodError as error:
            self.sweep_refused(number, error)


class Filters(Protocol):
    """Calls the own filters of the root."""

    def call(self, effect: ev.FilterWanted) -> None:
        """Call one; the answer is posted."""

    def stage(self, effect: ev.FilterStaging) -> None:
        """Load filters that a later version may use; the answer is posted."""

    def unused(self, effect: ev.FilterUnused) -> None:
        """Forget filters that no wave uses any more."""

    def stream_closed(self, stream: int) -> None:
        """Forget the filters of a stream."""

    def released(self, payload: Payload) -> None:
        """Take the memory of a result back."""

    def close(self) -> None:
        """End what calls them."""


class StreamTable:
    """All open streams of a session.

    Args:
        thread: The loop's thread.
        post: Gives the client's node an event; to be called on the loop's thread.
        pool: Where large values are put.
        backlog: Bytes of open waves of one stream.
        shortcut: May exchange waves in the place of the event loop.
        new_number: Returns a number for a stream.

    Attributes:
        filters: Calls the user filters of the root; None without any.
        members_of: Returns the members of a wave of a stream that starts now.
        largest: Bytes of the largest value of a wave.
    """

    def __init__(
        self,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        pool: BlockPool,
        backlog: int,
        shortcut: Shortcut,
        new_number: Callable[[], int],
    ) -> None:
        self.filters: Filters | None = None
        self.members_of: Callable[[int], AbstractSet[int]] = lambda _stream: frozenset()
        self.largest = LARGEST
        self._thread = thread
        self._post = post
        self._pool = pool
        self._backlog = backlog
        self._shortcut = shortcut
        self._streams: dict[int, StreamHandle] = {}
        self._new_number = new_number
        self._lock = threading.Lock()
        self._closed: SapwoodError | None = None

    def handlers(self) -> dict[type[ev.Effect], Callable[[Any], None]]:
        """Return what to do with the effects that concern streams."""
        return {
            ev.WaveCompleted: self._wave_completed,
            ev.WaveFailed: self._wave_failed,
            ev.Contributed: self._contributed,
            ev.SweepDone: self._sweep_done,
            ev.FilterWanted: self._filter,
            ev.FilterStaging: self._stage,
            ev.FilterUnused: self._unused,
            ev.StreamClosed: self._stream_closed,
            ev.Released: self.released,
        }

    def failure_handlers(self) -> FailureHandlers:
        """Return what fails when an effect that concerns a stream cannot be performed."""
        kinds = (ev.WaveCompleted, ev.WaveFailed, ev.Contributed, ev.SweepDone, ev.StreamClosed)
        return {
            **dict.fromkeys(kinds, self._stream_failed),
            ev.FilterWanted: self._not_filtered,
            ev.FilterStaging: self._not_staged,
        }

    def _stream_failed(self, effect: Any, error: SapwoodError) -> None:
        """Close the stream that an effect was for: its waves fail with the error."""
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.abandon(error)

    def open(
        self,
        handler: str,
        reduce: Mapping[str, str],
        members: Ranges,
        context: str,
        options: StreamOptions,
    ) -> StreamHandle:
        """Open a stream; from any thread.

        Raises:
            DataValueError: Its filters and their parameters are too large.
            ProtocolError: A reduction is unknown.
            ClosedError: The session is closed.
        """
        Accumulator(reduce)  # an unknown reduction is refused here, not on the loop's thread
        spec = StreamSpec(
            0,
            handler,
            members,
            dict(reduce),
            context,
            options.code,
            options.sync,
            options.on_loss,
            options.filters,
            {1: options.parameters} if options.filters else {},
            options.counted,
            options.follows,
        )
        check_spec(spec)
        limiter = self._new_limiter()
        with self._lock:  # places hear of streams in the order of their numbers
            spec = msgspec.structs.replace(spec, stream=self._new_number())
            handle = StreamHandle(
                spec, self._thread, self._post, self._pool, self._forget, limiter, self._shortcut
            )
            if spec.follows:
                handle.members_now = partial(self.members_of, spec.stream)
            self._thread.post_for(
                handle.abandon, self._open, handle, ev.OpenStream(spec, options.paced)
            )
        return handle

    def adopt(
        self, spec: StreamSpec, begun: int, waiting: Iterable[int]
    ) -> tuple[StreamHandle, list["Future[WaveResult]"]]:
        """Register a stream that another part has opened; on the loop's thread.

        Args:
            spec: What it is.
            begun: Waves that were broadcast so far.
            waiting: The numbers of those that are not over.

        Returns:
            Its handle, and what will come of those waves.
        """
        limiter = self._new_limiter()
        handle = StreamHandle(
            spec, self._thread, self._post, self._pool, self._forget, limiter, self._shortcut
        )
        if spec.follows:
            handle.members_now = partial(self.members_of, spec.stream)
        self._streams[spec.stream] = handle
        return handle, handle.resume(begun, waiting)

    def _new_limiter(self) -> ByteLimiter:
        made = ByteLimiter(self._backlog, self._thread)
        made.largest = self.largest
        return made

    def under_way(self, ranks: Iterable[int]) -> list["Future[WaveResult]"]:
        """Return the futures of open waves in which some agents may be; on the loop's thread."""
        several = set(ranks)
        return [
            future
            for stream in self._streams.values()
            if stream.spec.follows or not several.isdisjoint(from_ranges(stream.spec.members))
            for future in stream.futures
        ]

    def pushing(self) -> list[StreamHandle]:
        """Return the streams on which agents push values; from any thread."""
        streams = list(self._streams.values())
        return [stream for stream in streams if stream.spec.sync.kind == NO_WAIT]

    def sweep_refused(self, stream: int, number: int, error: SapwoodError) -> None:
        """Fail a sweep of a stream; on the loop's thread."""
        handle = self._streams.get(stream)
        if handle is not None:
            handle.sweep_refused(number, error)

    def abandon(self, reason: SapwoodError) -> None:
        """Close all streams; on the loop's thread."""
        for stream in list(self._streams.values()):
            stream.abandon(reason)

    def refuse(self, reason: SapwoodError) -> None:
        """Close all streams, and all that are opened from now on."""
        self._closed = reason
        self.abandon(reason)
        if self.filters is not None:
            self.filters.close()

    def __len__(self) -> int:
        return len(self._streams)

    # --- on the loop's thread ----------------------------------------------------------------

    def _open(self, handle: StreamHandle, event: ev.OpenStream) -> None:
        if self._closed is not None:
            handle.abandon(self._closed)
            return
        self._streams[handle.spec.stream] = handle
        self._post(event)

    def _forget(self, stream: int) -> None:
        self._streams.pop(stream, None)

    def _wave_completed(self, effect: ev.WaveCompleted) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.completed(effect)
        if effect.wave == FLOWING:
            self._shortcut.flows()
        if effect.payload is not None:
            self.released(ev.Released(effect.payload))

    def _wave_failed(self, effect: ev.WaveFailed) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.failed(effect)

    def _contributed(self, effect: ev.Contributed) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.contributed(effect)
        if effect.payload is not None:
            self.released(ev.Released(effect.payload))

    def _sweep_done(self, effect: ev.SweepDone) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.swept(effect)

    def _filter(self, effect: ev.FilterWanted) -> None:
        if self.filters is not None:
            self.filters.call(effect)
        else:
            self._not_filtered(effect, _nobody_filters())

    def _not_filtered(self, effect: ev.FilterWanted, error: SapwoodError) -> None:
        record = error.to_record()
        self._post(ev.Filtered(effect.spec.stream, effect.ticket, b"", None, 0.0, record))

    def _stage(self, effect: ev.FilterStaging) -> None:
        if self.filters is not None:
            self.filters.stage(effect)
        else:
            self._not_staged(effect, _nobody_filters())

    def _not_staged(self, effect: ev.FilterStaging, error: SapwoodError) -> None:
        self._post(ev.FilterStaged(effect.stream, effect.number, error.to_record()))

    def _unused(self, effect: ev.FilterUnused) -> None:
        if self.filters is not None:
            self.filters.unused(effect)

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        if self.filters is not None:
            self.filters.stream_closed(effect.stream)

    def released(self, effect: ev.Released) -> None:
        """Use the memory of a payload again; on the loop's thread."""
        owner = effect.payload.owner
        if isinstance(owner, SharedBlock):
            self._pool.give_back(owner)
        elif owner is not None and self.filters is not None:
            self.filters.released(effect.payload)


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


def _nobody_filters() -> SapwoodError:
    return SapwoodError(
        "user filters cannot run at the root of this session",
        hint="a session of another user than the head's has none; "
        "sapwood.connect() makes one that has",
    )
