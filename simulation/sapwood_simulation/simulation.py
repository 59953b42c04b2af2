"""The production protocol and supervisor under virtual time, with faults drawn from a seed.

A simulation runs waves over a tree while processes crash, stop for a while, or lose their
zygote, and checks after every wave that each agent is in it exactly once and that the value is
right; at the end, that nothing is left of the stream. The same options give the same course of
events, so a failure can be had again: ``python -m sapwood_simulation --seed …``.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import math
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.link import LinkTiming
from sapwood.comm.messaging.delivery import PATIENCE as RESEND
from sapwood.comm.messaging.ordering import LONGEST_PATIENCE
from sapwood.comm.node import Node
from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import SapwoodError
from sapwood.core.rankset import fold, from_ranges, parse_ranks
from sapwood.core.topology import ROOT, Tree, plan
from sapwood.environment.settings import RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.core import LifecyclePolicy, ProcessLifecycle
from sapwood.lifecycle.processes import census_of
from sapwood.session.supervisor import HostOrder, ProcessSetup, SupervisionTimeouts
from sapwood_simulation.faults import FaultInjector, Faults
from sapwood_simulation.network import Network
from sapwood_simulation.processes import SimulatedSpawner, SimulatedSupervisor, VirtualLoop

STREAM = 1

PATIENCE = 120.0
"""Virtual seconds without progress after which a simulation that loses no messages hangs.

