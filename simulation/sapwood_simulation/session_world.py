"""Heads, their store, and roots of sessions without processes: for simulations of sessions.

The head's registry of sessions, its issuer of credentials, and the life and the server of each
root are the production code. Processes, files and the store's disk are simulated. A head can be
killed at each of its steps: before or behind a write to its store, or something that it does to a
root.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.core.topology import Tree, flat
from sapwood.environment.settings import DisconnectPolicy, IdlePolicy, PolicySettings, RestartPolicy
from sapwood.head import calls, session_records
from sapwood.head.authorizer import Authorizer
from sapwood.head.credential_issuer import CredentialIssuer
from sapwood.head.session_notices import SessionNotice
from sapwood.head.session_registry import ServerPlan, ServerReady, SessionRegistry
from sapwood.nodes.note_event import note_nothing
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.security.rights import ALL_RIGHTS, Rights
from sapwood.session.interface import ProcessView
from sapwood.session.options import PlacesChanged
from sapwood.session.session_life import SessionState
from sapwood.session_server.rights import same_user, secret_holder
from sapwood.session_server.routes import EffectRoutes
from sapwood.session_server.server import RemoteDoor, SessionServer
from sapwood.session_server.session_life import SessionLife
from sapwood.store.base import Delete, Page, Put, Store, StoreEntry, Unchanged
from sapwood_simulation.processes import VirtualLoop

PAUSE = 0.5
"""Virtual seconds after which a root looks again whether there is a head."""

CALL = 0.002
"""Mean virtual seconds that a call between a head and a root takes."""

STEP = 0.05
"""Mean virtual seconds of each step of a root that begins or ends."""

PATIENCE = 5.0
"""Virtual seconds that a head waits for a root to end before it kills it."""

PIN = "00" * 32


class HeadKilledError(BaseException):
    """The process of a head has ended in the middle of something."""


class KeptEntries:
    """What the store of a cluster has: it outlives heads."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}


class HeadStoreHandle(Store):
    """The store, as one head has it open.

    Args:
        kept: What it has.
        point: Called before and behind each write; it may raise HeadKilledError.
    """

    def __init__(self, kept: KeptEntries, point: Callable[[], None]) -> None:
        self.url = "simulated:"
        self._kept = kept
        self._point = point

    def get(self, key: str) -> StoreEntry | None:
        """Return the entry of a key."""
        value = self._kept.entries.get(key)
        return None if value is None else StoreEntry(key, value, 1, 1)

    def range(self, prefix: str, *, after: str = "", limit: int = 512) -> Page:
        """Return all entries below a prefix."""
        del limit
        keys = sorted(key for key in self._kept.entries if key.startswith(prefix) and key > after)
        found = tuple(StoreEntry(key, self._kept.entries[key], 1, 1) for key in keys)
        return Page(found, 1, more=False)

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        """Make all changes, or be killed before or behind that."""
        del when
        self._point()
        for change in changes:
            if isinstance(change, Put):
                self._kept.entries[change.key] = change.value
            else:
                self._kept.entries.pop(change.key, None)
        self._point()
        return 1

    def watch(self, prefix: str, *, after: int | None = None) -> Any:
        """Not used: this simulation watches no keys."""
        raise NotImplementedError(prefix, after)

    def grant(self, seconds: float) -> int:
        """Not used: this simulation has no leases."""
        raise NotImplementedError(seconds)

    def keep_alive(self, lease: int) -> None:
        """Not used: this simulation has no leases."""
        raise NotImplementedError(lease)

    def revoke(self, lease: int) -> None:
        """Not used: this simulation has no leases."""
        raise NotImplementedError(lease)

    def close(self) -> None:
        """Do nothing."""


class TreeAtRoot(Protocol):
    """The tree of a session, as its root has it."""

    def begin(self, session: SessionOfServer, ready: Callable[[], None]) -> None:
        """Begin its processes; ``ready`` is called when all are there."""

    def post(self, event: ev.Event) -> None:
        """Give the core of the root an event."""

    def expand(self, places: Sequence[Any]) -> Future[Any]:
        """Add agents."""

    def contract(self, ranks: Sequence[int], seconds: float, reason: str) -> Future[Any]:
        """Remove places."""

    def end(self) -> None:
        """End all its processes."""


