"""What an agent hands to its runner, and what comes back."""

from collections.abc import Callable

import msgspec

from sapwood.code.transfers import Transfers
from sapwood.comm.payload import Payload
from sapwood.core.errors import SapwoodError


class Job:
    """A call and what to do with its outcome.

    Attributes:
        procedure: Name in the runner's table.
        context: What the call belongs to; :meth:`RunnerHost.cancel` takes it.
        body: Encoded argument.
        payload: Its arrays.
        on_done: Gets the result.
        on_error: Gets the error.
        time_limit: Seconds after which the call is killed; 0 for no limit.
        needs: Name of the preparation that must have happened in the same process.
        function: What user code the call runs, for error messages.
        attempts: How often it may begin, if somebody kills its runner; see ``crash.py``.
        kills: How often that has happened.
        ahead_of: The job that waits until this one has prepared the runner for it.
    """

    __slots__ = (
        "ahead_of",
        "attempts",
        "body",
        "context",
        "function",
        "kills",
        "needs",
        "on_done",
        "on_error",
        "payload",
        "procedure",
        "time_limit",
    )

    def __init__(  # noqa: PLR0913 - a plain record
        self,
        procedure: str,
        context: str,
        body: bytes,
        payload: Payload | None,
        on_done: Callable[["Outcome"], None],
        on_error: Callable[[SapwoodError], None],
        *,
        time_limit: float = 0.0,
        needs: str = "",
        function: str = "",
        attempts: int = 1,
        ahead_of: "Job | None" = None,
    ) -> None:
        self.procedure = procedure
        self.context = context
        self.body = body
        self.payload = payload
        self.on_done = on_done
        self.on_error = on_error
        self.time_limit = time_limit
        self.needs = needs
        self.function = function
        self.attempts = attempts
        self.kills = 0
        self.ahead_of = ahead_of


class Outcome(msgspec.Struct, frozen=True):
    """The result of a job.

    Attributes:
        body: Encoded value.
        payload: Its arrays; its owner goes back to :meth:`RunnerHost.give_back`.
        seconds: Time inside the procedure.
        transfers: What devices did meanwhile; None for nothing.
    """

    body: bytes
    payload: Payload | None
    seconds: float
    transfers: Transfers | None = None


class Lease:
    """A block of the runner that somebody still reads; kept open past the runner's death."""

    __slots__ = ("fd", "inode", "runner")

    def __init__(self, runner: int, inode: int, fd: int) -> None:
        self.runner = runner
        self.inode = inode
        self.fd = fd


class Preparation(msgspec.Struct, frozen=True):
    """A call that must have happened in a runner before others, for example opening a program."""

    procedure: str
    body: bytes
    payload: Payload | None
    function: str = ""
