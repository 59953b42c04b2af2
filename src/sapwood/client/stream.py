"""A stream as users hold it: broadcast down the tree, reduce up, wave by wave."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import msgspec

from sapwood.client.unread import EndFuture, Unread, WaveFuture
from sapwood.comm import values
from sapwood.comm.messages import FilterAt, PlaceStatistics
from sapwood.comm.streams import control
from sapwood.comm.streams.filters import code_name
from sapwood.core.arguments import wait_time, whole
from sapwood.core.errors import (
    CancelledError,
    ClosedError,
    ConfigurationError,
    DataValueError,
    SapwoodError,
)
from sapwood.core.futures import CallerFuture
from sapwood.core.html_table import html_table
from sapwood.core.rankset import Ranges, fold, from_ranges
from sapwood.core.shown import shown
from sapwood.core.staying import StaysHere
from sapwood.environment.units import describe_size
from sapwood.session.interface import (
    PlacesChanged,
    SessionInterface,
    StreamInterface,
    SweepResult,
    WaveResult,
)

CLOSING = 5.0
"""Seconds that the end of a stream waits for what agents have sent."""


class StreamInfo(msgspec.Struct, frozen=True):
    """What a stream is now.

    Attributes:
        number: What the tree calls it.
        what: What its agents do.
        state: ``open``, ``draining``, ``quiet`` or ``closed``.
        members: Ranks of the agents that take part.
        reduce: Reduction of each field; under the empty name that of whole values.
        sync: ``all``, ``time-out`` or ``none``.
        on_loss: ``replace``, ``partial`` or ``fail``.
        waves: Waves that were broadcast.
        open_waves: Those that are not over.
        parameters: Of own filters, as last set.
        dropped: Unread results that were dropped.
    """

    number: int
    what: str
    state: str
    members: tuple[int, ...]
    reduce: dict[str, str]
    sync: str
    on_loss: str
    waves: int
    open_waves: int
    parameters: dict[str, Any]
    dropped: int


HEADINGS = {
    "rank": ("", "rank"),
    "state": ("", "state"),
    "waves_open": ("open", "waves"),
    "held": ("", "held"),
    "queued": ("", "queue"),
    "messages_down": ("down", "msgs"),
    "bytes_down": ("down", "size"),
    "messages_up": ("up", "msgs"),
    "bytes_up": ("up", "size"),
    "filtered": ("filter", "calls"),
    "filter_seconds": ("filter", "time"),
    "late": ("", "late"),
    "repeated": ("sent", "again"),
}
"""Two lines above each column, so that a table fits 80 characters."""


class StreamStatistics(msgspec.Struct, frozen=True):
    """Performance counters of a stream, one entry a place.

    Attributes:
        what: What the stream's agents do.
        places: What each place counted, by rank: the client is rank 0.
    """

    what: str
    places: tuple[PlaceStatistics, ...]

    def __getitem__(self, rank: int) -> PlaceStatistics:
        for place in self.places:
            if place.rank == rank:
                return place
        raise KeyError(rank)

    def json(self) -> str:
        """Return the counters as JSON."""
        names = (*HEADINGS, "relayed")
        rows = [{name: getattr(place, name) for name in names} for place in self.places]
        return msgspec.json.encode({"stream": self.what, "places": rows}).decode()

    def __str__(self) -> str:
        names = tuple(HEADINGS)
        rows = list(zip(*(HEADINGS[name] for name in names), strict=True)) + [
            tuple(_text(name, getattr(place, name)) for name in names) for place in self.places
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
        return "\n".join(
            " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )

    def _repr_html_(self) -> str:
        rows = [[_text(name, getattr(place, name)) for name in HEADINGS] for place in self.places]
        return html_table(rows, [name.replace("_", " ") for name in HEADINGS], self.what)


class Stream(StaysHere):
    """A stream over agents; made by :meth:`.Cluster.stream`. Use it as a context manager.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        session: SessionInterface,
        handle: StreamInterface,
        what: str,
        parameters: dict[str, Any],
        called: Callable[[], None],
        new_filters: Callable[[Any, Any], tuple[FilterAt, ...]],
        *,
        latest: bool = False,
    ) -> None:
        self._session = session
        self._new_filters = new_filters
        self._filters = handle.spec.filters
        self._version = max(handle.spec.parameters, default=0)
        self._updating = threading.Lock()
        self._handle = handle
        self._what = what
        self._parameters = parameters
        self._called = called
        self._state = "open"
        unread = self._unread = Unread(handle.read, latest=latest)
        self._changed = unread.changed
        self._is_endless = handle.spec.sync.kind == "none"
        handle.new_future = (lambda: EndFuture(unread)) if self._is_endless else WaveFuture
        handle.on_contribution = self._arrived
        self._unsubscribe = session.subscribe(self._places_changed)

    # --- waves -------------------------------------------------------------------------------

    def broadcast(self, value: Any = None) -> "CallerFuture[WaveResult]":
        """Send a value to all agents; the future is the reduction of their answers.

        On a stream with ``sync="none"`` it is done when all have answered, and the answers
        come one by one from :meth:`waves`. While the stream is quiet, waves wait.

        Raises:
            DataValueError: The value cannot travel.
            ResourceError: Too many answers of a stream with ``sync="none"`` wait to be read.
            ClosedError: The stream or its cluster is closed.
        """
        self._must_be_open()
        self._unread.check_room()
        future = self._handle.broadcast(value)  # may wait, so not under a lock
        if not self._is_endless:
            self._unread.add_wave(future)
        return future

    def exchange(self, value: Any = None, timeout: float | None = None) -> WaveResult:
        """Send a value to all agents and wait for the reduction of their answers.

        The shortest way to one answer after the other: it does what ``broadcast(value).result()``
        does, but faster, because the waiting thread sends and gathers itself. :meth:`waves`
        does not yield the result again.

        Raises:
            DataValueError: The value cannot travel.
            SapwoodError: The wave failed.
            TimeoutError: It takes longer than ``timeout`` seconds; the wave continues.
            ClosedError: The stream or its cluster is closed.
        """
        self._must_be_open()
        return self._handle.exchange(value, wait_time(timeout))

    def waves(self, timeout: float | None = None) -> Iterator[WaveResult]:
        """Yield the results of the waves so far in the order in which they were broadcast.

        Ends when all waves that were broadcast have been yielded. On a stream with
        ``sync="none"`` it yields each contribution as it comes, and ends when the stream is
        closed. A result is yielded once. An agent that pushes values blocks once 64 of them are
        unread, except while some thread waits on the future of a wave. Other streams keep their
        last 256 results.

        Args:
            timeout: Seconds to wait for each of them; by default for ever.

        Raises:
            SapwoodError: A wave failed; the next call of this method continues after it.
            ResourceError: Unread results were dropped, and how many; the next call
                continues after them.
            TimeoutError: The next one is not there in time.
        """
        timeout = wait_time(timeout)
        while True:
            self._session.thread.refuse_forked_child()
            with self._changed:
                if self._is_endless:
                    there = self._changed.wait_for(self._is_something_there, timeout)
                    if not there:
                        raise TimeoutError(f"nothing came on the stream in {timeout:g} s")
                future = self._unread.first()
            if future is None:
                return
            try:
                result = future.result(timeout)
            except TimeoutError as error:
                if isinstance(error, SapwoodError):  # not of the waiting, but of the wave
                    self._unread.read(future)
                raise
            except BaseException:
                self._unread.read(future)
                raise
            self._unread.read(future)
            yield result

    def catch_up(
        self,
        waves: "Iterable[Future[WaveResult]]",
        values: "Iterable[WaveResult | SapwoodError]",
        dropped: int,
    ) -> None:
        """Yield from :meth:`waves` what came before this object was there; for those who attach."""
        self._unread.dropped += whole(dropped, "dropped")
        for future in () if self._is_endless else waves:
            self._unread.add_wave(future)
        for value in values:
            self._arrived(value)

    # --- the stream itself -------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> list[int]:
        """Wait until all that was sent on the stream so far has been delivered.

        Waves that agents still work on are not waited for, and the stream stays as it is.

        Returns:
            The agents that were not reached because they are lost.

        Raises:
            ClosedError: The stream is closed.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        return self._missing(self._sweep(control.FLUSH, timeout))

    def quiesce(self, timeout: float | None = None) -> list[int]:
        """Drain the links of all messages of the stream, and keep it quiet until :meth:`resume`.

        What agents have to say, and waves that are broadcast, wait meanwhile.

        Returns:
            The agents that were not reached because they are lost.

        Raises:
            InputError: The stream is quiet already.
            ClosedError: The stream is closed.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        swept = self._sweep(control.QUIESCE, timeout)
        self._state = "quiet"
        return self._missing(swept)

    def resume(self, timeout: float | None = None) -> None:
        """Let a quiet stream move again.

        Raises:
            InputError: The stream is not quiet.
            ClosedError: The stream is closed.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        self._sweep(control.RESUME, timeout)
        self._state = "open"

    def configure(self, **parameters: Any) -> None:
        """Change parameters of the stream's filters, from the next wave on.

        All places use the new ones for that wave and all after it, and the old ones before.

        Raises:
            ClosedError: The stream is closed.
            DataValueError: A parameter cannot travel.
        """
        self._must_be_open()
        with self._updating:
            self._configure(self._parameters | parameters)

    def update_filter(
        self, up: Any = None, *, down: Any = None, timeout: float | None = None
    ) -> int:
        """Replace the code of the stream's filters between two waves.

        All places get the new code and load it while waves continue with the old one. When all have
        it, the next wave and all after it use it, at all places; those before, the old one. Its
        objects begin without state. If it cannot be built, or one place cannot load it, the old
        code stays everywhere.

        Args:
            up: Replaces ``reduce`` or ``up``, in the same forms.
            down: Replaces ``down``.
            timeout: Seconds to wait until all places have it; by default for ever.

        Returns:
            The version of the waves from now on; each result has that which it went through.

        Raises:
            ConfigurationError: There is no such filter to be replaced.
            BuildError: It does not compile.
            SapwoodError: A place cannot load it: the error that it has there.
            ClosedError: The stream is closed.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        self._must_be_open()
        with self._updating:
            new = replaced_filters(self._filters, self._new_filters(up, down))
            swept = self._sweep(control.STAGE, timeout, new)
            for report in swept.reports:
                if report.problem is not None:
                    self._handle.sweep(control.STAGE)  # no place may keep it
                    place = f"junction {report.rank}" if report.rank else "the client"
                    error = SapwoodError.from_record(report.problem).located(place)
                    self._handle.explain(error)
                    raise error
            self._filters = new
            return self._configure(self._parameters, code_name(new))

    def filters(self, timeout: float | None = None) -> dict[int, str]:
        """Return which filter code new waves use at each place that has any, by rank.

        Code is named by its hash: the same code has the same name at all places.

        Raises:
            ClosedError: The stream is closed.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        reports = self._sweep(control.QUERY, timeout).reports
        return {one.rank: one.code for one in sorted(reports, key=_rank_of) if one.code}

    def query(self) -> StreamInfo:
        """Return what the stream is now."""
        spec = self._handle.spec
        return StreamInfo(
            number=spec.stream,
            what=self._what,
            state=self.state,
            members=tuple(sorted(from_ranges(spec.members))),
            reduce=dict(spec.reduce),
            sync=spec.sync.kind,
            on_loss=spec.on_loss,
            waves=self._handle.waves_begun,
            open_waves=self._handle.open_waves,
            parameters=dict(self._parameters),
            dropped=self._unread.dropped,
        )

    def counters(self, timeout: float | None = None) -> StreamStatistics:
        """Ask all places what they counted: messages, bytes, time in filters, queues.

        Raises:
            ClosedError: The stream is closed.
            TimeoutError: It takes longer than ``timeout`` seconds.
        """
        swept = self._sweep(control.QUERY, timeout)
        reports = sorted(swept.reports, key=lambda report: report.rank)
        return StreamStatistics(self._what, tuple(reports))

    @property
    def state(self) -> str:
        """``open``, ``quiet`` or ``closed``."""
        return "closed" if self._handle.closed is not None else self._state

    @property
    def closed(self) -> bool:
        """Whether the stream is closed."""
        return self._state == "closed" or self._handle.closed is not None

    def close(self, *, timeout: float = CLOSING) -> None:
        """Delete the stream: places forget it, and what agents do for it is cancelled.

        On a stream with ``sync="none"`` what agents have sent before arrives first, and
        :meth:`waves` yields it; unless the stream is quiet, or ``with`` ends by an error.
        A process that was forked from the cluster's owner closes nothing.

        Args:
            timeout: Seconds to wait for that; later values are lost. Agents whose
                process has ended are not waited for.
        """
        timeout = wait_time(timeout) or 0.0
        if self._session.thread.in_forked_child:
            return
        open_still = not self._session.closed and self._handle.closed is None
        may_wait = timeout > 0 and not self._session.thread.is_current
        if open_still and may_wait and self._is_endless:
            self._session.drain([self._handle], timeout)
        self._unsubscribe()
        self._state = "closed"
        if not self._session.closed:
            self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(timeout=CLOSING if kind is None else 0.0)

    def __repr__(self) -> str:
        spec = self._handle.spec
        agents = fold("agent", from_ranges(spec.members))
        waves = f"{self._handle.waves_begun} waves, {self._handle.open_waves} open"
        return f"<Stream {spec.stream}: {self._what} over {agents}, {self.state}, {waves}>"

    # --- inside ------------------------------------------------------------------------------

    def _is_something_there(self) -> bool:
        return len(self._unread) > 0 or self.closed

    def _arrived(self, result: WaveResult | SapwoodError) -> None:
        """Receive a pushed contribution; on the loop's thread."""
        if self._handle.closed is None and self._is_endless:
            self._unread.add(result)
            return
        with self._changed:
            self._changed.notify_all()

    def _configure(self, parameters: dict[str, Any], code: str = "") -> int:
        """Begin the next version of the filters, and return its number."""
        self._handle.configure(parameters_body(parameters), code)
        self._parameters = parameters
        self._version += 1
        return self._version

    def _sweep(
        self, action: str, timeout: float | None, filters: tuple[FilterAt, ...] = ()
    ) -> SweepResult:
        self._must_be_open()
        timeout = wait_time(timeout)
        return self._handle.sweep(action, filters).result(timeout)

    def _missing(self, swept: SweepResult) -> list[int]:
        reached: Ranges = swept.reached
        return sorted(from_ranges(self._handle.spec.members) - from_ranges(reached))

    def _must_be_open(self) -> None:
        self._session.thread.refuse_forked_child()
        reason = self._handle.closed
        if reason is None and self._state == "closed":  # the loop's thread will hear of it
            reason = ClosedError("the stream was closed")
        if isinstance(reason, ClosedError | CancelledError):
            raise ClosedError(reason.what, hint="open a new one with cluster.stream()")
        if reason is not None:
            raise reason
        self._called()

    def _places_changed(self, change: PlacesChanged) -> None:
        """Fail when an agent is given up that the stream waits for; on the loop's thread."""
        members = from_ranges(self._handle.spec.members)
        if members.isdisjoint(change.agents) or change.back:
            return
        if self._session.failure is not None and self._handle.spec.on_loss == "replace":
            self._handle.close(self._session.failure)


