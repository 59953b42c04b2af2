"""A request of the front end, and the future of its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from sapwood.comm import values
from sapwood.core.errors import ErrorRecord, SapwoodError

Take = Callable[[float | None], object]
"""Takes an answer from where it arrives, waiting for so many seconds; or leaves it alone."""


class Answer(Future[Any]):
    """What comes of a request: whoever waits for it may take it from where it arrives.

    Attributes:
        awaited: Whether somebody has waited for it, and not only asked to be called.
        number: Of the request; 0 until it is made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.awaited = False
        self.number = 0
        self._take: list[Take] = []

    def taken_by(self, take: Take) -> None:
        """Let whoever waits first take the answer."""
        self._take.append(take)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer and return it."""
        return super().result(self._left(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the answer and return its error, if any."""
        return super().exception(self._left(timeout))

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Have a function called when the answer is there: on the event loop's thread."""
        self._take.clear()
        super().add_done_callback(fn)

    def _left(self, timeout: float | None) -> float | None:
        """Take the answer, if that can be; return how long to wait for it then."""
        self.awaited = True
        begin = monotonic()
        try:
            take = self._take.pop()
        except IndexError:
            return timeout
        take(timeout)
        return None if timeout is None else max(0.0, timeout - (monotonic() - begin))


class Question(msgspec.Struct, frozen=True):
    """A request on its way from a user's thread to the loop's."""

    rank: int
    handler: str
    number: int
    body: bytes
    arrays: values.Encoded
    future: Answer

    def answered(
        self, body: bytes, payload: memoryview | None, error: ErrorRecord | None
    ) -> Callable[[], None]:
        """Return what gives the future what came, unless it has that already.

        Args:
            body: The encoded answer.
            payload: Its arrays, which are copied.
            error: In place of an answer.
        """
        if error is not None:
            return partial(self.end, None, SapwoodError.from_record(error))
        try:
            # A copy: the agent may use its memory again, and the user may write to the arrays.
            value = values.decode(body, bytearray(payload) if payload is not None else b"")
        except SapwoodError as problem:
            return partial(self.end, None, problem)
        return partial(self.end, value, None)

    def end(self, value: Any, error: SapwoodError | None) -> None:
        """Give the future a result or an error, unless it has one; from any thread."""
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(value)
