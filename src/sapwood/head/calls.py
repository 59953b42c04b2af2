"""Structures of calls that several modules of a head share, and the names of its notices."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import msgspec

from sapwood.code.run_spec import RunSpec
from sapwood.comm.link_figures import LinkFigures
from sapwood.contexts.orders import ProcessReport
from sapwood.core.hostset import fold_hosts
from sapwood.environment.component import ComponentView
from sapwood.nodes.messages import NodeActivity, NodeComponents
from sapwood.nodes.node_facts import NodeFacts
from sapwood.nodes.refusals import RefusedMachine
from sapwood.security.rights import Rights
from sapwood.session.invited import AgentEvent, InvitationView

SERVICE_PROTOCOL = "sapwood-service/2"
"""The name under which the port of a head tells front ends from anything else (ALPN)."""

GREET = "greet"
"""Call, without credential: who are you, what shall I sign? Answer: a :class:`Greeting`."""

PRESENT = "present"
"""Call: this is my credential. Value: a ``Shown``. Answer: its ``Rights``, which count from now on.
"""

DENIED = "credentials.denied"
"""Notice: some credentials were revoked. Value: a ``DenialUpdate``."""

ENDED = "cluster.ended"
"""Notice: the cluster is down: this head and its nodes end."""

CUT_OFF = "cut off"
"""Notice: this connection ends, as its credential does. Value: why."""

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
"""What a front end tells itself when the head is gone. Value: why."""


def context(cluster: str) -> str:
    """Return what a credential is shown for at a head."""
    return f"{SERVICE_PROTOCOL} {cluster}"


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """Who a head is.

    Attributes:
        cluster: Name of the cluster in certificates.
        authority: The certificate of its authority, PEM.
        challenge: What a credential must sign.
    """

    cluster: str
    authority: bytes
    challenge: bytes


class RightsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a front end may do, as the head tells it.

    Attributes:
        names: Its rights.
        session: The session that they are for; empty for all.
        nodes: The nodes that they are for, folded; empty for all.
        not_after: When they end, seconds since 1970.
        subject: Name of the holder.
        id: Of the credential.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
        reserved: Whether it may use nodes that are reserved; see :class:`NodeRecord`.
    """

    names: list[str]
    session: str
    nodes: str
    not_after: float
    subject: str
    id: str
    user: str = ""
    reserved: bool = True

    @classmethod
    def of(cls, rights: Rights, *, reserved: bool) -> RightsFacts:
        """Return what rights are, as plain data.

        Args:
            rights: The rights.
            reserved: Whether reserved nodes may be used with them.
        """
        return cls(
            names=sorted(rights.names),
            session=rights.session,
            nodes="" if rights.nodes is None else fold_hosts(sorted(rights.nodes)) or "none",
            not_after=rights.not_after,
            subject=rights.subject,
            id=(rights.ids or ("",))[-1],
            user=rights.user,
            reserved=reserved,
        )


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


class CredentialFacts(msgspec.Struct, frozen=True, kw_only=True):
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
        places: Where the head is reached, ``host:port`` each.
    """

    text: str
    facts: CredentialFacts
    places: list[str]


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
    agent: InvitationView


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


class WorkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What agents have done and do, all of them together.

    Attributes:
        agents: Agents that have told of it.
        busy: Agents that make a call.
        memory: Bytes that they and their runners hold.
        calls: Calls that were made: maps of runs, and tasks.
        errors: Those of them that failed.
        seconds: Seconds that the others took.
        bytes_in: Bytes of what they were called with.
        bytes_out: Bytes of what they returned.
        buckets: How many of them took up to each of the bounds of
            ``activity/agent_figures.py``, and longer; empty before the first report.
    """

    agents: int = 0
    busy: int = 0
    memory: int = 0
    calls: int = 0
    errors: int = 0
    seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    buckets: list[int] = []


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
    work: WorkFigures = WorkFigures()
    connected: list[ConnectedUser] = []


class ClientCertificate(msgspec.Struct, frozen=True):
    """What a front end shows to nodes."""

    node: str
    certificate: bytes
    authority: bytes


