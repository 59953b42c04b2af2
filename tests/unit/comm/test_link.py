import itertools
from typing import Any

import msgspec
import pytest

from sapwood.comm.link import TRANSITIONS, Identity, Link, LinkEvent, LinkState
from sapwood.core.errors import ProtocolError

ME = Identity("cluster", 0, 1, 100, "machine", b"secret")
PEER = Identity("cluster", 3, 2, 300, "machine", b"secret")


def link_in(state: LinkState) -> Link:
    link = Link(7, initiator=False, now=0.0)
    link.state = state
    return link


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=str)
def test_the_table_is_what_happens(state: LinkState, event: LinkEvent) -> None:
    link = link_in(state)
    link.advance(event)
    assert link.state is TRANSITIONS[state, event]


@pytest.mark.parametrize(
    ("state", "event"),
    [pair for pair in itertools.product(LinkState, LinkEvent) if pair not in TRANSITIONS],
    ids=str,
)
def test_every_pair_outside_the_table_is_a_mistake(state: LinkState, event: LinkEvent) -> None:
    link = link_in(state)
    with pytest.raises(ProtocolError, match=f"{event.value} while {state.value}"):
        link.advance(event)
    assert link.state is state


def test_a_link_can_be_closed_in_every_state_and_nothing_follows() -> None:
    for state in LinkState:
        if state is not LinkState.CLOSED:
            assert TRANSITIONS[state, LinkEvent.CLOSED] is LinkState.CLOSED
        assert (LinkState.CLOSED, LinkEvent.OPENED) not in TRANSITIONS


def greeted() -> Link:
    link = Link(7, initiator=False, now=0.0)
    link.advance(LinkEvent.OPENED)
    link.greet(PEER.hello(), ME)
    return link


def test_a_greeting_tells_who_is_there() -> None:
    link = greeted()
    assert (link.rank, link.incarnation, link.pid) == (3, 2, 300)
    assert link.same_machine
    assert link.usable


def test_only_processes_of_one_machine_share_memory() -> None:
    link = Link(7, initiator=False, now=0.0)
    link.advance(LinkEvent.OPENED)
    link.greet(msgspec.structs.replace(PEER, machine="elsewhere").hello(), ME)
    assert not link.same_machine


@pytest.mark.parametrize("change", [{"version": 99}, {"version": 0}, {"cluster": "other"}])
def test_a_greeting_of_another_version_or_cluster_is_refused(change: dict[str, Any]) -> None:
    link = Link(7, initiator=False, now=0.0)
    link.advance(LinkEvent.OPENED)
    with pytest.raises(ProtocolError):
        link.greet(msgspec.structs.replace(PEER.hello(), **change), ME)
    assert not link.usable


def test_a_welcome_of_another_version_is_refused() -> None:
    link = Link(7, initiator=True, now=0.0)
    link.advance(LinkEvent.OPENED)
    with pytest.raises(ProtocolError, match="version 9"):
        link.greet(msgspec.structs.replace(PEER.welcome(), version=9), ME)


def test_a_suspect_neighbour_that_is_heard_is_trusted_again() -> None:
    link = greeted()
    link.advance(LinkEvent.SILENT)
    assert link.usable
    link.heard(5.0)
    assert link.state is LinkState.UP
    assert link.last_heard == 5.0


def test_a_link_says_what_it_is() -> None:
    assert repr(greeted()) == "Link(7, up, rank 3, pid 300)"
