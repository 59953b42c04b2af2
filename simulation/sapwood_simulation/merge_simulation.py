"""Merged sessions under faults: sessions are merged and split, lines are cut, roots and heads end.

Three sessions have some agents each, whose core is a stand-in: it answers each wave after a while,
with what a junction would pass on. All else is production code: heads with their sessions and
credentials, session servers, merges, connections between session servers, streams over both, and
the sessions of clients.

The checks: a wave over two sessions ends once, with each agent of both exactly once, or with
an error that names what is lost. A session's own waves never notice a merge. No session has others
in it and is a part of one itself. Both sides of a merge agree, but for the time that it takes to
notice a lost connection. A revoked credential merges no sessions a second later. A session
that is merged is not idle. Nothing is left of a merge that is over.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import PARTIAL, REPLACE, StreamSpec
from sapwood.comm.reduction import Accumulator
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import flat
from sapwood.environment.settings import DisconnectPolicy
from sapwood.head import session_records
from sapwood.head.session_registry import ServerPlan
from sapwood.lifecycle.processes import ProcessState
from sapwood.merging.merges import Merges
from sapwood.merging.orders import FIRST, MergedSession, MergeOrder
from sapwood.session.interface import ProcessView
from sapwood.session.loop_thread import LoopThread
from sapwood.session.session_life import SessionState
from sapwood.session.streams import StreamHandle, StreamOptions
from sapwood.session.wave_result import WaveResult
from sapwood.session_server import session_calls, wire
from sapwood.session_server.attached import AttachedSession
from sapwood.session_server.rights import ClientRole
from sapwood.session_server.server_link import Connect, SessionAddress
from sapwood_simulation.processes import VirtualLoop
from sapwood_simulation.session_world import SessionOfServer, SessionWorld, SimulatedServer
from sapwood_simulation.simulation import InvariantError
from sapwood_simulation.wires import SimulatedWire

NAMES = ("a", "b", "c")
"""The sessions that there are."""

ACTION_SECONDS = 0.1
"""Mean virtual seconds between two things that happen."""

WAVE_SECONDS = 0.05
"""Mean virtual seconds that the agents of a session take for a wave."""

LOOK_SECONDS = 0.2
"""Virtual seconds between two looks at what must hold."""

NOTICED = 50.0
"""Virtual seconds after which both sides know that a line is gone: it asks every 5 s, and an
answer may take 30 s."""

REVOKED_WITHIN = 1.0
"""Virtual seconds after which a credential that was revoked is used no more."""

HEAD_AWAY = 1.0
"""Mean virtual seconds without a head."""

IDLE = 60.0
"""Seconds after which an unused session ends."""

REDUCE = {"sum": "sum", "count": "sum"}


class MergeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened.

    Attributes:
        merges: Merges that came about.
        refused: Those that did not.
        splits: Splits that an owner has requested.
        waves: Waves over two sessions that were complete.
        partial: Those of them that continued without a session.
        failed: Waves over two sessions that failed.
        own: Waves of one session.
        cut: Lines that were cut, and roots that ended.
        heads: Heads that there were.
        revoked: Credentials that were revoked.
    """

    merges: int
    refused: int
    splits: int
    waves: int
    partial: int
    failed: int
    own: int
    cut: int
    heads: int
    revoked: int


