import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT, Tree, by_host, flat, kary, knomial
from wave_cost import LinkCost, WaveLoad, predict

LINK = LinkCost(latency=20e-6, overhead=5e-6, per_byte=1e-9)

trees = st.one_of(
    st.builds(flat, st.integers(1, 40)),
    st.builds(kary, st.integers(1, 40), st.integers(2, 6), spares=st.booleans()),
    st.builds(knomial, st.integers(1, 40), st.integers(2, 4), spares=st.booleans()),
)
loads = st.builds(WaveLoad, st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())


@pytest.mark.row("C3-TOPO")
@given(trees, loads)
def test_each_link_has_a_message_each_way(tree: Tree, load: WaveLoad) -> None:
    cost = predict(tree, load, LINK)
    edges = tree.size - 1 - len(tree.spares)
    assert cost.messages == 2 * edges
    assert cost.messages == sum(
        place.messages_down + (0 if tree.is_agent(place.rank) else place.messages_up)
        for place in cost.places
    )
    root = cost.places[ROOT]
    assert root.bytes_down == len(tree.children(ROOT)) * load.down - (
        load.down * sum(spare in tree.children(ROOT) for spare in tree.spares)
    )
    if load.grows:
        assert root.bytes_up == tree.agents * load.up
    else:
        assert root.bytes_up == root.messages_up * load.up


def test_a_tree_of_two_places_takes_four_overheads_and_two_latencies() -> None:
    cost = predict(flat(1), WaveLoad(1000, 500), LINK)
    assert cost.seconds == pytest.approx(4 * 5e-6 + 2 * 20e-6 + 1500e-9)


def test_the_client_takes_two_overheads_for_each_child() -> None:
    few, more = (predict(flat(count), WaveLoad(0, 0), LINK).seconds for count in (100, 200))
    assert more - few == pytest.approx(100 * 5e-6 * 2, rel=0.05)


def test_deep_trees_win_when_there_are_many_agents_and_cores() -> None:
    shallow, deep = (
        predict(tree, WaveLoad(8, 8), LINK).seconds for tree in (flat(1000), kary(1000, 10))
    )
    assert deep < shallow / 5
    one_core = [
        predict(tree, WaveLoad(8, 8), LINK, cores=1).seconds for tree in (flat(64), kary(64, 4))
    ]
    assert one_core[0] < one_core[1]  # junctions are more work for the only core


def test_only_links_between_hosts_cost_what_they_cost() -> None:
    tree, hosts = by_host([4, 4])
    far = LinkCost(1e-3, 5e-6, 1e-9)
    near = predict(tree, WaveLoad(100, 10), LINK, hosts=hosts)
    cost = predict(tree, WaveLoad(100, 10), LINK, far, hosts)
    assert cost.between_hosts == 2 * 110
    assert cost.seconds == pytest.approx(near.seconds + 2 * (1e-3 - 20e-6))
    with pytest.raises(ConfigurationError, match="hosts for"):
        predict(tree, WaveLoad(1, 1), LINK, hosts=hosts[1:])
