from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.groups import MAX_UNCONFIRMED, MemberMap, OpenGroup
from sapwood.comm.messages.groups import NO_GROUP, GroupCall, GroupEnded
from sapwood.comm.messaging import events
from sapwood.comm.payload import Payload
from sapwood.comm.routing import Router
from sapwood.comm.shared_memory import SharedRef
from sapwood.core.errors import AgentLostError, ExecutionError, GroupError
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood_simulation.network import Network
from sapwood_simulation.peers import SimulatedPeer, SimulatedPeers, Step


def random_tree(agents: int, chance: random.Random) -> Tree:
    """Return a tree of any shape: flat, k-ary, or with chains of junctions."""
    parents = [-1, *([0] * agents)]
    level = list(range(1, agents + 1))
    for _ in range(chance.randint(0, 4)):
        above: list[int] = []
        while level:
            size = chance.randint(1, max(1, len(level)))
            below, level = level[:size], level[size:]
            if len(below) == 1 and chance.random() < 0.5:
                above += below
                continue
            above.append(len(parents))
            parents.append(0)
            for child in below:
                parents[child] = above[-1]
        level = above
    return Tree(agents, tuple(parents))


OPERATIONS = ("barrier", "broadcast", "scatter", "gather", "allgather", "reduce", "allreduce")
KINDS = ("sum", "min", "max", "sum:reproducible", "concat")


class Script:
    """Random calls of a group, and what numpy says they give."""

    def __init__(self, ranks: Sequence[int], seed: int, count: int) -> None:
        self.ranks = sorted(ranks)
        chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        numbers = np.random.default_rng(seed)
        self.steps: list[dict[int, Step]] = []
        self.expected: list[dict[int, Any]] = []
        for _ in range(count):
            root = chance.choice(self.ranks)
            data = {
                rank: numbers.integers(0, 1000, (chance.choice([3, 200]),))[:3]
                for rank in self.ranks
            }
            self._append(chance.choice(OPERATIONS), chance.choice(KINDS), root, data)

    def _append(self, operation: str, kind: str, root: int, data: dict[int, Any]) -> None:
        rooted = operation not in {"barrier", "allgather", "allreduce"}
        reduce = kind if "reduce" in operation else ""
        call = GroupCall(operation, reduce, root if rooted else -1)
        nothing = dict.fromkeys(self.ranks)
        given: dict[int, Any] = dict(data)
        if operation == "barrier":
            given = nothing
        elif operation == "broadcast":
            given = nothing | {root: data[root]}
        elif operation == "scatter":
            given = nothing | {root: data}
        self.steps.append({rank: (call, given[rank]) for rank in self.ranks})
        self.expected.append(self._result(operation, kind, root, data))

    def _result(self, operation: str, kind: str, root: int, data: dict[int, Any]) -> dict[int, Any]:
        every = [data[rank] for rank in self.ranks]
        totals: dict[str, Callable[[], Any]] = {
            "min": lambda: np.min(every, axis=0),
            "max": lambda: np.max(every, axis=0),
            "concat": lambda: np.concatenate(every),
        }
        total = totals.get(kind, lambda: np.sum(every, axis=0))()
        wanted = self.ranks if operation not in {"gather", "reduce"} else [root]
        results: dict[str, Callable[[int], Any]] = {
            "barrier": lambda _rank: None,
            "broadcast": lambda _rank: data[root],
            "scatter": lambda rank: data[rank],
            "gather": lambda _rank: every,
            "allgather": lambda _rank: every,
        }
        value: Callable[[int], Any] = results.get(operation, lambda _rank: total)
        return {rank: value(rank) if rank in wanted else None for rank in self.ranks}

    def of(self, rank: int) -> list[Step]:
        return [step[rank] for step in self.steps]

    def check(self, members: Sequence[SimulatedPeer]) -> None:
        for member in members:
            assert member.error is None, member.error
            assert member.left
            assert len(member.results) == len(self.expected)
            for result, expected in zip(member.results, self.expected, strict=True):
                np.testing.assert_equal(result, expected[member.rank])


