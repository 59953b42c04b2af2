"""Members of groups in the simulator: each makes its calls one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sapwood.comm import plain, values
from sapwood.comm.groups import events as gev
from sapwood.comm.messages.groups import GroupCall, GroupNumber
from sapwood.comm.payload import Payload
from sapwood.core.errors import SapwoodError
from sapwood.core.rankset import to_ranges
from sapwood.core.topology import Tree
from sapwood_simulation.network import Network

Step = tuple[GroupCall, Any]
"""A call and the value that the member gives."""


class SimulatedPeer:
    """One member: enters, calls, leaves.

    Attributes:
        results: What its calls gave.
        error: Why the group ended, if it did.
        left: Whether it has left the group after its last call.
        busy: Whether it makes no calls, though it has entered.
    """

    def __init__(
        self, network: Network, rank: int, group: Iterable[int], name: str, steps: Sequence[Step]
    ) -> None:
        self.network, self.rank, self.name = network, rank, name
        self.members = to_ranges(group)
        self.steps = list(steps)
        self.results: list[Any] = []
        self.error: SapwoodError | None = None
        self.number: GroupNumber | None = None
        self.left = False
        self.busy = False

    def enter(self) -> None:
        """Enter the group."""
        self.network.post(self.rank, gev.EnterGroup(self.members, self.name))

    def saw(self, effect: Any) -> None:
        """Process an event of the group, and continue."""
        if isinstance(effect, gev.GroupEntered):
            self.number = effect.group
            if not self.busy:
                self._next()
        elif isinstance(effect, gev.GroupFinished):
            if effect.round > len(self.steps):
                self.left = True
                return
            view = effect.payload.view if effect.payload is not None else b""
            value = values.decode(effect.body, bytes(view))["x"] if effect.body else None
            self.results.append(value)
            self._next()
        else:
            self.error = SapwoodError.from_record(effect.error)

    def _next(self) -> None:
        assert self.number is not None
        done = len(self.results)
        call, value = self.steps[done] if done < len(self.steps) else (GroupCall("leave"), None)
        body, payload = b"", None
        if call.operation == "scatter" and value is not None:
            body, payload = scattered(value)
        elif value is not None:
            encoded = values.encode({"x": value})
            body = encoded.body
            payload = Payload(encoded.payload(), owner=self) if encoded.nbytes else None
        self.network.post(
            self.rank, gev.CallGroup(self.number, done + 1, call, done, body, payload)
        )


def scattered(portions: dict[int, Any]) -> tuple[bytes, Payload]:
    """Return body and payload of a scatter: a value for each member."""
    rows, data = [], b""
    for rank, value in portions.items():
        encoded = values.encode({"x": value})
        rows.append((rank, encoded.body, len(data), len(data) + encoded.nbytes))
        data += bytes(encoded.payload()).ljust(encoded.nbytes, b"\0")
    return plain.encode(rows), Payload(data)


class SimulatedPeers:
    """All members of all groups of one simulated tree.

    Args:
        tree: Its shape.
        seed: Decides in which order things happen.

    Attributes:
        discarded: Payloads that were given back.

    Example:
        >>> from sapwood.core.topology import kary
        >>> peers = SimulatedPeers(kary(4, 2))
        >>> members = peers.add([1, 3], lambda rank: [(GroupCall("allreduce", "sum"), rank)])
        >>> peers.play()
        >>> [member.results for member in members]
        [[4], [4]]
    """

    def __init__(self, tree: Tree, seed: int = 0) -> None:
        self.network = Network(tree, seed)
        self.network.start()
        self.members: list[SimulatedPeer] = []
        self.discarded = 0

    def add(
        self, group: Iterable[int], steps: Callable[[int], Sequence[Step]], name: str = ""
    ) -> list[SimulatedPeer]:
        """Have every member of a group enter it and make its steps."""
        ranks = list(group)
        made = [SimulatedPeer(self.network, rank, ranks, name, steps(rank)) for rank in ranks]
        self.members += made
        return made

    def play(self, enter: Iterable[SimulatedPeer] | None = None) -> None:
        """Let the members enter and all that follows happen."""
        for member in self.members if enter is None else enter:
            member.enter()
        self.settle()

    def settle(self, seconds: float = 0.0) -> None:
        """Let things happen until nothing is under way, and for some time after that."""
        end = self.network.clock.now() + seconds
        while True:
            self._hand_out()
            if self.network.step():
                continue
            if self.network.clock.now() >= end:
                return
            self.network.advance(min(0.1, end - self.network.clock.now()))

    def _hand_out(self) -> None:
        while self.network.observations:
            seen = self.network.observations.pop(0)
            effect = seen.effect
            if isinstance(effect, gev.Discarded):
                self.discarded += 1
            if isinstance(effect, gev.GroupFinished):
                self._of(seen.rank, number=effect.group).saw(effect)
            elif isinstance(effect, (gev.GroupEntered, gev.GroupBroken)):
                self._of(seen.rank, key=(effect.members, effect.name)).saw(effect)

    def _of(self, rank: int, *, number: Any = None, key: Any = None) -> SimulatedPeer:
        found = [
            one
            for one in self.members
            if one.rank == rank
            and (one.number == number if key is None else (one.members, one.name) == key)
        ]
        assert len(found) == 1
        return found[0]

    def leftovers(self) -> int:
        """Groups, formations and payloads that places still know of."""
        return sum(len(node.groups) for node in self.network.nodes.values())
