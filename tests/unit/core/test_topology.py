import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT, Tree, by_host, flat, kary, knomial, plan

agents_and_fanouts = st.tuples(st.integers(1, 70), st.integers(2, 9))


@given(agents_and_fanouts)
def test_every_place_is_reached_exactly_once_from_the_root(shape: tuple[int, int]) -> None:
    tree = kary(*shape)
    order = tree.subtree(ROOT)
    assert sorted(order) == list(range(tree.size))
    assert tree.leaves(ROOT) == tuple(range(1, shape[0] + 1))


@given(agents_and_fanouts)
def test_no_place_has_more_children_than_the_fanout(shape: tuple[int, int]) -> None:
    agents, fanout = shape
    tree = kary(agents, fanout)
    assert all(len(tree.children(rank)) <= fanout for rank in range(tree.size))
    assert all(not tree.children(rank) for rank in range(1, agents + 1))
    assert all(tree.children(rank) for rank in tree.junctions)


@given(agents_and_fanouts)
def test_every_place_covers_a_contiguous_run_of_agents_in_the_order_of_ranks(
    shape: tuple[int, int],
) -> None:
    tree = kary(*shape)
    for rank in (ROOT, *tree.junctions):
        leaves = tree.leaves(rank)
        assert leaves == tuple(range(leaves[0], leaves[-1] + 1))
        from_children = [leaf for child in tree.children(rank) for leaf in tree.leaves(child)]
        assert tuple(from_children) == leaves


@given(agents_and_fanouts)
def test_the_depth_is_the_least_one_for_the_fanout(shape: tuple[int, int]) -> None:
    agents, fanout = shape
    tree = kary(agents, fanout)
    least, reach = 1, fanout
    while reach < agents:
        least, reach = least + 1, reach * fanout
    assert max(len(list(tree.ancestors(rank))) for rank in range(1, agents + 1)) == least


@given(agents_and_fanouts)
def test_ancestors_and_parents_agree(shape: tuple[int, int]) -> None:
    tree = kary(*shape)
    for rank in range(1, tree.size):
        above = list(tree.ancestors(rank))
        assert above[-1] == ROOT
        assert rank in tree.children(above[0])
        assert rank in tree.subtree(above[0])


def test_children_come_after_their_parents_in_a_subtree() -> None:
    tree = kary(11, 2)
    order = tree.subtree(ROOT)
    for rank in order[1:]:
        assert order.index(tree.parents[rank]) < order.index(rank)


def test_a_flat_tree_has_no_junctions() -> None:
    tree = flat(5)
    assert tree.children(ROOT) == [1, 2, 3, 4, 5]
    assert list(tree.junctions) == []
    assert [rank for rank in range(tree.size) if tree.is_agent(rank)] == [1, 2, 3, 4, 5]


def test_a_plan_is_flat_without_a_fanout() -> None:
    assert plan(5, 0) == flat(5)
    assert plan(5, 2) == kary(5, 2)


@pytest.mark.parametrize(("agents", "fanout"), [(0, 2), (-1, 2), (3, 1), (3, -2)])
def test_impossible_trees_are_refused(agents: int, fanout: int) -> None:
    with pytest.raises(ConfigurationError, match=r"at least"):
        kary(agents, fanout)


def test_a_tree_travels_as_it_is() -> None:

    tree = kary(9, 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(tree), type=Tree) == tree


@given(agents_and_fanouts)
def test_spares_are_junctions_beside_others_and_cover_what_these_do(
    shape: tuple[int, int],
) -> None:
    agents, fanout = shape
    tree, plain = kary(agents, fanout, spares=True), kary(agents, fanout)
    assert tree.parents[: plain.size] == plain.parents
    assert set(tree.spares) == set(range(plain.size, tree.size))
    for spare in tree.spares:
        assert not tree.children(spare)
        assert not tree.is_agent(spare)
        beside = [one for one in tree.children(tree.parents[spare]) if one in plain.junctions]
        assert beside
        assert tree.leaves(spare) == tuple(sorted(r for one in beside for r in tree.leaves(one)))
    for rank in range(1, tree.size):
        above = tree.above(rank)
        assert [one for one in above if one not in tree.spares] == list(tree.ancestors(rank))
        assert above[-1] == ROOT
        for position, one in enumerate(above):
            if one in tree.spares:
                assert tree.spare_beside(above[position - 1]) == one


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
def test_one_contribution_leaves_each_host(shares: list[int]) -> None:
    tree, hosts = by_host(shares)
    assert len(hosts) == tree.size
    assert sorted(tree.subtree(ROOT)) == list(range(tree.size))
    for host, share in enumerate(shares, start=1):
        mine = [rank for rank in tree.agent_ranks if hosts[rank] == host]
        assert len(mine) == share
        leaving = [
            rank for rank in range(1, tree.size) if hosts[rank] == host and tree.parents[rank] == 0
        ]
        assert len(leaving) == min(share, 1)
        above = [rank for rank in tree.junctions if hosts[rank] == host]
        assert len(above) == (share > 1)
        for junction in above:
            assert tree.children(junction) == mine
    assert hosts[ROOT] == 0


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
def test_the_agents_of_a_host_are_a_contiguous_run(shares: list[int]) -> None:
    _, hosts = by_host(shares)
    agents = hosts[1 : sum(shares) + 1]
    assert list(agents) == sorted(agents)


