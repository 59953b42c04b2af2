"""What the control tree carries: the requests of the head to the nodes, and what nodes report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from sapwood.comm.link_figures import LinkFigures
from sapwood.contexts.orders import ProcessSpec, Report, Spawned
from sapwood.contexts.plan import ZygotePlan
from sapwood.core import typed
from sapwood.core.errors import ProtocolError
from sapwood.core.typed import SignalNumber
from sapwood.environment.component import ComponentAction, ComponentView
from sapwood.environment.lifecycle import State

OPEN = "processes.open"
"""Request to a node: get ready to begin processes of a session."""

RESUME = "processes.resume"
"""Request to a node: take orders about processes again that another head had begun; the answer is
:class:`ResumedProcesses`."""

CONFIGURE = "processes.configure"
"""Request to a node: give another configuration to processes of a session that begin from now."""

SPAWN = "processes.spawn"
"""Request to a node: begin processes."""

DETOUR = "processes.detour"
"""Request to a node: note that a place there is attached elsewhere, or at home again."""

LISTEN = "node.listen"
"""Request: listen for other nodes, that is for places of sessions below this node's places."""

KILL = "processes.kill"
"""Request to a node: end one process."""

LEAVE = "node.leave"
"""Request to a node: end, and do not come back; the value says why."""

STATUS = "node.status"
"""Request to a node: what runs there? Answer: a :class:`NodeActivity`."""

LOGS = "node.logs"
"""Request to a node: what did its daemon log? A :class:`ReadLogs`; answer: a ``LogPage``."""

CLOSE = "processes.close"
"""Request to a node: end all processes of a session; the answer comes when they are gone."""

COMPONENT = "node.component"
"""Request to a node: start, stop or restart a component: a :class:`ComponentOrder`. Answer: its
``ComponentView``."""

CLUSTER_READY = "node.cluster-ready"
"""Request to a node: all nodes and the head are ready; the value is how long that took, seconds.
The node's components receive an event of the same topic."""

HEADS = "node.heads"
"""Request to a node: where it finds the next head when this one is gone: a list of ``host:port``.
"""

COMPONENTS = "node.components"
"""Request of a node to the head: how its components are, a :class:`NodeComponents`."""

DENY = "credentials.deny"
"""Request to a node: some credentials were revoked; a ``DenialUpdate``. Answer: is its list whole?
"""

RENEW = "node.renew"
"""Request of a node: a certificate for a new key; the value is its request, PEM."""

CERTIFY_PLACES = "node.certify_places"
"""Request of a node: a certificate for the places of a session that run as another user; the value
is its request, PEM. It names the node's places, and is good for no link of the node itself."""

REPORT = "processes.report"
"""Request of a node to the head: state changes of processes."""

COMMAND_START = "command.start"
"""Request to a node: start a command."""

COMMAND_INPUT = "command.input"
"""Request to a node: give a command bytes; the answer comes when it has been given all of them."""

COMMAND_SIGNAL = "command.signal"
"""Request to a node: send a signal to a command."""

COMMAND_CANCEL = "command.cancel"
"""Request to a node: kill a command; the answer comes when all of its processes are gone."""

COMMAND_OUTPUT = "command.output"
"""Request of a node to the head: what a command wrote; the answer asks for more."""

COMMAND_ENDED = "command.ended"
"""Request of a node to the head: a command has ended, and the head has all of its output."""

ZYGOTES = "zygotes"
"""The component of a node without which sessions begin nothing there."""

MAX_WINDOW = 8
"""Pieces of output that one node may have on its way."""

MAX_WORDS, MAX_WORD = 64, 256
"""How many words of a command a node reports, and how many characters of each."""

T = TypeVar("T")


class OpenProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """Get ready to begin processes of a session.

    Attributes:
        session: Its name.
        host: Number of this machine in the session's tree.
        plan: What the zygote imports and forks.
        configuration: Encoded :class:`~sapwood.session.member.MemberConfiguration`, without the
            parts that differ between machines.
        environment: Variables for all processes.
        life: Counts how often the session was opened on this machine.
        credential: Ids of the blocks of the credential by which it was opened; none for what the
            head's own user opens. The head writes them.
        user: As whom its processes run; empty: as the daemon's user. The head writes it.
    """

    session: str
    host: int
    plan: ZygotePlan
    configuration: bytes
    environment: dict[str, str]
    life: int
    credential: tuple[str, ...] = ()
    user: str = ""


class ResumeProcesses(msgspec.Struct, frozen=True):
    """Take orders about processes again, as :class:`OpenProcesses` named them.

    Attributes:
        session: Its name.
        life: Which opening of it.
        credential: As in :class:`OpenProcesses`: only its holder resumes it. The head writes it.
    """

    session: str
    life: int
    credential: tuple[str, ...] = ()


class ResumedProcesses(msgspec.Struct, frozen=True):
    """The processes of a session that live on a node."""

    living: list[Spawned]


class ConfigureSession(msgspec.Struct, frozen=True):
    """Give another configuration to processes of a session, as in :class:`OpenProcesses`."""

    session: str
    configuration: bytes


class ListenForNodes(msgspec.Struct, frozen=True):
    """Listen for other nodes; the answer is where, ``host:port`` each.

    A node that listens already keeps its address.

    Attributes:
        listen: ``host:port``; port 0 takes a free one.
    """

    listen: str


class Detour(msgspec.Struct, frozen=True):
    """Where a place is attached whose home is a place of another machine.

    Attributes:
        rank: The place.
        home: Number of the machine of its home; 0 is the root's.
        at: Number of the machine at which it is attached; the same where it is at home.
    """

    rank: int
    home: int
    at: int


