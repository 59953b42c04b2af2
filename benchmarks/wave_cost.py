"""What a wave costs in trees of different shapes: messages, bytes and time, before any is there.

Messages and bytes are counted as ``stream.counters()`` counts them: bodies and arrays of values,
one message down and one up on each link, without what frames and message headers add.

Time follows the models LogP (Culler et al., "LogP: Towards a Realistic Model of Parallel
Computation", 1993) and LogGP, its extension by a time for each byte (Alexandrov et al., 1995): a
place sends one message after the other, and each takes it the *overhead* and the time of its bytes;
it arrives the *latency* later, and whoever takes it in needs the overhead again. Places of one host
share its cores, so a wave cannot take less than all their overheads over the cores. The work that
agents do is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT, Tree


class LinkCost(msgspec.Struct, frozen=True):
    """What a message costs on a link.

    Attributes:
        latency: Time between its departure and its arrival, seconds.
        overhead: Time that each end is busy with it, seconds.
        per_byte: Time that the sender is busy with each of its bytes, seconds.
    """

    latency: float
    overhead: float
    per_byte: float


class WaveLoad(msgspec.Struct, frozen=True):
    """What goes through a tree in a wave.

    Attributes:
        down: Bytes of the value.
        up: Bytes of the contribution of an agent.
        grows: Whether a junction passes on all that it gets, as with ``gather``; else it passes on
            as much as an agent does, as with ``sum``.
    """

    down: int
    up: int
    grows: bool = False


class PlaceCost(msgspec.Struct, frozen=True):
    """What a wave costs at one place.

    Attributes:
        rank: The place.
        messages_down: Messages to its children.
        bytes_down: Their bytes.
        messages_up: Messages from its children; of an agent, its contribution.
        bytes_up: Their bytes.
        to_parent: Bytes of its contribution, on the link to its parent.
    """

    rank: int
    messages_down: int
    bytes_down: int
    messages_up: int
    bytes_up: int
    to_parent: int


class WaveCost(msgspec.Struct, frozen=True):
    """What a wave costs in a tree.

    Attributes:
        depth: Links between the client and the deepest agent.
        junctions: Processes that the tree needs besides the agents.
        messages: On all links.
        bytes: On all links.
        between_hosts: Bytes on links between hosts.
        busiest: Messages of the place with the most.
        busiest_bytes: Bytes of the place with the most.
        link_bytes: Bytes up on the link with the most.
        seconds: Time of the wave.
        places: What it costs at each place.
    """

    depth: int
    junctions: int
    messages: int
    bytes: int
    between_hosts: int
    busiest: int
    busiest_bytes: int
    link_bytes: int
    seconds: float
    places: tuple[PlaceCost, ...]


def predict(
    tree: Tree,
    load: WaveLoad,
    local: LinkCost,
    remote: LinkCost | None = None,
    hosts: Sequence[int] = (),
    cores: int = 0,
) -> WaveCost:
    """Return what a wave costs.

    Args:
        tree: The tree; spares take no part.
        load: What goes through it.
        local: Links on one host.
        remote: Links between hosts; by default the same.
        hosts: Number of the host of each place, by rank; by default there is one host.
        cores: Cores of each host; 0 for as many as it has places.

    Raises:
        ConfigurationError: A place has no host.

    Example:
        >>> from sapwood.core.topology import flat, kary
        >>> link = LinkCost(20e-6, 5e-6, 1e-9)
        >>> cost = predict(kary(16, 4), WaveLoad(100, 8), link)
        >>> cost.depth, cost.messages, cost.busiest, cost.link_bytes
        (2, 40, 10, 8)
        >>> predict(flat(16), WaveLoad(100, 8), link).busiest
        32
    """
    where = tuple(hosts) or (0,) * tree.size
    if len(where) != tree.size:
        raise ConfigurationError(
            f"{len(where)} hosts for {tree.size} places", hint="name the host of each place"
        )
    between = remote or local
    model = _Model(tree, load, local, between, where)
    order = [one for one in tree.subtree(ROOT) if one not in tree.spares]
    model.downward(order)
    model.upward(order[::-1])
    places = tuple(model.place(rank) for rank in sorted(order))
    links = order[1:]
    remotes = [one for one in links if where[one] != where[tree.parents[one]]]
    return WaveCost(
        depth=max((len(list(tree.ancestors(rank))) for rank in tree.agent_ranks), default=0),
        junctions=len(tree.junctions) - len(tree.spares),
        messages=2 * len(links),
        bytes=sum(load.down + model.sent[one] for one in links),
        between_hosts=sum(load.down + model.sent[one] for one in remotes),
        busiest=max(model.messages(rank) for rank in order),
        busiest_bytes=max(model.bytes(rank) for rank in order),
        link_bytes=max((model.sent[one] for one in links), default=0),
        seconds=max(model.done[ROOT], model.least(order, cores)),
        places=places,
    )


class _Model:
    """When each place has done what in one wave."""

    def __init__(
        self,
        tree: Tree,
        load: WaveLoad,
        local: LinkCost,
        remote: LinkCost,
        hosts: Sequence[int],
    ) -> None:
        self._tree = tree
        self._load = load
        self._links = (local, remote)
        self._hosts = hosts
        self._children = {
            rank: [one for one in tree.children(rank) if one not in tree.spares]
            for rank in range(tree.size)
            if rank in tree and rank not in tree.spares
        }
        self._free: dict[int, float] = {ROOT: 0.0}  # when a place has sent the value on
        self.done: dict[int, float] = {}  # when it has what it contributes
        self.sent: dict[int, int] = {}  # bytes of that

    def _link(self, rank: int) -> LinkCost:
        """Return the link between a place and its parent."""
        return self._links[self._hosts[rank] != self._hosts[self._tree.parents[rank]]]

    def downward(self, order: Sequence[int]) -> None:
        """Pass the value on; parents come before their children."""
        for rank in order:
            now = self._free[rank]
            for child in self._children[rank]:
                link = self._link(child)
                now += link.overhead + self._load.down * link.per_byte
                self._free[child] = now + link.latency + link.overhead
            self._free[rank] = now

    def upward(self, order: Sequence[int]) -> None:
        """Gather contributions; children come before their parents."""
        arriving: dict[int, list[tuple[float, float]]] = {}
        for rank in order:
            now = self._free[rank]
            for at, overhead in sorted(arriving.pop(rank, [])):
                now = max(now, at) + overhead
            self.done[rank] = now
            below = sum(self.sent[child] for child in self._children[rank])
            self.sent[rank] = below if below and self._load.grows else self._load.up
            if rank != ROOT:
                link = self._link(rank)
                at = now + link.overhead + self.sent[rank] * link.per_byte + link.latency
                arriving.setdefault(self._tree.parents[rank], []).append((at, link.overhead))

    def least(self, order: Sequence[int], cores: int) -> float:
        """Return how long the cores of the busiest host take."""
        busy: dict[int, float] = {}
        count: dict[int, int] = {}
        for rank in order:
            count[self._hosts[rank]] = count.get(self._hosts[rank], 0) + 1
            if rank != ROOT:
                link = self._link(rank)
                nbytes = (self._load.down, self.sent[rank])
                for end, size in zip((self._tree.parents[rank], rank), nbytes, strict=True):
                    host = self._hosts[end]
                    busy[host] = busy.get(host, 0.0) + 2 * link.overhead + size * link.per_byte
        return max((busy[host] / (cores or count[host]) for host in busy), default=0.0)

    def messages(self, rank: int) -> int:
        """Return how many messages a place sends and gets."""
        return 2 * (len(self._children[rank]) + (rank != ROOT))

    def bytes(self, rank: int) -> int:
        """Return how many bytes a place sends and gets."""
        own = self._load.down + self.sent[rank] if rank != ROOT else 0
        children = self._children[rank]
        return own + len(children) * self._load.down + sum(self.sent[one] for one in children)

    def place(self, rank: int) -> PlaceCost:
        """Return what the wave costs at a place."""
        children = self._children[rank]
        from_below = [self.sent[one] for one in children] or [self.sent[rank]]
        return PlaceCost(
            rank,
            len(children),
            len(children) * self._load.down,
            len(from_below),
            sum(from_below),
            self.sent[rank] if rank != ROOT else 0,
        )