class SmallTree:
    """The agents of a session: each wave comes back after a while.

    Args:
        simulation: Around it.
        agents: How many there are.
    """

    def __init__(self, simulation: MergeSimulation, agents: int) -> None:
        self._simulation = simulation
        self._agents = agents
        self._there = True
        self._handlers: dict[type[Any], Callable[[Any], None]] = {}
        self.streams: dict[int, tuple[StreamSpec, bool]] = {}
        self._begun: dict[int, int] = {}

    def begin(self, session: SessionOfServer, ready: Callable[[], None]) -> None:
        """All agents are there."""
        session.tree = flat(self._agents)
        views = {
            rank: ProcessView(rank, rank, ProcessState.READY, 1)
            for rank in session.tree.agent_ranks
        }
        session.views = lambda: views
        self._handlers = session.routed({})
        ready()

    def post(self, event: Any) -> None:
        """Take an event of the core."""
        if isinstance(event, ev.OpenStream):
            self.streams[event.spec.stream] = (event.spec, event.partial)
            self._begun[event.spec.stream] = 0
        elif isinstance(event, ev.CloseStream):
            self.streams.pop(event.stream, None)
        elif isinstance(event, ev.Broadcast) and event.stream in self.streams:
            self._begun[event.stream] += 1
            wave, uid = self._begun[event.stream], int(values.decode(event.body, b"")["wave"])
            self._simulation.later(WAVE_SECONDS, self._answer, event.stream, wave, uid)

    def _answer(self, number: int, wave: int, uid: int) -> None:
        if not self._there or number not in self.streams:
            return
        spec, is_partial = self.streams[number]
        ranks = sorted(from_ranges(spec.members))
        found = Accumulator(spec.reduce)
        for rank in ranks:
            found.add({"sum": uid, "count": 1}, rank + spec.first, 1.0)
        value = found.partial() if is_partial else found.total()
        weight = float(len(ranks))
        done = ev.WaveCompleted(number, wave, value, to_ranges(ranks), weight)
        self._handlers[ev.WaveCompleted](done)

    def expand(self, places: Sequence[Any]) -> Future[Any]:
        """Not used: this simulation adds no agents."""
        raise NotImplementedError(places)

    def contract(self, ranks: Sequence[int], seconds: float, reason: str) -> Future[Any]:
        """Not used: this simulation removes no agents."""
        raise NotImplementedError(ranks, seconds, reason)

    def end(self) -> None:
        """The root has ended."""
        self._there = False


class _Thread:
    """The thread of a client's session, where all is one thread."""

    is_current = True
    started = True
    in_forked_child = False

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

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


class _Waves:
    """A stream of a client.

    Attributes:
        handle: The production handle.
        members: Its agents.
        other: The session that takes part; None for a stream of one session.
    """

    def __init__(self, handle: StreamHandle, members: set[int], other: str | None) -> None:
        self.handle = handle
        self.members = members
        self.other = other
        self.open = 0


def merges_of(root: SimulatedServer) -> Merges:
    """Return what merges other sessions into the one of a server."""
    return cast("Merges", root.server.merging)


