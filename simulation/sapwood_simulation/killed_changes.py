"""A session is changed or left, and processes are killed at a chosen step of that.

The tree, the root's server, the head and its registry, and the sessions of clients are those of
:mod:`sapwood_simulation.session_simulation`; nothing else goes wrong. Waves are open and agents
push meanwhile. Afterwards the session is as before or as after, never between, or it is over; and
when the cluster is down, nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from sapwood.core.topology import ROOT
from sapwood.session.session_life import SessionState
from sapwood.session_server import session_calls
from sapwood.session_server.rights import ClientRole
from sapwood_simulation.session_simulation import (
    LOOK_SECONDS,
    MAIN,
    SessionSimulation,
    SimulatedClient,
)
from sapwood_simulation.simulation import InvariantError, SimulationOptions

CHANGES: Final = ("expand", "contract", "detach", "attach")
"""What happens to the session."""

VICTIMS: Final = (("head",), ("root",), ("head", "root"), ("owner",), ("head", "owner"))
"""Groups of processes that are killed at the same time."""

OPEN_WAVES = 3
"""Waves that are open when the change begins."""

SETTLED = 40.0
"""Virtual seconds after which nothing is between: more than the simulation's grace."""


class KilledChange(SessionSimulation):
    """One change of a session of three agents below two junctions.

    Args:
        change: One of :data:`CHANGES`.
        step: The step after the start at which processes are killed: each event anywhere counts as
            one. 0 kills none.
        victims: ``head``, ``root`` and ``owner``, the client that wants the change.
        seed: Decides everything that is left to chance.

    Attributes:
        killed: Whether the change took as many steps.
        outcome: ``before``, ``after`` or ``over``.

    Example:
        >>> KilledChange("expand", 0, ()).run().changes
        1
    """

    def __init__(self, change: str, step: int, victims: tuple[str, ...], *, seed: int = 7) -> None:
        super().__init__(SimulationOptions(seed=seed, agents=3, fanout=2, waves=1))
        self.killed = False
        self.outcome = ""
        self._change_wanted = change
        self._kill_at = step
        self._victims = victims
        self._step = 0

    def command(self) -> str:
        """Return what has this again."""
        wanted = (self._change_wanted, self._kill_at, self._victims)
        return f"KilledChange{wanted!r} with seed={self.options.seed}"

    def _run(self) -> None:
        self._begin_session()
        before = frozenset(self.tree.agent_ranks)
        owner = self._owner()
        self._open_streams(owner)
        self._do(owner)
        self._final = True
        self._settle(SETTLED)
        self._until(lambda: self.world.head is not None, faults=False)
        self._settle(1.0)
        self._compare(before)
        for one in self.clients:
            if not self._is_gone(one):
                one.leave()
        self._settle(2.0)
        if self.outcome != "over":
            self._finish_main()
        self._end_all()

    def _begin_session(self) -> None:
        self.network.answer = lambda rank, value: {
            "sum": rank * value["wave"],
            "who": rank,
            "count": 1,
        }
        self._begin()
        self.world.begin_head()
        self._create(MAIN, 0.0)
        self._until(self._main_is_there, faults=False)
        self.loop.call_later(LOOK_SECONDS, self._look)

    def _owner(self) -> SimulatedClient:
        assert self.main is not None
        owner = SimulatedClient(self, self.main, ClientRole.OWNER)
        self.clients.append(owner)
        return owner

    def _open_streams(self, owner: SimulatedClient) -> None:
        """Open streams until there is one of each kind, and begin waves."""
        self._until(lambda: owner.there and owner.confirmed, faults=False)
        while len(set(self._owned.values())) < 2:
            self._open(owner)
        self._settle(1.0)
        for stream in owner.streams.values():
            if not self._owned[stream.name]:
                for _ in range(OPEN_WAVES):
                    self._broadcast(owner, stream)

    # --- the change ----------------------------------------------------------------------------

    def _do(self, owner: SimulatedClient) -> None:
        if self._change_wanted in {"expand", "contract"}:
            if self._change_wanted == "expand":
                home = {"parent": self.tree.junctions[0], "host": 0}
                asked = owner.session.link.ask(session_calls.EXPAND, [home])
            else:
                ranks = [self.tree.agent_ranks[0]]
                asked = owner.session.link.ask(
                    session_calls.CONTRACT, [ranks, 1.0, "it was removed"]
                )
            self._stepwise(asked.done)
            self._stepwise(self._in_time())
            self._check_answer(asked)
            return
        if self._change_wanted == "attach":
            owner.leave()
            self._settle(1.0)
            owner = self._owner()
            self._stepwise(lambda: owner.confirmed or owner.is_over)
        else:
            owner.leave()
            self._stepwise(lambda: not self._is_owned())
        self._stepwise(self._in_time())

    def _in_time(self) -> Callable[[], bool]:
        """Return whether what follows from the change has had time to happen."""
        end = self.loop.time() + 0.1
        return lambda: self.loop.time() > end

    def _is_owned(self) -> bool:
        return self.main is not None and self.main.alive and self.main.server.owner is not None

    def _stepwise(self, condition: Callable[[], bool]) -> None:
        """Continue until a condition holds; kill the victims at the chosen step."""

        def look() -> bool:
            if not self.killed:
                self._step += 1
                if self._step == self._kill_at:
                    self._kill()
            return condition()

        self._until(look, faults=False)

    def _kill(self) -> None:
        self.killed = True
        head, main = self.world.head, self.main
        if "head" in self._victims and head is not None:
            self.world.head_ended(head)
        if "owner" in self._victims:
            for one in self.clients:
                if not one.is_over:
                    one.die()
        if "root" in self._victims and main is not None and main.alive:
            main.crash()

    # --- what must hold ------------------------------------------------------------------------

    def _check_answer(self, asked: Future[Any]) -> None:
        """Without a kill a change is made; with one, it says whether."""
        if asked.exception() is not None and not self.killed:
            raise InvariantError(f"no process was killed, and yet: {asked.exception()}")

    def _compare(self, before: frozenset[int]) -> None:
        """Check that the session is as before or as after, and that all agree about it."""
        assert self.main is not None
        assert self.world.head is not None
        record = self.world.head.registry.find(MAIN)
        if SessionState(record.state).is_over:
            if self.main.alive or self._tree_there:
                raise InvariantError("the session is over, and something of it is there")
            if "root" not in self._victims:
                raise InvariantError("the session is over, and its root was not killed")
            self.outcome = "over"
            return
        if not self.main.alive:
            raise InvariantError("the session is there, and its root is not")
        now = frozenset(self.tree.agent_ranks)
        changed = {
            "expand": len(now) == len(before) + 1 and before < now,
            "contract": len(now) == len(before) - 1 and now < before,
        }.get(self._change_wanted, False)
        if now != before and not changed:
            raise InvariantError(f"it had agents {sorted(before)}, and has {sorted(now)}")
        self.outcome = "after" if changed else "before"
        running = {rank for rank in self.network.nodes if rank != ROOT}
        if running != {rank for rank in range(self.tree.size) if rank in self.tree} - {ROOT}:
            raise InvariantError(f"processes {sorted(running)} run, and others are in the tree")
        wanted = SessionState.READY if self.main.server.attached else SessionState.DETACHED
        if record.state != wanted.value:
            raise InvariantError(f"it is {wanted.value}, and the head says {record.state}")
