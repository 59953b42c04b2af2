"""The registry of nodes: what machines of a control tree say of themselves, and snapshots of them.

Whether a machine is there is decided by the life cycle of machines
(:mod:`sapwood.lifecycle.machine_core`), whose records the snapshots show.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sapwood.lifecycle.machine_core import MachineLifecycle
from sapwood.lifecycle.machines import MachineRecord, MachineState
from sapwood.nodes import messages
from sapwood.nodes.node_facts import NodeFacts


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a node.

    Attributes:
        host: Number of the machine, from 1.
        name: What the user calls it.
        node: Its node id; empty until it has joined.
        state: ``starting``, ``ready``, ``disconnected`` or ``lost``.
        facts: What it says of itself; None until it has joined.
        skew: Seconds by which its clock is ahead of the head's.
        trouble: Why it is not available; empty if it is.
        certificate_end: When its certificate ends, seconds since 1970; 0 before it has one.
        components: The states of its components; None before it has reported them.
        way: The launcher through which it reaches the head, such as ``ssh``; empty where it does
            so directly.
    """

    host: int
    name: str
    node: str
    state: str
    facts: NodeFacts | None
    skew: float
    trouble: str
    certificate_end: float = 0.0
    components: messages.NodeComponents | None = None
    way: str = ""

    @property
    def closed(self) -> str:
        """Why sessions cannot start processes on this ready node; empty if they can."""
        return self.components.closed if self.components is not None else ""


class JoinedMachine:
    """What a machine says of itself.

    Attributes:
        facts: What it has shown when it joined; None until it has.
        skew: Seconds by which its clock is ahead of the head's.
        way: The launcher through which it reaches the head.
        certificate_end: When its certificate ends, seconds since 1970.
        components: The states of its components; None before its daemon has reported them.
    """

    __slots__ = ("certificate_end", "components", "facts", "skew", "way")

    def __init__(self) -> None:
        self.facts: NodeFacts | None = None
        self.skew = 0.0
        self.way = ""
        self.certificate_end = 0.0
        self.components: messages.NodeComponents | None = None

    def admitted(self, facts: NodeFacts, skew: float, certificate_end: float) -> None:
        """Record what a daemon shows when it joins; it has not reported its components yet."""
        self.facts = facts
        self.skew = skew
        self.certificate_end = certificate_end
        self.components = None


_NEVER_JOINED = JoinedMachine()


class NodeRegistry:
    """The nodes of a control tree, by rank.

    Records change on the loop of the control tree; any thread may read them.

    Args:
        life: The life cycle of the machines.
    """

    def __init__(self, life: MachineLifecycle) -> None:
        self._life = life
        self._machines: dict[int, JoinedMachine] = {}

    def of(self, rank: int) -> JoinedMachine:
        """Return what a machine says of itself, an empty record if it has not joined."""
        found = self._machines.get(rank)
        if found is None:
            found = self._machines[rank] = JoinedMachine()
        return found

    def node_of(self, rank: int) -> str:
        """Return the id of a present node in certificates; empty until it has joined."""
        record = self._life.get(rank)
        return record.node if record is not None and record.is_present else ""

    def facts_of(self, rank: int) -> NodeFacts | None:
        """Return what a node says of itself; None until it has joined."""
        return self._machines.get(rank, _NEVER_JOINED).facts

    def name_of(self, rank: int) -> str:
        """Return what users call a node."""
        return self._life.name_of(rank)

    def forget(self, ranks: Iterable[int]) -> None:
        """Remove what removed machines have said of themselves."""
        for rank in ranks:
            self._machines.pop(rank, None)

    def views(self) -> list[NodeView]:
        """Return snapshots of all nodes that were not removed."""
        removed = MachineState.REMOVED
        return [self._view(record) for record in self._life if record.state is not removed]

    def _view(self, record: MachineRecord) -> NodeView:
        one = self._machines.get(record.rank, _NEVER_JOINED)
        state = record.state
        return NodeView(
            host=record.rank,
            name=self.name_of(record.rank),
            node=record.node,
            state=state.shown,
            facts=one.facts,
            skew=one.skew,
            trouble="" if state is MachineState.READY else record.trouble,
            certificate_end=one.certificate_end,
            components=one.components if state in _WITH_DAEMON else None,
            way=one.way,
        )


_WITH_DAEMON = frozenset({MachineState.READY, MachineState.CUT_OFF})