Pauses, time-outs and what follows of them are over after some ten; :func:`patience` adds what
messages may take that are lost on their way.
"""

RECOVERY = 30.0
"""Virtual seconds in which a simulation that faults have delayed progresses once they stop."""

IN_VAIN = 1e-9
"""Chance that a message has not arrived within the patience, though all is as it should be."""

PLACE_SECONDS = 3e-4
"""Mean virtual time between two things that happen at one place."""

COLLECT_AFTER = 3_000_000
"""New objects after which rubbish is collected: as often as usual takes a third of the time."""

TIMING = LinkTiming(heartbeat=0.5, failure_after=3.0)

JOIN = 5.0
"""Virtual seconds in which a new process must join the tree."""


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a simulation.

    Attributes:
        seed: Decides everything that is left to chance.
        agents: Number of agents.
        fanout: Children of each junction; 0 for a flat tree.
        waves: Waves to run.
        pipelined: Waves that are open at a time.
        faults: What goes wrong.
        spares: Whether the tree has spare junctions.
    """

    seed: int = 0
    agents: int = 16
    fanout: int = 4
    waves: int = 5
    pipelined: int = 1
    spares: bool = False
    faults: Faults = Faults()


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened; ``seconds`` is virtual time."""

    waves: int
    steps: int
    seconds: float
    crashes: int
    pauses: int
    zygotes: int
    halts: int
    stalls: int
    severed: int
    clogged: int
    astray: int
    restarts: int
    attached: int


class InvariantError(AssertionError):
    """Something that must always hold did not."""


class Simulation:
    """One run of the simulator.

    Args:
        options: The options of the simulation.

    Example:
        >>> report = Simulation(SimulationOptions(agents=8, fanout=2, waves=3)).run()
        >>> report.waves
        3
    """

    what = "waves"
    """The kind of simulation, as ``python -m sapwood_simulation --what`` calls it."""

    timing = TIMING
    """When links speak and worry."""

    join_timeout = JOIN
    """Virtual seconds in which a new process must join the tree; 0 for ever."""

    census = False
    """Whether all places are notified of lost ones: only messages and policies on loss need it."""

    def __init__(self, options: SimulationOptions) -> None:
        self.options = options
        self.tree: Tree = self._first_tree()
        self.pids: dict[int, tuple[int, SimulatedSpawner]] = {}
        self._random = random.Random(options.seed)  # noqa: S311 - chance that can be repeated
        self._pids = itertools.count(100)
        self.network = Network(self.tree, options.seed, _answer, self.timing)
        self.network.on_end = self._process_ended
        self.loop = VirtualLoop(self.network.clock)
        self._completed: list[ev.WaveCompleted] = []
        self._ready = False
        self._patience = patience(self.tree, options.faults, self.timing)
        self._steps = self._attached = 0
        self.network.clock_loop.later = self.loop.call_later
        faults = options.faults
        self.network.skew, self.network.loss = faults.skew, faults.loss
        self.network.split = faults.split
        if faults.latency:
            clock = self.network.clock_loop
            self.network.scheduler.take_time(clock, faults.latency, faults.jitter)
        self._injector = FaultInjector(self, faults, self._random)
        timeouts = SupervisionTimeouts(
            attach=2 * TIMING.failure_after,
            join=self.join_timeout,
            heartbeat=TIMING.heartbeat,
            silence=TIMING.failure_after,
        )
        policy = LifecyclePolicy(
            RestartSettings(limit=1_000_000, window=1.0, backoff=0.001, backoff_max=0.05),
            attach=timeouts.attach,
            join=timeouts.join,
            join_polls=timeouts.polls(timeouts.join) if timeouts.join else 0,
            # The pauses are the longer, the more ranks are lost: more happens while they are away.
            budget_of=lambda _rank: ROOT,
        )
        life = ProcessLifecycle(self.tree, (), policy)
        self.supervisor = SimulatedSupervisor(self, life, self._setup(), timeouts, self._perform)

    def _first_tree(self) -> Tree:
        """Return the tree with which it begins."""
        options = self.options
        return plan(options.agents, options.fanout, spares=options.spares)

    def _setup(self) -> ProcessSetup:
        """Return how processes begin."""
        return ProcessSetup(
            "simulated",
            lambda _rank: "none:none",
            orders.ConfigureProcesses("", b""),
            ZygotePlan(()),
        )

    def run(self) -> SimulationReport:
        """Run all waves and return what happened.

        Raises:
            InvariantError: Something that must always hold did not; the message says how to
                have it again.
        """
        log = logging.getLogger("sapwood")
        level = log.level
        log.setLevel(logging.CRITICAL)  # lost places are the point here, and no news
        try:
            with collecting_seldom():
                self._run()
        except Exception as error:  # whatever the protocol's code raises is found by this seed
            known = isinstance(error, InvariantError | SapwoodError)
            what = str(error) if known else f"{type(error).__name__}: {error}"
            raise InvariantError(f"{what}\nto have it again: {self.command()}") from error
        finally:
            log.setLevel(level)
        return SimulationReport(
            waves=self._done(),
            steps=self._steps,
            seconds=self.network.clock.now(),
            crashes=self._injector.crashes,
            pauses=self._injector.pauses,
            zygotes=self._injector.zygotes,
            halts=self._injector.halts,
            stalls=self._injector.stalls,
            severed=self.network.breaks,
            clogged=self._injector.clogged,
            astray=self.network.astray.astray,
            restarts=self.supervisor.restarts,
            attached=self._attached,
        )

    @property
    def digest(self) -> str:
        """What tells this course of events from others: all bytes that came, where and when."""
        return self.network.digest

    def _done(self) -> int:
        """Return how many waves are complete, or what is simulated in their place."""
        return len(self._completed)

    def command(self) -> str:
        """Return the command that repeats this simulation."""
        options = self.options
        words = [
            "python -m sapwood_simulation",
            "" if self.what == Simulation.what else f"--what {self.what}",
            f"--seed {options.seed} --agents {options.agents}",
            f"--fanout {options.fanout} --waves {options.waves}",
            "--spares" if options.spares else "",
            f"--pipelined {options.pipelined}" if options.pipelined > 1 else "",
            self.kind_options(),
            options.faults.as_options(),
        ]
        return " ".join(word for word in words if word)

    def kind_options(self) -> str:
        """Return the options that say more of what is simulated."""
        return ""

    def later(self, mean: float, function: Callable[..., Any], *args: Any) -> None:
        """Have something happen after a time drawn around a mean, seconds."""
        self.loop.call_later(self._random.expovariate(1 / mean), function, *args)

    def new_pid(self) -> int:
        """Return a process id that no process had."""
        return next(self._pids)

    def stall(self, rank: int) -> float:
        """Draw for how long a new process stops before it joins the tree, seconds."""
        return self._injector.stall(rank)

    def zygote_ended(self) -> None:
        """Note that all processes end with their zygote."""
        self._injector.zygote_ended()

    # --- the course of events ------------------------------------------------------------------

    def _begin(self) -> None:
        """Start all places."""
        self.network.launch(ROOT, 1, 1)
        self.supervisor.start()
        self.supervisor.listen(cast("Any", self.loop))
        self._tick()
        self._until(self.supervisor.processes.all_ready, faults=False)

    def _run(self) -> None:
        self._begin()
        reduce = {"sum": "sum", "who": "concat", "count": "count"}
        self.network.open_stream(STREAM, reduce)
        for number in range(1, self.options.waves + 1):
            self.network.broadcast(STREAM, {"wave": number})
            self._until(partial(self._has_room, number), faults=True)
        self._until(self._all_completed, faults=True)
        self._come_to_rest()
        self.network.post(ROOT, ev.CloseStream(STREAM))
        self._until(self._stream_is_gone, faults=False)
        self._check_end()

    def _come_to_rest(self) -> None:
        """Stop all faults, and wait for the tree to be whole."""
        self._injector.stop()
        self._until(self.supervisor.processes.all_ready, faults=False)
        self._until(self._tree_is_whole, faults=False)

    def _until(self, condition: Callable[[], bool], *, faults: bool) -> None:
        network, loop, clock, chance = self.network, self.loop, self.network.clock, self._random
        observations = network.observations
        deadline = clock.now() + self._patience
        rate, likely = self.tree.size / PLACE_SECONDS, self.options.faults.chance
        while not condition():
            self._steps += 1
            if clock.now() > deadline:
                raise self._no_progress(condition, faults=faults)
            if faults and chance.random() < likely:
                self._injector.inject()
            if network.step():
                clock.advance(chance.expovariate(rate))
            else:
                due = min(loop.next_due(), network.connects.next_due())
                if math.isinf(due):
                    raise InvariantError("nothing is under way, and nothing will be")
                clock.advance(max(0.0, due - clock.now()))
            loop.run_due()
            if observations:
                self._notice()

    def _no_progress(self, condition: Callable[[], bool], *, faults: bool) -> InvariantError:
        """Return an error that tells too many faults from code that has stopped."""
        what = f"no progress in {self._patience:.0f} s of virtual time"
        if faults:
            self._injector.stop()
            self._patience = min(self._patience, RECOVERY)
            start = self.network.clock.now()
            with contextlib.suppress(InvariantError):
                self._until(condition, faults=False)
                seconds = self.network.clock.now() - start
                what += f", and progress {seconds:.1f} s after the faults: there were too many"
        return InvariantError(what)

    def _notice(self) -> None:
        """Give the supervisor what the root wants it to know."""
        observations = self.network.observations
        for seen in observations:  # it grows while what was seen has consequences
            effect = seen.effect
            if seen.rank != ROOT:
                self._saw_below(seen.rank, effect)
            elif isinstance(effect, ev.PlaceJoined):
                self.supervisor.post(effect)
                self._joined(effect)
            elif isinstance(effect, ev.PlacesLost):
                self.supervisor.post(effect)
            else:
                self._saw(effect)
        observations.clear()

    def _saw(self, effect: Any) -> None:
        """Take in what the root wants done besides."""
        if isinstance(effect, ev.WaveCompleted):
            number = effect.wave
            if any(number == one.wave for one in self._completed):
                raise InvariantError(f"wave {number} is over twice")
            self._completed.append(effect)
            self._check_wave(effect, number)
        elif isinstance(effect, ev.WaveFailed):
            raise InvariantError(f"wave {effect.wave} failed: {effect.error.what}")

    def _joined(self, effect: ev.PlaceJoined) -> None:
        """Take in that a place is there, for the first time or again."""

    def _saw_below(self, rank: int, effect: Any) -> None:
        """Take in what another place wants done besides."""

    def _tick(self) -> None:
        for rank in list(self.network.nodes):
            if not self.network.is_paused(rank):
                self.network.post(rank, ev.Tick())
        self.loop.call_later(TIMING.heartbeat / 2, self._tick)

    def _process_ended(self, rank: int) -> None:
        entry = self.pids.pop(rank, None)
        if entry is not None:
            pid, spawner = entry
            spawner.ended(pid)

    def _perform(self, order: HostOrder) -> None:
        """Carry out the orders of the life cycle that concern the tree."""
        if isinstance(order, lev.Notify):
            self._places_changed(order.change)
        elif isinstance(order, lev.NewTree):
            self._new_tree(order.tree)

    def _new_tree(self, tree: Tree) -> None:
        self.tree = tree
        self.network.change(tree)

    def _places_changed(self, change: lev.ProcessChange) -> None:
        if not change.disconnected and self.census:
            self.network.post(
                ROOT,
                census_of(self.supervisor.processes, change.ranks, change.reason, back=change.back),
            )
        elif change.disconnected and change.back:
            self._attached += len(change.ranks)

    # --- what must hold ------------------------------------------------------------------------

    def _check_wave(self, wave: ev.WaveCompleted, number: int) -> None:
        agents = range(1, self.options.agents + 1)
        who = sorted(int(rank) for rank in cast("Any", wave.total["who"]))
        if who != list(agents):
            missing = set(agents) - set(who)
            twice = {rank for rank in who if who.count(rank) > 1}
            raise InvariantError(
                f"wave {number} lacks {fold('agent', missing) if missing else 'no agent'}, "
                f"has {fold('agent', twice) if twice else 'no agent'} twice"
            )
        if from_ranges(wave.ranks) != set(agents) or wave.weight != len(who):
            raise InvariantError(f"wave {number} names other agents than are in it")
        expected = sum(agents) * number
        if wave.total["sum"] != expected or wave.total["count"] != len(who):
            raise InvariantError(f"wave {number} is {wave.total}, expected the sum {expected}")

    def _has_room(self, begun: int) -> bool:
        """Whether one more wave may begin."""
        return begun - len(self._completed) < self.options.pipelined

    def _all_completed(self) -> bool:
        return len(self._completed) == self.options.waves

    def _tree_is_whole(self) -> bool:
        """Whether the root knows of every place where it is, and the place thinks so, too."""
        nodes = self.network.nodes
        placed = nodes[ROOT].router.everybody()
        return len(placed) == self.tree.places - 1 and all(
            one.rank in nodes and nodes[one.rank].router.parent == one.parent for one in placed
        )

    def _stream_is_gone(self) -> bool:
        return not any(node.streams for node in self.network.nodes.values())

    def _check_end(self) -> None:
        if self.network.problems:
            raise InvariantError(f"peers broke the protocol: {self.network.problems[:3]}")
        left = {rank: left_behind(node) for rank, node in self.network.nodes.items()}
        if any(left.values()):
            raise InvariantError(f"something is left: { {k: v for k, v in left.items() if v} }")


def patience(tree: Tree, faults: Faults, timing: LinkTiming) -> float:
    """Return the virtual seconds without progress after which a simulation is taken to hang.

    Messages are never given up, however many receipts are lost: unacknowledged ones are sent
    again after 2, 4, 8 and from then on every 16 heartbeats. A try succeeds if neither the message
    nor its receipt is lost at any of the places on the way. In a tree of depth 14 these are 28
    there and 28 back: where each loses 3 %, one try in five or six succeeds. Of the 800 messages
    of one seed one needed 16 tries and 174 s. The patience is for as many tries as fail all
    together once in :data:`IN_VAIN`, by a clock that is as slow as can be.

    Example:
        >>> timing = LinkTiming(heartbeat=0.5)
        >>> patience(plan(40, 3), Faults(), timing)
        120.0
        >>> round(patience(plan(157, 2, spares=True), Faults(drop=0.03, skew=0.4), timing))
        1707
    """
    if not faults.drop:
        return PATIENCE
    depths = (sum(1 for _ in tree.above(rank)) for rank in range(1, tree.agents + 1))
    places = 4 * max(depths, default=1)
    tries = math.log(IN_VAIN) / math.log(1 - (1 - faults.drop) ** places)
    longest = RESEND * LONGEST_PATIENCE * timing.heartbeat / (1 - faults.skew)
    return PATIENCE + math.ceil(tries) * longest


def left_behind(node: Node) -> dict[str, int]:
    """Return what a place still knows of streams, groups and messages, by kind, where it does."""
    counts = {
        "streams": len(node.streams),
        "arrays on their way": len(node.large),
        "groups": len(node.groups),
        "requests": len(node.requests),
        "transfers": len(node.transfers),
    }
    return {kind: count for kind, count in counts.items() if count}


def ranks_named(kind: str, text: str) -> set[int]:
    """Return the ranks that a text names as :func:`~sapwood.core.rankset.fold` writes them.

    Example:
        >>> sorted(ranks_named("agent", "agent[1-3,12] ended: killed")), ranks_named("rank", "a 12")
        ([1, 2, 3, 12], set())
        >>> ranks_named("agent", "agent 12 is gone"), ranks_named("agent", "agents 12")
        ({12}, set())
    """
    found: set[int] = set()
    for several, one in re.findall(rf"\b{kind}(?:\[([0-9,-]+)\]| ([0-9]+)\b)", text):
        found |= parse_ranks(several or one)
    return found


def _answer(rank: int, value: Any) -> Any:
    return {"sum": rank * value["wave"], "who": rank, "count": 1}


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for rubbish less often: places are circles of objects, and many live to the end.

    Put around several simulations it saves a third of the time: between two of them, the collector
    then does not scan the objects of the first one, which are still held.

    Example:
        >>> with collecting_seldom():
        ...     [Simulation(SimulationOptions(seed=seed)).run().waves for seed in range(2)]
        [5, 5]
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], COLLECT_AFTER), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