class SessionOfServer(EffectRoutes):
    """What a server of clients has of its session.

    Args:
        loop: Its loop.
        tree: Its tree; None for a session without agents.
    """

    def __init__(self, loop: VirtualLoop, tree: TreeAtRoot | None) -> None:
        super().__init__()
        self.loop = loop
        self._at_root = tree
        numbers, requests, messages = (itertools.count(1) for _ in range(3))
        self.tree: Tree = flat(0)
        self.hosts: tuple[int, ...] = ()
        self.platforms = ()
        self.pythons = ()
        self.failure = None
        self.invited = None
        self.content = None
        self.streams = SimpleNamespace(filters=None)
        self.pool = None
        self.options = SimpleNamespace(shared_memory=False, inline_limit=2**30)
        self.requests = SimpleNamespace(new_number=lambda: next(requests))
        self.mailbox = SimpleNamespace(new_number=lambda: next(messages))
        self.listeners: list[Callable[[PlacesChanged], None]] = []
        self.views: Callable[[], dict[int, Any]] = dict
        self.host = SimpleNamespace(
            post=self._post, new_stream=lambda: next(numbers), hosts=(), node=None
        )

    def processes(self, ranks: Iterable[int]) -> list[ProcessView]:
        """Return places as users see them."""
        found = self.views()
        records = [found[rank] for rank in ranks]
        return [ProcessView(one.rank, one.pid, one.state, one.incarnation) for one in records]

    def post_to_core(self, event: ev.Event) -> None:
        """Give the core of this root an event."""
        self._post(event)

    def freed(self, effect: ev.Released) -> None:
        """Do nothing: memory is not shared here."""

    def _post(self, event: ev.Event) -> None:
        if self._at_root is not None:
            self._at_root.post(event)

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Call a listener at each change."""
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def answer(self, handler: str, function: Any) -> None:
        """Do nothing: no process asks."""

    def on_loop(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called on the loop: there is one thread."""
        function(*args)

    def ready_hosts(self) -> list[int]:
        """There are no other machines."""
        return []

    def expand(self, places: Sequence[Any]) -> Future[Any]:
        """Add agents."""
        return self._tree_or_none().expand(places)

    def contract(self, ranks: Sequence[int], seconds: float, reason: str) -> Future[Any]:
        """Remove places."""
        return self._tree_or_none().contract(ranks, seconds, reason)

    def _tree_or_none(self) -> TreeAtRoot:
        if self._at_root is None:
            raise CommunicationError("the session has no agents")
        return self._at_root


