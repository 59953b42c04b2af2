"""What goes wrong in a simulation: faults, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from sapwood.core.topology import ROOT, Tree
from sapwood_simulation.links import SimulatedLink
from sapwood_simulation.loss import Loss
from sapwood_simulation.processes import ProcessHost, SimulatedSupervisor, VirtualLoop

SWIZZLED = 8
"""Most links that are clogged one after the other, and freed in another order."""


PARTITIONED = 3
"""Most places that are cut off at a time, with all below them."""

EXCUSED = 10.0
"""Virtual seconds within which a place is back that was lost, and all know it."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong: chances per step, and times in virtual seconds.

    Attributes:
        crash: A process other than the client ends at once.
        pause: A process stops for ``pause_seconds``; longer than the failure time, it is
            replaced meanwhile and comes back stale.
        zygote: All processes end at once.
        halt: The zygote stops for up to ``pause_seconds``; longer than the failure time, it is
            killed, and all processes with it.
        stall: Part of the new processes that stop before they join the tree, for up to twice
            ``pause_seconds``; longer than they may take to join, they are replaced.
        sever: A connection breaks in the middle of some byte while both its processes live.
        clog: Nothing arrives on a connection for up to ``pause_seconds``, in one direction
            or both.
        swizzle: Several connections are clogged one after the other, and freed in another
            order.
        partition: Some places are not heard by the others for up to ``pause_seconds``, or
            neither side hears the other.
        slow: Part of the places that read less often than the others.
        skew: By how much clocks go wrong at most, as a part of the time; they also differ.
        drop: Part of the messages that is lost at each place they come by.
        duplicate: Part that comes twice.
        reorder: Part that later ones overtake.
        split: Part of the writes that do not arrive whole: a reader gets some of the bytes, or
            those of two writes together.
        latency: Median virtual seconds that everything takes to the next place; 0 for times
            that follow from who is read next.
        jitter: How far that scatters: the sigma of a log-normal distribution.
        pause_seconds: Longest pause.
    """

    crash: float = 0.0
    pause: float = 0.0
    zygote: float = 0.0
    halt: float = 0.0
    stall: float = 0.0
    sever: float = 0.0
    clog: float = 0.0
    swizzle: float = 0.0
    partition: float = 0.0
    slow: float = 0.0
    skew: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    split: float = 0.0
    latency: float = 0.0
    jitter: float = 0.0
    pause_seconds: float = 6.0

    @classmethod
    def drawn(cls, chance: random.Random, **choices: Sequence[float] | float) -> Faults:
        """Return faults of which each is drawn from its choices, in their order.

        Example:
            >>> Faults.drawn(random.Random(1), crash=(0.0, 0.01), jitter=1.0)  # doctest: +ELLIPSIS
            Faults(crash=0.0, ... jitter=1.0, pause_seconds=6.0)
        """
        return cls(
            **{
                name: given if isinstance(given, float) else chance.choice(given)
                for name, given in choices.items()
            }
        )

    @property
    def chance(self) -> float:
        """How likely it is that something happens in a step."""
        per_place = self.crash + self.pause + self.zygote + self.halt + self.sever
        return per_place + self.clog + self.swizzle + self.partition

    @property
    def loss(self) -> Loss:
        """How often messages go astray."""
        return Loss(drop=self.drop, duplicate=self.duplicate, reorder=self.reorder)

    def as_options(self) -> str:
        """Return the options of the command line that say this.

        Example:
            >>> Faults(crash=0.01, skew=0.05).as_options()
            '--crash 0.01 --skew 0.05'
        """
        default = Faults()
        changed = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(default, name)
        }
        return " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in changed.items())


class FaultySimulation(ProcessHost, Protocol):
    """The simulation in which things go wrong."""

    tree: Tree
    loop: VirtualLoop
    supervisor: SimulatedSupervisor


class FaultInjector:
    """Lets things go wrong.

    Args:
        simulation: Where.
        faults: What, and how often.
        chance: Where the draws come from.

    Attributes:
        touched: When something went wrong at each place, virtual seconds.
        crashing: Whether a process ends because of this.
    """

    def __init__(self, simulation: FaultySimulation, faults: Faults, chance: random.Random) -> None:
        self.crashes = self.pauses = self.zygotes = self.halts = self.stalls = self.clogged = 0
        self._simulation = simulation
        self._chance = chance
        self._faults = faults
        self._links: list[SimulatedLink] = []
        self._stopped = False
        self.crashing = False
        self.touched: dict[int, list[float]] = {rank: [] for rank in range(simulation.tree.size)}
        self._kinds: dict[str, Callable[[int], None]] = {
            "crash": self._crash,
            "pause": self._pause,
            "zygote": self._zygote,
            "halt": self._halt,
            "sever": self._sever,
            "clog": self._clog,
            "swizzle": self._swizzle,
            "partition": self._partition,
        }
        if faults.slow:
            ranks = range(1, simulation.tree.size)
            slow = {rank for rank in ranks if chance.random() < faults.slow}
            simulation.network.scheduler.slow = slow

    def inject(self) -> None:
        """Inject one fault into a random process."""
        network = self._simulation.network
        living = [rank for rank in network.nodes if rank != ROOT]
        if living:
            weights = [getattr(self._faults, name) for name in self._kinds]
            (kind,) = self._chance.choices(list(self._kinds), weights)
            self._kinds[kind](self._chance.choice(living))

    def stop(self) -> None:
        """Unclog all links, and resume all stopped processes."""
        self._stopped = True
        network = self._simulation.network
        for rank in [rank for rank in network.nodes if network.is_paused(rank)]:
            network.resume(rank)
        for link in self._links:
            link.unclog()
        self._reunite()

    def may_have_lost(self, rank: int, begin: float, end: float) -> bool:
        """Whether a place may be lost between two times, by what went wrong there or above it.

        What goes wrong is over after :data:`EXCUSED` seconds and the longest pause.
        """
        first = begin - EXCUSED - self._faults.pause_seconds
        places = (rank, *self._simulation.tree.above(rank))
        return any(first <= time <= end for place in places for time in self.touched.get(place, ()))

    def _touch(self, *ranks: int) -> None:
        for rank in ranks:
            self.touched.setdefault(rank, []).append(self._simulation.loop.time())

    def _crash(self, rank: int) -> None:
        self.crashes += 1
        self._touch(rank)
        self.crashing = True
        self._simulation.network.kill(rank)
        self.crashing = False

    def _pause(self, rank: int) -> None:
        self.pauses += 1
        self._touch(rank)
        simulation = self._simulation
        simulation.network.pause(rank)
        pid = simulation.pids[rank][0]
        simulation.loop.call_later(self._some_time(), self._resume, rank, pid)

    def _resume(self, rank: int, pid: int) -> None:
        if self._simulation.pids.get(rank, (0, None))[0] == pid:
            self._simulation.network.resume(rank)

    def _zygote(self, _rank: int) -> None:
        self.zygotes += 1
        self.zygote_ended()
        self._simulation.supervisor.lose_zygote()

    def zygote_ended(self) -> None:
        """All places are lost: a zygote that stopped for too long is killed with its processes."""
        self._touch(*range(1, self._simulation.tree.size))

    def _halt(self, _rank: int) -> None:
        self.halts += 1
        zygote = self._simulation.supervisor.simulated
        zygote.stop()
        self._simulation.loop.call_later(self._some_time(), zygote.resume)

    def stall(self, rank: int) -> float:
        """Draw for how long a new process stops before it joins; 0 when faults are over.

        Its place is away for so much longer than after the loss that it is to replace.
        """
        part = 0.0 if self._stopped else self._faults.stall
        if not part or self._chance.random() >= part:
            return 0.0
        self.stalls += 1
        self._touch(rank)
        return 2 * self._some_time()

    def _sever(self, rank: int) -> None:
        self._touch(rank)
        self._simulation.network.sever(rank)

    def _clog(self, rank: int) -> None:
        links = self._simulation.network.links(rank)
        if links:
            link = self._chance.choice(links)
            directions = self._chance.choice(([link], [link.back], [link, link.back]))
            seconds = self._some_time()
            for one in directions:
                self._stop_up(one)
                self._simulation.loop.call_later(seconds, one.unclog)

    def _swizzle(self, _rank: int) -> None:
        network, loop = self._simulation.network, self._simulation.loop
        links = [link for rank in network.nodes for link in network.links(rank)]
        for link in self._chance.sample(links, min(SWIZZLED, len(links))):
            begin = self._some_time() / 2
            loop.call_later(begin, self._stop_up, link)
            loop.call_later(begin + self._some_time(), link.unclog)

    def _partition(self, _rank: int) -> None:
        """Have some places and those below them not heard, and maybe not hear."""
        simulation = self._simulation
        network, tree = simulation.network, simulation.tree
        if network.partition or self._stopped:
            return
        tops = self._chance.sample(range(1, tree.size), min(PARTITIONED, tree.size - 1))
        cut = {rank for top in tops for rank in tree.subtree(top)}
        if self._chance.random() < 0.5:  # the others are not heard by them
            cut = set(range(tree.size)) - cut
        both = self._chance.random() < 0.5
        network.partition = frozenset(cut)
        self._touch(*(rank for top in tops for rank in tree.subtree(top)))
        for rank in network.nodes:
            for link in network.links(rank):
                across = (link.source in cut) != (link.target in cut)
                if across and (both or link.source in cut):
                    self._stop_up(link)
                    network.apart_links.append(link)
        simulation.loop.call_later(self._some_time(), self._reunite)

    def _reunite(self) -> None:
        network = self._simulation.network
        network.partition = frozenset()
        for rank in network.nodes:
            for link in network.links(rank):
                link.unclog()
        for link in network.apart_links:  # also the ends of connections
            link.unclog()
        network.apart_links.clear()

    def _stop_up(self, link: SimulatedLink) -> None:
        if not self._stopped:
            self.clogged += 1
            self._touch(link.source, link.target)
            link.clogged = True
            self._links.append(link)

    def _some_time(self) -> float:
        return self._chance.uniform(0.0, self._faults.pause_seconds)
