"""Events of lizard-slayer's API: the requests, the order of their execution, and their results.

Every request that changes something becomes an event. One worker does the events one after the
other, in the order in which they came; clients poll their events until these are final.
"""

from __future__ import annotations

import collections
import enum
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from sapwood import SapwoodError
from sapwood.errors import ClosedError, InputError, ResourceError
from sapwood.plugins.tools import StateTable, logger, new_thread, shown, start_thread
from sapwood_lizard.patience import CALL_LIMIT, overseen

MAX_WAITING: Final = 64
"""Events that may wait for the worker."""

MAX_WAITING_BYTES: Final = 2**30
"""Bytes of the requests of the events that wait, or are done now."""

MAX_FINAL: Final = 1024
"""Final events that are kept."""

MAX_FINAL_BYTES: Final = 2**30
"""Bytes of the results of final events that are kept; the last one is kept in any case."""

CLOSING: Final = 10.0
"""Seconds that the event which is done now gets to end."""

SHUTDOWN: Final = "req_shutdown"
"""The kind of the request to end."""

SHUTDOWN_LIMIT: Final = 60.0
"""Seconds that earlier events may still take after a request to end."""


class EventStatus(enum.Enum):
    """How far an event is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"


class EventChange(enum.Enum):
    """What happens to an event."""

    BEGIN = "begin"
    SUCCEED = "succeed"
    FAIL = "fail"


TRANSITIONS: StateTable[EventStatus, EventChange] = StateTable(
    "an event",
    {
        (EventStatus.PENDING, EventChange.BEGIN): EventStatus.RUNNING,
        (EventStatus.PENDING, EventChange.FAIL): EventStatus.FAILURE,
        (EventStatus.RUNNING, EventChange.SUCCEED): EventStatus.SUCCESS,
        (EventStatus.RUNNING, EventChange.FAIL): EventStatus.FAILURE,
    },
)
"""A pending event fails when the server ends before its turn comes."""

CANCELLED: Final = "CancelledError: the event was cancelled"
"""How the error of an event begins that was cancelled."""

FINAL: Final = frozenset({EventStatus.SUCCESS.value, EventStatus.FAILURE.value})
"""The statuses after which nothing more happens."""


class ApiEvent:
    """A requested event.

    Args:
        kind: The kind of the request, for example ``run_program``.
        data: The data of the request.
        nbytes: Bytes of the request.
    """

    def __init__(self, kind: str, data: Mapping[str, Any], nbytes: int) -> None:
        self.id = uuid.uuid4().hex
        self.kind = kind
        self.data = data
        self.nbytes = nbytes
        self.status = EventStatus.PENDING
        self.text = self._text(None, 0.0)

    def change(self, change: EventChange, result: Any = None, seconds: float = 0.0) -> None:
        """Record a change of its status.

        Args:
            change: The change.
            result: Its result, as JSON has it.
            seconds: How long it took, without the time that it waited.

        Raises:
            TypeError: JSON has no such result.
        """
        before = self.status
        self.status = TRANSITIONS.after(before, change)
        try:
            self.text = self._text(result, seconds)
        except BaseException:
            self.status = before
            raise

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it."""
        return self.status.value in FINAL

    def _text(self, result: Any, seconds: float) -> str:
        """Return the event as the API shows it, in JSON."""
        return json.dumps(
            {
                "event_id": self.id,
                "type": self.kind,
                "status": self.status.value,
                "result": result,
                "completion_time": seconds,
            }
        )


Handler = Callable[[Mapping[str, Any]], Any]
"""Does what an event asks for, and returns its result."""


