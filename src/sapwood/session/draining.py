"""Waiting for what agents have sent of themselves, before a stream or a session ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

from sapwood.comm.streams.control import FLUSH
from sapwood.core.errors import SapwoodError
from sapwood.core.rankset import from_ranges
from sapwood.lifecycle.processes import ProcessState
from sapwood.session.interface import ProcessView, StreamInterface

DRAIN_PAUSE = 0.02
"""Seconds between two looks for places that are cut off from the tree."""

_ALIVE = (ProcessState.READY, ProcessState.DISCONNECTED)


def drain(
    streams: Sequence[StreamInterface],
    seconds: float,
    processes: Callable[[Iterable[int]], list[ProcessView]],
) -> None:
    """Wait until what agents have sent of themselves so far has arrived.

    Args:
        streams: On which.
        seconds: How long to wait at most. Processes that have ended are not waited for.
        processes: Returns the processes of places as they are now.
    """
    end = time.monotonic() + seconds
    for stream in streams:
        with contextlib.suppress(SapwoodError, TimeoutError):
            while _is_unheard(stream, end, processes) and time.monotonic() < end:
                time.sleep(DRAIN_PAUSE)  # until places that were cut off are back


def _is_unheard(
    stream: StreamInterface, end: float, processes: Callable[[Iterable[int]], list[ProcessView]]
) -> bool:
    """Flush a stream; say whether agents that live were not reached."""
    swept = stream.sweep(FLUSH).result(max(0.0, end - time.monotonic()))
    unheard = from_ranges(stream.spec.members) - from_ranges(swept.reached)
    return any(one.state in _ALIVE for one in processes(unheard))
