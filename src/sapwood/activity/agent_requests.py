"""The requests of the client to its agents and of agents to their runners: names and values.

Agents load this, so it needs no numpy.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.activity.statistics import AgentStatistics
from sapwood.code.run_spec import RunOptions
from sapwood.code.runner.crash import ATTEMPTS
from sapwood.code.runner.options import RunnerOptions
from sapwood.comm import plain
from sapwood.content.refs import ContentRef
from sapwood.core import typed

FASTPATH = "fastpath"
"""Handler of the stream that tells agents to use shortcuts from now on."""

METRICS = "metrics"
"""Handler of the stream by which a root asks what its agents have done: `agent_metrics.py`."""

PROFILE = "profile"
"""Handler of the stream whose waves have agents sample stacks: `agent_profile.py`."""

MAP = "map"
"""Handler of a stream whose waves are iterations of a run."""

OPEN_RUN = "run.open"
CLOSE_RUN = "run.close"
RELEASE_DATA = "data.release"
"""Request that an agent hold its slice of a persistent dataset no longer, by its handle."""

PULSE = "run.pulse"
"""Request that an agent say what it does in a run, by the name of the run; see :class:`Pulse`."""

FLUSH_TRACES = "traces.flush"
"""Procedure of a runner that sends what user code has traced."""

MACHINE = "agent.machine"
"""Request that an agent say where it is; see :class:`AgentMachine`."""

STACK = "agent.stack"
"""Request for the stack of an agent's runner: a :class:`~sapwood.code.stacks.StackInfo`."""

CALL_TASK = "task.call"
HELP = "run.help"
"""Request that an agent map items of another one that is late; see :class:`HelpRun`."""

DELIVER = "run.deliver"
"""Request that a late agent take what others have mapped for it; see :class:`DeliverRun`."""

USED = "used"
ANSWERED = "answered"
NOT_WANTED = "not wanted"
"""Answers of a late agent: it has contributed that, it had answered itself, the wave has not come
to it yet."""

TASK_STATISTICS = "task.statistics"
"""Request that an agent say what its tasks cost so far: ``FunctionStatistics`` of each function."""

GIVE_BACK_TASK = "task.give_back"
"""Request that an agent give back a task, by the number of its request, unless it has begun it."""

GIVEN_BACK = "given back"
"""Title of the detail of the error that a task ends with that was given back."""

OUTPUT = "output"
"""Request from an agent to the client: what its runner printed."""


class OpenRun(msgspec.Struct, frozen=True):
    """Get ready for a run.

    Attributes:
        run: Name of the run; the context of its stream.
        image: Encoded :class:`~sapwood.code.image.ProgramImage`.
        slice: Encoded :class:`~sapwood.data.slice.SliceRef`.
        start: First item of the slice.
        stop: End of the slice, exclusive; its length is the weight of each contribution.
        function: What the map is called, for messages and statistics.
        options: The options of the run.
        crash_handlers: Libraries that write a native backtrace, one for each kind of machine.
        content: What image, slice and libraries need and the agent may have to fetch.
        reduce: Reductions, by field, that put the results of the chunks of a slice together; empty
            for one call of the map with the whole slice.
        trace: Headers that continue the trace of the run, if it is traced.
    """

    run: str
    image: bytes
    slice: bytes
    start: int
    stop: int
    function: str
    options: RunOptions = RunOptions()
    crash_handlers: list[ContentRef] = []
    content: list[ContentRef] = []
    reduce: dict[str, str] = {}
    trace: dict[str, str] = {}

    @property
    def items(self) -> int:
        """Items in the slice."""
        return self.stop - self.start

    @property
    def time_limit(self) -> float:
        """Seconds that one map may take; 0 for no limit."""
        return self.options.time_limit or 0.0

    @property
    def attempts(self) -> int:
        """How often a call may start, if its runner is killed."""
        return ATTEMPTS if self.options.on_agent_loss == "replace" else 1

    @property
    def chunk(self) -> int:
        """Items of each call of the map; 0 for one call with the whole slice."""
        return (self.options.chunk or 0) if self.reduce else 0


class RecentCall(msgspec.Struct, frozen=True, array_like=True):
    """A map of an agent that is over.

    Attributes:
        wave: Its wave in the stream of the run.
        age: Seconds since it started; clocks of machines differ.
        seconds: What it took.
        waited: Seconds from the answer before it until it was wanted.
        items: Items of the slice.
        bytes_up: Bytes of the result.
    """

    wave: int
    age: float
    seconds: float
    waited: float
    items: int
    bytes_up: int


class Pulse(msgspec.Struct, frozen=True):
    """What an agent does in a run.

    Attributes:
        wave: The last wave that it was asked for; 0 before the first.
        busy: Seconds since it was asked, if it has not answered; -1 if it has.
        recent: The last maps that are over, the oldest first.
    """

    wave: int = 0
    busy: float = -1.0
    recent: tuple[RecentCall, ...] = ()


