"""Sessions under faults: clients come and go, heads and roots end, credentials are revoked.

One session has a tree, and there are others without agents. Clients with different rights
attach, open streams, send waves, ask agents, read what these push, leave with a word or without
one, and attach again. Meanwhile agents are added and removed, connections are cut, the head is
killed at some step and restarted with its store, and in some runs the root of
the tree ends.

The checks: a result goes to the client that asked, at most once; results of a stream that
had no owner are available to the next owner, or counted as dropped. Agents that push are
never stopped for good. No client is admitted without the right, and a second after a credential was
revoked no client uses it. A session exists or it is over: no root is left that the head does not
know, no record of a lost one. Unused sessions end in time.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import NO_WAIT, Synchronisation
from sapwood.comm.streams.push import is_full
from sapwood.core.errors import ClosedError, ConfigurationError, ResourceError, SapwoodError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, Tree
from sapwood.environment.settings import DisconnectPolicy
from sapwood.head import session_records
from sapwood.head.session_registry import ServerPlan
from sapwood.lifecycle import events as lev
from sapwood.session.expansion import Expansion
from sapwood.session.interface import ProcessView
from sapwood.session.loop_thread import LoopThread
from sapwood.session.options import PlacesChanged
from sapwood.session.session_life import SessionState
from sapwood.session.streams import StreamHandle, StreamOptions
from sapwood.session.wave_result import WaveResult
from sapwood.session_server import session_calls, wire
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.server_link import SessionAddress
from sapwood.session_server.session_life import FIRST_PATIENCE
from sapwood_simulation.session_world import SessionOfServer, SessionWorld, SimulatedServer
from sapwood_simulation.simulation import (
    InvariantError,
    Simulation,
    SimulationOptions,
    SimulationReport,
)
from sapwood_simulation.wires import SILENCE, SimulatedWire

ACTIONS = 40
"""Things that clients and users do, for each of ``options.waves``."""

ACTION_SECONDS = 0.05
"""Mean virtual time between two of them."""

UNLUCKY = 0.15
"""Chance that a connection breaks as soon as its client is let in."""

USES = 0.7
"""Chance that a client does something, each time."""

CLIENTS = 4
"""Clients that there are at a time, at most."""

READY_TIMEOUT = 30.0
"""Virtual seconds in which agents that are added must be there."""

HEAD_AWAY = 1.0
"""Mean virtual seconds without a head."""

GRACE = 30.0
"""Virtual seconds after which nothing is between: a head that lives has cleared up by then."""

REVOKED_WITHIN = 1.0
"""Virtual seconds after which a credential that was revoked is refused."""

IDLE = 3.0
"""Seconds without attached clients after which the sessions without agents end."""

LOOK_SECONDS = 0.2
"""Virtual seconds between two looks at what must hold."""

FLOW = 80
"""Values that each agent sends at the end: more than its window."""

READ_LOOKS = 100
"""Tenths of a second in which all of them must be read after the last one was sent."""

REDUCE = {"sum": "sum", "who": "concat", "count": "count"}

MAIN = "main"
"""What the session with the tree is called."""

RIGHTS = {
    ClientRole.WATCHER: ("connect", "attach"),
    ClientRole.USER: ("connect", "attach", "run"),
    ClientRole.OWNER: ("connect", "attach", "run", "delete"),
}
"""What a credential must give for each role that people have."""

ROLES = tuple(reversed(RIGHTS))


class SessionReport(SimulationReport, frozen=True, kw_only=True):
    """What happened.

    Attributes:
        attaches: How often a client was let in.
        refused: How often one was not.
        cut: Connections that were cut, or whose client ended without a word.
        heads: Heads that there were.
        sessions: Sessions that were begun.
        revoked: Credentials that were revoked.
        changes: Expansions and contractions that succeeded.
        adopted: Streams that an owner has found which another one had left.
        dropped: Results of these that were left out.
    """

    attaches: int
    refused: int
    cut: int
    heads: int
    sessions: int
    revoked: int
    changes: int
    adopted: int
    dropped: int


class VirtualThread:
    """The thread of a client's session, where all is one thread.

    Args:
        simulation: Around it.
    """

    is_current = True
    started = True
    in_forked_child = False

    def __init__(self, simulation: SessionSimulation) -> None:
        self.loop = simulation.loop

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def refuse_forked_child(self) -> None:
        """Do nothing: no process forks."""

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function."""
        function(*args)

    def refuse_own_thread(self) -> None:
        """All is one thread."""

    def post_for(self, _failed: Any, function: Callable[..., Any], *args: Any) -> None:
        """Call a function; what it raises ends the simulation."""
        function(*args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function."""
        return function(*args)


class OpenWaves:
    """A stream of a client.

    Attributes:
        name: What tells it from all others; its next owner knows it by that, too.
        handle: The production handle.
        pushed: What agents sent of themselves and is not read yet, by agent.
    """

    def __init__(self, name: str, handle: StreamHandle) -> None:
        self.name = name
        self.handle = handle
        self.pushed: Counter[int] = Counter()


class SimulatedClient:
    """A client: the production session that is attached, over a simulated connection.

    Args:
        simulation: Around it.
        root: What it attaches to.
        role: What it wants to be.
        secret: What it shows; empty for a process of the head's user.
        credential: The id of the credential that it has that by.
        may: Whether it has the right.
    """

    def __init__(
        self,
        simulation: SessionSimulation,
        root: SimulatedServer,
        role: ClientRole,
        secret: str = "",
        credential: str = "",
        *,
        may: bool = True,
    ) -> None:
        self.number = next(simulation.numbers)
        self.simulation = simulation
        self.root = root
        self.role = role
        self.credential = credential
        self.may = may
        self.alive = True
        self.there = False
        self.confirmed = self.lost = False
        self.begun = simulation.loop.time()
        self.streams: dict[int, OpenWaves] = {}
        self.wire = SimulatedWire(simulation.loop, simulation.random)
        self.sent: deque[tuple[int, tuple[str, int, int]]] = deque()
        self._written = self._arrived = 0
        self._sniffer = wire.WireReader(wire.TO_CLIENT)
        self._reader = wire.WireReader(wire.TO_SERVER)
        self.wire.written, self.wire.arrived = self._wrote, self._has_arrived
        self.session = AttachedSession(
            SessionAddress(session=root.id, name=root.plan.wanted.name, secret=secret),
            self._connect,
            role=role,
            thread=cast("LoopThread", VirtualThread(simulation)),
        )
        self.session.link.begin().add_done_callback(simulation.guarded(self._answered))

    def _connect(self, handler: Any, _loop: Any, failed: Any) -> None:
        if not self.root.listening:
            failed(SapwoodError("no process listens"))
            return
        local = not self.session.address.secret
        server: Any = self.root.server if local else self.root.door
        self.wire.open(handler, server)

    def _answered(self, welcome: Future[wire.Admitted]) -> None:
        simulation, error = self.simulation, welcome.exception()
        if error is not None:
            simulation.refused += 1
            self.alive = False
            self.wire.end(0)
            simulation.was_refused(self, error)
            return
        simulation.attaches += 1
        self.there = True
        if not self.may:
            raise InvariantError(f"a client without the right is {self.role.value}")
        simulation.was_admitted(self)
        for one in self.session.kept:
            simulation.adopted(self, one)
        if simulation.is_unlucky():
            self.lose()  # before it has said that it has what was kept

    # --- what is on its way --------------------------------------------------------------------

    def _wrote(self, side: int, data: bytes) -> None:
        if side == 0:
            return
        for message in self._sniffer.feed(data):
            key = self.simulation.result_of(self, message)
            if key is not None:
                self.sent.append((self._written + len(data), key))
        self._written += len(data)

    def _has_arrived(self, side: int, data: bytes) -> None:
        if side == 0:
            self.confirmed = self.confirmed or self._confirms(data)
            return
        self._arrived += len(data)
        while self.sent and self.sent[0][0] <= self._arrived:
            self.sent.popleft()

    def _confirms(self, data: bytes) -> bool:
        said = self._reader.feed(data)
        return any(getattr(one, "name", "") == session_calls.TAKEN for one in said)

    # --- how it ends ---------------------------------------------------------------------------

    def leave(self) -> None:
        """Detach with a word."""
        self.simulation.ask_once_more(self)
        self.alive = False
        done = self.session.link.ask(session_calls.DETACH)
        done.add_done_callback(lambda _: self.session.part(ClosedError("it has left")))

    def die(self) -> None:
        """End without a word: what it has sent arrives, and it hears nothing more."""
        self.simulation.ask_once_more(self)
        self.alive = False
        self.simulation.cut += 1
        self.wire.end(0)
        self.session.part(ClosedError("it has ended"))

    def lose(self) -> None:
        """Lose the connection."""
        self.lost = True
        self.simulation.cut += 1
        self.wire.cut()

    @property
    def is_over(self) -> bool:
        """Whether its session can do nothing any more."""
        return not self.alive or self.session.failure is not None or self.session.closed


class MainTree:
    """The tree of the main session, as its root has it.

    Args:
        simulation: Which has it.
    """

    def __init__(self, simulation: SessionSimulation) -> None:
        self._simulation = simulation

    def begin(self, session: SessionOfServer, ready: Callable[[], None]) -> None:
        """Start a session; all places exist already, and it is ready when they are."""
        self._simulation.session_begins(session)
        ready()

    def post(self, event: ev.Event) -> None:
        """Give the core of the root an event."""
        self._simulation.network.post(ROOT, event)

    def expand(self, places: Sequence[Any]) -> Future[Any]:
        """Add agents."""
        return self._simulation.expand([one.parent for one in places])

    def contract(self, ranks: Sequence[int], seconds: float, reason: str) -> Future[Any]:
        """Remove places."""
        del seconds
        return self._simulation.contract(list(ranks), reason)

    def end(self) -> None:
        """The root has ended, and its processes with it."""
        self._simulation.tree_ends()


class SessionSimulation(Simulation):
    """One run of sessions.

    Args:
        options: The options of the simulation.

    Example:
        >>> report = SessionSimulation(SimulationOptions(agents=4, waves=2, seed=1)).run()
        >>> report.waves > 5, report.attaches > 2
        (True, True)
    """

    what = "sessions"
    census = True

    def __init__(self, options: SimulationOptions) -> None:
        self.attaches = self.refused = self.cut = self.revoked = self.changes = 0
        self.adoptions = self.dropped = self.sessions = 0
        self.numbers = itertools.count(1)
        super().__init__(options)
        self.random = self._random
        chance = self._random
        self.keeping = DisconnectPolicy(
            output=chance.choice(["buffer", "buffer", "drop", "block"]),
            buffer=chance.choice([1024, 4096, 2**20]),
        )
        self.world = SessionWorld(self.loop, chance, self.keeping, self._tree_of)
        self.world.when_server_ends = self._server_ended
        self.main: SimulatedServer | None = None
        self._tree_there = True
        self._session: SessionOfServer | None = None
        self.clients: list[SimulatedClient] = []
        self._gone: list[SimulatedClient] = []
        self._asked: dict[tuple[str, int], set[int]] = {}
        self._uids = itertools.count(1)
        self._got: dict[tuple[str, int], list[int]] = {}
        self._owned: dict[str, bool] = {}  # streams of owners; whether agents push in it
        self._closed_streams: set[str] = set()
        self._last: dict[tuple[str, int, int], int] = {}  # the last value that came of a process
        self._next_value: dict[str, int] = {}
        self._emitted: dict[tuple[str, int], list[int]] = {}
        self._revoked_at: dict[str, float] = {}
        self._told_late: dict[str, float] = {}
        self._between: dict[object, float] = {}
        self._unattached: dict[int, float] = {}
        self._used: set[int] = set()
        self._dropped_of: Counter[str] = Counter()
        self._lost_of: Counter[str] = Counter()
        self._results = 0
        self._final = False
        self._problem: Exception | None = None
        self._leaving = 0
        self.network._observe = self._observed  # type: ignore[method-assign]  # noqa: SLF001
        self._observe_rest = type(self.network)._observe  # noqa: SLF001 - effects at once
        self._handlers: dict[type[Any], Callable[[Any], None]] = {}

    def run(self) -> SessionReport:
        """Run everything and return what happened.

        Raises:
            InvariantError: Something that must always hold did not.
        """
        report = msgspec.structs.asdict(super().run())
        return SessionReport(
            **report,
            attaches=self.attaches,
            refused=self.refused,
            cut=self.cut,
            heads=self.world.heads,
            sessions=self.sessions,
            revoked=self.revoked,
            changes=self.changes,
            adopted=self.adoptions,
            dropped=self.dropped,
        )

    def _done(self) -> int:
        return self._results

    def guarded(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a callback of a future, which may raise: the future would keep that to itself."""

        def call(done: Any) -> None:
            try:
                function(done)
            except Exception as error:  # noqa: BLE001 - whatever it is, this seed has found it
                self._problem = self._problem or error

        return call

    # --- the tree of the main session ----------------------------------------------------------

    def _tree_of(self, plan: ServerPlan) -> MainTree | None:
        return MainTree(self) if plan.wanted.name == MAIN and self._tree_there else None

    def session_begins(self, session: SessionOfServer) -> None:
        """The root of the tree has a session from now on."""
        self._session = session
        session.tree = self.tree
        session.views = lambda: dict(enumerate(map(self._view, range(self.tree.size))))
        ignored = dict.fromkeys(ev.Effect.__subclasses__(), _ignored)
        self._handlers = session.routed(ignored)

    def _view(self, rank: int) -> ProcessView | None:
        if rank == ROOT:
            return None
        one = self.supervisor.processes[rank]
        return ProcessView(one.rank, one.pid, one.state, one.incarnation)

    def _observed(self, rank: int, effect: ev.Effect) -> None:
        """Give effects of the root to its session at once, as its driver does."""
        if rank == ROOT and self._session is not None:
            handler = self._handlers.get(type(effect))
            if handler is not None and handler is not _ignored:
                handler(effect)
        self._observe_rest(self.network, rank, effect)

    def expand(self, homes: Sequence[int]) -> Future[Any]:
        """Add agents; the future gets their ranks when they are there."""
        tree, session = self.tree, self._session
        assert session is not None
        ranks = tuple(range(tree.size, tree.size + len(homes)))
        expansion = Expansion()
        answer: Future[Any] = Future()
        parents = dict(zip(ranks, homes, strict=True))
        try:
            tree.with_agents(parents)
        except SapwoodError as error:
            answer.set_exception(error)
            return answer
        session.listeners.append(expansion.changed)
        self.supervisor.post(lev.Expand(parents, dict.fromkeys(ranks, 0)))
        expansion.begun(ranks)

        def over(done: Future[None]) -> None:
            session.listeners.remove(expansion.changed)
            if done.exception() is None:
                self.changes += 1
                answer.set_result(ranks)
            else:
                left = [rank for rank in ranks if rank in self.tree]
                if left:
                    self._take_out(left, "it could not be started")
                answer.set_exception(done.exception())

        def late() -> None:
            if not expansion.done.done():
                expansion.done.set_exception(ResourceError("it was not ready in time"))

        expansion.done.add_done_callback(over)
        self.loop.call_later(READY_TIMEOUT, late)
        return answer

    def contract(self, ranks: list[int], reason: str) -> Future[Any]:
        """Remove places."""
        answer: Future[Any] = Future()
        try:
            self._take_out(ranks, reason)
        except SapwoodError as error:
            answer.set_exception(error)
        else:
            self.changes += 1
            answer.set_result(None)
        return answer

    def _take_out(self, ranks: list[int], reason: str) -> None:
        if not self._tree_there:
            return
        self.supervisor.post(lev.Drain(tuple(ranks)))
        self._leaving += 1
        self.later(0.02, self._let_go, ranks, reason)

    def _let_go(self, ranks: list[int], reason: str) -> None:
        self._leaving -= 1
        if self._tree_there:
            self.supervisor.post(lev.Remove(tuple(ranks), reason))

    def _new_tree(self, tree: Tree) -> None:
        super()._new_tree(tree)
        if self._session is not None:
            self._session.tree = tree

    def _places_changed(self, change: lev.ProcessChange) -> None:
        super()._places_changed(change)
        if self._session is None or not self._tree_there:
            return
        told = PlacesChanged(
            change.ranks,
            tuple(rank for rank in change.ranks if self.tree.is_agent(rank)),
            change.back,
            change.reason,
            change.disconnected,
            change.for_good,
            change.added,
            change.removed,
            self.tree.epoch,
        )
        for listener in tuple(self._session.listeners):
            listener(told)

    def tree_ends(self) -> None:
        """The root has ended: its processes end with it."""
        if not self._tree_there:
            return
        self._tree_there = False
        self._session = None
        self.supervisor.detach()
        self.supervisor.simulated.close()
        for rank in list(self.network.nodes):
            self.network.kill(rank)

    # --- the course of events ------------------------------------------------------------------

    def _run(self) -> None:
        self.network.answer = _answer
        self._begin()
        self.world.begin_head()
        self._create(MAIN, 0.0)
        self._until(self._main_is_there, faults=False)
        self.loop.call_later(LOOK_SECONDS, self._look)
        self._left = ACTIONS * self.options.waves
        self.later(ACTION_SECONDS, self._act)
        self._until(lambda: self._left <= 0, faults=True)
        self._final = True
        self._injector.stop()
        if self.world.head is not None:
            self.world.head.kill_after(0)
        self._until(lambda: self.world.head is not None, faults=False)
        for one in self.clients:
            if not self._is_gone(one):
                one.leave()
                if one.lost:
                    self._is_gone(one)  # data under way over its connection is lost
        self._settle(SILENCE + 2.0)  # also at connections that were cut
        if self.main is not None and self.main.alive and not self.main.ending:
            self._finish_main()
        self._end_all()

    def _settle(self, seconds: float) -> None:
        """Wait until everything under way has arrived."""
        end = self.loop.time() + seconds
        self._until(lambda: self.loop.time() > end, faults=False)

    def _main_is_there(self) -> bool:
        self.main = next(
            (one for one in self.world.roots.values() if one.plan.wanted.name == MAIN), None
        )
        head = self.world.head
        found = [one for one in head.registry.records() if one.name == MAIN] if head else []
        return self.main is not None and any(one.state == "detached" for one in found)

    @property
    def _goes_wrong(self) -> bool:
        return bool(self.options.faults.chance) and not self._final

    def _act(self) -> None:
        """Do a random action of some client or of the head."""
        if self._final:
            return
        self._left -= 1
        self.later(ACTION_SECONDS, self._act)
        chance = self._random
        self.clients = [one for one in self.clients if not self._is_gone(one)]
        if self._goes_wrong and chance.random() < 0.1:
            self._go_wrong()
        living = [one for one in self.clients if one.there]
        if len(self.clients) < CLIENTS and chance.random() < 0.25:
            self._attach()
        elif chance.random() < 0.08:
            self._of_sessions()
        for one in living:
            if chance.random() < USES and not one.is_over:
                self._use(one)

    def _is_gone(self, one: SimulatedClient) -> bool:
        if one.is_over:
            self._gone.append(one)
            if one.alive:
                one.alive = False
                one.wire.end(0)
        return one.is_over

    def _go_wrong(self) -> None:
        chance, head = self._random, self.world.head
        what = chance.random()
        if what < 0.4 and self.clients:
            one = chance.choice(self.clients)
            one.lose() if chance.random() < 0.6 else one.die()
        elif what < 0.7 and head is not None:
            if chance.random() < 0.3:
                self.world.head_ended(head)
            else:
                head.kill_after(chance.randint(1, 12))
        elif what < 0.9:
            small = [one for one in self.world.roots.values() if one is not self.main]
            if small:
                chance.choice(small).crash()
        elif what < 0.92 and self.main is not None and self.main.alive:
            self.main.crash()

    def _of_sessions(self) -> None:
        """Create, or end, or revoke."""
        chance, head = self._random, self.world.head
        if head is None:
            return
        what = chance.random()
        if what < 0.45:
            self._create(f"s{chance.randint(1, 3)}", chance.choice([0.0, IDLE, IDLE]))
        elif what < 0.6:
            names = [one.name for one in head.registry.records() if one.name != MAIN]
            if names:
                head.do(self._delete, chance.choice(names))
        else:
            known = [one.credential for one in self.clients if one.credential]
            fresh = [one for one in known if one not in self._revoked_at]
            if fresh:
                one = chance.choice(fresh)
                self.revoked += 1
                head.do(head.revoke, one)
                if f"credentials/revoked/{one}" in self.world.kept.entries:
                    self._revoked_at[one] = self.loop.time()

    def _create(self, name: str, idle: float) -> None:
        head = self.world.head
        if head is not None:
            wanted = session_records.CreateSession(name=name, on="local", idle=idle)
            head.do(self._creates, wanted)

    def _creates(self, wanted: session_records.CreateSession) -> None:
        assert self.world.head is not None
        registry = self.world.head.registry
        there = [one for one in registry.records() if not SessionState(one.state).is_over]
        taken = any(one.name == wanted.name for one in there)
        try:
            registry.create(wanted)
        except ConfigurationError as error:
            if not taken:
                raise InvariantError(f"there is no such session, and yet: {error.what}") from error
        else:
            self.sessions += 1
            if taken:
                raise InvariantError(f"two sessions are called {wanted.name}")

    def _delete(self, name: str) -> None:
        assert self.world.head is not None
        try:
            self.world.head.registry.end(name)
        except ClosedError:
            pass
        except ResourceError as error:
            if "still starting" not in error.what:
                raise

    def _attach(self) -> None:
        """Attach a client, of the same user or with a credential whose rights may not suffice."""
        chance = self._random
        roots = [one for one in self.world.roots.values() if one.listening]
        if not roots:
            return
        main = self.main if self.main in roots and chance.random() < 0.8 else None
        root = main or chance.choice(roots)
        role = chance.choice([*ROLES, ClientRole.OWNER])
        head = self.world.head
        if head is None or chance.random() < 0.5:
            self.clients.append(SimulatedClient(self, root, role))
            return
        shown = chance.choice(ROLES)
        try:
            got = head.do(head.credential, root.id, RIGHTS[shown], chance.choice([20.0, 1e6]))
        except SapwoodError:  # it is over for the head
            return
        if got is None:
            return
        order = list(RIGHTS)
        may = order.index(role) <= order.index(shown)
        if chance.random() < 0.1:  # one that was changed, or is for another session
            got, may = (got[0].replace(shown.value, "owner", 1) + "0", got[1]), False
        self.clients.append(SimulatedClient(self, root, role, *got, may=may))

    def is_unlucky(self) -> bool:
        """Whether a connection breaks as soon as its client is let in."""
        return self._goes_wrong and self._random.random() < UNLUCKY

    def was_refused(self, one: SimulatedClient, error: BaseException) -> None:
        """Check that it had to be."""

    def was_admitted(self, one: SimulatedClient) -> None:
        """Check that it may be."""
        revoked = self._revoked_at.get(one.credential)
        if revoked is not None and self._knows_by(one.root, revoked) < one.begun:
            raise InvariantError("a client was admitted by a revoked credential")

    def _knows_by(self, root: SimulatedServer, revoked: float) -> float:
        """Return by when a root knows what was revoked: a second, if there was a head."""
        return max(revoked, self._told_late.get(root.id, 0.0)) + REVOKED_WITHIN

    def _use(self, one: SimulatedClient) -> None:
        """Let a client do something."""
        chance = self._random
        works = one.role is not ClientRole.WATCHER and one.root is self.main
        what = chance.random()
        if what < 0.02:
            one.leave()
        elif not works:
            return
        elif what < 0.15 and len(one.streams) < 4:
            self._open(one)
        elif what < 0.2 and one.role is ClientRole.OWNER:
            self._change_tree(one)
        elif what < 0.25:
            self._ask(one)
        elif one.streams:
            stream = chance.choice(list(one.streams.values()))
            if stream.handle.spec.sync.kind == NO_WAIT:
                self._read(one, stream)
            elif what < 0.28:
                self._close_stream(one, stream)
            else:
                self._broadcast(one, stream)

    # --- streams -------------------------------------------------------------------------------

    def _open(self, one: SimulatedClient) -> None:
        name = f"h{next(self._uids)}"
        pushes = self._random.random() < 0.4
        options = StreamOptions(
            follows=True,
            paced=pushes,
            sync=Synchronisation(NO_WAIT) if pushes else Synchronisation(),
        )
        handle = one.session.open_stream(name, {} if pushes else REDUCE, None, "", options)
        stream = one.streams[handle.spec.stream] = OpenWaves(name, handle)
        if one.role is ClientRole.OWNER:
            self._owned[name] = pushes
        handle.on_contribution = partial(self._pushed, one, stream)
        if pushes:
            self.later(ACTION_SECONDS, self._push, name)

    def _close_stream(self, one: SimulatedClient, stream: OpenWaves) -> None:
        self._closed_streams.add(stream.name)
        del one.streams[stream.handle.spec.stream]
        stream.handle.close()

    def _broadcast(self, one: SimulatedClient, stream: OpenWaves) -> None:
        wave, uid = stream.handle.waves_begun + 1, next(self._uids)
        # An owner who is cut off may not know yet that another one has this stream by now.
        self._asked.setdefault((stream.name, wave), set()).add(uid)
        future = stream.handle.broadcast({"wave": uid})
        future.add_done_callback(self.guarded(partial(self._result, one, stream.name, wave)))

    def ask_once_more(self, one: SimulatedClient) -> None:
        """Have a client begin waves of whose results it will hear nothing."""
        for stream in one.streams.values() if not one.is_over else ():
            if stream.handle.spec.sync.kind != NO_WAIT and self._random.random() < 0.5:
                self._broadcast(one, stream)

    def _result(self, one: SimulatedClient, name: str, wave: int, done: Future[WaveResult]) -> None:
        if done.exception() is not None:
            return  # its stream or its session is over for this client
        result = done.result()
        total: Any = result.total or {"who": [], "sum": 0, "count": 0}
        who = sorted(int(rank) for rank in total["who"])
        if who != sorted(from_ranges(result.ranks)) or total["count"] != len(who):
            raise InvariantError(f"wave {wave} of {name} names other agents than are in it")
        if total["sum"] not in {sum(who) * uid for uid in self._asked[name, wave]}:
            raise InvariantError(f"the result of wave {wave} of {name} is another one's")
        got = self._got.setdefault((name, wave), [])
        if one.number in got:
            raise InvariantError(f"wave {wave} of {name} comes twice to one client")
        got.append(one.number)
        self._results += 1

    def adopted(self, one: SimulatedClient, stream: Any) -> None:
        """A client has a stream that the last owner has left."""
        handle: StreamHandle = stream.handle
        name = handle.spec.handler
        mine = one.streams[handle.spec.stream] = OpenWaves(name, handle)
        if name not in self._owned:
            raise InvariantError(f"no owner has opened the stream {name}")
        if name in self._closed_streams:  # the message that closed it was lost with its client
            self._closed_streams.discard(name)
            if self._owned[name]:
                self._push(name)
        self.adoptions += 1
        self._dropped_of[name] += stream.dropped
        self.dropped += stream.dropped
        early, handle.on_contribution = stream.early, partial(self._pushed, one, mine)
        for value in early:
            self._pushed(one, mine, value)
        waiting = sorted(handle._waves)  # noqa: SLF001 - what the futures are of
        for wave, future in zip(waiting, stream.waves, strict=True):
            future.add_done_callback(self.guarded(partial(self._result, one, name, wave)))

    def result_of(self, one: SimulatedClient, message: Any) -> tuple[str, int, int] | None:
        """Return which result of a stream a message is that goes to a client."""
        if not isinstance(message, ev.WaveCompleted | ev.Contributed):
            return None
        served = one.root.server._clients.get(self._number_of(one))  # noqa: SLF001 - to look
        stream = None if served is None else served.streams.get(message.stream)
        if stream is None:
            return None
        value = 0
        if isinstance(message, ev.Contributed):
            value = int(values.decode(message.body, b"")[0])
        return stream.spec.handler, message.wave, value

    def _number_of(self, one: SimulatedClient) -> int:
        return one.wire._numbers[1]  # noqa: SLF001 - what the root calls it

    # --- what agents push ----------------------------------------------------------------------

    def _push(self, name: str) -> None:
        """Have agents send values of themselves in a stream, as long as it is open."""
        if not self._push_one(name) or self._final:
            return
        self.later(ACTION_SECONDS / 3, self._push, name)

    def _push_one(self, name: str) -> bool:
        """Have one agent send a value if it may; return whether the stream is open."""
        if not self._tree_there or name in self._closed_streams:
            return False
        number = self._number_at_root(name)
        if number is None:
            return name in self._owned or any(
                name == stream.name for one in self.clients for stream in one.streams.values()
            )
        rank = self._random.choice(self.tree.agent_ranks) if self.tree.agents else 0
        node = self.network.nodes.get(rank)
        stream = node.streams.get(number) if node is not None else None
        if node is None or stream is None or self.network.is_paused(rank) or is_full(stream):
            return True
        value = self._next_value[name] = self._next_value.get(name, 0) + 1
        self._emitted.setdefault((name, node.identity.pid), []).append(value)
        body = values.encode([value, node.identity.pid]).body
        self.network.post(rank, ev.Emit(number, 1.0, body, None))
        return True

    def _number_at_root(self, name: str) -> int | None:
        node = self.network.nodes.get(ROOT)
        if node is None:
            return None
        return next((n for n, one in node.streams.items() if one.spec.handler == name), None)

    def _pushed(self, one: SimulatedClient, stream: OpenWaves, came: Any) -> None:
        """Check that values of a process come in order, and each once to one client."""
        if isinstance(came, SapwoodError):
            return
        value, pid = (int(number) for number in came.total)
        rank = min(from_ranges(came.ranks))
        key = (stream.name, pid, one.number)
        if value <= self._last.get(key, 0):
            raise InvariantError(f"value {value} of agent {rank} comes again")
        if value not in self._emitted[stream.name, pid]:
            raise InvariantError(f"agent {rank} never sent {value}")
        self._last[key] = value
        self._got.setdefault((stream.name, -value), []).append(one.number)
        stream.pushed[rank] += 1

    def _read(self, one: SimulatedClient, stream: OpenWaves) -> None:
        """Read some of what came, as a user who is slow at times."""
        del one
        read = {r: self._random.randint(0, n) for r, n in stream.pushed.items() if n}
        counts = {rank: count for rank, count in read.items() if count}
        stream.pushed.subtract(counts)
        stream.handle.read(counts)

    # --- requests, and the tree ----------------------------------------------------------------

    def _ask(self, one: SimulatedClient) -> None:
        agents = one.session.tree.agent_ranks
        if not agents:
            return
        rank, uid = self._random.choice(agents), next(self._uids)
        future = one.session.ask(rank, "test", {"wave": uid})

        def answered(done: Future[Any]) -> None:
            if done.exception() is None and done.result() != _answer(rank, {"wave": uid}):
                raise InvariantError(f"the answer of agent {rank} is another one's")

        future.add_done_callback(self.guarded(answered))

    def _change_tree(self, one: SimulatedClient) -> None:
        chance, tree = self._random, self.tree
        if chance.random() < 0.5 or tree.agents < 2:
            homes = [ROOT, *(rank for rank in tree.junctions if rank not in tree.spares)]
            wanted = [
                {"parent": chance.choice(homes), "host": 0} for _ in range(chance.randint(1, 2))
            ]
            one.session.link.ask(session_calls.EXPAND, wanted)
        else:
            ranks = [chance.choice(tree.agent_ranks)]
            one.session.link.ask(session_calls.CONTRACT, [ranks, 1.0, "it was removed"])

    # --- what must hold ------------------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        """What the root wants was done by its session."""

    def _server_ended(self, root: SimulatedServer) -> None:
        """A root is gone: the kernel ends its connections."""
        for one in [*self.clients, *self._gone]:
            if one.root is root:
                one.wire.end(1)

    def _look(self) -> None:
        """Look whether all holds that must hold at any time."""
        if self._problem is not None:
            raise self._problem
        now, world, head = self.loop.time(), self.world, self.world.head
        if head is None and not self._heads_planned:
            self._heads_planned = True
            self.later(HEAD_AWAY, self._new_head)
        for root in list(world.roots.values()):
            self._check_root(root, now)
        if head is not None:
            self._check_head(now)
        self.loop.call_later(LOOK_SECONDS, self._look)

    _heads_planned = False

    def _new_head(self) -> None:
        self._heads_planned = False
        if self.world.head is None:
            points = 0
            if self._goes_wrong and self._random.random() < 0.3:
                points = self._random.randint(1, 8)  # killed while it looks what there is
            self.world.begin_head(points)

    def _check_root(self, root: SimulatedServer, now: float) -> None:
        if root._head is None or not root._head.alive:  # noqa: SLF001 - who tells it
            self._told_late[root.id] = now + 2 * LOOK_SECONDS + 1.0
        for one in root.server.admitted():
            for block in one.allowed.credential:
                revoked = self._revoked_at.get(block)
                if revoked is not None and now > self._knows_by(root, revoked) + LOOK_SECONDS:
                    raise InvariantError("a revoked credential is still in use")
        if root.server.attached:
            self._used.add(root.pid)
        if root.server.attached or not root.listening or root.ending:
            self._unattached.pop(root.pid, None)
            return
        since = self._unattached.setdefault(root.pid, now)
        since = max(since, root.server.status().since)  # includes clients between two checks
        idle = root.life.idle
        wait = idle if root.pid in self._used else max(idle, FIRST_PATIENCE)
        if idle and now > since + wait + 2 * LOOK_SECONDS:
            raise InvariantError(f"{root.plan.wanted.name} is idle for {now - since:.1f} s")

    def _check_head(self, now: float) -> None:
        """Check that what the head knows and what there is are the same, after some grace."""
        world, head = self.world, self.world.head
        assert head is not None
        records = {one.id: one for one in head.registry.records()}
        wrong: set[object] = set()
        for root in world.roots.values():
            record = records.get(root.id)
            if record is None or SessionState(record.state).is_over:
                wrong.add(("the session server is unknown:", root.plan.wanted.name, root.pid))
            elif root.server.attached and record.state == "detached":
                wrong.add(("a client is attached, and the head says detached", record.id))
        living = {one.id for one in world.roots.values()}
        for record in records.values():
            state = SessionState(record.state)
            if not state.is_over and record.id not in living:
                wrong.add(("the session server is missing:", record.handle, record.state))
            elif state in {SessionState.STARTING, SessionState.DRAINING}:
                wrong.add(("it is between:", record.handle, record.state))
        names = Counter(one.name for one in records.values() if one.id in living and one.pid)
        wrong.update(("two are called", name) for name, count in names.items() if count > 1)
        self._between = {one: self._between.get(one, now) for one in wrong}
        for one, since in self._between.items():
            if now > since + GRACE:
                raise InvariantError(f"for {GRACE:g} s: {one}")

    # --- the end -------------------------------------------------------------------------------

    def _finish_main(self) -> None:
        """Attach one more owner, which gets all retained values; agents that push continue."""
        self._until(self.supervisor.processes.all_ready, faults=False)
        self._until(self._tree_is_whole, faults=False)
        self._settle(2.0)
        assert self.main is not None
        owner = SimulatedClient(self, self.main, ClientRole.OWNER)
        self.clients = [owner]
        self._until(lambda: owner.there, faults=False)
        self._until(lambda: owner.confirmed, faults=False)
        self._settle(2.0)
        self._check_results(owner)
        for stream in list(owner.streams.values()):
            if stream.handle.spec.sync.kind == NO_WAIT:
                self._check_flow(stream)
        for stream in list(owner.streams.values()):
            self._close_stream(owner, stream)
        owner.leave()
        self._until(self._stream_is_gone, faults=False)
        self._settle(2.0)
        self._check_end()
        routes = self.main.session
        tables = (routes.of_stream, routes.of_request, routes.of_send, routes.of_receive)
        if any(tables):
            raise InvariantError("the session server keeps entries that no client waits for")

    def _check_results(self, owner: SimulatedClient) -> None:
        """Check that each wave that was started has come to a client, or its loss is known."""
        if self.keeping.output == "drop":
            return
        lost: Counter[str] = Counter()
        for one in self._gone:
            if one.confirmed or one.role is not ClientRole.OWNER:
                lost.update(name for _, (name, _, _) in one.sent)
        for stream in owner.streams.values():
            if stream.handle.spec.sync.kind == NO_WAIT:
                continue
            if stream.handle.open_waves:
                raise InvariantError(f"waves of {stream.name} are never over")
            begun = range(1, stream.handle.waves_begun + 1)
            missing = [wave for wave in begun if (stream.name, wave) not in self._got]
            allowed = lost[stream.name] + self._dropped_of[stream.name]
            if len(missing) > allowed:
                raise InvariantError(f"waves {missing} of {stream.name} are lost; {allowed} may be")

    def _is_later(self, time: float) -> bool:
        return self.loop.time() > time

    def _check_flow(self, stream: OpenWaves) -> None:
        """Check that agents which push are not stopped for good: a client reads all values."""
        number = self._number_at_root(stream.name)
        nodes = self.network.nodes

        def flows() -> bool:
            counts = +stream.pushed
            stream.pushed.clear()
            if counts:
                stream.handle.read(dict(counts))
            full = [
                rank
                for rank in self.tree.agent_ranks
                if number in nodes[rank].streams and is_full(nodes[rank].streams[number])
            ]
            return not full

        for _ in range(FLOW):
            for _ in self.tree.agent_ranks:
                self._push_one(stream.name)
            end = self.loop.time() + 0.002
            self._until(partial(self._is_later, end), faults=False)
            flows()
        self._until(flows, faults=False)

        def unread() -> dict[int, int]:
            heard = {} if number is None else nodes[ROOT].streams[number].arrivals.pushed
            return {rank: one.unread for rank, one in heard.items() if one.unread}

        for _ in range(READ_LOOKS):  # the last values and acknowledgements are still under way
            flows()
            self._settle(0.1)
            if not unread() and not +stream.pushed:
                return
        raise InvariantError(f"values of {stream.name} count as unread for good: {unread()}")

    def _end_all(self) -> None:
        """The cluster is down: nothing is left."""
        head = self.world.head
        assert head is not None
        self._settle(3.0)
        head.registry.close()
        self._until(lambda: not self.world.roots, faults=False)
        self._settle(1.0)
        world = self.world
        secrets = [key for key in world.kept.entries if key.startswith("session-secrets/")]
        over = all(SessionState(one.state).is_over for one in world.records())
        if world.notices or world.folders or secrets or not over:
            raise InvariantError(
                f"something is left: {world.notices or world.folders or secrets or 'records'}"
            )
        if self._tree_there or self.network.nodes:
            raise InvariantError("agents are left")
        if self._problem is not None:
            raise self._problem


def _ignored(_effect: Any) -> None:
    pass


def _answer(rank: int, value: Any) -> Any:
    return {"sum": rank * value["wave"], "who": rank, "count": 1}
