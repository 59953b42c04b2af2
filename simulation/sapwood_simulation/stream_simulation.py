"""Streams of every kind under faults: time-outs, policies on loss, own filters, sweeps.

Each contribution has its own number, so it can be seen in which waves it is: in its own
or, if it was late, in one later one; never in two. Where late ones count, each is in one, except
those of agents that a stream continues without. A wave names exactly its agents, and is over
once. No agent is missing in it before the time of a place above that agent is over, nor afterwards
where the time-out was ample, unless something went wrong at that very agent or above it; the same
holds for the agents that a failure names.

The code of own filters is updated between waves: a wave goes through one version at all places,
with its code and parameters, and names it. What some place cannot load changes
nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import FilterAt, StreamSpec, Synchronisation
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import WHOLE
from sapwood.comm.streams import control
from sapwood.comm.streams.filters import code_name
from sapwood.comm.streams.late import time_at
from sapwood.comm.streams.push import is_full
from sapwood.core.errors import AgentLostError, SapwoodError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT
from sapwood_simulation.simulation import (
    STREAM,
    InvariantError,
    Simulation,
    SimulationOptions,
    ranks_named,
)

STRIDE = 10_000
"""A contribution is numbered rank times this plus wave."""

EMITTED = 10**9
"""Values that agents push are numbered from here on."""

EMIT_SECONDS = 0.002
"""Mean virtual time between two of them."""

CATCH_UP_WAVES = 20
"""Waves after the last one within which what is late has come, when faults have stopped."""

CATCH_UP_SECONDS = 1.0
"""Virtual time between two of them: a process that hangs is noticed after some seconds."""

ANSWER_SECONDS = 0.02
"""Virtual time-out of waves: about as long as an undisturbed wave takes."""

AMPLE = 2.0
"""Smallest virtual time-out at which no agent is late where nothing goes wrong."""


class StreamKind(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulated stream is.

    Attributes:
        sync: ``all``, ``time-out`` or ``none``.
        seconds: The time-out.
        late: What becomes of late contributions.
        on_loss: What becomes of waves that wait for a lost place.
        own_filters: Whether an own filter works at every place, up and down.
        pipelined: Waves that are open at a time.
        sweeps: Chance of a flush, or of a quiet time, before a wave.
        updates: Chance that own filters get new code before a wave.
    """

    sync: Literal["all", "time-out", "none"] = "all"
    seconds: float = ANSWER_SECONDS
    late: Literal["drop", "next"] = "drop"
    on_loss: Literal["replace", "partial", "fail"] = "replace"
    own_filters: bool = False
    pipelined: int = 3
    sweeps: float = 0.2
    updates: float = 0.0


