from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm.messaging import point_to_point
from sapwood.comm.messaging.envelope import ANY, check_receive, check_tag, to_ranks
from sapwood.comm.messaging.point_to_point import Matching, Receive
from sapwood.core.errors import CommunicationError, ConfigurationError

steps = st.lists(
    st.tuples(st.booleans(), st.sampled_from([ANY, 1, 2]), st.sampled_from([ANY, 5, 6])),
    max_size=40,
)


@pytest.mark.row("C2-MATCH")
@settings(deadline=None)  # other processes share the machine
@given(steps)
@pytest.mark.slow
def test_matching_is_what_two_lists_would_do(drawn: list[tuple[bool, int, int]]) -> None:
    matching: Matching[int] = Matching()
    receives: list[Receive] = []
    messages: list[tuple[int, int, int]] = []
    for number, (is_message, wild_source, wild_tag) in enumerate(drawn):
        source, tag = wild_source, wild_tag
        if is_message:
            source, tag = abs(source), abs(tag)
            wanted = next((one for one in receives if one.wants(source, tag)), None)
            assert matching.arrived(source, tag, 10, number) == wanted
            if wanted is not None:
                receives.remove(wanted)
            else:
                messages.append((source, tag, number))
        else:
            receive = Receive(number, source, tag)
            found = next((one for one in messages if receive.wants(*one[:2])), None)
            probed = matching.probe(source, tag)
            given_ = matching.posted(receive)
            assert probed == given_
            assert (given_.item if given_ else None) == (found[2] if found else None)
            if found is not None:
                messages.remove(found)
            else:
                receives.append(receive)
        assert len(matching) == len(messages)
        assert matching.nbytes == 10 * len(messages)


def test_a_receive_can_be_taken_back_while_it_waits() -> None:
    matching: Matching[str] = Matching()
    matching.posted(Receive(1, ANY, ANY))
    assert matching.cancel(1)
    assert not matching.cancel(1)
    assert matching.arrived(3, 3, 0, "x") is None


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_to_point, "MAX_UNEXPECTED", 2)
    monkeypatch.setattr(point_to_point, "MAX_UNEXPECTED_BYTES", 100)
    monkeypatch.setattr(point_to_point, "MAX_RECEIVES", 1)
    matching: Matching[str] = Matching()
    assert matching.has_room(1000)  # a single one always has
    matching.arrived(1, 1, 60, "a")
    assert matching.has_room(40)
    assert not matching.has_room(41)
    matching.arrived(1, 1, 1, "b")
    assert not matching.has_room(0)
    matching.posted(Receive(1, 9, 9))
    with pytest.raises(CommunicationError, match="more than 1 receives"):
        matching.posted(Receive(2, 9, 9))


def test_messages_of_a_place_can_be_dropped() -> None:
    matching: Matching[str] = Matching()
    for item in ("a", "b"):
        matching.arrived(1, 1, 5, item)
    matching.drop(1, "a")
    assert matching.from_source(1) == ["b"]
    assert matching.nbytes == 5


@pytest.mark.parametrize("tag", [-1, 2**63, 1.0, "1", None, True])
def test_what_is_no_tag(tag: object) -> None:
    with pytest.raises(ConfigurationError, match="not a tag"):
        check_tag(tag)


@pytest.mark.parametrize("destination", [[], ["a"], [1, None]])
def test_where_nothing_can_be_sent(destination: list[int]) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a rank|no destination"):
        to_ranks(destination)


def test_each_place_gets_a_message_once() -> None:
    assert to_ranks([3, 1, 3]) == (3, 1)
    assert to_ranks(7) == (7,)


class Uncomparable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("compared")


@pytest.mark.parametrize(
    ("source", "tag"), [(Uncomparable(), 1), (9, 1), ("1", 1), (1, Uncomparable()), (1, -2)]
)
def test_what_no_receive_can_wait_for(source: object, tag: object) -> None:
    with pytest.raises(ConfigurationError):
        check_receive(source, tag, [1, 2])


def test_a_receive_may_wait_for_anything() -> None:
    check_receive(ANY, ANY, [1, 2])
    check_receive(0, 2**63 - 1, [1, 2])