@pytest.mark.row("C2-GROUP")
@settings(deadline=None)
@given(
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.data(),
)
@pytest.mark.slow
def test_any_subsets_of_any_tree_get_what_numpy_gives(
    agents: int, seed: int, groups: int, data: st.DataObject
) -> None:
    tree = random_tree(agents, random.Random(seed))  # noqa: S311 - chance that can be repeated
    peers = SimulatedPeers(tree, seed)
    scripts = []
    for number in range(groups):
        ranks = sorted(data.draw(st.sets(st.integers(0, agents), min_size=1)))
        script = Script(ranks, seed + number, 5)
        scripts.append((script, peers.add(ranks, script.of, str(number))))
    peers.play(data.draw(st.permutations(peers.members)))
    for script, members in scripts:
        script.check(members)
    assert peers.leftovers() == 0


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize("tree", [flat(32), kary(32, 2), kary(32, 5)], ids=["flat", "2", "5"])
@pytest.mark.slow
def test_overlapping_groups_work_at_the_same_time(tree: Tree) -> None:
    peers = SimulatedPeers(tree, 5)
    scripts = []
    for number in range(20):
        ranks = random.Random(number).sample(range(33), 1 + number)  # noqa: S311 - chance that can be repeated
        script = Script(ranks, number, 8)
        scripts.append((script, peers.add(sorted(ranks), script.of, f"group {number}")))
    peers.play()
    for script, members in scripts:
        script.check(members)
    assert peers.leftovers() == 0


ADD = GroupCall("allreduce", "sum")


def allreduce(_rank: int) -> list[Step]:
    return [(GroupCall("allreduce", "sum"), np.arange(4))] * 3


def test_memory_is_given_back_when_all_have_read_the_results() -> None:
    peers = SimulatedPeers(kary(4, 2))
    peers.add([1, 2, 3, 4], allreduce)
    peers.play()
    # Three rounds: an array of each member, of each junction, and of the turn.
    assert peers.discarded == 3 * (4 + 2 + 1)


def test_a_place_that_ends_gives_its_memory_up() -> None:
    peers = SimulatedPeers(kary(4, 2))
    members = peers.add([1, 2, 3, 4], allreduce)
    members[0].busy = True
    peers.play()
    assert peers.discarded == 0
    for rank in peers.network.tree.subtree(0):
        peers.network.post(rank, gev.ForgetGroups())
    peers.settle()
    assert peers.discarded == 3 + 1  # arrays of three members, and of the junction above two
    assert peers.leftovers() == 0


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ((GroupCall("allreduce", "max"), 1), "allreduce('max')"),
        ((GroupCall("barrier"), None), "barrier()"),
        ((GroupCall("reduce", "sum", 2), 1), "reduce('sum', root=2)"),
    ],
)
@pytest.mark.parametrize("fanout", [2, 8])
def test_another_operation_is_an_error_at_every_member(odd: Step, text: str, fanout: int) -> None:
    peers = SimulatedPeers(kary(8, fanout))
    step: Step = (GroupCall("allreduce", "sum"), 1)
    members = peers.add(range(1, 9), lambda rank: [step, odd if rank == 6 else step])
    peers.play()
    for member in members:
        assert isinstance(member.error, GroupError)
        assert "round 2" in member.error.what
        assert text in member.error.what
        assert "allreduce('sum')" in member.error.what
        assert len(member.results) == 1
    assert peers.leftovers() == 0


def test_another_shape_is_an_error_at_every_member() -> None:
    peers = SimulatedPeers(kary(8, 2))
    members = peers.add(
        range(1, 9), lambda rank: [(GroupCall("allreduce", "sum"), np.ones(3 + (rank == 5)))]
    )
    peers.play()
    for member in members:
        assert isinstance(member.error, ExecutionError)
        assert "(4,)" in member.error.what
    assert peers.leftovers() == 0


