"""The registry of nodes: one record for each machine of a control tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import RLock

import msgspec

from sapwood.lifecycle.processes import ProcessState
from sapwood.nodes import messages
from sapwood.nodes.node_facts import NodeFacts
from sapwood.session.port import PlaceView


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
    """What a machine has shown when it joined, and what is known of it since.

    Attributes:
        node: Its id in certificates; empty until it has joined.
        facts: What it says of itself.
        skew: Seconds by which its clock is ahead of the head's.
        trouble: Why it did not come.
        way: The launcher through which it reaches the head.
        certificate_end: When its certificate ends, seconds since 1970.
        awaited: The incarnation of the daemon that may join as this node; 0 for none.
        answered: The incarnation of the daemon that was admitted last.
    """

    __slots__ = (
        "answered",
        "awaited",
        "certificate_end",
        "facts",
        "node",
        "skew",
        "trouble",
        "way",
    )

    def __init__(self) -> None:
        self.node = ""
        self.facts: NodeFacts | None = None
        self.skew = 0.0
        self.trouble = ""
        self.way = ""
        self.certificate_end = 0.0
        self.awaited = 0
        self.answered = 0


class NodeRegistry:
    """The machines of a control tree, by rank; its methods may be called from any thread.

    Args:
        hosts: Names of the machines that a launcher starts, which have the ranks from 1.

    Attributes:
        lock: Held while records are read or changed.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self.lock = RLock()
        self._hosts = tuple(hosts)
        self._machines: dict[int, JoinedMachine] = {}
        self._names: dict[int, str] = {}  # of nodes that joined with a token; kept for errors
        self._given_up: dict[int, str] = {}
        self._components: dict[int, messages.NodeComponents] = {}
        self._broken: set[int] = set()  # nodes whose links have no connection now

    # --- records, with the lock held -----------------------------------------------------------

    def of(self, rank: int) -> JoinedMachine:
        """Return the record of a machine, a new one if there is none."""
        found = self._machines.get(rank)
        if found is None:
            found = self._machines[rank] = JoinedMachine()
        return found

    def __iter__(self) -> Iterator[tuple[int, JoinedMachine]]:
        """Go through ranks and records."""
        return iter(list(self._machines.items()))

    def troubled(self) -> dict[int, str]:
        """Return the machines that did not come, and why."""
        return {rank: one.trouble for rank, one in self if one.trouble}

    # --- any thread ------------------------------------------------------------------------------

    def node_of(self, rank: int) -> str:
        """Return the id of a node in certificates; empty until it has joined."""
        with self.lock:
            found = self._machines.get(rank)
            return found.node if found is not None else ""

    def facts_of(self, rank: int) -> NodeFacts | None:
        """Return what a node says of itself; None until it has joined."""
        with self.lock:
            found = self._machines.get(rank)
            return found.facts if found is not None else None

    def name_of(self, rank: int) -> str:
        """Return what users call a node."""
        with self.lock:
            joined = self._names.get(rank)
        if joined is not None:
            return joined
        return self._hosts[rank - 1] if 0 < rank <= len(self._hosts) else f"node {rank}"

    def named(self, name: str) -> list[int]:
        """Return the ranks of the nodes that joined by this name."""
        with self.lock:
            return [rank for rank, known in self._names.items() if known == name]

    def add(self, rank: int, name: str, present: Iterable[int]) -> None:
        """Give a joining machine its name, with its rank behind it if another node has that name.

        Args:
            rank: Its rank.
            name: What it calls itself.
            present: The ranks of the tree.
        """
        with self.lock:
            taken = {*self._hosts, *(self._names[one] for one in present if one in self._names)}
            self._names[rank] = name if name not in taken else f"{name}-{rank}"

    def await_daemon(self, rank: int, incarnation: int) -> None:
        """Let the next daemon of a rank join."""
        with self.lock:
            self.of(rank).awaited = incarnation

    def take_awaited(self, rank: int) -> int:
        """Return which daemon may join as a rank, and let no other; 0 for none."""
        with self.lock:
            one = self.of(rank)
            awaited, one.awaited = one.awaited, 0
            return awaited

    def given_up(self, rank: int) -> str:
        """Return why a node will not come back; empty if it may."""
        with self.lock:
            return self._given_up.get(rank, "")

    def give_up(self, ranks: Iterable[int], reason: str) -> None:
        """Record that nodes will not come back."""
        with self.lock:
            self._given_up |= dict.fromkeys(ranks, reason)

    def forget(self, ranks: Iterable[int]) -> None:
        """Remove the records of nodes that were removed; their names stay, for errors."""
        with self.lock:
            for rank in ranks:
                self._machines.pop(rank, None)

    def is_broken(self, rank: int) -> bool:
        """Whether the link to a node has no connection now."""
        with self.lock:
            return rank in self._broken

    def set_broken(self, ranks: Iterable[int], *, broken: bool) -> None:
        """Record whether the links to nodes have a connection."""
        with self.lock:
            (self._broken.update if broken else self._broken.difference_update)(ranks)

    def components_of(self, rank: int) -> messages.NodeComponents | None:
        """Return the states of a node's components; None before it has reported them."""
        with self.lock:
            return self._components.get(rank)

    def set_components(
        self, rank: int, reported: messages.NodeComponents
    ) -> messages.NodeComponents | None:
        """Record the states of a node's components; return those before."""
        with self.lock:
            before = self._components.get(rank)
            self._components[rank] = reported
            return before

    def drop_components(self, ranks: Iterable[int]) -> None:
        """Forget the states of components: a new daemon reports its own."""
        with self.lock:
            for rank in ranks:
                self._components.pop(rank, None)

    def views(self, places: Iterable[PlaceView]) -> list[NodeView]:
        """Return snapshots of the nodes of these ranks."""
        with self.lock:
            return [self._view(place) for place in places]

    def _view(self, place: PlaceView) -> NodeView:
        rank = place.rank
        one = self._machines.get(rank) or JoinedMachine()
        cut_off = place.is_ready and rank in self._broken
        return NodeView(
            host=rank,
            name=self.name_of(rank),
            node=one.node,
            state=ProcessState.DISCONNECTED.shown if cut_off else place.state.shown,
            facts=one.facts,
            skew=one.skew,
            trouble="" if place.is_ready else one.trouble,
            certificate_end=one.certificate_end,
            components=self._components.get(rank),
            way=one.way,
        )
