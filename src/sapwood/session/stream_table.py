"""The streams of a front end: opened, told what became of them, closed together."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.messages import NO_WAIT, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import Accumulator
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core.errors import SapwoodError
from sapwood.core.rankset import Ranges
from sapwood.session.gate import Gate
from sapwood.session.loop_thread import LoopThread
from sapwood.session.shortcut import Shortcut
from sapwood.session.streams import StreamHandle, StreamOptions

FLOWING = 8
"""Waves after which a stream is taken to have more."""


class Filters(Protocol):
    """Calls the own filters of the root."""

    def call(self, effect: ev.Filter) -> None:
        """Call one; the answer is posted."""

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
        post: Gives the front end's node an event; to be called on the loop's thread.
        pool: Where large values are put.
        backlog: Bytes of open waves of one stream.
        shortcut: May exchange waves in the place of the event loop.
        new_number: Returns a number for a stream.

    Attributes:
        filters: Calls the own filters of the root; None where nobody does.
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
            ev.Filter: self._filter,
            ev.StreamClosed: self._stream_closed,
            ev.Released: self._released,
        }

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
        )
        gate = Gate(self._backlog, self._thread)
        with self._lock:  # places hear of streams in the order of their numbers
            spec = msgspec.structs.replace(spec, stream=self._new_number())
            handle = StreamHandle(
                spec, self._thread, self._post, self._pool, self._forget, gate, self._shortcut
            )
            self._thread.post(self._open, handle, ev.OpenStream(spec, options.paced))
        return handle

    def unasked(self) -> list[StreamHandle]:
        """Return the streams on which agents send of themselves; from any thread."""
        streams = list(self._streams.values())
        return [stream for stream in streams if stream.spec.sync.kind == NO_WAIT]

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
            self._released(ev.Released(effect.payload))

    def _wave_failed(self, effect: ev.WaveFailed) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.failed(effect)

    def _contributed(self, effect: ev.Contributed) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.contributed(effect)
        if effect.payload is not None:
            self._released(ev.Released(effect.payload))

    def _sweep_done(self, effect: ev.SweepDone) -> None:
        stream = self._streams.get(effect.stream)
        if stream is not None:
            stream.swept(effect)

    def _filter(self, effect: ev.Filter) -> None:
        if self.filters is not None:
            self.filters.call(effect)
            return
        error = SapwoodError("nobody calls own filters at this front end").to_record()
        self._post(ev.Filtered(effect.spec.stream, effect.ticket, b"", None, 0.0, error))

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        if self.filters is not None:
            self.filters.stream_closed(effect.stream)

    def _released(self, effect: ev.Released) -> None:
        owner = effect.payload.owner
        if isinstance(owner, SharedBlock):
            self._pool.give_back(owner)
        elif owner is not None and self.filters is not None:
            self.filters.released(effect.payload)