def replaced_filters(old: Sequence[FilterAt], new: Sequence[FilterAt]) -> tuple[FilterAt, ...]:
    """Return filters with new code where there is some, at the same places and for the same ways.

    Raises:
        ConfigurationError: The new ones are for other places, or for a way without a filter.

    Example:
        >>> old = (FilterAt("*", b"up", b"down"), FilterAt("rank 9", b"up"))
        >>> [one.up for one in replaced_filters(old, [FilterAt("rank 9", b"new")])]
        [b'up', b'new']
    """
    found = {one.where: one for one in old}
    if not new:
        raise ConfigurationError("no new filter is given", hint="update_filter(up=…) or (down=…)")
    for one in new:
        known = found.get(one.where)
        ways = [way for way in ("up", "down") if getattr(one, way)]
        missing = [way for way in ways if known is None or not getattr(known, way)]
        if known is None or missing:
            raise ConfigurationError(
                f"the stream has no filter {missing[0]} at {shown(one.where)} that could be "
                "replaced",
                hint="an update changes the code of filters; open a new stream for others",
            )
        found[one.where] = FilterAt(
            one.where,
            one.up or known.up,
            one.down or known.down,
            one.per_child if one.down else known.per_child,
        )
    return tuple(found.values())


def _rank_of(report: PlaceStatistics) -> int:
    return report.rank


def parameters_body(parameters: dict[str, Any]) -> bytes:
    """Return parameters of filters as they travel: without arrays.

    Raises:
        DataValueError: One cannot travel, or is an array.
    """
    encoded = values.encode(parameters)
    if encoded.nbytes:
        raise DataValueError(
            "a parameter of a filter cannot be an array or a long text",
            hint="send them in waves, or arrays as lists",
        )
    return encoded.body


def _text(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2g} s" if value else "0"
    if isinstance(value, int) and name.startswith("bytes"):
        return describe_size(value).replace(" ", "")
    return str(value)
