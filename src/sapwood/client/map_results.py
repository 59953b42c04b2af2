"""What ``map`` returns: the results of many calls, one after the other."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Self

from sapwood.activity.task_future import TaskFuture


class MapResults(Iterator[Any]):
    """An iterator over the results of calls, in order; ``async for`` reads it in a coroutine.

    When it is closed or collected, or a call fails, the calls that are not done are cancelled.

    Args:
        futures: The calls that were submitted.
        more: Submits another call with each step; before each result one step is made.
        end: Time until which a result must be there, as ``time.monotonic`` has it; None for ever.
        chunked: Whether the result of each call is a list of results.
    """

    def __init__(
        self,
        futures: deque[TaskFuture],
        more: Iterator[TaskFuture],
        end: float | None,
        *,
        chunked: bool,
    ) -> None:
        self._futures = futures
        self._more = more
        self._end = end
        self._is_chunked = chunked
        self._chunk: deque[Any] = deque()

    def __next__(self) -> Any:
        try:
            while not self._chunk:
                if not self._futures:
                    raise StopIteration
                self._take(_result_of(self._futures.popleft(), self._left()))
            return self._chunk.popleft()  # neither future nor result is kept here
        except BaseException:
            self.close()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next result, without blocking the loop."""
        import asyncio  # noqa: PLC0415 - few programs have a loop

        try:
            while not self._chunk:
                if not self._futures:
                    raise StopAsyncIteration
                self._take(await asyncio.wait_for(self._futures.popleft(), self._left()))
            return self._chunk.popleft()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancel the calls that are not done; there are no more results."""
        futures, self._futures = self._futures, deque()
        self._chunk.clear()
        for future in futures:
            future.cancel()

    def __del__(self) -> None:
        self.close()

    def _left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def _take(self, result: Any) -> None:
        """Keep the results of one call to be returned, and submit another call."""
        self._futures.extend(itertools.islice(self._more, 1))
        self._chunk.extend(result if self._is_chunked else (result,))


def _result_of(future: TaskFuture, timeout: float | None) -> Any:
    """Return a result; cancel the call if it is not done in time. As in the standard library."""
    try:
        try:
            return future.result(timeout)
        finally:
            future.cancel()
    finally:
        del future  # no cycle through the traceback of what it raises