class Owner:
    """The owner of a session: an attached production session over a simulated wire.

    Args:
        simulation: Around it.
        root: What it attaches to.
    """

    def __init__(self, simulation: MergeSimulation, root: SimulatedServer) -> None:
        self.root = root
        self.wire = simulation.new_wire()
        self.streams: list[_Waves] = []
        self.session = AttachedSession(
            SessionAddress(session=root.id, name=root.plan.wanted.name),
            self._connect,
            role=ClientRole.OWNER,
            thread=cast("LoopThread", _Thread(simulation.loop)),
        )
        self.welcome = self.session.link.begin()
        self.welcome.add_done_callback(simulation.guarded(self._let_in))

    def _let_in(self, welcome: Future[wire.Admitted]) -> None:
        """Close the streams that the last owner has left."""
        for one in self.session.kept if welcome.exception() is None else ():
            one.handle.close()

    def _connect(self, handler: Any, _loop: Any, failed: Any) -> None:
        if not self.root.listening:
            failed(SapwoodError("no process listens"))
            return
        self.wire.open(handler, self.root.server)

    @property
    def there(self) -> bool:
        """Whether it may do something."""
        return self.welcome.done() and self.welcome.exception() is None and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether its session can do nothing any more."""
        return self.session.failure is not None or self.session.closed


class MergeSimulation:
    """One run of sessions that are merged and split.

    Args:
        seed: Where draws come from.
        actions: How much happens.
        faults: Whether something goes wrong.

    Example:
        >>> report = MergeSimulation(1, 200, faults=False).run()
        >>> report.waves > 5, report.cut
        (True, 0)
    """

    what = "merges"

    def __init__(self, seed: int, actions: int = 300, *, faults: bool = True) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self.faults = faults
        self.steps = 0
        self.step: Callable[[int], None] = lambda _step: None
        self.world = SessionWorld(self.loop, self.chance, DisconnectPolicy(), self._tree_of)
        self.world.when_server_ends = self._server_ended
        self.owners: dict[str, Owner] = {}
        self._actions = actions
        self._wires: list[tuple[SimulatedWire, SimulatedServer]] = []
        self._lines: list[tuple[SimulatedWire, SimulatedServer, SimulatedServer]] = []
        self._uids = itertools.count(1)
        self._shown: dict[str, tuple[str, str]] = {}
        self._revoked: dict[str, float] = {}
        self._knows_late: dict[int, float] = {}
        self._apart: dict[object, float] = {}
        self._agents = {name: self.chance.randint(1, 4) for name in NAMES}
        self._counts: dict[str, int] = dict.fromkeys(MergeReport.__struct_fields__, 0)
        self._head_planned = False
        self._final = False
        self.problem: BaseException | None = None

    # --- the world ------------------------------------------------------------------------------

    def later(self, mean: float, function: Callable[..., Any], *args: Any) -> None:
        """Have something happen after a time drawn around a mean, seconds."""
        self.loop.call_later(self.chance.expovariate(1 / mean), function, *args)

    def new_wire(self) -> SimulatedWire:
        """Return a connection; each piece that arrives on it is a step."""
        made = SimulatedWire(self.loop, self.chance)
        made.arrived = self._arrived
        return made

    def _arrived(self, _side: int, _data: bytes) -> None:
        self.steps += 1
        self.step(self.steps)

    def _tree_of(self, plan: ServerPlan) -> SmallTree:
        return SmallTree(self, self._agents[plan.wanted.name])

    def _server_ended(self, root: SimulatedServer) -> None:
        """A root is gone: the kernel ends its connections."""
        for owner in self.owners.values():
            if owner.root is root:
                owner.wire.end(1)
        for line, first, second in self._lines:
            if root in (first, second):
                line.end(0 if root is first else 1)

    def root_of(self, name: str) -> SimulatedServer | None:
        """Return the server of a session, if it lets clients in."""
        found = (one for one in self.world.roots.values() if one.plan.wanted.name == name)
        return next((one for one in found if one.listening), None)

    def create(self, name: str) -> None:
        """Have a session made, if there is a head."""
        head = self.world.head
        if head is not None:
            idle = 0.0 if name == NAMES[0] else IDLE
            wanted = session_records.CreateSession(name=name, on="local", idle=idle)
            head.do(self._creates, wanted)

    def _creates(self, wanted: session_records.CreateSession) -> None:
        assert self.world.head is not None
        try:
            self.world.head.registry.create(wanted)
        except SapwoodError as error:
            if "already" not in error.what:
                raise

    def attach(self, name: str) -> None:
        """Attach the owner of a session."""
        root = self.root_of(name)
        if root is not None:
            merges_of(root).found = partial(self._found, root)
            self.owners[name] = Owner(self, root)

    def _found(self, asking: SimulatedServer, order: MergeOrder) -> tuple[SessionAddress, Connect]:
        """Stand in for what reads credentials and finds sockets."""
        secret, _ = self._shown.get(order.credential, ("", ""))
        address = SessionAddress(session=order.session, name=order.name, secret=secret)

        def connect(handler: Any, _loop: Any, failed: Any) -> None:
            there = [one for one in self.world.roots.values() if one.id == order.session]
            if not there or not there[0].listening:
                failed(SapwoodError("no process listens"))
                return
            line = self.new_wire()
            self._lines.append((line, asking, there[0]))
            line.open(handler, there[0].door if secret else there[0].server)

        return address, connect

    # --- what people do -------------------------------------------------------------------------

    def merge(self, name: str, other: str, *, by_credential: bool = False) -> Future[Any] | None:
        """Have a session merged into another one."""
        owner, there, head = self.owners.get(name), self.root_of(other), self.world.head
        if owner is None or not owner.there or there is None:
            return None
        shown = ""
        if by_credential:
            if head is None:
                return None
            try:
                got = head.do(head.credential, there.id, ("connect", "merge"), 1e6)
            except SapwoodError:  # it is over for the head
                return None
            if got is None:
                return None
            shown = got[1]
            self._shown[shown] = got
        wanted = MergeOrder(
            credential=shown, socket="" if shown else "here", session=there.id, name=other
        )
        asked = owner.session.link.ask(session_calls.MERGE, msgspec.to_builtins(wanted))
        asked.add_done_callback(self.guarded(self._merged))
        return asked

    def _merged(self, done: Future[Any]) -> None:
        self._counts["refused" if done.exception() is not None else "merges"] += 1

    def split(self, name: str, other: str, seconds: float) -> Future[Any] | None:
        """Have two sessions split, whichever is merged into the other."""
        owner = self.owners.get(name)
        if owner is None or not owner.there:
            return None
        self._counts["splits"] += 1
        return owner.session.link.ask(session_calls.SPLIT, {"session": other, "seconds": seconds})

    def open_over(self, name: str) -> Future[Any] | None:
        """Open a stream over a session and each that is merged into it."""
        owner = self.owners.get(name)
        if owner is None or not owner.there:
            return None
        asked = owner.session.link.ask(session_calls.MERGED)
        asked.add_done_callback(self.guarded(partial(self._open_over, owner)))
        return asked

    def _open_over(self, owner: Owner, done: Future[Any]) -> None:
        if done.exception() is not None or not owner.there:
            return
        for one in msgspec.convert(done.result(), list[MergedSession]):
            others = {one.first + rank for rank in from_ranges(one.agents)}
            self._open(owner, {*owner.session.tree.agent_ranks, *others}, one.id)

    def open_own(self, owner: Owner) -> None:
        """Open a stream to the agents of one session."""
        self._open(owner, set(owner.session.tree.agent_ranks), None)

    def _open(self, owner: Owner, members: set[int], other: str | None) -> None:
        loss = self.chance.choice([PARTIAL, REPLACE]) if other else REPLACE
        options = StreamOptions(on_loss=loss)
        handle = owner.session.open_stream("test", REDUCE, sorted(members), "", options)
        owner.streams.append(_Waves(handle, members, other))

    def broadcast(self, owner: Owner, stream: _Waves) -> None:
        """Begin a wave."""
        uid = next(self._uids)
        stream.open += 1
        future = stream.handle.broadcast({"wave": uid})
        future.add_done_callback(self.guarded(partial(self._result, owner, stream, uid)))

    def _result(self, owner: Owner, stream: _Waves, uid: int, done: Future[WaveResult]) -> None:
        stream.open -= 1
        if done.exception() is not None:
            if owner.there and stream.other is None:
                raise InvariantError(f"a wave of one session failed: {done.exception()}")
            self._counts["failed"] += bool(stream.other)
            return
        result = done.result()
        ranks = from_ranges(result.ranks)
        total: Any = result.total
        if total is None or (total["sum"], total["count"]) != (uid * len(ranks), len(ranks)):
            raise InvariantError(f"{len(ranks)} agents are in a wave, and it has {total}")
        own = {rank for rank in stream.members if rank < FIRST}
        if ranks == stream.members:
            self._counts["waves" if stream.other else "own"] += 1
        elif stream.other and stream.handle.spec.on_loss == PARTIAL and ranks == own:
            self._counts["waves"] += 1
            self._counts["partial"] += 1
        else:
            raise InvariantError(f"a wave has {sorted(ranks)} of {sorted(stream.members)}")

    def guarded(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a callback of a future, which may raise: the future would keep that to itself."""

        def call(done: Any) -> None:
            try:
                function(done)
            except Exception as error:  # noqa: BLE001 - whatever it is, this seed has found it
                self.problem = self.problem or error

        return call

    # --- the course of events -------------------------------------------------------------------

    def run(self) -> MergeReport:
        """Run everything and return what happened.

        Raises:
            InvariantError: Something that must always hold did not.
        """
        self.begin()
        self.later(ACTION_SECONDS, self._act)
        self.until(lambda: self._actions <= 0)
        self.finish()
        self._counts["heads"] = self.world.heads
        return MergeReport(**self._counts)

    def begin(self) -> None:
        """Have all sessions there, and their owners."""
        self.world.begin_head()
        for name in NAMES:
            self.create(name)
        self.until(lambda: all(self.root_of(name) for name in NAMES))
        for name in NAMES:
            self.attach(name)
        self.until(lambda: all(one.there for one in self.owners.values()))
        self.loop.call_later(LOOK_SECONDS, self._look)

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        end = self.loop.time() + seconds
        self.until(lambda: self.loop.time() >= end)

    def until(self, condition: Callable[[], object], limit: float = 1e5) -> None:
        """Let time pass until something is so."""
        end = self.loop.time() + limit
        while not condition():
            due = self.loop.next_due()
            if due > end:
                raise InvariantError("it makes no progress")
            self.clock.advance(max(0.0, due - self.loop.time()))
            self.loop.run_due()
            if self.problem is not None:
                raise self.problem

    def _act(self) -> None:
        if self._final:
            return
        self._actions -= 1
        self.later(ACTION_SECONDS, self._act)
        chance = self.chance
        if self.faults and chance.random() < 0.05:
            self._go_wrong()
        for name in NAMES:
            owner = self.owners.get(name)
            if owner is None or owner.is_over:
                self.create(name)
                self.attach(name)
        name, other = chance.choice(NAMES), chance.choice(NAMES)
        what = chance.random()
        if what < 0.25:
            self.merge(name, other, by_credential=chance.random() < 0.5)
        elif what < 0.3:
            self.split(name, other, chance.choice([0.0, 0.1, 10.0]))
        elif what < 0.42:
            self.open_over(name)
        elif what < 0.44:
            self._revoke()
        for owner in self.owners.values():
            if owner.there:
                self._use(owner)

    def _use(self, owner: Owner) -> None:
        chance = self.chance
        if not any(one.other is None for one in owner.streams):
            self.open_own(owner)
        for stream in list(owner.streams):
            if chance.random() < 0.3:
                self.broadcast(owner, stream)
            elif chance.random() < 0.04 and not stream.open:
                owner.streams.remove(stream)
                stream.handle.close()

    def _go_wrong(self) -> None:
        chance, head = self.chance, self.world.head
        what = chance.random()
        self._counts["cut"] += 1
        if what < 0.4 and self._lines:
            chance.choice(self._lines)[0].cut()
        elif what < 0.5 and self.owners:
            chance.choice(list(self.owners.values())).wire.cut()
        elif what < 0.75 and self.world.roots:
            chance.choice(list(self.world.roots.values())).crash()
        elif head is not None:
            head.kill_after(chance.randint(1, 8))

    def _revoke(self) -> None:
        head = self.world.head
        fresh = [one for one in self._shown if one not in self._revoked]
        used = [one for one in fresh if one in self._in_use()]
        if head is not None and fresh:
            one = self.chance.choice(used or fresh)
            head.do(head.revoke, one)
            if f"credentials/revoked/{one}" in self.world.kept.entries:
                self._counts["revoked"] += 1
                self._revoked[one] = self.loop.time()

    def _in_use(self) -> set[str]:
        """Return the credentials by which sessions are merged now."""
        servers = [root.server for root in self.world.roots.values()]
        return {
            block
            for server in servers
            for one in server.mergers()
            for block in one.allowed.credential
        }

    # --- what must hold -------------------------------------------------------------------------

    def _look(self) -> None:
        now = self.loop.time()
        if self.world.head is None and not self._head_planned:
            self._head_planned = True
            self.later(HEAD_AWAY, self._new_head)
        for root in self.world.roots.values():
            self._check_root(root, now)
        self._check_pairs(now)
        self.loop.call_later(LOOK_SECONDS, self._look)

    def _new_head(self) -> None:
        self._head_planned = False
        if self.world.head is None:
            self.world.begin_head()

    def _check_root(self, root: SimulatedServer, now: float) -> None:
        server = root.server
        if merges_of(root).views() and server.status().part_of:
            raise InvariantError(f"{root.id} has others in it, and is a part of one")
        if root._head is None or not root._head.alive:  # noqa: SLF001 - who tells it
            self._knows_late[root.pid] = now + 2 * LOOK_SECONDS + 1.0
        for one in server.admitted():
            for block in one.allowed.credential:
                revoked = self._revoked.get(block, now)
                known = max(revoked, self._knows_late.get(root.pid, 0.0)) + REVOKED_WITHIN
                if now > known + LOOK_SECONDS:
                    raise InvariantError("two sessions are still merged by a revoked credential")
        if root.ending and server.merged and "no client was attached" in root.life.reason:
            raise InvariantError("a session that is merged has ended as idle")

    def _check_pairs(self, now: float) -> None:
        """Check that both sides of each merge agree, after some time."""
        above: set[tuple[str, str]] = set()
        below: set[tuple[str, str]] = set()
        for root in self.world.roots.values():
            if root.ending:
                continue
            above |= {(root.id, one.id) for one in merges_of(root).views()}
            below |= {(one.rpartition("#")[2], root.id) for one in root.server.status().part_of}
        self._apart = {one: self._apart.get(one, now) for one in above ^ below}
        for one, since in self._apart.items():
            if now > since + NOTICED:
                raise InvariantError(f"for {NOTICED:g} s one side of {one} says that it is merged")

    def finish(self) -> None:
        """After all faults, check that open waves end, all sessions split, and nothing is left."""
        self._final = True
        if self.world.head is not None:
            self.world.head.kill_after(0)
        self.run_for(NOTICED)
        for name in NAMES:
            if name not in self.owners or self.owners[name].is_over:
                self.attach(name)
        self.run_for(5.0)
        owners = [one for one in self.owners.values() if one.there]
        for owner in owners:
            self._close_streams(owner)
        for owner in owners:
            for one in merges_of(owner.root).views():
                self.split(owner.root.plan.wanted.name, one.id, 0.0)
        self.run_for(5.0)
        for root in self.world.roots.values():
            self._check_nothing_left(root)
        for owner in owners:
            owner.session.part(ClosedError("it has left"))
            owner.wire.end(0)
        self._end_all()

    def _close_streams(self, owner: Owner) -> None:
        """See that no wave is open, that the session works, and close all."""
        left = [one for one in owner.streams if one.open]
        if left:
            raise InvariantError(f"{left[0].open} waves of a stream are never over")
        before = self._counts["own"]
        self.open_own(owner)
        self.broadcast(owner, owner.streams[-1])
        self.until(lambda: self._counts["own"] > before, 60.0)
        for stream in owner.streams:
            stream.handle.close()
        owner.streams.clear()

    def _end_all(self) -> None:
        """The cluster is down."""
        world = self.world
        assert world.head is not None
        world.head.registry.close()
        self.until(lambda: not world.roots, 60.0)
        self.run_for(1.0)
        secrets = [key for key in world.kept.entries if key.startswith("session-secrets/")]
        over = all(SessionState(one.state).is_over for one in world.records())
        if world.notices or world.folders or secrets or not over:
            raise InvariantError("something is left of a session")

    def _check_nothing_left(self, root: SimulatedServer) -> None:
        session, tree = root.session, cast("SmallTree", root.tree)
        named = {
            "merges": root.server.merged,
            "streams over both": session.spanning,
            "parts of streams": session.of_part,
            "routes of streams": session.of_stream,
            "streams": tree.streams,
        }
        left = [name for name, what in named.items() if what]
        if left:
            raise InvariantError(f"{root.plan.wanted.name} has {', '.join(left)} still")
