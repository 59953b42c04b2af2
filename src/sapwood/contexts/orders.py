"""What a client and its zygote say to each other, one message a datagram.

The control socket is a ``SOCK_SEQPACKET`` pair that only these two processes hold. Its end is
the order to stop: a client that is killed leaves no process behind.
"""

from collections.abc import Callable

import msgspec

from sapwood.core import typed

MAX_ORDER = 160 * 1024
"""Bytes of one message; a Unix datagram of the default buffer size holds it."""


class ConfigureProcesses(msgspec.Struct, frozen=True, tag="configure"):
    """What every process that is forked from now on gets.

    Attributes:
        folder: Removed by the zygote when it ends, if it still exists.
        configuration: Handed to the entry function as it is.
        environment: Variables set in the zygote and so in all its children.
    """

    folder: str
    configuration: bytes
    environment: dict[str, str] = {}


class ProcessSpec(msgspec.Struct, frozen=True, array_like=True):
    """One process to be forked: ``module:function`` to run, and who it is to be."""

    entry: str
    rank: int
    incarnation: int


class Spawn(msgspec.Struct, frozen=True, tag="spawn"):
    """Fork processes, in this order."""

    processes: list[ProcessSpec]


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """Send a signal to a process that this zygote forked and that still lives."""

    pid: int
    signal: int


class Serve(msgspec.Struct, frozen=True, tag="serve"):
    """Fork runners for the client, too: the datagram brings a socket for that."""


class Attend(msgspec.Struct, frozen=True, tag="attend"):
    """Fork the processes of a secondary tree, too: the datagram brings its control socket.

    Processes that are ordered there have a separate configuration. Its end ends those processes
    only; when all are gone, the zygote closes its side.
    """


class HeartbeatRequest(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Give a sign of life."""


class HeartbeatReply(msgspec.Struct, frozen=True, tag="alive"):
    """The answer to :class:`HeartbeatRequest`; every other report is a sign of life, too."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The zygote has imported everything.

    Attributes:
        pid: Its process id.
        seconds: How long that took.
        architecture: Of the processor that it and its processes run on, or that is emulated.
        libc: Name and version of their C library, for example ``glibc 2.36``.
        python: Version of their Python, for example ``3.12.1``.
    """

    pid: int
    seconds: float
    architecture: str = ""
    libc: str = ""
    python: str = ""


class Spawned(msgspec.Struct, frozen=True, tag="spawned"):
    """A process was forked."""

    rank: int
    incarnation: int
    pid: int


class SpawnFailed(msgspec.Struct, frozen=True, tag="spawn-failed"):
    """A process could not be begun, and will not be: why, and what to do about it.

    ``machine_gone`` says that its machine is gone: elsewhere it could begin. ``may_return`` says
    that the machine may be back, and the process is begun then.
    """

    rank: int
    incarnation: int
    reason: str
    hint: str = "use fewer agents, or raise the limit of processes (ulimit -u)"
    machine_gone: bool = False
    may_return: bool = False


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """A process ended; ``status`` is its exit code, or minus the signal that killed it.

    Where something else is known of its end, ``reason`` says that.
    """

    rank: int
    incarnation: int
    pid: int
    status: int
    reason: str = ""


class RunnerLost(msgspec.Struct, frozen=True, tag="runner-lost"):
    """A runner ended that its process had not ordered to end.

    It crashed, was killed, or user code ended it.

    Attributes:
        rank: Rank of the process that it ran for.
        pid: Its process id.
        status: Its exit code, or minus the signal that killed it.
    """

    rank: int
    pid: int
    status: int


Order = ConfigureProcesses | Spawn | Kill | Serve | Attend | HeartbeatRequest
ProcessReport = Spawned | Exited | RunnerLost
"""A report on a process that was there."""

Report = Ready | Spawned | SpawnFailed | Exited | RunnerLost | HeartbeatReply

encode = msgspec.msgpack.Encoder().encode
decode_order: Callable[[bytes], Order] = typed.unpacker(Order)
decode_report: Callable[[bytes], Report] = typed.unpacker(Report)
