"""Groups under faults: whose members all live completes, with the right results.

Members enter groups of random places, call random operations and leave, while processes end, hang
and are cut off. What a member gets is checked against what all of them give. A group may end with
an error only if a process of one of its members has ended, and the error names it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sapwood.comm.groups import events as gev
from sapwood.comm.messages.groups import NO_GROUP, GroupCall
from sapwood.core.errors import GroupError
from sapwood.core.topology import ROOT
from sapwood_simulation.peers import SimulatedPeer, Step
from sapwood_simulation.simulation import InvariantError, Simulation, SimulationOptions, ranks_named

AT_A_TIME = 4
"""Groups that are open at a time."""

OPERATIONS = ("barrier", "broadcast", "scatter", "gather", "allgather", "reduce", "allreduce")

ENTER_TIMEOUT = 40.0
"""Virtual seconds after which a member waits no more for others to enter."""

MAX_MEMBERS = 40
"""Members of one group at most, so that many groups of different places meet."""


class Ensemble:
    """One group: its members, what they give, and what they must get.

    Args:
        members: Their ranks.
        operations: What they call, one after the other, with the root of each.
        number: Tells what one group gives from what another one does.
    """

    def __init__(self, members: list[int], operations: list[tuple[str, int]], number: int) -> None:
        self.ranks = members
        self.operations = operations
        self.name = str(number)
        self.members: list[SimulatedPeer] = []
        self.ended: set[int] = set()
        self._number = number

    def steps(self, rank: int) -> list[Step]:
        """Return what a member calls."""
        return [self._step(rank, *operation) for operation in self.operations]

    def _step(self, rank: int, operation: str, root: int) -> Step:
        if operation == "barrier":
            return GroupCall(operation), None
        if operation in {"allgather", "allreduce"}:
            return GroupCall(operation, "sum" if operation == "allreduce" else ""), self._of(rank)
        call = GroupCall(operation, "sum" if operation == "reduce" else "", root)
        if operation == "scatter":
            portions = {one: self._of(one) for one in self.ranks}
            return call, portions if rank == root else None
        given = operation != "broadcast" or rank == root
        return call, self._of(rank) if given else None

    def expected(self, rank: int) -> list[Any]:
        """Return what a member must get."""
        every = [self._of(one) for one in self.ranks]
        found: list[Any] = []
        for operation, root in self.operations:
            results = {
                "barrier": None,
                "broadcast": self._of(root),
                "scatter": self._of(rank),
                "allgather": every,
                "allreduce": sum(every),
                "gather": every if rank == root else None,
                "reduce": sum(every) if rank == root else None,
            }
            found.append(results[operation])
        return found

    def _of(self, rank: int) -> int:
        return self._number * 1000 + rank

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be expected of any member any more."""
        return all(
            member.left or member.error is not None or member.rank in self.ended
            for member in self.members
        )

    def check(self) -> None:
        """Compare what the members got with what they must get.

        Raises:
            InvariantError: It is not the same, or there is an error and all members live.
        """
        for member in self.members:
            expected = self.expected(member.rank)[: len(member.results)]
            if member.results != expected:
                raise InvariantError(
                    f"member {member.rank} of group {self.name} got {member.results}, "
                    f"expected {expected}"
                )
            if member.error is None or len(member.results) == len(self.operations):
                continue  # there may be an end with an error while they leave
            if not self.ended:
                raise InvariantError(
                    f"all members of group {self.name} live, and member {member.rank} "
                    f"got: {member.error}"
                )
            # Who enters after the others have had the error waits for them in vain.
            too_late = isinstance(member.error, GroupError) and "waited" in member.error.what
            if not too_late and not self.ended & _named(member.error.what):
                raise InvariantError(f"none of {self.ended} is named in: {member.error}")


def _named(what: str) -> set[int]:
    return ranks_named("agent", what) | ranks_named("member", what) | ranks_named("rank", what)


