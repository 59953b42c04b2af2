"""The shapes of trees between machines."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ConfigurationError
from sapwood.core.host_tree import parse_shape, read_host_tree, shaped
from sapwood.core.topology import by_host, gateways


def depth(above: list[int], machine: int) -> int:
    return 0 if not machine else 1 + depth(above, above[machine - 1])


def subtree(above: list[int], top: int) -> list[int]:
    found = [top]
    for one in found:
        found += [child for child, parent in enumerate(above, start=1) if parent == one]
    return sorted(found)


@given(st.integers(0, 200), st.integers(2, 20), st.sampled_from(["kary", "knomial"]))
def test_machines_below_one_follow_it(count: int, number: int, kind: str) -> None:
    above = shaped(f"{kind}:{number}", count)
    assert len(above) == count
    for top in range(count + 1):
        mine = subtree(above, top)
        assert mine == list(range(top, top + len(mine)))


@given(st.integers(1, 400), st.integers(2, 20))
def test_a_kary_tree_is_no_wider_and_no_deeper_than_it_must_be(count: int, fanout: int) -> None:
    above = shaped(f"kary:{fanout}", count)
    assert max(above.count(parent) for parent in range(count + 1)) <= fanout
    levels, room = 0, 0
    while room < count:
        levels += 1
        room += fanout**levels
    assert max(depth(above, machine) for machine in range(1, count + 1)) <= levels + 1


@given(st.integers(1, 200), st.integers(2, 8))
def test_a_knomial_tree_has_as_many_levels_as_steps(count: int, radix: int) -> None:
    above = shaped(f"knomial:{radix}", count)
    deepest = max(depth(above, machine) for machine in range(1, count + 1))
    assert deepest <= math.ceil(math.log(count + 1, radix) + 1e-9)


def test_up_to_the_fan_out_all_are_below_the_root() -> None:
    assert shaped("kary:16", 16) == [0] * 16 == shaped("flat", 16)
    assert len(set(shaped("kary:16", 17))) == 2


@pytest.mark.parametrize("text", ["", "kary", "kary:1", "kary:x", "knomial:", "flat:2", "file:"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a shape"):
        parse_shape(text)


def test_a_file_says_who_is_below_whom() -> None:
    names = ["n1", "n2", "n3", "n4", "n5"]
    text = 'root = ["n2"]\nn2 = ["n[4-5]"]\nn4 = ["n1"]\n'
    assert read_host_tree(text, names, "x") == [4, 0, 0, 2, 2]


def test_the_former_name_of_the_root_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="tree.toml: the root is called root now"):
        assert read_host_tree('head = ["n2"]\nn2 = ["n1"]', ["n1", "n2"], "tree.toml") == [2, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1 =", "not TOML"),
        ('n1 = "n2"', "not a list of texts"),
        ("n1 = [2]", "not a list of texts"),
        ('n1 = ["n9"]', "'n9' is not a machine"),
        ('n9 = ["n1"]', "'n9' is not a machine"),
        ('n1 = ["n3"]\nn2 = ["n3"]', "n3 is below two machines"),
        ('n1 = ["root"]', "root is below two machines"),
        ('n1 = ["n2"]\nn2 = ["n1"]', "is below itself"),
    ],
)
def test_a_file_that_is_wrong_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_host_tree(text, ["n1", "n2", "n3"], "tree.toml")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30).filter(any), st.integers(2, 5))
def test_each_machine_has_one_junction_over_all_that_leaves_it(
    shares: list[int], fanout: int
) -> None:
    above = shaped(f"kary:{fanout}", len(shares))
    tree, hosts = by_host(shares, above)
    for machine, share in enumerate(shares, start=1):
        mine = [rank for rank in tree.agent_ranks if hosts[rank] == machine]
        assert len(mine) == share
        tops = [
            rank
            for rank, host in enumerate(hosts)
            if host == machine and hosts[tree.parents[rank]] != machine
        ]
        assert len(tops) == (share > 0 or machine in above)
        for rank in tops:
            assert hosts[tree.parents[rank]] == above[machine - 1]
            leaves = tree.leaves(rank)
            assert list(leaves) == list(range(leaves[0], leaves[-1] + 1)) if leaves else True
    inner = {hosts[rank] for rank in gateways(tree, hosts)}
    assert inner == set(above) - {0} if all(shares) else inner <= set(above)
