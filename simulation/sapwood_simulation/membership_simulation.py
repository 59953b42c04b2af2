"""Waves under faults while places are added to the tree and removed from it.

One stream follows the tree: each of its waves has everybody who was there when it began, exactly
once, unless a process that was removed ended before it could contribute. Another one keeps its
members and continues without lost ones: none of its waves has a place that was removed
before, or twice.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.messages import PARTIAL
from sapwood.core.rankset import fold, from_ranges
from sapwood.core.topology import ROOT
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.processes import ProcessState
from sapwood_simulation.simulation import (
    STREAM,
    InvariantError,
    Simulation,
    SimulationOptions,
    SimulationReport,
)

KEEPS = 2
"""The stream that keeps its members."""

REDUCE = {"sum": "sum", "who": "concat", "count": "count"}

CHANGE_SECONDS = 0.004
"""Mean virtual time between two changes: about that in which a new process is there."""

LOOK_SECONDS = 0.001
"""Virtual time after which it is looked at again whether what was open is over."""

CHANGES = 4
"""Changes for each wave, at most: while a place is away for long, there would be thousands."""

MOST = 3
"""Agents that are added at a time, at most."""


class MembershipReport(SimulationReport, frozen=True, kw_only=True):
    """What happened; ``added`` and ``removed`` are places."""

    added: int = 0
    removed: int = 0


class MembershipSimulation(Simulation):
    """One run of waves over a tree that changes.

    Args:
        options: The options of the simulation.

    Example:
        >>> report = MembershipSimulation(SimulationOptions(agents=8, fanout=2, waves=20)).run()
        >>> report.waves, report.added > 0, report.removed > 0
        (20, True, True)
    """

    what = "membership"
    census = True

    def __init__(self, options: SimulationOptions) -> None:
        super().__init__(options)
        self.added = self.removed = 0
        self._changing = True
        self._changes = CHANGES * options.waves
        self._there = set(self.tree.agent_ranks)  # agents that have joined and were not removed
        self._gone: set[int] = set()  # removed places whose processes are gone
        self._members: dict[tuple[int, int], set[int]] = {}  # of each wave of each stream
        self._kept: set[int] = set()
        self._over: set[tuple[int, int]] = set()
        self._leaving = 0

    def run(self) -> MembershipReport:
        """Run all waves and return what happened.

        Raises:
            InvariantError: Something that must always hold did not.
        """
        report = msgspec.structs.asdict(super().run())
        return MembershipReport(**report, added=self.added, removed=self.removed)

    # --- the course of events ------------------------------------------------------------------

    def _run(self) -> None:
        self._begin()
        self._kept = set(self._there)
        self.network.open_stream(STREAM, REDUCE, follows=True)
        self.network.open_stream(KEEPS, REDUCE, on_loss=PARTIAL)
        self.later(CHANGE_SECONDS, self._change_again)
        for number in range(1, self.options.waves + 1):
            if self._random.random() < 0.5:
                self._change()
            self._members[STREAM, number] = set(self._there)
            self.network.broadcast(STREAM, {"wave": number})
            self._members[KEEPS, number] = self._kept & self._there
            self.network.broadcast(KEEPS, {"wave": number})
            self._until(partial(self._has_room, number), faults=True)
        self._changing = False
        self._until(self._all_completed, faults=True)
        self._until(self._all_have_left, faults=True)
        self._come_to_rest()
        for stream in (STREAM, KEEPS):
            self.network.post(ROOT, ev.CloseStream(stream))
        self._until(self._stream_is_gone, faults=False)
        self._check_end()

    def _change_again(self) -> None:
        if self._changing:
            self._changes -= 1
            self._changing = self._changes > 0
            self._change()
            self.later(CHANGE_SECONDS, self._change_again)

    def _change(self) -> None:
        """Add agents somewhere, or remove some place with all that is below it."""
        chance, tree = self._random, self.tree
        if chance.random() < 0.5 or not tree.agents:
            homes = [ROOT, *(one for one in tree.junctions if one not in tree.spares)]
            several = range(tree.size, tree.size + chance.randint(1, MOST))
            self._expand({rank: chance.choice(homes) for rank in several})
        elif chance.random() < 0.8 or not tree.junctions:
            self._contract([chance.choice(tree.agent_ranks)])
        else:
            self._contract(tree.subtree(chance.choice(tree.junctions)))

    def _expand(self, homes: dict[int, int]) -> None:
        self.added += len(homes)
        self.supervisor.post(lev.Expand(homes, dict.fromkeys(homes, 0)))

    def _contract(self, ranks: list[int]) -> None:
        self.removed += len(ranks)
        self._there.difference_update(ranks)
        self.supervisor.post(lev.Drain(tuple(ranks)))
        self._leaving += 1
        if self._random.random() < 0.3:  # without waiting until they have answered
            self._let_go(ranks)
        else:
            self._let_go_when_idle(ranks, set(self._members) - self._over)

    def _let_go_when_idle(self, ranks: list[int], waves: set[tuple[int, int]]) -> None:
        if waves <= self._over:
            self._let_go(ranks)
        else:
            self.loop.call_later(LOOK_SECONDS, self._let_go_when_idle, ranks, waves)

    def _let_go(self, ranks: list[int]) -> None:
        self._leaving -= 1
        self.supervisor.post(lev.Remove(tuple(ranks), "it was removed"))

    def _all_have_left(self) -> bool:
        nodes, places = self.network.nodes, self.supervisor.processes
        left = [rank for rank in nodes if rank and places[rank].state is ProcessState.LEFT]
        return not self._leaving and not left

    def _places_changed(self, change: lev.ProcessChange) -> None:
        if change.removed:
            self._gone.update(change.ranks)
        super()._places_changed(change)

    def _tree_is_whole(self) -> bool:
        epochs = {node.router.tree.epoch for node in self.network.nodes.values()}
        return super()._tree_is_whole() and epochs == {self.tree.epoch}

    # --- what must hold ------------------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        if isinstance(effect, ev.PlaceJoined):
            return
        if not isinstance(effect, ev.WaveCompleted | ev.WaveFailed):
            return
        wave = effect.stream, effect.wave
        if wave in self._over:
            raise InvariantError(f"wave {effect.wave} of stream {effect.stream} is over twice")
        self._over.add(wave)
        if isinstance(effect, ev.WaveFailed):
            raise InvariantError(f"wave {effect.wave} failed: {effect.error.what}")
        if effect.stream == STREAM:
            self._completed.append(effect)
        self._check_wave(effect, effect.wave)

    def _joined(self, effect: ev.PlaceJoined) -> None:
        """Note that an agent takes part from the next wave on."""
        if self.tree.is_agent(effect.rank) and effect.rank in self.tree:
            self._there.add(effect.rank)

    def _check_wave(self, wave: ev.WaveCompleted, number: int) -> None:
        members, named = self._members[wave.stream, number], from_ranges(wave.ranks)
        total: Any = wave.total or {"who": [], "sum": 0, "count": 0}
        who = sorted(int(rank) for rank in total["who"])
        if who != sorted(named):
            raise InvariantError(f"wave {number} names {fold('agent', named)}, in it are {who}")
        if total["sum"] != sum(who) * number or total["count"] != len(who):
            raise InvariantError(f"wave {number} of {who} is {wave.total}")
        if not named <= members:
            strange = fold("agent", named - members)
            raise InvariantError(f"wave {number} has {strange}, who took no part in it")
        lacking = members - named - self._gone
        if wave.stream == STREAM and lacking:
            raise InvariantError(f"wave {number} lacks {fold('agent', lacking)}")

    def _all_completed(self) -> bool:
        return len(self._over) == 2 * self.options.waves