class Inline:
    """An executor whose work is under way already: submitted functions return a future."""

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Begin something."""
        try:
            answer: Future[Any] = function(*args)
        except SapwoodError as error:
            answer = Future()
            answer.set_exception(error)
        return answer

    def shutdown(self, **_: Any) -> None:
        """Do nothing."""


class LaterCall:
    """Something that is to happen in the process of a root, as whoever wants it has it."""

    def __init__(
        self, root: SimulatedServer, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._root = root
        self._function = function
        self._args = args
        self._wanted = True

    def cancel(self) -> None:
        """Have it not happen."""
        self._wanted = False

    def due(self) -> None:
        """Do it, if the process lives still."""
        if self._wanted and self._root.alive:
            self._function(*self._args)


class SimulatedServer:
    """The process of a root.

    Args:
        world: Where it is.
        pid: Its process.
        plan: The plan that it received.
        told: Called with its report when it is ready; returns whether a head received that.
    """

    def __init__(
        self,
        world: SessionWorld,
        pid: int,
        plan: ServerPlan,
        told: Callable[[ServerReady], bool],
    ) -> None:
        self.world = world
        self.pid = pid
        self.id = plan.id
        self.plan = plan
        self.alive = True
        self.listening = False
        self.ending = False
        self.folder = f"/run/sapwood-{plan.id}"
        self._told = told
        self._untold = False
        self._reports = itertools.count(1)
        self._last_report = 0
        self._head: SimulatedHead | None = None
        tree = world.tree_of(plan)
        self.tree = tree
        self.session = SessionOfServer(world.loop, tree)
        self.life = SessionLife(plan.id, plan.idle, self.later, world.loop.time, self._over)
        self.denials = Denials()
        self.server = SessionServer(
            cast("Any", self.session),
            plan.id,
            plan.wanted.name,
            same_user,
            self._changed,
            self.life.end,
            plan.disconnect,
            clock=world.loop.time,
            executor=cast("Any", Inline()),
        )
        self.denials.subscribe(self.server.deny)
        self.door = RemoteDoor(
            self.server, secret_holder(plan.secret, world.loop.time, self.denials)
        )
        self.session.loop = cast(
            "VirtualLoop", SimpleNamespace(call_later=self.later, time=world.loop.time)
        )

    def later(self, delay: float, function: Callable[..., Any], *args: Any) -> LaterCall:
        """Have something happen if it lives still."""
        call = LaterCall(self, function, args)
        self.world.loop.call_later(delay, call.due)
        return call

    def soon(self, mean: float, function: Callable[..., Any], *args: Any) -> None:
        """The same, after a time around a mean."""
        self.later(self.world.chance.expovariate(1 / mean), function, *args)

    # --- it begins -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin, step by step: its agents, its folder, its notice, its first word."""
        self._write_notice("", ready=False)
        if self.tree is None:
            self.soon(STEP, self._listen)
        else:
            self.tree.begin(self.session, partial(self.soon, STEP, self._listen))

    def _listen(self) -> None:
        self.world.folders.add(self.folder)
        self._write_notice(f"{self.folder}/root.sock", ready=False)
        self.listening = True
        self.life.started()
        self.soon(STEP, self._tell_notice)

    def _write_notice(self, socket: str, *, ready: bool) -> None:
        self.world.notices[self.id] = SessionNotice(
            self.id, self.plan.wanted.name, self.pid, self.pid, socket, ready
        )

    def _tell_notice(self) -> None:
        self._write_notice(f"{self.folder}/root.sock", ready=True)
        self._look_for_head()
        self.soon(STEP, self._tell_ready)

    def _tell_ready(self) -> None:
        socket = f"{self.folder}/root.sock"
        ready = ServerReady(pid=self.pid, socket=socket, idle=self.life.idle, report=self.report())
        if not self._told(ready):
            self.life.end("its head ended while it began")

    # --- it works ------------------------------------------------------------------------------

    def report(self) -> session_records.SessionReport:
        """Say how it is."""
        status = msgspec.structs.asdict(self.server.status())
        state, reason = self.life.state.value, self.life.reason
        return session_records.SessionReport(id=self.id, state=state, reason=reason, **status)

    def _changed(self) -> None:
        self.life.changed(attached=self.server.attached, merged=self.server.merged)
        self._untold = True
        self._tell_head()

    def _look_for_head(self) -> None:
        """As the thread that reports: each head that there is, in turn."""
        head = self.world.head
        if head is not self._head:
            self._head = head
            if head is not None:
                self._untold = True
                self.soon(CALL, self._take_list, head)
                self._tell_head()
        self.later(PAUSE, self._look_for_head)

    def _take_list(self, head: SimulatedHead) -> None:
        if head.alive:
            self.denials.take(head.credentials.whole_list())

    def denied(self, update: DenialUpdate) -> None:
        """Hear from the head that credentials were revoked."""
        if not self.denials.take(update) and self._head is not None:
            self.soon(CALL, self._take_list, self._head)

    def _tell_head(self) -> None:
        if self._head is not None and self._untold:
            self._untold = False
            self.soon(CALL, self._reported, self._head, self.report(), next(self._reports))

    def _reported(
        self, head: SimulatedHead, report: session_records.SessionReport, number: int
    ) -> None:
        if number < self._last_report:
            return  # a later one, which says more, has arrived already: they do not overtake
        self._last_report = number
        if head.alive and head.do(head.registry.report, report) is False:
            self.soon(CALL, self.life.end, "its head has it as ended")

    # --- it ends -------------------------------------------------------------------------------

    def _over(self) -> None:
        if not self.ending:
            self.ending = True
            self.soon(STEP, self._drain)

    def _drain(self) -> None:
        if self.life.state is SessionState.STARTING and not self.listening:
            self.later(STEP, self._drain)  # signals are heard when it has begun
            return
        self.listening = False
        self.life.draining()
        self._untold = True
        self._tell_head()
        self.server.close(self.life.reason)
        self.soon(STEP, self._clear)

    def _clear(self) -> None:
        self.world.folders.discard(self.folder)
        self.world.notices.pop(self.id, None)
        self.soon(STEP, self._exit)

    def _exit(self) -> None:
        self.world.server_ended(self, "its process ended")

    def crash(self) -> None:
        """End at once."""
        if self.alive:
            self.world.server_ended(self, "its process was ended by signal 9")


