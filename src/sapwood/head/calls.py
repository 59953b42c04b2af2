"""Structures of calls that several modules of a head share, and the names of its notices.

Those about sessions and of a greeting are in modules that clients can import fast.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import msgspec

from sapwood.code.run_spec import RunSpec
from sapwood.comm.link_figures import LinkFigures
from sapwood.environment.component import ComponentView
from sapwood.head.session_records import WorkMetrics
from sapwood.nodes.messages import NodeActivity, NodeComponents
from sapwood.nodes.node_facts import NodeFacts
from sapwood.nodes.refusals import RefusedMachine
from sapwood.session.invited import InvitationInfo

DENIED = "credentials.denied"
"""Notice: some credentials were revoked. Value: a ``DenialUpdate``."""

ENDED = "cluster.ended"
"""Notice: the cluster is down: this head and its nodes end."""

EVENT_NOTED = "event"
"""Notice: something happened. Value: a ``LedgerEvent``."""

POLICY_CHANGED = "policy"
"""Notice: the policy is another one. Value: the rows of it that changed."""

NODES_CHANGED = "nodes"
"""Notice: nodes are not what they were. Value: :class:`NodesChanged`."""

PROCESSES_REPORTED = "processes"
"""Notice: state changes of processes. Value: :class:`OfNode` of a ``ProcessesReported``."""

COMMAND_OUTPUT = "command.output"
"""Notice: a command wrote something. Value: :class:`OfNode` of a ``CommandOutput``."""

COMMAND_ENDED = "command.ended"
"""Notice: a command has ended. Value: :class:`OfNode` of a ``CommandEnded``."""


HEAD_GONE = "gone"
"""What a client tells itself when the head is gone. Value: why."""


class IssueCredential(msgspec.Struct, frozen=True, kw_only=True):
    """Make a credential.

    Attributes:
        subject: Who it is for, in words.
        rights: What it allows.
        role: Or what this role of the policy allows.
        session: The session that it is for; empty for all.
        nodes: The nodes that it is for, folded; empty for all.
        lifetime: For how many seconds; 0 for 7 days, or as long as the policy allows.
        holder: Public key of the only holder; empty for any holder.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
    """

    subject: str = ""
    rights: list[str] = []
    role: str = ""
    session: str = ""
    nodes: str = ""
    lifetime: float = 7 * 86400.0
    holder: bytes = b""
    user: str = ""


class CredentialInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A credential that was issued, without its key.

    Attributes:
        id: Of its first block.
        subject: Who it is for, in words.
        rights: What it allows.
        session: The session that it is for; empty for all.
        nodes: The nodes that it is for, folded; empty for all.
        not_after: When it ends, seconds since 1970.
        issued: When it was issued.
        bound: Whether it is bound to the key of its holder.
        revoked: When it was revoked; 0 if it was not.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
    """

    id: str
    subject: str
    rights: list[str]
    session: str
    nodes: str
    not_after: float
    issued: float
    bound: bool
    revoked: float = 0.0
    user: str = ""


class IssuedCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A new credential.

    Attributes:
        text: What its holder keeps; it is a secret.
        facts: What it is.
        addresses: Where the head is reached, ``host:port`` each.
    """

    text: str
    facts: CredentialInfo
    addresses: list[str] = msgspec.field(name="places")


class RevokeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a revocation.

    Attributes:
        id: Of the block.
        known: Whether the head issued it; else a holder narrowed another one to it.
        nodes: Nodes that know by now.
        missing: Nodes that have not confirmed it yet; they receive it as soon as possible.
        clients: Clients that were cut off.
        epoch: Of the list.
    """

    id: str
    known: bool
    nodes: list[str]
    missing: list[str]
    clients: int
    epoch: int


