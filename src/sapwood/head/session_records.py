"""Structures of calls about sessions."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.contexts.orders import ProcessReport
from sapwood.security.rights import Rights
from sapwood.session.invited import AgentEvent, InvitationInfo


class WorkMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What agents have done and do, all of them together.

    Attributes:
        agents: Agents that have reported it.
        busy: Agents that make a call.
        memory: Bytes that they and their runners hold.
        calls: Calls that were made: maps of runs, and tasks.
        errors: Those of them that failed.
        seconds: Seconds that the others took.
        bytes_in: Bytes of what they were called with.
        bytes_out: Bytes of what they returned.
        buckets: How many of them took up to each of the bounds of
            ``activity/agent_metrics.py``, and longer; empty before the first report.
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


class ClientCertificate(msgspec.Struct, frozen=True):
    """What a client shows to nodes."""

    node: str
    certificate: bytes
    authority: bytes


class SessionCredential(msgspec.Struct, frozen=True, array_like=True):
    """What lets a client on another machine attach to a session.

    Attributes:
        session: Its id.
        name: What users call it.
        secret: What proves that one may.
        node: The name in the certificate of its root.
        authority: Certificate of the cluster's authority, PEM.
        addresses: Where the head listens, ``host:port`` each.
        cluster: What users on the head's machine call its cluster; empty if that is unknown.
    """

    session: str
    name: str
    secret: str
    node: str
    authority: bytes
    addresses: list[str] = msgspec.field(name="places")
    cluster: str = ""


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
        clients: The attached clients.
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
    clients: list[str] = []
    streams: int = 0
    kept: int = 0
    dropped: int = 0
    invitations: list[InvitationInfo] = []
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


class SessionMetrics(msgspec.Struct, frozen=True):
    """What the agents of a session have done.

    Attributes:
        id: Of the session.
        metrics: What they have done since it began.
    """

    id: str
    metrics: WorkMetrics


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
    """The root of a session has not let a client in, or has cut it off.

    Attributes:
        session: The id of the session.
        reason: Why.
        address: Where the client is; empty on the machine of the root.
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
        socket: Where clients of this machine reach it.
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