class EventWorker:
    """Does events in order, one at a time.

    Args:
        handlers: What to do, by kind.
        on_change: Told of events that are new, and of those that are final.
        on_end: Told that nothing more is done.
        on_cancel: Ends what a running event does, and returns whether that is possible.
        call_limit: Seconds that each call of a program's own function may take in this process.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        on_change: Callable[[ApiEvent], object] | None = None,
        on_end: Callable[[], object] | None = None,
        on_cancel: Callable[[ApiEvent], bool] = lambda _event: False,
        call_limit: float = CALL_LIMIT,
    ) -> None:
        self._handlers = handlers
        self._on_cancel = on_cancel
        self._running: ApiEvent | None = None
        self._cancelled: ApiEvent | None = None
        self._shutdown: ApiEvent | None = None
        self._ended = False
        self._call_limit = call_limit
        self._on_change = on_change or (lambda _event: None)
        self._on_end = on_end or (lambda: None)
        self._changed = threading.Condition()
        self._waiting: collections.deque[ApiEvent] = collections.deque()
        self._events: dict[str, ApiEvent] = {}
        self._final: collections.deque[ApiEvent] = collections.deque()
        self._waiting_bytes = self._final_bytes = 0
        self._closed = False
        self._thread = new_thread("sapwood-events", self._work)
        self._thread.start()

    def submit(self, kind: str, data: Mapping[str, Any], nbytes: int = 0) -> ApiEvent:
        """Have something done after all that was asked for before.

        Raises:
            ResourceError: Too much waits already.
            ClosedError: Nothing more is done.
        """
        event = ApiEvent(kind, data, nbytes)
        with self._changed:
            if self._closed:
                raise ClosedError("no more events are done: this server ends")
            if len(self._waiting) >= MAX_WAITING or (
                self._waiting_bytes and self._waiting_bytes + nbytes > MAX_WAITING_BYTES
            ):
                raise ResourceError(
                    f"{len(self._waiting)} events wait already", hint="ask again when some are done"
                )
            self._waiting_bytes += nbytes
            self._events[event.id] = event
            self._on_change(event)
            self._waiting.append(event)
            self._changed.notify()
        return event

    def get(self, event_id: str) -> str | None:
        """Return an event as JSON; None if there is no such, or it is long over."""
        event = self._events.get(event_id)
        return None if event is None else event.text

    def cancel(self, event_id: str) -> bool:
        """Cancel an event that waits or runs; return whether there is such an event.

        Raises:
            InputError: It is over, or what it does cannot be ended.
        """
        event = self._events.get(event_id)
        if event is None:
            return False
        if not self.cancel_where(lambda each: each is event):
            what = (
                "is over" if event.is_final else f"cannot be cancelled while it runs: {event.kind}"
            )
            raise InputError(f"this event {what}", where=event_id)
        return True

    def cancel_where(self, chosen: Callable[[ApiEvent], bool]) -> int:
        """Cancel those of some events that wait or run; return their number."""
        with self._changed:
            waiting = [each for each in self._waiting if chosen(each)]
            for event in waiting:
                self._waiting.remove(event)
            running = self._running
            if running is not None and not chosen(running):
                running = None
        for event in waiting:
            event.change(EventChange.FAIL, {"error": f"{CANCELLED} before its turn came"})
            self._keep(event)
        if running is None or not self._on_cancel(running):
            return len(waiting)
        self._cancelled = running
        return len(waiting) + 1

    def shut_down(self) -> ApiEvent:
        """Have the worker end after all earlier events, or in ``SHUTDOWN_LIMIT`` seconds.

        A second request ends it as soon as the running event is cancelled.

        Raises:
            ResourceError: Too much waits already.
            ClosedError: Nothing more is done.
        """
        with self._changed:
            again = self._shutdown is not None
            asked = self._shutdown = self._shutdown or self.submit(SHUTDOWN, {})
        if again:
            self._hurry()
        else:
            start_thread("sapwood-shutdown", self._shut_down_in_time)
        return asked

    def _shut_down_in_time(self) -> None:
        with self._changed:
            ended = self._changed.wait_for(lambda: self._ended, SHUTDOWN_LIMIT)
        if not ended:
            self._hurry()

    def _hurry(self) -> None:
        self.cancel_where(lambda each: each.kind != SHUTDOWN)

    def finish(self) -> None:
        """Take no more events; those that wait are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def close(self) -> None:
        """Take no more events; those that wait fail. Wait for the one that is done now."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify()
        error = {"error": "ClosedError: the server has ended before this event's turn came"}
        for event in waiting:
            event.change(EventChange.FAIL, error)
            self._keep(event)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSING)

    def _work(self) -> None:
        while (event := self._next()) is not None:
            self._do(event)
            self._keep(event)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._on_end()

    def _next(self) -> ApiEvent | None:
        """Wait for an event; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._running = self._waiting.popleft() if self._waiting else None
            return self._running

    def _do(self, event: ApiEvent) -> None:
        event.change(EventChange.BEGIN)
        began = time.perf_counter()
        try:
            handler = self._handlers[event.kind]
            result = overseen(
                lambda: handler(event.data),
                lambda: 0.0 if self._cancelled is event else self._call_limit,
            )
            event.change(EventChange.SUCCEED, result, time.perf_counter() - began)
        except Exception as error:  # noqa: BLE001 - the client gets it
            if self._cancelled is event:
                text = f"{CANCELLED} while it ran"
                _log.info("event cancelled", type=event.kind, id=event.id)
            else:
                text = describe(error)
                _log.warning("event failed", type=event.kind, id=event.id, error=text)
            event.change(EventChange.FAIL, {"error": text}, time.perf_counter() - began)

    def _keep(self, event: ApiEvent) -> None:
        """Keep a final event for those who ask for it, and forget the oldest ones."""
        event.data = {}
        with self._changed:
            if self._running is event:
                self._running = None
            self._waiting_bytes -= event.nbytes
            self._final.append(event)
            self._final_bytes += len(event.text)
            while len(self._final) > 1 and (
                len(self._final) > MAX_FINAL or self._final_bytes > MAX_FINAL_BYTES
            ):
                old = self._final.popleft()
                self._final_bytes -= len(old.text)
                del self._events[old.id]
        self._on_change(event)


def describe(error: Exception) -> str:
    """Return an error as the result of an event has it: the class, and all that it says.

    Example:
        >>> describe(KeyError("x")), describe(ResourceError("no memory", hint="add some"))
        ("KeyError('x')", 'ResourceError: no memory. Hint: add some')
    """
    return f"{type(error).__name__}: {error}" if isinstance(error, SapwoodError) else shown(error)


_log = logger("lizard")