GONE = "removed"
"""State of a node that has left for good."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        host: Its number; no other node ever has it.
        name: What users call it.
        node: Its id in certificates.
        state: ``starting``, ``ready``, ``draining``, ``disconnected``, ``lost``, ``removed``, or
            ``closed``: it is there, but sessions cannot begin processes on it.
        facts: What it says of itself.
        skew: Seconds by which its clock is ahead of the head's.
        reason: Why it is not ready; empty if it is.
        joined: When it joined, seconds since 1970.
        since: Since when it is in its state, seconds since 1970; 0 if that is not known.
        former: Why it was not ready before.
        former_time: Since when it was not, then.
        reserved: Whether processes there can act as a user who runs a head: it is on the head's
            machine and runs as the same user, or as root, and the policy does not open it to all
            credentials. See ``head/reserved.py``.
    """

    host: int
    name: str
    node: str
    state: str
    facts: NodeFacts | None = None
    skew: float = 0.0
    reason: str = ""
    joined: float = 0.0
    since: float = 0.0
    former: str = ""
    former_time: float = 0.0
    reserved: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether processes can begin there."""
        return self.state == "ready"

    @property
    def is_gone(self) -> bool:
        """Whether it has left for good."""
        return self.state == GONE

    @property
    def can_be_asked(self) -> bool:
        """Whether its daemon can be reached."""
        return self.state in {"ready", "draining", "closed"}

    @property
    def takes_commands(self) -> bool:
        """Whether commands can begin there."""
        return self.state in {"ready", "closed"}


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is.

    Attributes:
        record: Who it is.
        link: The link to it, seen from the head; None while there is none.
        interface: The interface of the head's machine that the link goes over.
        skew: Seconds by which its clock is ahead of the head's, measured now if it answers.
        skew_error: How wrong that is at most; None if it was measured only when the node joined.
        certificate_end: When its certificate ends, seconds since 1970; 0 if it has none.
        activity: What runs there; None if it does not answer.
        unanswered: Why it does not.
        components: How its components are, as it said last; None before it has said so.
    """

    record: NodeRecord
    link: LinkFigures | None = None
    interface: str = ""
    skew: float = 0.0
    skew_error: float | None = None
    certificate_end: float = 0.0
    activity: NodeActivity | None = None
    unanswered: str = ""
    components: NodeComponents | None = None


class JoinedOf(msgspec.Struct, frozen=True):
    """An agent that joined by an invitation.

    Attributes:
        session: Handle of its session.
        agent: By which invitation it is there, and since when.
    """

    session: str
    agent: InvitationInfo


class TreeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a head are.

    Attributes:
        time: When, by the head's clock, seconds since 1970.
        nodes: Each of them.
        refusals: Machines that were not let in, the last ones.
        head: How the components of the head are.
        ready_seconds: How long it took the head and all nodes to become ready, with all of their
            components, the last time; None before.
        joined: Agents of sessions that joined by an invitation.
    """

    time: float
    nodes: list[NodeStatus]
    refusals: list[RefusedMachine]
    head: list[ComponentView] = []
    ready_seconds: float | None = None
    joined: list[JoinedOf] = []


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is in short, with what it said last of what runs there.

    Attributes:
        host: Its number.
        name: What users call it.
        state: See :class:`NodeRecord`.
        since: Since when, seconds since 1970; 0 if that is not known.
        reason: Why it is not ready; empty if it is.
        cores: How many processes may run at once; 0 if that is not known.
        skew: Seconds by which its clock is ahead of the head's.
        certificate_end: When its certificate ends, seconds since 1970; 0 if it has none.
        trouble: Its components that do not do what they are for, and why.
        link: State of the link to it; empty while there is none.
        round_trip: Seconds that a message takes there and back; None if that is not known.
        queued: Bytes that wait to be sent there.
        sent: Bytes that were sent there.
        received: Bytes that came from there.
        load: Its processes that run or want to, a mean over a minute; None before it has said so.
        free_memory: Bytes that its processes can still take.
        sessions: The sessions that have processes there.
        processes: Their places there.
        commands: How many commands run there.
    """

    host: int
    name: str
    state: str
    since: float = 0.0
    reason: str = ""
    cores: int = 0
    skew: float = 0.0
    certificate_end: float = 0.0
    trouble: list[str] = []
    link: str = ""
    round_trip: float | None = None
    queued: int = 0
    sent: int = 0
    received: int = 0
    load: float | None = None
    free_memory: int = 0
    sessions: list[str] = []
    processes: int = 0
    commands: int = 0


class ConnectedRun(msgspec.Struct, frozen=True):
    """A run in progress of a program that uses nodes without a named session.

    Attributes:
        run: What it is called.
        started: When it started, seconds since 1970 by the head's clock.
    """

    run: str
    started: float


class ConnectedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A program that uses nodes without a named session, through ``sapwood.connect`` or ``--on``.

    Its session is in its own process, so the head knows of its runs only that they have started.

    Attributes:
        name: What events and the status of nodes call its session.
        user: The subject of its credential; empty for the head's own user.
        address: Where it is; empty on the head's machine.
        since: Since when it uses nodes, seconds since 1970.
        nodes: The nodes that it uses, by name.
        agents: How many agents it has there; None if the head was restarted since they started.
        runs: Its runs in progress, the oldest first.
    """

    name: str
    user: str
    address: str
    since: float
    nodes: list[str]
    agents: int | None
    runs: list[ConnectedRun] = []


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is in short.

    Attributes:
        time: When, by the head's clock, seconds since 1970.
        nodes: Each of the nodes that are there.
        refusals: Machines that were not let in, the last ones.
        trouble: Components of the head that do not do what they are for, and why.
        ready_seconds: As in :class:`TreeStatus`.
        work: What the agents of all sessions have done since the head began.
        connected: The programs that use nodes without a named session, the newest first.
    """

    time: float
    nodes: list[NodeSnapshot]
    refusals: list[RefusedMachine] = []
    trouble: list[str] = []
    ready_seconds: float | None = None
    work: WorkMetrics = WorkMetrics()
    connected: list[ConnectedUser] = []


class NodeOrder(msgspec.Struct, frozen=True):
    """A request to the daemon of a node.

    Attributes:
        host: Its number.
        handler: The name of the request.
        value: What it is given.
        session: The session by whose right a command is to run on one of its nodes; empty for
            the right to begin processes on that node.
    """

    host: int
    handler: str
    value: Any
    session: str = ""


class NodesChanged(msgspec.Struct, frozen=True):
    """Nodes as they are now, and how that came.

    Attributes:
        nodes: Those that changed.
        back: Whether processes of sessions can start there now.
        gone: Whether the processes of sessions there are gone.
        for_good: Whether the nodes will not be back.
        reason: Why they are gone.
    """

    nodes: list[NodeRecord]
    back: bool = False
    gone: bool = False
    for_good: bool = False
    reason: str = ""


class OfNode(msgspec.Struct, frozen=True):
    """What a node tells.

    Attributes:
        host: Its number.
        value: What it tells.
        number: For the acknowledgement; 0 if none is wanted.
    """

    host: int
    value: Any
    number: int = 0


class CreateRun(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a run.

    Attributes:
        spec: The run; its program and its data are absolute paths or addresses.
        settings: Settings by dotted key, as for ``--set``.
        output: File that its result goes to; empty for none.
        folder: The folder that relative paths are meant in.
    """

    spec: RunSpec
    settings: dict[str, str | int | bool] = {}
    output: str = ""
    folder: str = "/"

    @property
    def program(self) -> str:
        """Name of the program, for lists."""
        return PurePath(str(self.spec.program)).name

    @property
    def session(self) -> str:
        """Its session; empty for separate agents."""
        kind, _, name = str(self.settings.get("cluster.on", "")).partition(":")
        return name if kind == "session" else ""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as the head knows it.

    Attributes:
        id: No other run of this cluster ever has it.
        program: Name of the program.
        session: Its session; empty for separate agents.
        state: ``running``, ``done``, ``failed`` or ``cancelled``.
        created: When it began, seconds since 1970.
        ended: When it ended; 0 while it runs.
        pid: The process that drives it.
        started: When that began, as the kernel counts.
        folder: Where its progress, its output and its answer lie.
        wanted: The run that was asked for.
        cancelled: Whether it was cancelled.
        machine: Where that process is; another head of the cluster may be on another one.
        restarts: When its process was restarted after it was killed, seconds since 1970.
        reason: Why it has no result; empty while it is running, and if it has one.
    """

    id: str
    program: str
    session: str
    state: str
    created: float
    ended: float = 0.0
    pid: int = 0
    started: int = 0
    folder: str = ""
    wanted: CreateRun = CreateRun(spec=RunSpec(""))
    cancelled: bool = False
    machine: str = ""
    restarts: tuple[float, ...] = ()
    reason: str = ""