def test_a_reduction_that_there_is_not_is_an_error_at_every_member() -> None:
    peers = SimulatedPeers(kary(4, 2))
    members = peers.add(range(1, 5), lambda _: [(GroupCall("allreduce", "sun"), 1)])
    peers.play()
    assert all(member.error is not None for member in members)
    assert all("sun" in str(member.error) for member in members)
    assert peers.leftovers() == 0


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize("fanout", [2, 8])
def test_who_leaves_before_the_others_is_named(fanout: int) -> None:
    peers = SimulatedPeers(kary(8, fanout))
    step: Step = (GroupCall("barrier"), None)
    members = peers.add(range(1, 9), lambda rank: [step] * (1 if rank == 3 else 2))
    peers.play()
    for member in members:
        if member.rank != 3:
            assert isinstance(member.error, GroupError)
            assert "member 3 left" in member.error.what
    assert peers.leftovers() == 0


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize("entered", [True, False])
@pytest.mark.parametrize("victim", [5, 7])
def test_a_member_that_ended_is_an_error_at_every_other_one(victim: int, entered: bool) -> None:
    peers, members = under_way() if entered else entering(without=8)
    peers.network.kill(victim)
    peers.settle()
    assert all(member.error is None for member in members), "it might only be cut off"
    peers.network.post(ROOT, events.AnnounceMembership(((victim, 1),), (), "killed"))
    peers.settle()
    for member in members:
        if member.rank not in {victim, 0 if entered else 8}:
            assert isinstance(member.error, AgentLostError), member.rank
            assert f"agent {victim} of the group is gone: killed" in str(member.error)
    assert peers.leftovers() == 0


@pytest.mark.parametrize("victim", [5, 7])
def test_a_process_in_the_place_of_a_member_says_that_it_was_replaced(victim: int) -> None:
    """The new process may be asked to join the next attempt before the loss is reported."""
    peers, members = under_way()
    peers.network.kill(victim)
    peers.network.begin([victim])
    peers.settle(seconds=5)
    for member in members:
        if member.rank not in {victim, 0}:
            assert isinstance(member.error, AgentLostError), member.rank
            assert f"agent {victim} of the group is gone" in str(member.error)
    assert peers.leftovers() == 0


def under_way() -> tuple[SimulatedPeers, list[SimulatedPeer]]:
    peers = SimulatedPeers(kary(8, 2))  # junctions 9 to 14; 11 is above 5 and 6, 14 above 5 to 8
    members = peers.add(range(1, 9), allreduce)
    for member in members:
        member.enter()
    for _ in range(60):
        peers.network.step()
        peers._hand_out()
    assert any(member.results for member in members)
    assert not all(member.left for member in members)
    return peers, members


def entering(without: int) -> tuple[SimulatedPeers, list[SimulatedPeer]]:
    peers = SimulatedPeers(kary(8, 2))
    members = peers.add(range(1, 9), allreduce)
    peers.play([member for member in members if member.rank != without])
    return peers, members


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize("victims", [(11,), (14,), (14, 11), (9, 10, 11, 12, 13, 14)])
@pytest.mark.parametrize("entered", [True, False])
@pytest.mark.slow
def test_a_group_whose_members_live_goes_on_without_junctions(
    victims: tuple[int, ...], entered: bool
) -> None:
    peers, members = under_way() if entered else entering(without=8)
    for victim in victims:
        peers.network.kill(victim)
    peers.settle(seconds=5)
    if not entered:
        members[7].enter()
        peers.settle()
    for member in members:
        assert member.error is None
        assert member.left
        np.testing.assert_equal(member.results, [8 * np.arange(4)] * 3)
    assert peers.leftovers() == 0


@pytest.mark.slow
def test_a_result_that_some_have_already_is_what_all_get() -> None:
    """A sum that is made again may differ in its last bits: it is not made again."""
    told = 0
    for seed in range(20):
        peers = SimulatedPeers(kary(4, 2), seed)  # junction 6 is above 3 and 4
        members = peers.add(range(1, 5), lambda rank: [(ADD, rank), (ADD, 1)])
        for member in members:
            member.enter()
        while not (members[0].results and members[1].results):
            peers.network.step()
            peers._hand_out()
        for rank in (1, 2):
            (group,) = peers.network.nodes[rank].groups.open.values()
            group.results[1] = (values.encode({"x": 77}).body, None)
        (above,) = peers.network.nodes[6].groups.open.values()
        told += 1 in above.rounds
        expected = 77 if 1 in above.rounds else 10
        peers.network.kill(6)
        peers.settle(seconds=5)
        assert members[2].results == members[3].results == [expected, 4]
    assert told


