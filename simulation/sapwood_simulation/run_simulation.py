"""Runs under faults: what drives one is killed, its session is lost, its checkpoints are torn.

The run is the production one, with its loop, its checkpoints and what it does when it is drained,
and what the head decides when a driver has ended is its table. The session below it is a whole tree
of the production protocol, under the faults of the other simulations. Simulated are the disk,
which a kill leaves with half of a file, and the processes: a driver is killed at any step of a wave
or of writing a checkpoint, a root is killed, or its machines go and the run moves.

The state is a chain: what an iteration makes of it depends on every state before, on every agent,
and on which round it is. So a contribution that counts twice, an iteration that is lost or made
twice, and a state that belongs to another iteration, each give another result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec

from sapwood.activity.checkpoint import find_checkpoint, previous, read_checkpoint
from sapwood.activity.run import Run
from sapwood.activity.run_driver import RunDriver, RunPosition
from sapwood.activity.run_job import RunJob, RunSetup
from sapwood.activity.run_life import RunStep
from sapwood.code.cache import BuildCache
from sapwood.code.program import Program, parameter
from sapwood.code.run_spec import RunSpec
from sapwood.comm import events as ev
from sapwood.core.errors import CommunicationError, DrainedError
from sapwood.core.topology import ROOT, Tree
from sapwood.data.sources import load
from sapwood.environment.settings import RestartPolicy
from sapwood.head.run_ends import SESSION_LOST, how_ended, restarts_after
from sapwood.session.interface import SessionInterface
from sapwood_simulation.simulation import (
    InvariantError,
    Simulation,
    SimulationOptions,
    SimulationReport,
)

ROUNDS = 3
"""Iterations of a run, for each of ``options.waves``."""

PRIME = 2**31 - 1
"""The state is a number below this."""

KILLED = 0.6
"""Part of the drivers that are killed."""

STEPS_TO_KILL = 80
"""Mean steps after which that is."""

LOST = 0.4
"""Part of the sessions whose root is killed, or whose machines go."""

STEPS_TO_LOSE = 150
"""Mean steps after which that is."""

HARMED = 0.1
"""Chance that a disk has lost the end of a file when a driver is gone."""

KEPT = 0.6
"""Chance that an iteration is long enough for a checkpoint."""

ANSWER_STEPS = 15
"""Steps in which a driver writes the result and its answer."""

GONE_SECONDS = 0.01
"""Mean virtual seconds after which a root hears that a client is gone."""

MAX_DRIVERS = 60
"""Drivers of one run after which nothing more goes wrong: each run is to come to its end."""

FILE = Path("/run/checkpoint")
SIGKILL = 9


class DriverKilledError(BaseException):
    """The process of a driver has ended in the middle of something."""


class RunReport(SimulationReport, frozen=True, kw_only=True):
    """What happened.

    Attributes:
        drivers: Processes that drove the run.
        sessions: Sessions that it was on.
        resumed: Drivers that continued from a checkpoint.
        anew: Drivers except the first that found none, and started from the beginning.
        drained: How often the run stopped because its machines went.
        harmed: How often a disk lost a part of a checkpoint.
    """

    drivers: int
    sessions: int
    resumed: int
    anew: int
    drained: int
    harmed: int


class Chain(Program):
    """A program in whose state each contribution of each iteration is to be found."""

    reduce: ClassVar = {"sum": "sum", "who": "concat", "count": "count"}
    rounds: int = parameter(9)
    agents: int = parameter(1)

    def init(self, data: Any) -> dict[str, Any]:
        """Return the first state."""
        del data
        return {"round": 0, "value": 1}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Return the next one."""
        value = (state["value"] * 48271 + int(total["sum"])) % PRIME
        return {"round": state["round"] + 1, "value": value}

    def done(self, state: dict[str, Any]) -> bool:
        """Whether it was the last one."""
        return bool(state["round"] >= self.rounds)


def expected(rounds: int, agents: int) -> int:
    """Return the value of the last state of an undisturbed run."""
    program = Chain()
    state = program.init(None)
    for _ in range(rounds):
        total = sum(contribution(rank, state)["sum"] for rank in range(1, agents + 1))
        state = program.update(state, {"sum": total})
    return int(state["value"])


def contribution(rank: int, state: Any) -> dict[str, Any]:
    """Return what an agent makes of a state."""
    made = (rank * 7919 + state["value"] * rank + state["round"] * 104729) % PRIME
    return {"sum": made, "who": rank, "count": 1}


class SimulatedDisk:
    """Files that outlive who writes them.

    Attributes:
        files: The content of each file.
    """

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}