class ServersOfHead:
    """What one head has of the processes of roots."""

    def __init__(self, world: SessionWorld, head: SimulatedHead) -> None:
        self._world = world
        self._head = head

    def begin(self, plan: ServerPlan) -> Future[ServerReady]:
        """Begin a root."""
        self._head.point()
        beginning: Future[ServerReady] = Future()
        world, head = self._world, self._head

        def told(ready: ServerReady) -> bool:
            if head.alive:
                world.later(CALL, head.heard, beginning, ready)
            return head.alive

        root = world.new_root(plan, told)
        server_gone = partial(head.no_answer, beginning)
        world.when_ended(root.pid, server_gone)
        self._head.point()
        return beginning

    def watch(self, pid: int, began: int, ended: Callable[[str], None]) -> Any:
        """Hear of the end of a root."""
        self._head.point()
        if pid not in self._world.roots or self.began(pid) != began:
            raise ProcessLookupError(pid)
        self._world.when_ended(pid, partial(self._head.do, ended))
        return WatchOfServer(self._world, self._head, pid)

    def began(self, pid: int) -> int:
        """Return when a process began: as many virtual ticks as its number."""
        return pid if pid in self._world.roots else 0

    def notices(self) -> list[SessionNotice]:
        """Return the notices that roots have sent unasked."""
        return list(self._world.notices.values())

    def begin_again(self, plan: ServerPlan) -> Future[ServerReady]:
        """Begin a root again."""
        return self.begin(plan)

    def give_up(self, session: str) -> None:
        """Begin no root again; none is."""

    def clear(self, session: str, sockets: Sequence[str]) -> None:
        """Remove what a root has left."""
        self._head.point()
        told = self._world.notices.pop(session, None)
        for place in [*sockets, *([told.socket] if told is not None else [])]:
            self._world.folders.discard(place.removesuffix("/root.sock"))
        self._head.point()

    def later(self, seconds: float, function: Callable[..., object], *args: object) -> None:
        """Have a function called after some time."""
        self._world.loop.call_later(seconds, function, *args)


class WatchOfServer:
    """The process of a root, as one head has it."""

    def __init__(self, world: SessionWorld, head: SimulatedHead, pid: int) -> None:
        self._world = world
        self._head = head
        self._pid = pid

    def end(self) -> Future[Any]:
        """Have it end, by force if it does not."""
        self._head.point()
        answer: Future[Any] = Future()
        root = self._world.roots.get(self._pid)
        if root is None:
            answer.set_result(None)
            return answer
        self._world.when_ended(self._pid, lambda _how: self._head.do(answer.set_result, None))
        self._world.later(CALL, root.life.end, "it was deleted")
        self._world.loop.call_later(PATIENCE, self._force)
        self._head.point()
        return answer

    def _force(self) -> None:
        root = self._world.roots.get(self._pid)
        if root is not None and self._head.alive:
            root.crash()

    def forget(self) -> None:
        """Hear no more of it."""


class SimulatedHead:
    """The process of a head.

    Args:
        world: Where it is.
        generation: Which head of the cluster it is.
    """

    def __init__(self, world: SessionWorld, generation: int) -> None:
        self.world = world
        self.alive = True
        self.left = 0
        store = HeadStoreHandle(world.kept, self.point)
        self.registry = SessionRegistry(
            lambda: store,
            "simulated",
            "here",
            ServersOfHead(world, self),
            lambda: world.policy,
            note_nothing,
            world.loop.time,
        )
        self.credentials = CredentialIssuer(
            lambda: store, "simulated", PIN, generation, clock=world.loop.time
        )

    def kill_after(self, points: int) -> None:
        """Have it killed at one of its steps from now on: at the next one for 1."""
        self.left = points

    def point(self) -> None:
        """A step begins or is over: it may be killed here, and does nothing when it was."""
        if self.alive and self.left:
            self.left -= 1
            if not self.left:
                self.world.head_ended(self)
        if not self.alive:
            raise HeadKilledError

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        """Do something as this head, if it lives; what it was doing ends with it."""
        if not self.alive:
            return None
        try:
            return function(*args)
        except HeadKilledError:
            return None

    def heard(self, beginning: Future[ServerReady], ready: ServerReady) -> None:
        """A root it has begun says that it is ready."""
        if self.alive and not beginning.done():
            self.do(beginning.set_result, ready)

    def no_answer(self, beginning: Future[ServerReady], how: str) -> None:
        """A root it has begun has ended before it was ready."""
        if self.alive and not beginning.done():
            self.do(beginning.set_exception, CommunicationError(how))

    def credential(self, session: str, names: Sequence[str], seconds: float) -> tuple[str, str]:
        """Return a credential for attaching to a session or merging it, and the credential's id."""
        wanted = calls.IssueCredential(rights=list(names), lifetime=seconds)
        facts = self.credentials.issue(wanted, ALL_RIGHTS, [], 1e9).facts
        rights = Rights(names=frozenset(names), not_after=facts.not_after, ids=(facts.id,))
        record = self.registry.find(session)
        made = Authorizer.merge_secret_for if "merge" in names else Authorizer.secret_for
        return made(rights, self.registry.secret_of(record), record.id), facts.id

    def revoke(self, one: str) -> None:
        """Refuse a credential from now on; all roots hear of it."""
        update, _ = self.credentials.revoke(one)
        for root in list(self.world.roots.values()):
            if root._head is self:  # noqa: SLF001 - its connection is the head's, too
                root.soon(CALL, root.denied, update)


