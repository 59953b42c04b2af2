"""Numbers of nodes, from head to head."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.head.calls import NodeRecord
from sapwood.head_client.numbers import NodeNumbers


def record(host: int, node: str) -> NodeRecord:
    return NodeRecord(host=host, name=node or "new", node=node, state="ready")


heads = st.lists(st.permutations(list("abcdef")).map(lambda some: some[:4]), min_size=1, max_size=5)


@given(heads)
def test_a_node_has_one_number_and_no_two_have_the_same(heads: list[list[str]]) -> None:
    numbers, known = NodeNumbers(), dict[str, int]()
    for nodes in heads:
        numbers.begin()
        for host, node in enumerate(nodes, 1):
            here = numbers.taken(record(host, node)).host
            assert known.setdefault(node, here) == here
            assert numbers.at_head(here) == host
            assert numbers.here(host) == here
        assert len(set(known.values())) == len(known)


def test_a_node_that_is_known_by_its_id_only_later_gets_its_number_back() -> None:
    numbers = NodeNumbers()
    assert numbers.taken(record(1, "a")).host == 1
    numbers.begin()
    assert numbers.taken(record(1, "")).host == 2
    assert numbers.taken(record(1, "a")).host == 1
    assert numbers.here(1) == 1


def test_what_the_head_did_not_tell_of_has_no_number() -> None:
    numbers = NodeNumbers()
    assert numbers.here(4) == 0
    assert numbers.at_head(4) == 0
