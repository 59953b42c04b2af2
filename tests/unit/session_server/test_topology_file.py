import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT, Tree, flat, kary, knomial
from sapwood.session_server.topology_file import parse_topology, write_topology

EXAMPLE = """
# two racks
front: left right 9
left  @ n1:     1-4   # four agents
right @ n[2-3]: 5 6, 7-8
"""


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Draw a tree of any shape whose places cover runs of agents."""
    agents = draw(st.integers(1, 30))
    parents = [-1, *([ROOT] * agents)]
    todo = [(ROOT, list(range(1, agents + 1)))]
    for above, mine in todo:
        cuts = draw(st.lists(st.integers(1, len(mine)), max_size=3, unique=True))
        for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(mine)], strict=True):
            group = mine[start:stop]
            if len(group) > 1 and len(group) < len(mine) and draw(st.booleans()):
                parents.append(above)
                todo.append((len(parents) - 1, group))
            else:
                for rank in group:
                    parents[rank] = above
    return Tree(agents, tuple(parents))


@given(st.one_of(trees(), st.builds(knomial, st.integers(1, 40), st.integers(2, 4))))
def test_what_is_written_is_read_as_it_was(tree: Tree) -> None:
    assert parse_topology(write_topology(tree)).tree == tree


@given(st.integers(1, 40), st.integers(2, 5))
def test_a_deep_tree_is_read_as_it_was_written(agents: int, fanout: int) -> None:
    tree = kary(agents, fanout)
    assert parse_topology(write_topology(tree)).tree == tree
    assert parse_topology(write_topology(tree), spares=True).tree == kary(
        agents, fanout, spares=True
    )


def test_names_ranges_and_remarks_are_read() -> None:
    with pytest.raises(ConfigurationError, match="'front' has no hosts, and line 4 has"):
        parse_topology(EXAMPLE)
    planned = parse_topology(EXAMPLE.replace("front:", "front @ n4:"))
    tree = planned.tree
    assert [tree.children(rank) for rank in (0, 10)] == [[10, 11, 9], [1, 2, 3, 4]]
    assert planned.hosts == ("", *["n1"] * 4, "n2", "n2", "n3", "n3", "n4", "n1", "n2")
    assert parse_topology(write_topology(tree, planned.hosts)) == planned


def test_hosts_that_a_file_cannot_say_are_not_written() -> None:
    with pytest.raises(ConfigurationError, match="cannot be written down"):
        write_topology(flat(3), ("", "a", "b", "a"))
    for tree in (flat(2).without([1]), kary(4, 2, spares=True)):
        with pytest.raises(ConfigurationError, match="cannot be written down"):
            write_topology(tree)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "no line begins with 'front'"),
        ("left: 1", 1, "no line begins with 'front'"),
        ("front: 1-3\n\nfront: 4", 3, "has line 1 already"),
        ("front: left\nleft 1-3", 2, "not a place with its children"),
        ("front @: 1", 1, "not a place with its children"),
        ("front @ n[1: 1", 1, "is not a set of hosts"),
        ("# a\nfront: 1 2 2", 2, "agent 2 is in line 2 already"),
        ("front: a 1-2\na: 2-3", 2, "agent 2 is in line 1 already"),
        ("front: 1 3", 1, "agent 3 is there, and agent 2 is not"),
        ("front: 0-2", 1, "names no agents"),
        ("front: 4-2", 1, "names no agents"),
        ("front: 1-9999999", 1, "names no agents"),
        ("front: 1 +", 1, "neither an agent nor a junction"),
        ("front:", 1, "without children"),
        ("front: a\na: b\nb: a", 1, "no agent is given"),
        ("front: a 1", 1, "'a' has no line"),
        ("front: a a\na: 1", 1, "'a' is in line 1 already"),
        ("front: a\na: 1 front", 2, "has no parent"),
        ("front: 1\na: 2", 2, "'a' has no parent"),
        ("front: 1\na: b 2\nb: a 3", 2, "'a' is above itself"),
        ("front: 2 1", 1, "not one run"),
        ("front: a 2\na: 1 3", 1, "not one run"),
        ("front: a\na @ n[1-3]: 1 2", 2, "3 hosts are too many for 2 agents"),
    ],
)
def test_an_error_names_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        parse_topology(text, "racks.topology")
    assert caught.value.where == f"racks.topology, line {line}"


@given(st.text(alphabet="front:ab123-,@[] #\n", max_size=60))
def test_any_text_is_a_tree_or_an_error_with_a_line(text: str) -> None:
    try:
        tree = parse_topology(text).tree
    except ConfigurationError as error:
        if "line" not in error.where:
            raise
        return
    assert sorted(tree.subtree(ROOT)) == list(range(tree.size))
    assert tree.leaves(ROOT) == tuple(range(1, tree.agents + 1))
