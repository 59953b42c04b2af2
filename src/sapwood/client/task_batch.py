"""Tasks that were submitted together, as one span, where traces are wanted."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Self

from sapwood.core.futures import when_done
from sapwood.environment.tracing import CALL_SPAN, Carrier, Tracer, TraceSpan

MAX_CALL_SPANS: Final = 16
"""The first tasks of a batch, which get separate spans at their runners."""


class TaskBatch:
    """A span that ends when all tasks of a batch are done.

    User code of all of them continues its trace. Use it as a context manager while they are
    submitted.

    Args:
        tracer: Makes the span.
        function: What the tasks call.
    """

    def __init__(self, tracer: Tracer, function: str) -> None:
        self._lock = threading.Lock()
        self._open = 1  # and one more, until all are submitted
        self._tasks = self._failed = 0
        self._span: TraceSpan = tracer.begin(f"tasks {function}", {"code.function.name": function})
        self._carrier = self._span.carrier

    def carrier(self) -> Carrier:
        """Return what goes with the next task."""
        if self._tasks < MAX_CALL_SPANS:
            return {**self._carrier, CALL_SPAN: "1"}
        return self._carrier

    def add(self, future: Future[Any]) -> None:
        """Have the span last until a task is done."""
        with self._lock:
            self._open += 1
            self._tasks += 1
        when_done(future, self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over(failed=error is not None)

    def _done(self, future: Future[Any]) -> None:
        try:
            # Not TaskFuture.exception(), which opens pickles of the user: this is an event loop.
            failed = Future.exception(future) is not None
        except CancelledError:
            failed = True
        self._over(failed=failed)

    def _over(self, *, failed: bool) -> None:
        with self._lock:
            self._open -= 1
            self._failed += failed
            if self._open:
                return
        error = f"{self._failed} of {self._tasks} failed" if self._failed else None
        about = {"sapwood.tasks": self._tasks, "sapwood.tasks.failed": self._failed}
        self._span.end(error, about)
