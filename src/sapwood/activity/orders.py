"""What the front end asks of its agents, and the names under which it does."""

from typing import Any

import msgspec

from sapwood.code.runner.child import RunnerOptions

MAP = "map"
"""Handler of a stream whose waves are iterations of a run."""

OPEN_RUN = "run.open"
CLOSE_RUN = "run.close"
CALL_TASK = "task.call"
OUTPUT = "output"
"""Request from an agent to the front end: what its runner printed."""


class OpenRun(msgspec.Struct, frozen=True):
    """Get ready for a run.

    Attributes:
        run: Name of the run; the context of its stream.
        image: Encoded :class:`~sapwood.code.image.ProgramImage`.
        slice: Encoded :class:`~sapwood.data.slice.SliceRef`.
        items: Items in the slice: the weight of each contribution.
        function: What the map is called, for messages and statistics.
        time_limit: Seconds that one map may take; 0 for no limit.
    """

    run: str
    image: bytes
    slice: bytes
    items: int
    function: str
    time_limit: float = 0.0


class CallTask(msgspec.Struct, frozen=True):
    """Call a function once.

    Attributes:
        code: What to call: a pickled Python function, or an encoded program image.
        native: Name of the native function; empty for a Python function.
        function: What the function is called, for messages and statistics.
        arguments: Encoded positional and keyword arguments; empty if ``code`` holds them.
        time_limit: Seconds that the call may take; 0 for no limit.
    """

    code: bytes
    native: str
    function: str
    arguments: Any
    time_limit: float = 0.0


class AgentSettings(msgspec.Struct, frozen=True):
    """What an agent needs of the settings."""

    runner: RunnerOptions = RunnerOptions()