class SessionWorld:
    """A machine with a head, its store and the roots of its sessions.

    Args:
        loop: Its time.
        chance: Where draws come from.
        keeping: How output is retained while no client is attached.
        tree_of: Returns the tree of a session that has one.

    Attributes:
        head: The head that serves; None while there is none.
        roots: The processes of roots, by number.
        notices: What roots have told where they are.
        folders: The folders of sockets.
        kept: What the store has.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        keeping: DisconnectPolicy,
        tree_of: Callable[[ServerPlan], TreeAtRoot | None] = lambda _plan: None,
    ) -> None:
        self.loop = loop
        self.chance = chance
        self.policy = PolicySettings(
            disconnect=keeping,
            idle=IdlePolicy(session=0.0),
            restarts=RestartPolicy(limit=0),  # what a session without its root leaves is looked at
        )
        self.tree_of = tree_of
        self.kept = KeptEntries()
        self.roots: dict[int, SimulatedServer] = {}
        self.notices: dict[str, SessionNotice] = {}
        self.folders: set[str] = set()
        self.head: SimulatedHead | None = None
        self.heads = 0
        self._pids = itertools.count(1000)
        self._watchers: dict[int, list[Callable[[str], None]]] = {}
        self.when_server_ends: Callable[[SimulatedServer], None] = lambda _root: None

    def later(self, mean: float, function: Callable[..., Any], *args: Any) -> None:
        """Have something happen after a time drawn around a mean, seconds."""
        self.loop.call_later(self.chance.expovariate(1 / mean), function, *args)

    def begin_head(self, kill_after: int = 0) -> None:
        """Begin a head, which finds what the former one has left."""
        self.heads += 1
        head = self.head = SimulatedHead(self, self.heads)
        head.kill_after(kill_after)
        head.do(head.registry.start)

    def head_ended(self, head: SimulatedHead) -> None:
        """The process of a head has ended."""
        head.alive = False
        if self.head is head:
            self.head = None

    def new_root(self, plan: ServerPlan, told: Callable[[ServerReady], bool]) -> SimulatedServer:
        """Begin the process of a root."""
        pid = next(self._pids)
        root = self.roots[pid] = SimulatedServer(self, pid, plan, told)
        root.soon(STEP, root.begin)
        return root

    def when_ended(self, pid: int, told: Callable[[str], None]) -> None:
        """Call a function at the end of a process."""
        self._watchers.setdefault(pid, []).append(told)

    def server_ended(self, root: SimulatedServer, how: str) -> None:
        """The process of a root has ended; the kernel tells who watches."""
        root.alive = root.listening = False
        del self.roots[root.pid]
        if root.tree is not None:
            root.tree.end()
        self.when_server_ends(root)
        for told in self._watchers.pop(root.pid, []):
            self.later(CALL, told, how)

    # --- what must hold ------------------------------------------------------------------------

    def records(self) -> list[session_records.SessionRecord]:
        """Return what the store has of sessions, as the next head would find it."""
        read = msgspec.msgpack.Decoder(session_records.SessionRecord).decode
        found = self.kept.entries.items()
        return [read(value) for key, value in found if key.startswith("sessions/")]