class StreamSimulation(Simulation):
    """One run of a stream of some kind under faults.

    Args:
        options: The options of the simulation.
        kind: The kind of the stream.

    Example:
        >>> kind = StreamKind(sync="time-out", late="next", on_loss="partial")
        >>> StreamSimulation(SimulationOptions(agents=8, fanout=2, waves=5), kind).run().waves
        5
    """

    what = "streams"
    census = True

    def __init__(self, options: SimulationOptions, kind: StreamKind) -> None:
        super().__init__(options)
        self.kind = kind
        self.failed: list[ev.WaveFailed] = []
        self.late = 0
        self.partial = 0
        self._over: set[int] = set()
        self._counted: set[int] = set()
        self._singles: dict[int, set[int]] = {}
        self._swept: dict[int, ev.SweepDone] = {}
        self._version = 1
        self._code = b"1"
        self._codes: dict[int, bytes] = {1: b"1"}
        self.updates = self.refusals = 0
        self._sweep = 0
        self._versions: dict[int, int] = {}
        self._begun: dict[int, float] = {}
        self.pushed: dict[tuple[int, int], list[int]] = {}
        self.arrived: dict[tuple[int, int], list[int]] = {}
        self._emitter: dict[int, tuple[int, int]] = {}
        self._emitting = kind.sync == "none"
        self.network.filters.own = self._own_filter
        self.network.filters.loads = self._load
        self.network.answer = _contribution

    @property
    def counted(self) -> float:
        """Part of all contributions that counted, in their wave or another one."""
        return len(self._counted) / (self.options.agents * self.options.waves)

    def kind_options(self) -> str:
        """Return the options that say what the stream is."""
        kind, default = self.kind, StreamKind()
        words = [
            f"--{name.replace('_', '-')} {getattr(kind, name)}"
            for name in ("sync", "seconds", "late", "on_loss")
            if getattr(kind, name) != getattr(default, name)
        ]
        words += ["--own-filters"] if kind.own_filters else []
        return " ".join([*words, f"--updates {kind.updates}"] if kind.updates else words)

    # --- the course of events ------------------------------------------------------------------

    def _run(self) -> None:
        self._begin()
        members = to_ranges(range(1, self.options.agents + 1))
        kind = self.kind
        seconds = kind.seconds if kind.sync == "time-out" else 0.0
        spec = StreamSpec(
            STREAM,
            "test",
            members,
            {WHOLE: "concat"},
            sync=Synchronisation(kind.sync, seconds, kind.late),
            on_loss=kind.on_loss,
            filters=_filters(b"1") if kind.own_filters else (),
            parameters={1: b"p1"} if kind.own_filters else {},
            counted=True,
        )
        self.network.post(ROOT, ev.OpenStream(spec, paced=True))
        if self._emitting:
            self.later(EMIT_SECONDS, self._emit)
        for number in range(1, self.options.waves + 1):
            if self._random.random() < kind.sweeps:
                self._sweep_through()
            if kind.own_filters and self._random.random() < 0.5:
                self._configure()
            if kind.own_filters and kind.updates and self._random.random() < kind.updates:
                self._update(b"%d" % number)
            self._broadcast(number)
            wanted = number - kind.pipelined + 1
            self._until(partial(self._all_over, wanted), faults=True)
        self._until(partial(self._all_over, self.options.waves), faults=True)
        self._emitting = False
        self._until(self.supervisor.processes.all_ready, faults=False)
        self._injector.stop()
        self._until(self._all_has_arrived, faults=False)
        if kind.late == "next" and kind.on_loss != "fail":
            self._catch_up()
        self.network.post(ROOT, ev.CloseStream(STREAM))
        self._until(self._stream_is_gone, faults=False)
        self._check_end()

    def _configure(self, code: str = "") -> None:
        """Begin the next version, perhaps with code that is staged."""
        self._version += 1
        self._codes[self._version] = self._code
        body = b"p%d" % self._version
        self.network.post(ROOT, ev.ConfigureStream(STREAM, body, code))

    def _update(self, code: bytes) -> None:
        """Have all places load new code while waves are open, and use it if they all can."""
        filters = _filters(b"broken" if self._random.random() < 0.2 else code)
        done = self._one_sweep(control.STAGE, filters)
        if any(report.problem is not None for report in done.reports):
            self.refusals += 1
            return
        if filters[0].up == b"up broken" and len(done.reports) > 1:
            raise InvariantError("filters that cannot be loaded were staged")
        self.updates += 1
        self._code = filters[0].up.removeprefix(b"up ")
        self._configure(code_name(filters))

    def _load(self, rank: int, effect: ev.FilterStaging) -> None:
        if effect.own.up == b"up broken":
            raise SapwoodError(f"rank {rank} cannot load it")

    def _broadcast(self, number: int) -> None:
        self._versions[number] = self._version
        self._begun[number] = self.network.clock.now()
        encoded = values.encode({"wave": number, "path": 0})
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        self.network.post(ROOT, ev.Broadcast(STREAM, encoded.body, payload))

    def _catch_up(self) -> None:
        """Run waves until all late contributions have come: each contribution counts, once."""
        places = range(1, self.options.agents + 1)
        wanted = {
            rank * STRIDE + wave
            for wave in range(1, self.options.waves + 1)
            for rank in places
            if self.kind.on_loss == "replace" or not self._may_have_lost(rank, 1)
        }
        number = self.options.waves
        while not wanted <= self._counted:
            number += 1
            if number > self.options.waves + CATCH_UP_WAVES:
                raise InvariantError(f"contributions {sorted(wanted - self._counted)} are lost")
            self._broadcast(number)
            self._until(partial(self._all_over, number), faults=False)
            self._let_pass(CATCH_UP_SECONDS)

    def _emit(self) -> None:
        """Make some agent send a value unasked, unless it must wait."""
        if not self._emitting:
            return
        self.later(EMIT_SECONDS, self._emit)
        rank = self._random.randint(1, self.options.agents)
        node = self.network.nodes.get(rank)
        stream = node.streams.get(STREAM) if node is not None else None
        if node is None or stream is None or self.network.is_paused(rank) or is_full(stream):
            return
        process, number = (rank, node.identity.incarnation), EMITTED + len(self._emitter)
        self._emitter[number] = process
        self.pushed.setdefault(process, []).append(number)
        body = values.encode([number]).body
        self.network.post(rank, ev.Emit(STREAM, 1.0, body, None))

    def _has_arrived(self, number: int) -> None:
        """Check that what was pushed and arrives is the next that its process had sent."""
        process = self._emitter[number]
        arrived = self.arrived.setdefault(process, [])
        arrived.append(number)
        if arrived != self.pushed[process][: len(arrived)]:
            raise InvariantError(f"agent {process[0]} had sent {number} at another time")

    def _all_has_arrived(self) -> bool:
        """Whether all has arrived that processes which live have sent of themselves."""
        for rank, node in self.network.nodes.items():
            process = (rank, node.identity.incarnation)
            if self.pushed.get(process) != self.arrived.get(process):
                return False
        return True

    def _sweep_through(self) -> None:
        if self._random.random() < 0.5:
            self._one_sweep(control.FLUSH)
            return
        self._one_sweep(control.QUIESCE)
        completed, contributed = len(self._completed), self._contributed_values()
        self._let_pass(10 * ANSWER_SECONDS)
        moved = (len(self._completed), self._contributed_values())
        if moved != (completed, contributed):  # waves may fail: a loss is reported at once
            raise InvariantError("something moved on a quiet stream")
        self._one_sweep(control.RESUME)

    def _let_pass(self, seconds: float) -> None:
        end = self.network.clock.now() + seconds
        self._until(lambda: self.network.clock.now() > end, faults=True)

    def _contributed_values(self) -> int:
        """Return how many values have come unasked."""
        return sum(map(len, [*self._singles.values(), *self.arrived.values()]))

    def _one_sweep(self, action: str, filters: tuple[FilterAt, ...] = ()) -> ev.SweepDone:
        self._sweep += 1
        self.network.post(ROOT, ev.SweepStream(STREAM, self._sweep, action, filters))
        self._until(lambda: self._sweep in self._swept, faults=True)
        return self._swept[self._sweep]

    def _all_over(self, last: int) -> bool:
        return all(number in self._over for number in range(1, last + 1))

    # --- what must hold ------------------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        if isinstance(effect, ev.WaveCompleted):
            if self.kind.own_filters and effect.version != self._versions[effect.wave]:
                raise InvariantError(f"wave {effect.wave} names version {effect.version}")
            self._completed.append(effect)
            self._is_over(effect.wave)
            self._check_members(effect)
        elif isinstance(effect, ev.WaveFailed):
            self._is_over(effect.wave)
            self.failed.append(effect)
            self._check_failure(effect)
        elif isinstance(effect, ev.Contributed):
            number = self._decoded(effect)[0]
            if not effect.wave:
                self._has_arrived(number)
                if number % 2:  # the reader takes two at a time
                    self.network.post(ROOT, ev.Read(STREAM, effect.ranks[0][0], 2))
                return
            self._count(number, effect.wave)
            self._singles.setdefault(effect.wave, set()).add(number // STRIDE)
            if from_ranges(effect.ranks) != {number // STRIDE}:
                raise InvariantError(f"contribution {number} comes under {effect.ranks}")
        elif isinstance(effect, ev.SweepDone):
            self._swept[effect.number] = effect

    def _is_over(self, number: int) -> None:
        if number in self._over:
            raise InvariantError(f"wave {number} is over twice")
        self._over.add(number)

    def _count(self, contribution: int, wave: int) -> None:
        if contribution in self._counted:
            raise InvariantError(f"contribution {contribution} is counted twice, now in {wave}")
        self._counted.add(contribution)

    def _decoded(self, effect: Any) -> list[int]:
        total = getattr(effect, "total", None)
        if effect.body:
            view = effect.payload.view if effect.payload is not None else b""
            total = values.decode(effect.body, view)
        return [] if total is None else [int(number) for number in total]

    def _check_members(self, wave: ev.WaveCompleted) -> None:
        named, late = from_ranges(wave.ranks), from_ranges(wave.late)
        everybody = set(range(1, self.options.agents + 1))
        if self.kind.sync == "none":
            found = self._singles.get(wave.wave, set())
        else:
            numbers = self._decoded(wave)
            for number in numbers:
                self._count(number, wave.wave)
            found = {number // STRIDE for number in numbers if number % STRIDE == wave.wave}
            before = {number // STRIDE for number in numbers if number % STRIDE < wave.wave}
            if before != late or (late and self.kind.late != "next"):
                raise InvariantError(f"wave {wave.wave} names {late} as late, {before} are")
            self.late += len(before)
        if found != named:
            raise InvariantError(f"wave {wave.wave} names {named}, in it are {found}")
        if named != everybody:
            self.partial += 1
            allowed = self.kind.sync == "time-out" or self.kind.on_loss == "partial"
            for rank in everybody - named:
                excused = self._may_be_late(rank, wave.wave) or self._may_have_lost(rank, wave.wave)
                if not allowed or not excused:
                    raise InvariantError(f"wave {wave.wave} lacks agent {rank}, which lives")

    def _check_failure(self, failure: ev.WaveFailed) -> None:
        """Check that it names lost agents only."""
        what = failure.error.what
        generated = any(rank == failure.rank for rank, _ in self.arrived)  # no process continues it
        expected = self.kind.on_loss == "fail" or generated
        if not expected or failure.error.code != AgentLostError.code:
            raise InvariantError(f"wave {failure.wave} failed: {what}")
        named = ranks_named("agent", what)
        living = [rank for rank in named if not self._may_have_lost(rank, failure.wave)]
        if failure.rank not in named or living:
            raise InvariantError(f"wave {failure.wave} failed, and agents {living} live: {what}")

    def _may_have_lost(self, rank: int, since: int) -> bool:
        """Whether something went wrong that may have to do with an agent since a wave began."""
        now = self.network.clock.now()
        return self._injector.may_have_lost(rank, self._begun[since], now)

    def _may_be_late(self, rank: int, wave: int) -> bool:
        """Whether a wave may lack an agent that lives: a place above it passed it on, in time.

        Not the time-out of the root counts, but the shortest one above the agent: the time-out of
        the nearest place. A junction that waits for another agent answers when its time is over.
        If its answer takes longer on its way than the place above has more time, that place passes
        the wave on without it, and the root ends the wave when the last of its children has
        answered: before its own time is over, and without agents that have contributed at once.
        """
        kind, skew = self.kind, self.options.faults.skew
        if kind.sync != "time-out" or kind.seconds * (1 - skew) >= AMPLE:
            return False
        depth = sum(1 for _ in self.tree.ancestors(rank)) - 1
        shortest = time_at(kind.seconds, depth) * (1 - skew) / (1 + skew)
        return self.network.clock.now() >= self._begun[wave] + shortest

    def _own_filter(self, rank: int, effect: ev.FilterWanted, arrived: list[Any]) -> Any:
        if effect.wave and effect.version != self._versions[effect.wave]:
            raise InvariantError(
                f"rank {rank} filters wave {effect.wave} with version {effect.version}, "
                f"not {self._versions[effect.wave]}"
            )
        version, code = effect.version, effect.own.up.removeprefix(b"up ")
        if effect.parameters != b"p%d" % version or code != self._codes[version]:
            raise InvariantError(
                f"rank {rank} filters wave {effect.wave} of version {version} with "
                f"{effect.parameters!r} and code {code!r}, not {self._codes[version]!r}"
            )
        if effect.upward:
            return [number for numbers in arrived for number in numbers]
        return {**arrived[0], "path": arrived[0]["path"] + 1}


def _filters(code: bytes) -> tuple[FilterAt, ...]:
    return (FilterAt("*", b"up " + code, b"down " + code),)


def _contribution(rank: int, value: Any) -> Any:
    return [rank * STRIDE + value["wave"]]