class SessionCredential(msgspec.Struct, frozen=True, array_like=True):
    """What lets a front end on another machine attach to a session.

    Attributes:
        session: Its id.
        name: What users call it.
        secret: What proves that one may.
        node: The name in the certificate of its root.
        authority: Certificate of the cluster's authority, PEM.
        places: Where the head listens, ``host:port`` each.
        cluster: What users on the head's machine call its cluster; empty if that is unknown.
    """

    session: str
    name: str
    secret: str
    node: str
    authority: bytes
    places: list[str]
    cluster: str = ""


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
        back: Whether processes that were there are gone, and new ones can begin.
        gone: Whether the processes there are gone.
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


class CreateSession(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a session.

    Attributes:
        name: What users are to call it; empty for a name that is made up.
        on: Where its agents are: ``head`` for the nodes of the head, ``local`` for its machine.
        agents: How many; None for as many as there are cores.
        agents_per_node: The same for each node.
        fanout: Children of each junction, on one machine.
        idle: Seconds without attached clients after which it ends; None for the policy's value.
        settings: All settings, as plain values. Of a creator who is not the head's user,
            some count, and others are refused; see ``head/session_settings.py``.
    """

    name: str = ""
    on: str = "head"
    agents: int | None = None
    agents_per_node: int | None = None
    fanout: int | None = None
    idle: float | None = None
    settings: Any = None


class SessionValue(msgspec.Struct, frozen=True):
    """A value of the policy by which a session acts.

    Attributes:
        key: Its dotted name, as ``sapwood policy show`` lists it.
        value: As TOML.
        origin: Where it comes from.
    """

    key: str
    value: str
    origin: str


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is, as its root says.

    Attributes:
        id: Of the session.
        state: See ``session/session_life.py``.
        reason: Why it has ended, or will.
        since: When the first client attached or the last one detached, seconds since 1970.
        agents: How many it has.
        owner: Its present owner; empty without one.
        front_ends: The attached clients.
        streams: Open streams.
        kept: Bytes of retained output.
        dropped: Bytes of output that were left out.
        invitations: By which processes that others start may be agents, and are.
        agent_events: The last events of such agents.
        nodes: The nodes that its agents are on, by name; none on the head's machine alone.
        pid: The process of the root; 0 where it does not say.
        merged: The sessions that are merged into it.
        part_of: The sessions that it is merged into, as they call themselves.
        idle: Seconds without attached clients after which it ends; 0 for never, None where it does
            not say.
        policy: By which values of the policy it acts.
        waits: What it waits for before it begins; empty while it does not wait.
        owned: Whether it ends soon after its owner is gone without having left it. The owner may
            be gone already.
    """

    id: str
    state: str
    reason: str = ""
    since: float = 0.0
    agents: int = 0
    owner: str = ""
    front_ends: list[str] = []
    streams: int = 0
    kept: int = 0
    dropped: int = 0
    invitations: list[InvitationView] = []
    agent_events: list[AgentEvent] = []
    nodes: list[str] = []
    pid: int = 0
    merged: list[str] = []
    part_of: list[str] = []
    idle: float | None = None
    policy: list[SessionValue] = []
    waits: str = ""
    owned: bool = False


class SessionPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in the tree of a session.

    Attributes:
        rank: It.
        parent: The rank of the place above it, as the tree is planned; -1 for the root.
        kind: ``root``, ``junction``, ``spare`` or ``agent``.
        state: ``starting``, ``ready``, ``disconnected``, ``lost`` or ``closed``.
        node: The node that its process is on, by name; empty on the machine of the root.
        pid: Its process; 0 while there is none.
        incarnation: Counts the processes that have been there.
    """

    rank: int
    parent: int
    kind: str
    state: str
    node: str = ""
    pid: int = 0
    incarnation: int = 1


class SessionTree(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a session, as its root said last.

    Attributes:
        id: Of the session.
        places: Its places, by rank.
        left_out: Number of places that are not listed, because lists are bounded.
        name: What users call the session; the head says it.
        version: Another one when it has changed; the head says it.
    """

    id: str
    places: list[SessionPlace]
    left_out: int = 0
    name: str = ""
    version: int = 0


class SessionFigures(msgspec.Struct, frozen=True):
    """What the agents of a session have done.

    Attributes:
        id: Of the session.
        figures: What they have done since it began.
    """

    id: str
    figures: WorkFigures


class KnownTrees(msgspec.Struct, frozen=True, kw_only=True):
    """The trees that a client has already.

    Attributes:
        versions: Of each that it has, by the id of its session.
        session: Only the tree of this session, by name or id; empty for all.
    """

    versions: dict[str, int] = {}
    session: str = ""


class SessionTrees(msgspec.Struct, frozen=True, kw_only=True):
    """The trees of sessions.

    Attributes:
        ids: The sessions that have one, the newest first.
        changed: The trees that are others than known.
    """

    ids: list[str]
    changed: list[SessionTree]


class ClientRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The root of a session has not let a front end in, or has cut it off.

    Attributes:
        session: The id of the session.
        reason: Why.
        address: Where the front end is; empty on the machine of the root.
        label: What it calls itself.
        credential: Id of the block of its credential that counts; empty for none.
        attached: Whether it was attached.
    """

    session: str
    reason: str
    address: str = ""
    label: str = ""
    credential: str = ""
    attached: bool = False


class SessionProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a session ended unasked, or another one took its place.

    Attributes:
        session: The id of the session.
        report: What its zygote reported.
        node: The machine that the session brought along; empty for the head's machine.
    """

    session: str
    report: ProcessReport
    node: str = ""


class SessionCreator(msgspec.Struct, frozen=True, kw_only=True):
    """Whose credential made a session; its root may do no more than that at the head.

    Attributes:
        names: The rights of the credential.
        subject: Who it is for.
        ids: Of each of its blocks.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
        owner: Whose the session is: see :class:`~sapwood.security.rights.Rights`.
        issued_user: The user that the issuer of the credential wrote.
    """

    names: list[str]
    subject: str = ""
    ids: tuple[str, ...] = ()
    user: str = ""
    owner: str = ""
    issued_user: str = ""

    @classmethod
    def of(cls, rights: Rights) -> SessionCreator | None:
        """Return who has these rights; None for the head's user, who shows no credential."""
        if not rights.ids:
            return None
        return cls(
            names=sorted(rights.names),
            subject=rights.subject,
            ids=rights.ids,
            user=rights.user,
            owner=rights.owner,
            issued_user=rights.issued_user,
        )

    @property
    def rights(self) -> Rights:
        """What the root of the session may do.

        They do not end with the credential, as the session does not. To revoke it ends them.
        """
        return Rights(
            names=frozenset(self.names),
            subject=self.subject,
            ids=self.ids,
            user=self.user,
            owner=self.owner,
            issued_user=self.issued_user,
        )


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as the head knows it.

    Attributes:
        id: No other session of this cluster ever has it.
        name: What users call it; another may have it when this one has ended.
        state: See ``session/session_life.py``.
        on: Where its agents are.
        created: When it was asked for, seconds since 1970.
        pid: The process of its root; 0 while there is none.
        started: When that process began, as the kernel counts: tells it from a later one.
        socket: Where front ends of this machine reach it.
        idle: Seconds without attached clients after which it ends; 0 for never.
        machine: Where that is; another head of the cluster may be on another one.
        report: How it is.
        creator: Whose credential made it; None for the head's user.
        machines: Nodes that it is on.
        tree: What these call its processes.
        folders: Folders of its sockets besides the one of ``socket``.
        restarts: When its server was restarted after it was killed, seconds since 1970.
        shared: Whether it leaves out reserved nodes, because credentials that may not use such
            nodes work with its agents.
    """

    id: str
    name: str
    state: str
    on: str
    created: float
    pid: int = 0
    started: int = 0
    socket: str = ""
    idle: float = 0.0
    machine: str = ""
    report: SessionReport | None = None
    creator: SessionCreator | None = None
    machines: int = 0
    tree: str = ""
    folders: list[str] = []
    restarts: tuple[float, ...] = ()
    shared: bool = False

    @property
    def handle(self) -> str:
        """What names it for ever: ``name#id``."""
        return f"{self.name}#{self.id}"

    @property
    def reason(self) -> str:
        """Why it has ended; empty if it has not."""
        return "" if self.report is None else self.report.reason


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