class NoteDetour(msgspec.Struct, frozen=True):
    """Note where a place of a session is attached."""

    session: str
    detour: Detour


class SpawnProcesses(msgspec.Struct, frozen=True):
    """Begin processes, in this order."""

    session: str
    processes: list[ProcessSpec]


class KillProcess(msgspec.Struct, frozen=True):
    """Send a signal to a process of a session."""

    session: str
    pid: int
    signal: SignalNumber


class ProcessesReported(msgspec.Struct, frozen=True):
    """What became of processes of a session.

    Attributes:
        session: Its name.
        life: Which opening on this machine it is about.
        report: What the zygote reported; None: the zygote is gone, and with it all processes.
        reason: Why.
    """

    session: str
    life: int
    report: Report | None
    reason: str = ""


class StartCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Start a command.

    Attributes:
        command: Its number; the head counts.
        arguments: Its words, the program first.
        folder: Where it starts; empty: where the daemon is.
        environment: Variables, besides the daemon's.
        wants_input: Whether it is given standard input; else that is empty.
        window: Pieces of output that may be on their way to the head at once.
        user: As whom it runs; empty: as the daemon's user. A head that clients reach writes it.
    """

    command: int
    arguments: Annotated[list[bytes], msgspec.Meta(min_length=1)]
    folder: str = ""
    environment: dict[str, str] = {}
    wants_input: bool = False
    window: int = 1
    user: str = ""


class CommandInput(msgspec.Struct, frozen=True):
    """Give a command standard input; no bytes: its end."""

    command: int
    data: bytes


class SignalCommand(msgspec.Struct, frozen=True):
    """Send a signal to a command."""

    command: int
    signal: SignalNumber


class CancelCommand(msgspec.Struct, frozen=True):
    """Kill a command, with all that it began."""

    command: int


class CommandOutput(msgspec.Struct, frozen=True):
    """A command wrote something.

    Attributes:
        command: Its number.
        stream: 1 for standard output, 2 for standard error.
        data: The bytes.
    """

    command: int
    stream: int
    data: bytes


class CommandEnded(msgspec.Struct, frozen=True):
    """A command has ended.

    Attributes:
        command: Its number.
        status: Exit code, or minus the signal's number.
        reason: Why it could not be started; empty if it was.
    """

    command: int
    status: int
    reason: str = ""


class ProcessActivity(msgspec.Struct, frozen=True, kw_only=True):
    """A process.

    Attributes:
        pid: Its number on its machine.
        since: When it began, seconds since 1970 by the clock of its machine.
        memory: Bytes that it holds.
        rank: Its place in the tree of its session; -1 for a process that has none.
    """

    pid: int
    since: float
    memory: int
    rank: int = -1


class SessionActivity(msgspec.Struct, frozen=True, kw_only=True):
    """A session on a node.

    Attributes:
        session: Its name.
        zygote: The process that begins the others.
        processes: Those that hold places of its tree; runners are below them.
        abandoned: Whether no more orders come: it ends with its last process.
        detours: Its places that are attached to another machine than planned.
    """

    session: str
    zygote: ProcessActivity
    processes: list[ProcessActivity]
    abandoned: bool = False
    detours: list[Detour] = []


class CommandActivity(msgspec.Struct, frozen=True, kw_only=True):
    """A command on a node.

    Attributes:
        command: Its number.
        arguments: The words.
        process: Its first process.
    """

    command: int
    arguments: list[str]
    process: ProcessActivity


class NodeActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on a node.

    Attributes:
        clock: What its clock says, seconds since 1970.
        daemon: The process that stands for it.
        sessions: The sessions that have processes there.
        commands: The commands.
        link: The daemon's link to the head, seen from there.
        interface: The network interface that it goes over; empty if that is not known.
        load: Processes of the machine that run or want to, a mean over a minute.
        free_memory: Bytes that its processes can still take.
        staged: Bytes of staged files.
    """

    clock: float
    daemon: ProcessActivity
    sessions: list[SessionActivity]
    commands: list[CommandActivity]
    link: LinkFigures | None = None
    interface: str = ""
    load: float = 0.0
    free_memory: int = 0
    staged: int = 0


class ComponentOrder(msgspec.Struct, frozen=True):
    """Do something with a component."""

    component: str
    action: ComponentAction


class NodeComponents(msgspec.Struct, frozen=True, kw_only=True):
    """How the components of a node are.

    Attributes:
        components: Each of them, in the order in which they start.
        ready_seconds: How long it took them to become ready, the last time; None before.
        closed: Why sessions cannot begin processes there; empty if they can.
    """

    components: list[ComponentView]
    ready_seconds: float | None = None
    closed: str = ""

    @property
    def ready(self) -> bool:
        """Whether all of them are ready."""
        return all(one.state == State.READY.value for one in self.components)


class ReadLogs(msgspec.Struct, frozen=True):
    """What did a daemon log? See :meth:`~sapwood.environment.log_ring.LogRing.read`."""

    after: int = 0
    level: int = 0


to_value: Callable[[msgspec.Struct], bytes] = msgspec.msgpack.Encoder().encode
"""Returns a message as what requests carry."""


def from_value(value: Any, kind: type[T]) -> T:
    """Return the message that a request carries.

    Raises:
        ProtocolError: It carries another one.
    """
    try:
        return typed.unpacker(kind)(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ProtocolError(f"this is no {kind.__name__}: {error}") from error
