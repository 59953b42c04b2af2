import itertools

import pytest

from sapwood.core.errors import InternalError
from sapwood.core.topology import flat, kary
from sapwood.session.places import TRANSITIONS, PlaceEvent, PlaceRecord, Places, PlaceState


@pytest.mark.parametrize(("state", "event"), [*itertools.product(PlaceState, PlaceEvent)], ids=str)
def test_the_table_is_what_happens(state: PlaceState, event: PlaceEvent) -> None:
    record = PlaceRecord(3)
    record.state = state
    if (state, event) in TRANSITIONS:
        record.advance(event)
        assert record.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(InternalError, match=f"rank 3 got {event.value} while {state.value}"):
            record.advance(event)
        assert record.state is state


def test_all_ready_means_everybody() -> None:
    places = Places(kary(4, 2))
    for rank in range(1, 7):
        assert not places.all_ready()
        places[rank].advance(PlaceEvent.JOINED)
    assert places.all_ready()
    places[3].advance(PlaceEvent.CUT_OFF)
    assert not places.all_ready()


def test_agents_are_the_leaves_in_order() -> None:
    assert [record.rank for record in Places(kary(4, 2)).agents()] == [1, 2, 3, 4]


def test_a_record_says_what_it_is() -> None:
    assert repr(PlaceRecord(3)) == "PlaceRecord(3, starting, pid 0)"


def test_places_are_gone_until_their_process_is_there() -> None:
    places = Places(flat(3))
    for rank in (1, 2, 3):
        places[rank].advance(PlaceEvent.JOINED)
    places[1].advance(PlaceEvent.CUT_OFF)
    places[2].advance(PlaceEvent.GONE)
    assert places.gone((1, 2, 3)) == [2]
    places[2].advance(PlaceEvent.SPAWNED)
    assert places.gone((1, 2, 3)) == [2]
