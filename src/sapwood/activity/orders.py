"""What the front end asks of its agents, and the names under which it does."""

from collections.abc import Callable

import msgspec

from sapwood.code.runner.options import RunnerOptions
from sapwood.core import typed

FASTPATH = "fastpath"
"""Handler of the stream that tells agents to use shortcuts from now on."""

MAP = "map"
"""Handler of a stream whose waves are iterations of a run."""

OPEN_RUN = "run.open"
CLOSE_RUN = "run.close"
CALL_TASK = "task.call"
GIVE_BACK_TASK = "task.give_back"
"""Request that an agent give back a task, by the number of its request, unless it has begun it."""

GIVEN_BACK = "given back"
"""Title of the detail of the error that a task ends with that was given back."""

OUTPUT = "output"
"""Request from an agent to the front end: what its runner printed."""


class OpenRun(msgspec.Struct, frozen=True):
    """Get ready for a run.

    Attributes:
        run: Name of the run; the context of its stream.
        image: Encoded :class:`~sapwood.code.image.ProgramImage`.
        slice: Encoded :class:`~sapwood.data.slice.SliceRef`.
        start: First item of the slice.
        stop: End of the slice, exclusive; its length is the weight of each contribution.
        function: What the map is called, for messages and statistics.
        time_limit: Seconds that one map may take; 0 for no limit.
        crash_handlers: Libraries that write a native backtrace, one for each kind of machine.
        attempts: How often a call may begin, if somebody kills its runner.
    """

    run: str
    image: bytes
    slice: bytes
    start: int
    stop: int
    function: str
    time_limit: float = 0.0
    crash_handlers: list[bytes] = []
    attempts: int = 1

    @property
    def items(self) -> int:
        """Items in the slice."""
        return self.stop - self.start


class CallTask(msgspec.Struct, frozen=True):
    """Call a function once.

    Attributes:
        procedure: The runner's procedure that makes the call.
        function: What the function is called, for messages and statistics.
        argument: Encoded argument of the procedure; its arrays are the request's payload.
        time_limit: Seconds that the call may take; 0 for no limit.
        attempts: How often it may begin, if somebody kills its runner.
    """

    procedure: str
    function: str
    argument: bytes
    time_limit: float = 0.0
    attempts: int = 1


class AgentSettings(msgspec.Struct, frozen=True):
    """What an agent needs of the settings."""

    runner: RunnerOptions = RunnerOptions()


# Made in the zygote, so that its children need not work the types out again.
decode_settings: Callable[[bytes], AgentSettings] = typed.unpacker(AgentSettings)
