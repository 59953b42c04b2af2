from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT, Tree, kary, knomial
from sapwood.session_server.topology_file import parse_topology

EXAMPLE = """
# two racks
root = ["left", "right", "9"]
left = ["1-4"]  # four agents
right = ["5", "6", "7-8"]
"""


def written(tree: Tree) -> str:
    """Return a file that describes a tree."""
    names = {rank: f"j{rank}" for rank in tree.junctions} | {ROOT: "root"}
    return "".join(
        f"{names[rank]} = {[names.get(child, str(child)) for child in tree.children(rank)]}\n"
        for rank in [ROOT, *tree.junctions]
    )


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
@pytest.mark.slow
def test_what_is_written_is_read_as_it_was(tree: Tree) -> None:
    assert parse_topology(written(tree)) == tree


@given(st.integers(1, 40), st.integers(2, 5))
def test_a_deep_tree_is_read_as_it_was_written(agents: int, fanout: int) -> None:
    tree = kary(agents, fanout)
    assert parse_topology(written(tree)) == tree
    assert parse_topology(written(tree), spares=True) == kary(agents, fanout, spares=True)


def test_names_ranges_and_remarks_are_read() -> None:
    tree = parse_topology(EXAMPLE)
    assert [tree.children(rank) for rank in (0, 10)] == [[10, 11, 9], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("", "", "no line begins with root"),
        ('left = ["1"]', "", "no line begins with root"),
        ('root = ["1-3"]\nroot = ["4"]', "", "not TOML"),
        ("front: left right", "", "not TOML"),
        ('root = "1-3"', "", "not a list of texts"),
        ("root = [1]", "", "not a list of texts"),
        ('root = ["1", "2", "2"]', "root", "agent 2 is below two places"),
        ('root = ["a", "1-2"]\na = ["2-3"]', "a", "agent 2 is below two places"),
        ('root = ["1", "3"]', "", "agent 3, and not agent 2"),
        ('root = ["0-2"]', "root", "is not a range of agents"),
        ('root = ["4-2"]', "root", "is not a range of agents"),
        ('root = ["1-9999999"]', "root", "is not a range of agents"),
        ("root = []", "root", "without children"),
        ('root = ["a"]\na = ["b"]\nb = ["a"]', "", "names no agent"),
        ('root = ["a", "1"]', "root", "'a' has no line"),
        ('root = ["a", "a"]\na = ["1"]', "root", "'a' is below two places"),
        ('root = ["a"]\na = ["1", "root"]', "a", "the root is below another vertex"),
        ('root = ["1"]\na = ["2"]', "a", "'a' is not below the root"),
        ('root = ["1"]\na = ["b", "2"]\nb = ["a", "3"]', "a", "'a' is not below the root"),
        ('root = ["2", "1"]', "root", "not in the order"),
        ('root = ["a", "2"]\na = ["1", "3"]', "root", "not in the order"),
    ],
)
def test_an_error_names_its_key(text: str, key: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        parse_topology(text, "racks.toml")
    assert caught.value.where == ("racks.toml" + f", {key}" * bool(key))


@given(st.text(alphabet='rotab123-,="[] #\n', max_size=60))
def test_any_text_is_a_tree_or_an_error(text: str) -> None:
    try:
        tree = parse_topology(text)
    except ConfigurationError:
        return
    assert sorted(tree.subtree(ROOT)) == list(range(tree.size))
    assert tree.leaves(ROOT) == tuple(range(1, tree.agents + 1))
