"""Futures of tasks that are completed and cancelled at the same time."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from sapwood.activity.task_future import TaskFuture
from sapwood.core.errors import CancelledError


def test_a_task_that_is_done_while_its_callbacks_hear_that_it_is_cancelled() -> None:
    future = TaskFuture("abs", opens=False)
    withdrawn: list[bool] = []
    future.on_cancel = lambda: withdrawn.append(True)

    def callback(_: Future[Any]) -> None:
        future.set_result(3)  # as the event loop does, which comes too late

    future.add_done_callback(callback)
    assert future.cancel()
    assert withdrawn == [True]
    with pytest.raises(CancelledError):
        future.result(0)