def late(member: SimulatedPeer, round_number: int) -> gev.BreakGroup:
    error = GroupError(f"member {member.rank} waited for 5 s").to_record()
    number = member.number or NO_GROUP
    return gev.BreakGroup(number, member.members, member.name, error, round_number)


@pytest.mark.row("C2-GROUP")
def test_a_time_out_names_who_has_not_come() -> None:
    peers = SimulatedPeers(kary(8, 2))
    members = peers.add(range(1, 9), lambda _: [(GroupCall("barrier"), None)] * 2)
    members[2].busy = True
    peers.play()
    assert [member.results for member in members] == [[]] * 8
    peers.network.post(1, late(members[0], 1))
    peers.settle()
    for member in members:
        assert isinstance(member.error, GroupError)
        assert "member 1 waited for 5 s" in member.error.what
        assert "not all of member[3-4] have come" in member.error.what
    assert peers.leftovers() == 0


def test_a_time_out_before_all_have_entered_names_who_has_not() -> None:
    peers = SimulatedPeers(kary(8, 2))
    members = peers.add(range(1, 9), allreduce)
    present = [member for member in members if member.rank != 4]
    peers.play(present)
    peers.network.post(3, late(members[2], 1))
    peers.settle()
    for member in present:
        assert isinstance(member.error, GroupError)
        assert "member 4 has not come" in member.error.what
    assert members[3].error is None
    assert peers.leftovers() == 0


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
@pytest.mark.slow
def test_whoever_gives_up_whenever_nobody_waits_for_ever(seed: int, agents: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    peers = SimulatedPeers(random_tree(agents, chance), seed)
    members = peers.add(range(1, agents + 1), allreduce)
    events = [member.enter for member in members]
    chance.shuffle(events)
    for enter in events:
        enter()
        for _ in range(chance.randint(0, 5)):
            peers.network.step()
            peers._hand_out()
    for _ in range(chance.randint(0, 3)):
        member = chance.choice(members)
        if not member.left and member.error is None:
            peers.network.post(member.rank, late(member, len(member.results) + 1))
        for _ in range(chance.randint(0, 5)):
            peers.network.step()
            peers._hand_out()
    peers.settle()
    assert all(member.left or member.error is not None for member in members)
    assert peers.leftovers() == 0


def test_who_ends_a_group_of_places_that_there_are_not_is_cut_off() -> None:
    network = Network(kary(4, 2))
    network.start()
    network.send(5, ROOT, GroupEnded(NO_GROUP, ((1, 99),), "", GroupError("no").to_record()))
    network.run()
    (problem,) = network.problems
    assert "ends a group of ranks that do not exist" in problem


def test_a_group_has_so_many_rounds_that_not_all_have_read_and_no_more() -> None:
    tree = kary(4, 2)
    members = MemberMap((((1, 3),), ""), Router(tree, ROOT), may_coordinate=True)
    group = OpenGroup(NO_GROUP, members, Mock())
    call = GroupCall("barrier")
    assert group.round(1, call) is group.round(1, call)
    assert group.round(MAX_UNCONFIRMED, call) is not None
    for number in (0, MAX_UNCONFIRMED + 1):
        with pytest.raises(GroupError, match="not all have read round 1"):
            group.round(number, call)
    group.confirmed = 2
    assert group.round(MAX_UNCONFIRMED + 2, call) is not None
    with pytest.raises(GroupError, match="not all have read round 3"):
        group.round(2, call)


def test_what_all_have_read_is_released_and_forgotten() -> None:
    members = MemberMap((((1, 3),), ""), Router(kary(4, 2), ROOT), may_coordinate=True)
    group = OpenGroup(NO_GROUP, members, Mock())
    ref = SharedRef(1, 2, 3, 4096, 0, 3)
    held, results = [
        {number: Payload(bytes(number), ref) for number in (1, 2, 3)} for _ in range(2)
    ]
    for number, payload in held.items():
        group.round(number, GroupCall("barrier"))
        group.hold(number, payload)
        group.hold(number, None)
        group.calls[number] = (Mock(), payload)
        group.results[number] = (b"", results[number])
    assert group.release(2) == [held[1], held[2], results[1], results[2]]
    for kept in (group.rounds, group.held, group.calls, group.results):
        assert list(kept) == [3]
    assert group.release(1) == []
    assert group.confirmed == 2
