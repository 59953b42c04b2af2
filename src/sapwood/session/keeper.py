"""Keeps the processes of a tree alive: starts them, and replaces those that end.

When a place is lost, everything below it is ended and started anew, parents first; when all
of that is ready again, the listener hears of it. How often that may happen within a window is
the restart policy.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.contexts import orders
from sapwood.contexts.forge import Forge
from sapwood.contexts.process import describe_status
from sapwood.contexts.spawner import Spawner
from sapwood.contexts.zygote import Plan
from sapwood.core.errors import AgentLostError, ResourceError, SapwoodError
from sapwood.core.rankset import fold, from_ranges
from sapwood.core.topology import ROOT, Tree
from sapwood.environment.logs import logger
from sapwood.environment.restart import RestartBudget
from sapwood.environment.settings import RestartSettings
from sapwood.session.places import PlaceEvent, Places, PlaceState

_log = logger("session")


class Repair(msgspec.Struct, frozen=True):
    """A part of the tree that is being replaced.

    Attributes:
        ranks: Its places, parents first.
        pause: Seconds before the new processes start; None where no more are allowed.
    """

    ranks: list[int]
    pause: float | None


class ChangeListener(Protocol):
    """Told of places that are lost or back."""

    def __call__(self, top: int, ranks: Sequence[int], reason: str, *, back: bool) -> None:
        """``top`` is the highest of ``ranks``."""


class Keeper:
    """Keeps the processes of a tree alive; its methods run on the loop's thread.

    Args:
        tree: The tree.
        entry: What the process of a rank runs, as ``module:function``.
        configure: What all processes get.
        plan: What their zygote imports and forks.
        restart: When lost processes are replaced.
        on_change: Told of places that are lost or back.
    """

    def __init__(
        self,
        tree: Tree,
        entry: Callable[[int], str],
        configure: orders.Configure,
        plan: Plan,
        restart: RestartSettings,
        on_change: ChangeListener,
    ) -> None:
        self.places = Places(tree)
        self.restarts = 0
        self._tree = tree
        self._entry = entry
        self._configure = configure
        self._plan = plan
        self._budget = RestartBudget(restart)
        self._on_change = on_change
        self._spawner = self._new_spawner()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._repairs: dict[int, Repair] = {}
        self._last_reason = ""
        self.zygote: orders.Ready | None = None

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the zygote and order all processes; from the thread that creates the session."""
        self._spawner.start()
        self._spawner.spawn(self._specs(self._tree.subtree(ROOT)[1:]))

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear of processes from now on."""
        self._loop = loop
        self._spawner.listen(loop)

    def wait_ready(self, timeout: float) -> None:
        """Wait until all places are ready; from any thread but the loop's.

        Raises:
            ResourceError: Processes cannot be started, or it takes too long.
            AgentLostError: A process ends again and again.
        """
        if not self._ready.wait(timeout):
            late = [record.rank for record in self.places if record.state is not PlaceState.READY]
            raise ResourceError(
                f"{len(late)} of {self._tree.size - 1} processes are not ready after {timeout:g} s",
                where=fold("rank", late),
                hint="use fewer agents, or raise cluster.ready_timeout",
            )
        if self._failure is not None:
            raise self._failure

    def give_up(self, error: BaseException) -> None:
        """Let :meth:`wait_ready` fail."""
        if self._failure is None:
            self._failure = error
        self._ready.set()

    def forge(self) -> Forge:
        """Return what has runners forked for the front end itself; on the loop's thread.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self._spawner.forge()

    def detach(self) -> None:
        """Hear of nothing any more."""
        self._loop = None
        self._spawner.detach()

    def close(self) -> None:
        """End all processes and wait for that; from any thread."""
        self._spawner.close()

    @property
    def zygote_pid(self) -> int:
        """Process id of the zygote."""
        return self._spawner.pid

    # --- what the root of the tree says --------------------------------------------------------

    def joined(self, effect: ev.PlaceJoined) -> None:
        """A process is in its place."""
        record = self.places[effect.rank]
        if effect.incarnation != record.incarnation or record.state is not PlaceState.STARTING:
            return
        record.pid = effect.pid
        record.advance(PlaceEvent.JOINED)
        if not self._ready.is_set():
            if self.places.all_ready():
                self._ready.set()
        else:
            self._finish_repairs()

    def lost(self, effect: ev.PlacesLost) -> None:
        """Links to places are gone."""
        ranks = from_ranges(effect.ranks)
        top = min(ranks, key=lambda rank: len(list(self._tree.ancestors(rank))))
        if self.places[top].state is PlaceState.READY:
            self._repair(top, effect.reason, self._pause_before_restart())

    def silent(self, effect: ev.PlaceSilent) -> None:
        """A place answers no more, though its process may live."""
        if effect.rank > ROOT:
            reason = f"nothing heard for {effect.seconds:.1f} s"
            self._repair(effect.rank, reason, self._pause_before_restart())

    # --- what the zygote says --------------------------------------------------------------------

    def _reported(self, report: orders.Report) -> None:
        if isinstance(report, orders.Spawned):
            record = self.places[report.rank]
            if record.incarnation == report.incarnation and record.state is PlaceState.STARTING:
                record.pid = report.pid
            elif record.pid != report.pid:
                self._spawner.kill(report.pid)  # it was given up while it was being forked
        elif isinstance(report, orders.Ready):
            self.zygote = report
        elif isinstance(report, orders.Exited):
            self._exited(report)
        elif isinstance(report, orders.SpawnFailed):
            self.give_up(
                ResourceError(
                    f"cannot start the process of rank {report.rank}: {report.reason}",
                    hint="use fewer agents, or raise the limit of processes (ulimit -u)",
                )
            )

    def _exited(self, report: orders.Exited) -> None:
        record = self.places[report.rank]
        if record.incarnation != report.incarnation:
            return
        record.pid = 0
        if report.status == 0 and record.state is PlaceState.READY:
            return  # it left because its parent did: the loss of that or of the link is told, too
        reason = describe_status(report.status)
        if record.state is PlaceState.LOST:
            self._respawn_where_gone()
        else:
            self._repair(report.rank, reason, self._pause_before_restart())

    def _zygote_ended(self) -> None:
        for record in self.places:
            record.pid = 0
        tops = self._tree.children(ROOT)
        self._spawner.close()
        self._spawner = self._new_spawner()
        try:
            self._spawner.start()
        except ResourceError as error:
            self.give_up(error)
            return
        if self._loop is not None:
            self._spawner.listen(self._loop)
        pause = self._pause_before_restart()
        for top in tops:
            self._repair(top, "the zygote ended", pause)

    # --- repair ----------------------------------------------------------------------------------

    def _repair(self, top: int, reason: str, pause: float | None) -> None:
        """End what is left at and below a place, then start it anew."""
        ranks = self._tree.subtree(top)
        # A repair below is part of this one.
        for rank in ranks:
            self._repairs.pop(rank, None)
        self._last_reason = reason
        _log.warning("lost", rank=top, reason=reason, places=len(ranks), wait=pause)
        self._repairs[top] = Repair(ranks, pause)
        for rank in ranks:
            record = self.places[rank]
            record.advance(PlaceEvent.GONE)
            if record.pid:
                self._spawner.kill(record.pid)
        self._on_change(top, ranks, reason, back=False)
        self._respawn_where_gone()

    def _respawn_where_gone(self) -> None:
        for top, repair in list(self._repairs.items()):
            records = [self.places[rank] for rank in repair.ranks]
            if any(record.pid or record.state is not PlaceState.LOST for record in records):
                continue
            if repair.pause is None:
                del self._repairs[top]
                self._give_up_on(repair.ranks)
            elif self._loop is not None:
                for record in records:
                    record.incarnation += 1
                    record.advance(PlaceEvent.SPAWNED)
                self.restarts += 1
                self._loop.call_later(repair.pause, self._spawn_again, self._specs(repair.ranks))

    def _spawn_again(self, specs: list[orders.ProcessSpec]) -> None:
        wanted = [spec for spec in specs if self.places[spec.rank].incarnation == spec.incarnation]
        if self._loop is not None and wanted:
            self._spawner.spawn(wanted)

    def _finish_repairs(self) -> None:
        for top, repair in list(self._repairs.items()):
            if self.places.all_ready(repair.ranks):
                del self._repairs[top]
                _log.info("replaced", rank=top, places=len(repair.ranks))
                self._on_change(top, repair.ranks, "", back=True)

    def _pause_before_restart(self) -> float | None:
        """Return the seconds to wait, or None where the policy allows no more restarts."""
        assert self._loop is not None  # noqa: S101 - repairs happen on the loop
        return self._budget.next_wait(self._loop.time())

    def _give_up_on(self, ranks: Sequence[int]) -> None:
        error = AgentLostError(
            f"the processes of {fold('rank', ranks)} end again and again: {self._last_reason}",
            hint="see the messages above; restart.limit says how often they are replaced",
        )
        _log.error("given up", rank=ranks[0], reason=self._last_reason)
        self.give_up(error)
        self._on_change(ranks[0], ranks, str(error), back=False)

    def _specs(self, ranks: Sequence[int]) -> list[orders.ProcessSpec]:
        return [
            orders.ProcessSpec(self._entry(rank), rank, self.places[rank].incarnation)
            for rank in ranks
        ]

    def _new_spawner(self) -> Spawner:
        return Spawner(self._plan, self._configure, self._reported, self._zygote_ended)

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, if the policy gave up."""
        return self._failure if isinstance(self._failure, SapwoodError) else None
