"""Machines that join a head under faults: the control tree, orders to nodes, and their reports.

The head is the production code: :class:`~sapwood.nodes.control.ControlTree` lets machines in, over
the production supervisor and protocol. A machine joins by a token, and when its daemon has lost its
place it asks again by its certificate, with the pauses of the real one. Links go down for a time
and heal, daemons end and are restarted, answers to joining machines get lost, machines are removed.

Each order to a node, and each report of one, is done once, or not at all if the process that it was
for ended, or was cut off for so long that it counts as ended; its sender is notified. A place has
one process. A node that was removed does not return. When nothing goes wrong any more, all
machines are nodes again, each under its own name, and follow orders.
"""

from __future__ import annotations

import functools
import itertools
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import (
    AgentLostError,
    CommunicationError,
    ConfigurationError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.futures import when_done
from sapwood.core.topology import ROOT, Tree, flat
from sapwood.environment.settings import NodeSettings
from sapwood.lifecycle import events as lev
from sapwood.nodes.control import ControlTree
from sapwood.nodes.joining import MAX_PAUSE, JoinAnswer, JoinRequest
from sapwood.nodes.node_facts import NodeFacts
from sapwood.nodes.starting import AwaitedDaemon
from sapwood.security.authority import Authority, make_request
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.interface import NewAgent
from sapwood.session.listeners import SessionListeners
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.supervisor import ProcessSetup
from sapwood_simulation.simulation import (
    TIMING,
    InvariantError,
    Simulation,
    SimulationOptions,
    SimulationReport,
)

ORDERS_OF_A_WAVE = 40
"""Orders and reports for each of ``options.waves``."""

UNDER_WAY = 20
"""Orders and reports that are under way at a time, at most."""

FIRST_PAUSE = 0.2
"""Virtual seconds until a machine that was not let in asks again; doubled each time."""

WAY = 0.002
"""Mean virtual time that a request to join takes to the head, and its answer back."""

LOST_ANSWERS = 0.2
"""Part of the answers to machines that join that are lost on their way."""

SEARCH = 2.0
"""Virtual seconds for which a daemon looks for its place before it asks the head again."""

AWAY = 4.0
"""Mean virtual time until a killed daemon is restarted."""

REMOVED = 0.004
"""Chance for each order that a machine is removed instead, and another one joins."""


class NodeReport(SimulationReport, frozen=True, kw_only=True):
    """What happened.

    Attributes:
        joined: How often machines were let in, for the first time or again.
        again: How often of these by a certificate.
        removed: Nodes that were removed.
        failed: Orders and reports whose sender was notified of their failure.
    """

    joined: int
    again: int
    removed: int
    failed: int


class Machine:
    """A machine that is a node, or wants to be one.

    Attributes:
        name: What it calls itself.
        node: Its node id; empty until it has joined.
        rank: Its place, when it has one.
        pid: Of the process that has that place; 0 for none.
        alive: Whether its daemon runs.
        over: Whether it may not come again.
        asks: Which attempt to join is under way; answers to older ones are void.
    """

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self.token = token
        self.node = ""
        self.rank = self.pid = self.asks = 0
        self.alive = True
        self.over = False


class _Session:
    """What the control tree has of its session.

    Args:
        simulation: Around it.
    """

    def __init__(self, simulation: NodeSimulation) -> None:
        self._simulation = simulation
        self.supervisor = simulation.supervisor
        self.begin_contract = simulation.begin_contract
        self.listeners = SessionListeners()
        self.subscribe = self.listeners.subscribe
        self.host = SimpleNamespace(
            listeners=self.listeners,
            expand=simulation.expand,
            contract=simulation.contract,
            configuration_of=lambda _host: b"",
        )

    @property
    def tree(self) -> Tree:
        return self._simulation.tree


class _Control(ControlTree):
    """The production control tree, over a simulated session."""

    def __init__(self, simulation: NodeSimulation) -> None:
        self.simulation = simulation
        options = SessionOptions(tree=flat(0), agent_entry="none:none")
        super().__init__(
            None, options, NodeSettings(), _authority(), None, 1, simulation.denied.__contains__
        )
        self._loop = cast("Any", simulation.loop)
        self.machines.listen(cast("Any", simulation.loop))

    def _off_loop(self, name: str, function: Callable[..., None], *args: Any) -> None:
        """Call a function at once: a thread would make its time differ between runs."""
        del name
        function(*args)

    def _new_session(self, options: SessionOptions) -> EmbeddedSession:
        del options
        return cast("EmbeddedSession", self.simulation.session)


class NodeSimulation(Simulation):
    """One run of machines that join, work and are cut off.

    Args:
        options: The options of the simulation, with as many machines as agents.

    Raises:
        ConfigurationError: Zygotes are to fail, of which the head of a control tree has none.

    Example:
        >>> report = NodeSimulation(SimulationOptions(agents=4, waves=1)).run()
        >>> report.waves, report.joined >= 4
        (40, True)
    """

    what = "nodes"
    census = True
    timing = msgspec.structs.replace(TIMING, give_up_after=SEARCH)
    join_timeout = 0.0

    def __init__(self, options: SimulationOptions) -> None:
        faults = options.faults
        if faults.zygote or faults.halt or faults.stall:
            raise ConfigurationError(
                "a control tree has no zygotes", hint="leave out --zygote, --halt and --stall"
            )
        self.denied: set[str] = set()
        self._machines: dict[str, Machine] = {}
        self._names = itertools.count(1)
        self._numbers = itertools.count(1)
        self._given: dict[tuple[int, int], _Given] = {}
        self._done_by: dict[tuple[int, int], int] = {}
        self._ended = self._joined_count = self._again = self._removals = self._failures = 0
        super().__init__(options)
        self.session = _Session(self)
        self.control = _Control(self)
        self.network.answer = lambda _rank, value: value

    def _first_tree(self) -> Tree:
        return flat(0)

    def _setup(self) -> ProcessSetup:
        return ProcessSetup(
            "simulated",
            lambda _rank: "none:none",
            orders.ConfigureProcesses("", b""),
            ZygotePlan(()),
            nodes=cast("Any", SimpleNamespace(starter=self._starter)),
            zygote=False,
        )

    def run(self) -> NodeReport:
        """Run everything and return what happened.

        Raises:
            InvariantError: Something that must always hold did not.
        """
        report = msgspec.structs.asdict(super().run())
        return NodeReport(
            **report,
            joined=self._joined_count,
            again=self._again,
            removed=self._removals,
            failed=self._failures,
        )

    # --- what the control tree has of a session --------------------------------------------------

    def _starter(
        self,
        host: int,
        _setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        _on_end: Callable[[str], None],
    ) -> Any:
        del host
        return AwaitedDaemon(self.control.machines.expect, on_report)

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Have places that another machine gets."""
        ranks = tuple(range(self.tree.size, self.tree.size + len(places)))
        homes = dict.fromkeys(ranks, ROOT)
        self.supervisor.post(lev.Expand(homes, {rank: rank for rank in ranks}))
        return ranks

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        """Take places out of the tree."""
        self.supervisor.post(lev.Drain(tuple(ranks)))
        return []

    def contract(self, ranks: Sequence[int], reason: str) -> None:
        """End places that were taken out."""
        self.supervisor.post(lev.Remove(tuple(ranks), reason))

    def _places_changed(self, change: lev.ProcessChange) -> None:
        super()._places_changed(change)
        self.session.listeners.changed(
            PlacesChanged(
                change.ranks,
                change.ranks,
                change.back,
                change.reason,
                change.disconnected,
                change.for_good,
                change.added,
                change.removed,
                self.tree.epoch,
            )
        )

    # --- machines --------------------------------------------------------------------------------

    def _new_machine(self) -> None:
        name = f"m{next(self._names)}"
        token = self.control.desk.create_token(uses=1).text
        machine = self._machines[name] = Machine(name, token)
        self.later(10 * WAY, self._ask_to_join, machine, machine.asks, FIRST_PAUSE)

    def _ask_to_join(self, machine: Machine, asks: int, pause: float) -> None:
        """Have a request on its way to the head, if it gets out of the machine."""
        if machine.asks != asks or not machine.alive or machine.over:
            return
        if self._is_cut(machine):
            self._ask_later(machine, asks, pause)
        else:
            self.later(WAY, self._asked_to_join, machine, asks, pause)

    def _ask_later(self, machine: Machine, asks: int, pause: float) -> None:
        self.loop.call_later(pause, self._ask_to_join, machine, asks, min(2 * pause, MAX_PAUSE))

    def _asked_to_join(self, machine: Machine, asks: int, pause: float) -> None:
        """Let the head answer; what a machine that gave up asked is answered, too."""
        facts = NodeFacts(
            name=machine.name,
            pid=1,
            user="0",
            python=platform.python_version(),
            architecture="x",
            cores=1,
            clock=time.time(),  # the head compares it with this machine's clock
        )
        request = JoinRequest("" if machine.node else machine.token, _request(), facts)
        found = self.control.desk.admit(request, machine.node, "")
        # By the loop: what a callback of a future raises would only be logged.
        answered = functools.partial(self.loop.call_later, 0.0, self._answered)
        when_done(found, functools.partial(answered, machine, asks, pause))

    def _answered(
        self, machine: Machine, asks: int, pause: float, found: Future[JoinAnswer]
    ) -> None:
        """Send the answer of the head to a machine."""
        error = found.exception()
        if isinstance(error, CommunicationError):
            self._ask_later(machine, asks, pause)
            return
        if isinstance(error, SecurityError):
            self._refused(machine, error)
            return
        answer = found.result()
        self._joined_count += 1
        self._again += bool(machine.node)
        if self._random.random() < self._lost_answers:
            self._ask_later(machine, asks, pause)
            return
        self.later(WAY, self._let_in, machine, asks, answer)

    @property
    def _lost_answers(self) -> float:
        return LOST_ANSWERS if self.options.faults.chance and self._failing else 0.0

    def _refused(self, machine: Machine, error: SapwoodError) -> None:
        if machine.node not in self.denied:
            raise InvariantError(f"{machine.name} ({machine.node}) is refused: {error.what}")
        machine.over = True

    def _let_in(self, machine: Machine, asks: int, answer: JoinAnswer) -> None:
        """Begin the process of a place on its machine."""
        if machine.asks != asks or not machine.alive:
            return  # its daemon has ended meanwhile
        if machine.node and machine.node != answer.node:
            raise InvariantError(f"{machine.node} comes again as {answer.node}")
        if answer.node in self.denied:
            raise InvariantError(f"{answer.node} was removed, and is let in")
        if answer.name != machine.name:
            raise InvariantError(f"{machine.name} is called {answer.name}")
        if answer.rank in self.network.nodes:
            raise InvariantError(f"rank {answer.rank} has two processes")
        machine.node, machine.rank, machine.pid = answer.node, answer.rank, self.new_pid()
        self.pids[machine.rank] = (machine.pid, cast("Any", machine))
        self.network.launch(machine.rank, answer.incarnation, machine.pid)
        self.network.post(machine.rank, ev.Begin())

    def _process_ended(self, rank: int) -> None:
        """A daemon has lost its place, or was killed: it asks for its place again."""
        entry = self.pids.pop(rank, None)
        if entry is None:
            return
        machine = cast("Any", entry[1])
        machine.pid = 0
        machine.asks += 1
        wait = AWAY if self._injector.crashing else WAY
        self.later(wait, self._ask_to_join, machine, machine.asks, FIRST_PAUSE)

    def _is_cut(self, machine: Machine) -> bool:
        cut = self.network.partition
        return bool(cut) and (machine.rank in cut) != (ROOT in cut)

    def _remove(self) -> None:
        """Remove a node for good, and let another machine join."""
        there = [one for one in self._machines.values() if one.node and one.rank in self.tree]
        if len(there) < 2:
            return
        machine = self._random.choice(there)
        self._removals += 1
        self.denied.add(machine.node)
        del self._machines[machine.name]
        self.begin_contract([machine.rank])
        self.contract([machine.rank], "it was removed")
        self._new_machine()

    # --- the course of events --------------------------------------------------------------------

    def _run(self) -> None:
        self._begin()
        self._failing = True
        for _ in range(self.options.agents):
            self._new_machine()
        total = self.options.waves * ORDERS_OF_A_WAVE
        for _ in range(total):
            if self._random.random() < REMOVED:
                self._remove()
            self._until(self._somebody_is_there, faults=True)
            self._give()
            self._until(self._has_room_for_more, faults=True)
        self._until(lambda: not self._given, faults=True)
        self._failing = False
        self._injector.stop()
        self._until(self._all_are_nodes, faults=False)
        self._until(self._tree_is_whole, faults=False)
        self._all_do_what_they_are_told()
        self._check_end()

    _failing = False

    def _somebody_is_there(self) -> bool:
        return len(self.network.nodes) > 1

    def _has_room_for_more(self) -> bool:
        return len(self._given) < UNDER_WAY

    def _all_are_nodes(self) -> bool:
        machines = self._machines.values()
        ranks = {one.rank for one in machines if one.pid}
        return (
            len(ranks) == self.options.agents
            and ranks == set(self.tree.agent_ranks)
            and self.supervisor.processes.all_ready()
            and all(node.state == "ready" for node in self.control.nodes)
        )

    def _give(self) -> None:
        """Give an order to a node, or have one report."""
        ranks = [rank for rank in self.network.nodes if rank]
        rank = self._random.choice(ranks)
        if self._random.random() < 0.5:
            self._give_to(ROOT, rank)
        elif not self.network.is_paused(rank):
            self._give_to(rank, ROOT)

    def _give_to(self, source: int, destination: int) -> None:
        number = next(self._numbers)
        pid = self.network.nodes[source].identity.pid
        self._given[source, number] = _Given(destination, pid, self.network.clock.now())
        self.network.ask(source, destination, number, number)

    def _all_do_what_they_are_told(self) -> None:
        failed = self._failures
        for rank in self.tree.agent_ranks:
            self._give_to(ROOT, rank)
            self._give_to(rank, ROOT)
        self._until(lambda: not self._given, faults=False)
        if self._failures != failed:
            raise InvariantError("all nodes are up and do not follow their orders")

    def _done(self) -> int:
        return self.options.waves * ORDERS_OF_A_WAVE

    # --- what must hold ------------------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        self._saw_below(ROOT, effect)

    def _joined(self, effect: ev.PlaceJoined) -> None:
        record = self.supervisor.processes[effect.rank]
        if record.is_ready and record.incarnation == effect.incarnation:
            self.session.listeners.joined(effect.rank)

    def _saw_below(self, rank: int, effect: Any) -> None:
        if isinstance(effect, ev.LinkChanged):
            if rank == ROOT and effect.rank in self.tree:
                self.session.listeners.link_changed(effect.rank, effect.reason)
        elif isinstance(effect, ev.Asked):
            key = effect.source, effect.number
            if key in self._done_by:
                raise InvariantError(f"what rank {key[0]} asked as {key[1]} is done twice")
            self._done_by[key] = rank
        elif isinstance(effect, ev.Answered):
            self._saw_answer(rank, effect)

    def _saw_answer(self, rank: int, effect: ev.Answered) -> None:
        given = self._given.pop((rank, effect.number), None)
        if given is None:
            raise InvariantError(f"what rank {rank} asked as {effect.number} is answered twice")
        by = self._done_by.get((rank, effect.number))
        if effect.error is None:
            if by != given.destination:
                raise InvariantError(f"an order for rank {given.destination} is done by {by}")
            return
        self._failures += 1
        if effect.error.code != AgentLostError.code:
            raise InvariantError(f"an order fails: {effect.error.what}")
        if not self._failing:
            raise InvariantError(f"all goes well, and an order fails: {effect.error.what}")

    def _notice(self) -> None:
        super()._notice()
        self.control.machines.life.check()
        nodes = self.network.nodes
        for key, given in list(self._given.items()):  # who gave it has ended
            node = nodes.get(key[0])
            if node is None or node.identity.pid != given.pid:
                del self._given[key]


class _Given(msgspec.Struct, frozen=True):
    """An order or a report that is not over.

    Attributes:
        destination: For whom.
        pid: Of the process that gave it.
        began: When, virtual seconds.
    """

    destination: int
    pid: int
    began: float


@functools.cache
def _authority() -> Authority:
    return Authority.create("grove")


@functools.cache
def _request() -> bytes:
    return make_request()[1]