def test_hosts_without_agents_make_no_tree() -> None:
    with pytest.raises(ConfigurationError, match="at least one agent"):
        by_host([0, 0])


# --- the next epoch -------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(2, 5), st.booleans(), st.data())
@pytest.mark.slow
def test_a_rank_is_given_once_and_homes_stay(
    agents: int, fanout: int, spares: bool, data: st.DataObject
) -> None:
    tree = kary(agents, fanout, spares=spares)
    ever = set(range(tree.size))
    for epoch in range(1, 8):
        before = tree
        if data.draw(st.booleans()) or not tree.agents:
            homes = [ROOT, *(rank for rank in tree.junctions if rank not in tree.spares)]
            several = data.draw(st.lists(st.sampled_from(homes), min_size=1, max_size=3))
            new = dict(enumerate(several, start=tree.size))
            tree = tree.with_agents(new)
            assert not ever & new.keys()
            ever |= new.keys()
            assert all(rank in tree.children(parent) for rank, parent in new.items())
        else:
            rank = data.draw(st.sampled_from([*tree.agent_ranks, *tree.junctions]))
            gone = tree.subtree(rank)
            tree = tree.without(gone)
            assert all(one not in tree for one in gone)
            assert set(gone).isdisjoint(tree.subtree(ROOT))
        assert tree.epoch == epoch
        assert tree.parents[: before.size] == before.parents
        assert len(tree.subtree(ROOT)) == tree.places
        kinds = sorted([ROOT, *tree.agent_ranks, *tree.junctions])
        assert kinds == sorted(tree.subtree(ROOT))
        assert tree.agents == len(tree.agent_ranks)
        for rank in tree.agent_ranks:
            assert tree.is_agent(rank)
            assert all(rank in tree.leaves(above) for above in tree.above(rank))


@pytest.mark.parametrize("places", [{}, {6: 0}, {8: 0}, {7: 1}, {7: 9}, {7: 0, 9: 0}], ids=str)
def test_a_rank_that_is_not_the_next_and_a_home_that_is_none_are_refused(
    places: dict[int, int],
) -> None:
    with pytest.raises(ConfigurationError):
        kary(4, 2).with_agents(places)


@pytest.mark.parametrize("ranks", [[], [0], [7], [5], [1, 5], [-1]], ids=str)
def test_what_is_no_place_or_has_children_that_stay_is_not_removed(ranks: list[int]) -> None:
    with pytest.raises(ConfigurationError):
        kary(4, 2).without(ranks)


def test_a_place_is_not_removed_twice() -> None:
    tree = flat(2).without([1])
    with pytest.raises(ConfigurationError, match="cannot be removed"):
        tree.without([1])
    with pytest.raises(ConfigurationError, match="cannot have children"):
        kary(4, 2).without([1, 2, 5]).with_agents({7: 5})


@given(st.integers(1, 90), st.integers(2, 5))
def test_a_k_nomial_tree_has_each_agent_once_below_few_children(agents: int, k: int) -> None:
    tree = knomial(agents, k)
    assert sorted(tree.subtree(ROOT)) == list(range(tree.size))
    levels = 0
    while k**levels < agents:
        levels += 1
    for rank in (ROOT, *tree.junctions):
        leaves = tree.leaves(rank)
        assert leaves == tuple(range(leaves[0], leaves[-1] + 1))
        children = tree.children(rank)
        assert len(children) <= levels * (k - 1) + 1
        assert len(children) > 1 or agents == 1
        assert tree.is_agent(children[0])
        below = [len(tree.leaves(child)) for child in children[:-1]]
        assert below == sorted(below)  # the last one has what is left
    assert max(len(list(tree.ancestors(rank))) for rank in range(1, agents + 1)) <= max(1, levels)
    assert knomial(agents, k, spares=True).parents[: tree.size] == tree.parents


@pytest.mark.parametrize("level", range(1, 6))
@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_whole_k_nomial_tree_is_made_of_k_smaller_ones(level: int, k: int) -> None:
    whole, smaller = knomial(k**level, k), knomial(k ** (level - 1), k)
    below = whole.children(ROOT)[1 - k :]  # the client stands for the first of them
    assert [len(whole.leaves(child)) for child in below] == [k ** (level - 1)] * (k - 1)
    assert len(whole.children(ROOT)) - (k - 1) == len(smaller.children(ROOT))


@pytest.mark.parametrize(("agents", "k"), [(0, 2), (3, 1), (3, 0)])
def test_impossible_k_nomial_trees_are_refused(agents: int, k: int) -> None:
    with pytest.raises(ConfigurationError, match=r"at least"):
        knomial(agents, k)
