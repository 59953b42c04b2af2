"""Machines that a launcher asked for: whether it has them yet."""

from __future__ import annotations

import enum
from collections.abc import Callable

from sapwood.core.states import StateTable


class AllocationState(enum.Enum):
    """What an allocation is."""

    DELAYED = "delayed"
    GRANTED = "granted"
    ENDING = "ending"
    RELEASED = "released"


class AllocationEvent(enum.Enum):
    """What happens to it."""

    GRANT = "grant"
    RELEASE = "release"
    GONE = "gone"


TRANSITIONS: StateTable[AllocationState, AllocationEvent] = StateTable(
    "an allocation",
    {
        (AllocationState.DELAYED, AllocationEvent.GRANT): AllocationState.GRANTED,
        (AllocationState.DELAYED, AllocationEvent.RELEASE): AllocationState.ENDING,
        (AllocationState.DELAYED, AllocationEvent.GONE): AllocationState.RELEASED,
        (AllocationState.GRANTED, AllocationEvent.RELEASE): AllocationState.ENDING,
        (AllocationState.GRANTED, AllocationEvent.GONE): AllocationState.RELEASED,
        (AllocationState.ENDING, AllocationEvent.GONE): AllocationState.RELEASED,
    },
)
"""``release`` is our own wish, ``gone`` is what the cluster says: also of what another ended."""

WaitCallback = Callable[[str, float], None]
"""Told what an allocation waits for, and since how many seconds."""