class Opened(msgspec.Struct, frozen=True):
    """The answer of an agent that is ready for a run.

    Attributes:
        pid: Its process.
        runner: The process of its runner.
        node: What its machine calls itself.
        kind: The kind of that machine.
    """

    pid: int = 0
    runner: int = 0
    node: str = ""
    kind: str = ""


class AgentMachine(msgspec.Struct, frozen=True):
    """Where an agent is.

    Attributes:
        node: What its machine calls itself.
        kind: The kind of that machine.
        gpu: Whether it runs CUDA sources on a GPU.
    """

    node: str = ""
    kind: str = ""
    gpu: bool = False


class ClosedRun(msgspec.Struct, frozen=True):
    """The answer of an agent that is to forget a run.

    Attributes:
        statistics: What it did; None if it did not know of the run.
        pulse: What it did last.
    """

    statistics: AgentStatistics | None = None
    pulse: Pulse = Pulse()


class HelpRun(msgspec.Struct, frozen=True):
    """Map items of another agent once, and answer with the result.

    Attributes:
        order: The program and the items.
        state: The encoded state; its arrays are the request's payload.
    """

    order: OpenRun
    state: bytes


class DeliverRun(msgspec.Struct, frozen=True):
    """Contribute what others have mapped of this agent's items, unless it has done so itself.

    Attributes:
        run: The context of the stream; in one context an agent always has the same items.
        wave: The wave.
        result: The encoded result; its arrays are the request's payload.
    """

    run: str
    wave: int
    result: bytes


class CallTask(msgspec.Struct, frozen=True):
    """Call a function once.

    Attributes:
        procedure: The runner's procedure that makes the call.
        function: What the function is called, for messages and statistics.
        argument: Encoded argument of the procedure; its arrays are the request's payload.
        time_limit: Seconds that the call may take; 0 for no limit.
        attempts: How often it may start, if its runner is killed.
        content: What the function needs and the agent may have to fetch.
    """

    procedure: str
    function: str
    argument: bytes
    time_limit: float = 0.0
    attempts: int = 1
    content: list[ContentRef] = []


class AgentSettings(msgspec.Struct, frozen=True):
    """What an agent needs of the settings.

    Attributes:
        runner: How runners are set up.
        content_folder: Where content is kept on each node; empty: in the user's cache folder.
        content_cache: Bytes that may be kept there.
    """

    runner: RunnerOptions = RunnerOptions()
    content_folder: str = ""
    content_cache: int = 0


# Made in the zygote, so that its children need not work the types out again.
decode_settings: Callable[[bytes], AgentSettings] = typed.unpacker(AgentSettings)


CALL = "call"
"""Handler of a stream whose waves call user code."""

OPEN = "stream.open"
CALL_ONCE = "stream.call"
NEXT = "stream.next"
CLOSE = "stream.close"
"""Procedures of a runner for what agents do in a stream."""

OPEN_FILTER = "filter.open"
FILTER = "filter.call"
STAGE_FILTER = "filter.stage"
CLOSE_FILTER = "filter.close"
"""Procedures of a runner for own filters."""

END: Any = {"sapwood:end": None}
"""Answer of a runner whose generator has ended, or whose filter passes nothing on."""

END_BODY = plain.encode(END)


RUN_GRACE = 10.0
"""Seconds after the end of its stream in which a run is closed; else whoever had it was killed."""

CLOSE_GRACE = 0.5
"""Seconds that a call gets to end when its stream is closed, before its process is killed."""


class UserCode(msgspec.Struct, frozen=True):
    """A function or a filter.

    Attributes:
        function: What it is called, for messages.
        code: Pickled, or an encoded :class:`~sapwood.code.image.ProgramImage`.
        native: Name of the native function; empty for Python.
        crash_handlers: Libraries that write a native backtrace, one for each kind of machine.
        steps: Whether it is a generator: each value is sent alone.
        time_limit: Seconds that one call may take; 0 for no limit.
        reducers: Whether it is what reduces the fields of the program in ``code``.
        content: What the code needs and a place may have to fetch.
    """

    function: str
    code: bytes
    native: str = ""
    crash_handlers: list[ContentRef] = []
    steps: bool = False
    time_limit: float = 0.0
    reducers: bool = False
    content: list[ContentRef] = []


class FilterCall(msgspec.Struct, frozen=True, array_like=True):
    """One call of a filter.

    Attributes:
        upward: Whether values are put together; else one goes down.
        wave: Number of the wave.
        version: Of the parameters.
        parameters: Encoded parameters.
        child: Where the value goes; -1 for all children.
        values: Encoded values: body, arrays inline, and the positions of arrays in shared memory.
        ranks: The lowest rank behind each value.
        weights: The items behind each value.
    """

    upward: bool
    wave: int
    version: int
    parameters: bytes
    child: int
    values: list[tuple[bytes, bytes, bytes]]
    ranks: list[int] = []
    weights: list[float] = []


encode = msgspec.msgpack.Encoder().encode
decode_code: Callable[[bytes], UserCode] = typed.unpacker(UserCode)