class GroupSimulation(Simulation):
    """One run of groups under faults; ``options.waves`` is their number.

    Args:
        options: The options of the simulation.

    Example:
        >>> GroupSimulation(SimulationOptions(agents=8, fanout=2, waves=3)).run().waves
        3
    """

    what = "groups"
    census = True

    def __init__(self, options: SimulationOptions) -> None:
        super().__init__(options)
        self.failed = 0
        self._ensembles: list[Ensemble] = []
        self._over: set[int] = set()

    def _run(self) -> None:
        self._begin()
        for number in range(1, self.options.waves + 1):
            self._ensembles.append(self._new_ensemble(number))
            for member in self._ensembles[-1].members:
                self.later(0.05, self._enter, self._ensembles[-1], member)
            wanted = number - AT_A_TIME + 1
            self._until(partial(self._all_over, wanted), faults=True)
        self._until(partial(self._all_over, self.options.waves), faults=True)
        self._come_to_rest()
        self._until(self._nothing_is_left, faults=False)
        for ensemble in self._ensembles:
            ensemble.check()
            self.failed += any(member.error is not None for member in ensemble.members)
        self._check_end()

    def _new_ensemble(self, number: int) -> Ensemble:
        chance = self._random
        places = range(self.options.agents + 1)
        size = chance.randint(1, min(len(places), MAX_MEMBERS))
        ranks = sorted(chance.sample(places, size))
        operations = [
            (chance.choice(OPERATIONS), chance.choice(ranks)) for _ in range(chance.randint(1, 6))
        ]
        ensemble = Ensemble(ranks, operations, number)
        for rank in ranks:
            ensemble.members.append(
                SimulatedPeer(self.network, rank, ranks, ensemble.name, ensemble.steps(rank))
            )
            if rank not in self.network.nodes:
                ensemble.ended.add(rank)
        return ensemble

    def _done(self) -> int:
        return len(self._over)

    def _enter(self, ensemble: Ensemble, member: SimulatedPeer) -> None:
        if self.network.is_paused(member.rank):
            self.later(0.05, self._enter, ensemble, member)
        elif member.rank not in ensemble.ended:
            member.enter()
            self.loop.call_later(ENTER_TIMEOUT, self._give_up, ensemble, member)

    def _give_up(self, ensemble: Ensemble, member: SimulatedPeer) -> None:
        if member.rank in ensemble.ended or member.number is not None or member.error is not None:
            return
        error = GroupError(f"member {member.rank} waited for {ENTER_TIMEOUT:g} s").to_record()
        self.network.post(
            member.rank, gev.BreakGroup(NO_GROUP, member.members, member.name, error, 1)
        )

    def _all_over(self, last: int) -> bool:
        for ensemble in self._ensembles[:last] if last > 0 else ():
            number = int(ensemble.name)
            if number not in self._over:
                if not ensemble.is_over:
                    return False
                self._over.add(number)
        return True

    def _nothing_is_left(self) -> bool:
        return not any(node.groups for node in self.network.nodes.values())

    def _process_ended(self, rank: int) -> None:
        super()._process_ended(rank)
        for ensemble in self._ensembles:
            if rank in ensemble.ranks:
                ensemble.ended.add(rank)

    # --- what the members hear -----------------------------------------------------------------

    def _saw(self, effect: Any) -> None:
        self._saw_below(ROOT, effect)

    def _saw_below(self, rank: int, effect: Any) -> None:
        if isinstance(effect, gev.GroupFinished):
            self._tell(rank, effect, lambda one: one.number == effect.group)
        elif isinstance(effect, gev.GroupEntered | gev.GroupBroken):
            key = (effect.members, effect.name)
            self._tell(rank, effect, lambda one: (one.members, one.name) == key)

    def _tell(self, rank: int, effect: Any, is_meant: Any) -> None:
        for ensemble in self._ensembles:
            for member in ensemble.members:
                if member.rank == rank and is_meant(member) and rank not in ensemble.ended:
                    member.saw(effect)
