"""What front ends ask of a head, and what it tells them: names and contents of their messages."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.comm.link_figures import LinkFigures
from sapwood.environment.component import ComponentView
from sapwood.nodes.control import RefusedMachine
from sapwood.nodes.joining import NodeFacts
from sapwood.nodes.messages import ComponentOrder, NodeActivity, NodeComponents, ReadLogs

HELLO = "hello"
"""Call: who are you? Answer: :class:`HeadFacts`."""

NODES = "nodes"
"""Call: which nodes are there? Answer: a list of :class:`NodeRecord`."""

STATUS = "status"
"""Call: how are the nodes? Answer: a :class:`TreeStatus`."""

LOGS = "logs"
"""Call: what did a daemon, or the head, log? Value: :class:`LogsOf`. Answer: a ``LogPage``."""

COMPONENT = "component"
"""Call: start, stop or restart a component. Value: :class:`ComponentOf`. Answer: its
``ComponentView``."""

REMOVE_NODE = "node.remove"
"""Call: end a node, which will not be back. Value: :class:`RemoveNode`. Answer: its record."""

CREATE_TOKEN = "token.create"  # noqa: S105 - a name
"""Call: let machines join. Value: :class:`CreateToken`. Answer: :class:`JoinLine`."""

LIST_TOKENS = "token.list"
"""Call: which tokens can be used? Answer: a list of :class:`TokenFacts`."""

REVOKE_TOKEN = "token.revoke"  # noqa: S105 - a name
"""Call: let nobody join by a token any more. Value: its id. Answer: whether it was there."""

CERTIFY = "certify"
"""Call: certify a front end. Value: its request, PEM. Answer: :class:`FrontEndCertificate`."""

DELEGATE = "delegate"
"""Call: give the links of a tree to a socket of the front end. Value: :class:`DelegateLinks`."""

UNDELEGATE = "undelegate"
"""Call: do so no more. Value: the tree."""

ORDER = "order"
"""Call: ask the daemon of a node. Value: :class:`NodeOrder`. Answer: the daemon's."""

TAKEN = "taken"
"""Call: there is room for more output. Value: the number of what was taken."""

DOWN = "down"
"""Call: end, and all nodes with it."""

NODES_CHANGED = "nodes"
"""Notice: nodes are not what they were. Value: :class:`NodesChanged`."""

PROCESSES_REPORTED = "processes"
"""Notice: what became of processes. Value: :class:`OfNode` of a ``ProcessesReported``."""

COMMAND_OUTPUT = "command.output"
"""Notice: a command wrote something. Value: :class:`OfNode` of a ``CommandOutput``."""

COMMAND_ENDED = "command.ended"
"""Notice: a command has ended. Value: :class:`OfNode` of a ``CommandEnded``."""


HEAD_GONE = "gone"
"""What a front end tells itself when the head is gone. Value: why."""


class HeadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a head says of itself.

    Attributes:
        name: What the user calls it.
        cluster: Name of the cluster in certificates.
        version: Of Sapwood.
        pid: Its process.
        started: When it began, seconds since 1970.
        places: Where nodes reach it, ``host:port`` each.
        front_ends: How many front ends are there.
    """

    name: str
    cluster: str
    version: str
    pid: int
    started: float
    places: list[str]
    front_ends: int


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

    @property
    def is_ready(self) -> bool:
        """Whether processes can begin there."""
        return self.state == "ready"

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


class TreeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a head are.

    Attributes:
        time: When, by the head's clock, seconds since 1970.
        nodes: Each of them.
        refusals: Machines that were not let in, the last ones.
        head: How the components of the head are.
        ready_seconds: How long it took the head and all nodes to become ready, with all of their
            components, the last time; None before.
    """

    time: float
    nodes: list[NodeStatus]
    refusals: list[RefusedMachine]
    head: list[ComponentView] = []
    ready_seconds: float | None = None


class ComponentOf(msgspec.Struct, frozen=True):
    """Do something with a component.

    Attributes:
        host: Its node; 0 for the head itself.
        order: What.
    """

    host: int
    order: ComponentOrder


class LogsOf(msgspec.Struct, frozen=True):
    """What did a daemon log?

    Attributes:
        host: Its node; 0 for the head itself.
        read: Which lines.
    """

    host: int
    read: ReadLogs


class RemoveNode(msgspec.Struct, frozen=True):
    """End a node.

    Attributes:
        name: What users call it.
        drain: Seconds that it gets to finish what it does.
    """

    name: str
    drain: float = 0.0


class CreateToken(msgspec.Struct, frozen=True):
    """Let machines join.

    Attributes:
        uses: How many.
        lifetime: For how many seconds.
        names: Pattern of their names, as of a shell.
    """

    uses: int = 1
    lifetime: float = 3600.0
    names: str = "*"


class JoinLine(msgspec.Struct, frozen=True):
    """What another machine needs to join.

    Attributes:
        id: Of the token.
        text: ``TOKEN@host:port,host:port``: what ``sapwood node join`` takes.
        expires: When it ends, seconds since 1970.
    """

    id: str
    text: str
    expires: float


class TokenFacts(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    id: str
    uses: int
    expires: float
    names: str


class FrontEndCertificate(msgspec.Struct, frozen=True):
    """What a front end shows to nodes."""

    node: str
    certificate: bytes
    authority: bytes


class DelegateLinks(msgspec.Struct, frozen=True):
    """Give the connections of a tree to whoever listens at a path."""

    tree: str
    path: str


class NodeOrder(msgspec.Struct, frozen=True):
    """A request to the daemon of a node."""

    host: int
    handler: str
    value: Any


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
        number: To be told when it was taken; 0 if nobody waits.
    """

    host: int
    value: Any
    number: int = 0