class Driver:
    """The process that drives a run, as a disk and a session have it; it may be killed.

    Args:
        simulation: Around it.
        session: The session that it uses.
        steps: Steps after which it is killed; 0 for never.
    """

    def __init__(self, simulation: RunSimulation, session: SimulatedSession, steps: int) -> None:
        self.simulation = simulation
        self.session = session
        self.alive = True
        self.stream = 0
        self.run: DrivenRun | None = None
        self._left = steps

    def step(self) -> None:
        """Do a step, or be killed before it."""
        if self._left:
            self._left -= 1
            self.alive = self._left > 0
        if not self.alive:
            raise DriverKilledError

    # --- its disk: CheckpointFiles -------------------------------------------------------------

    def write(self, file: Path, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write a file, or the first part of it."""
        self.step()
        data = b"".join(pieces)
        files = self.simulation.disk.files
        files[file] = data[: self.simulation.chance.randrange(len(data) + 1)]
        self.step()
        files[file] = data
        self.step()

    def read(self, file: Path) -> bytes:
        """Return what is in a file."""
        found = self.simulation.disk.files.get(file)
        if found is None:
            raise FileNotFoundError(2, "No such file", str(file))
        return found

    def exists(self, file: Path) -> bool:
        """Return whether there is a file."""
        return file in self.simulation.disk.files

    def rename(self, file: Path, to: Path) -> None:
        """Put a file in the place of another one."""
        self.step()
        files = self.simulation.disk.files
        files[to] = files.pop(file)
        self.step()

    def remove(self, file: Path) -> None:
        """Remove a file."""
        self.step()
        self.simulation.disk.files.pop(file, None)

    # --- its session: what a run needs of a SessionInterface and a StreamInterface ----------------

    failure = None
    closed = False

    @property
    def tree(self) -> Tree:
        """Its tree."""
        return self.session.tree

    def subscribe(self, _listener: Any) -> Callable[[], None]:
        """Losses are the business of the tree: the run hears of its waves only."""
        return lambda: None

    def shares_machine(self, _rank: int | None = None) -> bool:
        """Nothing is fetched."""
        return True

    def open_stream(
        self, _handler: str, reduce: Mapping[str, str], *_words: Any, **_options: Any
    ) -> Driver:
        """Open a stream to all agents."""
        self.step()
        self.stream = self.session.open(dict(reduce))
        return self

    def exchange(self, state: Any, meanwhile: Callable[[], object]) -> Any:
        """Send a state to all agents, and return the result."""
        self.step()
        total = self.session.exchange(self, state, meanwhile)
        return SimpleNamespace(total=total, weight=max(1, self.tree.agents))

    def close(self, _reason: Any = None) -> None:
        """Close the stream."""
        if self.alive and not self.session.lost:
            self.session.network.post(ROOT, ev.CloseStream(self.stream))

    def gone(self) -> None:
        """It has ended: the root hears of that a moment later, and closes its stream."""
        if not self.session.lost:
            closing = ev.CloseStream(self.stream)
            self.session.later(GONE_SECONDS, self.session.network.post, ROOT, closing)

    # --- its agents: what the loop of a run wants of RunParticipants ---------------------------

    orders = ()

    @property
    def ranks(self) -> list[int]:
        """Its agents."""
        return list(self.tree.agent_ranks)

    def serve(self, _stream: Any) -> None:
        """The tree brings replaced agents into the stream."""

    def fail(self, _error: Any) -> None:
        """Do nothing: it is not cancelled."""


class DrivenRun(Run):
    """The production run, without a build, slices, and a watch in real time."""

    def __init__(self, driver: Driver, program: Program) -> None:
        self._place = driver
        super().__init__(
            cast("SessionInterface", driver),
            program,
            load(range(max(1, driver.tree.agents))),
            cast("BuildCache", None),
            RunSpec(program, checkpoint=str(FILE), auto_resume=True, copy=False),
            RunSetup(checkpoint_share=1.0),
        )

    def _new_driver(self, job: RunJob) -> RunDriver:
        return _Iterations(job, self._place)

    def _work(self) -> None:
        self._place.run = self
        super()._work()

    @property
    def position(self) -> RunPosition:
        """How far its iterations are."""
        return self._driver.position


class _Iterations(RunDriver):
    """The production driver, without a build and slices."""

    def __init__(self, job: RunJob, place: Driver) -> None:
        self.files = place
        super().__init__(job)
        self._place = place
        self._cutter.watch = cast("Any", _Unwatched())

    def execute(self) -> Any:
        self._job.life.step(RunStep.BUILT)
        self._find_checkpoint()
        program, position = self._job.program, self.position
        first = program.init(self._job.data)
        position.state = position.state if position.resumed is not None else first
        self._iterate(cast("Any", self._place), {}, cast("Any", None))
        for _ in range(ANSWER_STEPS):
            self._place.step()
        return program.result(position.state)

    def _meanwhile(self) -> None:
        """As in production, where only some iterations last long enough for a checkpoint."""
        if self._place.simulation.chance.random() < KEPT:
            super()._meanwhile()
        else:
            self._note_iteration()


class _Unwatched:
    helping = False
    wanted = None

    @property
    def speculation(self) -> _Unwatched:
        """What helps late agents: there are none."""
        return self

    def begin(self, *_words: Any, **_options: Any) -> None:
        """Do nothing: the agents are not asked."""

    def wave_begins(self, *_words: Any) -> None:
        """Do nothing: no agent is late."""

    def look(self, *_words: Any) -> None:
        """Do nothing: the agents are not asked between iterations either."""

    def end(self) -> None:
        """Do nothing: the agents were not asked."""


class SimulatedSession(Simulation):
    """One session: a tree that lives until its root is killed, or its machines go.

    Args:
        options: The tree and its faults.
        steps: Steps after which that is; 0 for never.
        drains: Whether the run is notified before.
    """

    what = "runs"

    def __init__(self, options: SimulationOptions, steps: int, *, drains: bool) -> None:
        super().__init__(options)
        self.lost = False
        self._left = steps
        self._drains = drains
        self._streams = 0
        self._totals: dict[tuple[int, int], dict[str, Any]] = {}
        self._waves: Counter[int] = Counter()
        self.network.answer = contribution

    def begin(self) -> None:
        """Begin all places."""
        self._begin()

    def open(self, reduce: dict[str, str]) -> int:
        """Open a stream, and return its number."""
        self._streams += 1
        self.network.open_stream(self._streams, reduce)
        return self._streams

    def exchange(self, driver: Driver, state: Any, meanwhile: Callable[[], object]) -> Any:
        """Run a wave through the tree."""
        stream = driver.stream
        self.network.broadcast(stream, state)
        self._waves[stream] += 1
        meanwhile()
        key = (stream, self._waves[stream])

        def over() -> bool:
            driver.step()
            self._step(driver)
            return key in self._totals

        self._until(over, faults=True)
        total = self._totals[key]
        who = sorted(int(rank) for rank in total["who"])
        if who != list(self.tree.agent_ranks) or total["count"] != len(who):
            raise InvariantError(f"round {state['round']} has contributions of {who}")
        return total

    def _step(self, driver: Driver) -> None:
        if not self._left:
            return
        self._left -= 1
        if self._left:
            return
        if self._drains and driver.run is not None:
            driver.run.drain("its machines go")
            return
        self.lost = True
        raise CommunicationError("the root of the session is gone")

    def _saw(self, effect: Any) -> None:
        if isinstance(effect, ev.WaveCompleted):
            key = (effect.stream, effect.wave)
            if key in self._totals:
                raise InvariantError(f"wave {effect.wave} is over twice")
            self._totals[key] = effect.total
            self._completed.append(effect)
        elif isinstance(effect, ev.WaveFailed):
            raise InvariantError(f"wave {effect.wave} failed: {effect.error.what}")

    def end(self) -> None:
        """Stop all faults, and check that nothing is left of any driver's stream."""
        self._come_to_rest()
        self._until(self._stream_is_gone, faults=False)
        self._check_end()

    def counts(self) -> dict[str, Any]:
        """Return what happened."""
        injector = self._injector
        return {
            "waves": len(self._completed),
            "steps": self._steps,
            "seconds": self.network.clock.now(),
            "crashes": injector.crashes,
            "pauses": injector.pauses,
            "zygotes": injector.zygotes,
            "halts": injector.halts,
            "stalls": injector.stalls,
            "severed": self.network.breaks,
            "clogged": injector.clogged,
            "astray": self.network.astray.astray,
            "restarts": self.supervisor.restarts,
            "attached": self._attached,
        }


class RunSimulation(Simulation):
    """One run, over as many drivers and sessions as it takes.

    Args:
        options: The options of the simulation; the run has three times ``waves`` iterations.

    Example:
        >>> report = RunSimulation(SimulationOptions(agents=4, waves=2, seed=5)).run()
        >>> report.drivers > 1, report.waves >= 6
        (True, True)
    """

    what = "runs"

    def __init__(self, options: SimulationOptions) -> None:
        super().__init__(options)
        self.chance = self._random
        self.disk = SimulatedDisk()
        self.rounds = ROUNDS * options.waves
        self.drivers = self.sessions = self.resumed = self.anew = self.drained = self.harmed = 0
        self._totals: Counter[str] = Counter()
        self._policy = RestartPolicy(limit=2**31, window=1e9)

    def run(self) -> SimulationReport:
        """Run it to its end, and return what happened.

        Raises:
            InvariantError: The result differs from an undisturbed run's result, or the tree
                does what it must not.
        """
        super().run()
        return RunReport(
            **self._totals,
            drivers=self.drivers,
            sessions=self.sessions,
            resumed=self.resumed,
            anew=self.anew,
            drained=self.drained,
            harmed=self.harmed,
        )

    def _run(self) -> None:
        restarts: tuple[float, ...] = ()
        session = self._new_session()
        while True:
            driver, run, status = self._drive(session)
            if status == 0:
                break
            if session.lost or isinstance(run.exception(), DrainedError):
                self._end_session(session, run)
                session = self._new_session()
            if not isinstance(run.exception(), DrainedError):
                again = restarts_after(
                    how_ended(status, answered=False),
                    restarts[-50:],
                    self._policy,
                    float(self.drivers),
                    cancelled=False,
                )
                if again is None:
                    raise InvariantError(f"a driver that ended with {status} is not restarted")
                restarts = again
                self._harm_disk()
            driver.gone()
        self._check_result(run)
        session.end()
        self._totals.update(session.counts())

    def _drive(self, session: SimulatedSession) -> tuple[Driver, DrivenRun, int]:
        """Run one driver until it ends; return how it ended, as a status of ``waitpid``."""
        self.drivers += 1
        killed = self.drivers < MAX_DRIVERS and self.chance.random() < KILLED
        steps = 1 + int(self.chance.expovariate(1 / STEPS_TO_KILL)) if killed else 0
        driver = Driver(self, session, steps)
        if self.drivers > 1:
            found = find_checkpoint(FILE, Driver(self, session, 0))
            self.resumed += found is not None
            self.anew += found is None
        program = Chain(rounds=self.rounds, agents=self.options.agents)
        run = DrivenRun(driver, program)
        run.wait()
        error = run.exception()
        if error is None:
            return driver, run, 0
        if isinstance(error, DriverKilledError):
            return driver, run, SIGKILL
        if type(error) is CommunicationError or isinstance(error, DrainedError):
            return driver, run, SESSION_LOST << 8
        raise error

    def _new_session(self) -> SimulatedSession:
        self.sessions += 1
        seed = self.chance.getrandbits(32)
        goes = self.drivers < MAX_DRIVERS and self.chance.random() < LOST
        steps = 1 + int(self.chance.expovariate(1 / STEPS_TO_LOSE)) if goes else 0
        options = msgspec.structs.replace(self.options, seed=seed)
        session = SimulatedSession(options, steps, drains=self.chance.random() < 0.5)
        session.begin()
        return session

    def _end_session(self, session: SimulatedSession, run: DrivenRun) -> None:
        """End its root and its tree; a run that was notified before has lost nothing."""
        self._totals.update(session.counts())
        if not isinstance(run.exception(), DrainedError):
            return
        self.drained += 1
        reader = Driver(self, session, 0)
        if find_checkpoint(FILE, reader) is None:
            raise InvariantError("a run was drained, and left no checkpoint")
        kept = run_iteration(reader)
        if kept != run.position.iterated:
            raise InvariantError(
                f"a run was drained after {run.position.iterated}, and kept {kept}"
            )

    def _harm_disk(self) -> None:
        files = self.disk.files
        for file in (FILE, previous(FILE)):
            if files.get(file) and self.chance.random() < HARMED:
                self.harmed += 1
                files[file] = files[file][: self.chance.randrange(len(files[file]))]

    def _check_result(self, run: DrivenRun) -> None:
        state = run.result()
        wanted = {"round": self.rounds, "value": expected(self.rounds, self.options.agents)}
        if {name: int(value) for name, value in state.items()} != wanted:
            raise InvariantError(f"the result is {state}, and undisturbed {wanted}")
        if run.position.iterated != self.rounds:
            raise InvariantError(
                f"{run.position.iterated} iterations are counted, not {self.rounds}"
            )

    def _check_end(self) -> None:
        """Each session has looked at its own end."""


def run_iteration(files: Driver) -> int:
    """Return the iteration of the last checkpoint that is whole."""
    return read_checkpoint(FILE, files).iteration
