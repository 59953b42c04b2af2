"""Authentication of places by their keys."""

import pytest

from sapwood.comm.place_keys import PlaceKeys, token_for

KEY = bytes(range(32))


def test_a_place_shows_each_place_above_something_else() -> None:
    keys = PlaceKeys(b"here", tokens={3: {0: b"root", 9: b"nine"}})
    assert [keys.shown(3, above) for above in (0, 9, 7)] == [b"root", b"nine", b"here"]
    assert keys.shown(4, 0) == b"here"


def test_a_junction_believes_a_token_of_its_own_key_only() -> None:
    keys = PlaceKeys(b"here", junctions={9: KEY, 10: KEY[::-1]})
    assert keys.accepts(3, token_for(KEY, 3), at=9)
    assert not keys.accepts(4, token_for(KEY, 3), at=9)
    assert not keys.accepts(3, token_for(KEY, 3), at=10)
    assert not keys.accepts(3, token_for(KEY, 3))


def test_a_junction_believes_the_places_of_its_machine() -> None:
    keys = PlaceKeys(b"here", junctions={9: KEY})
    assert keys.accepts(3, b"here", at=9)
    assert not keys.accepts(3, b"there", at=9)


def test_without_keys_nothing_is_what_is_shown() -> None:
    assert PlaceKeys().accepts(1, PlaceKeys().shown(1, above=0))
    assert not PlaceKeys().accepts(1, b"x")


@pytest.mark.parametrize("shown", [b"", b"x", bytes(32), bytes(64)])
def test_nonsense_is_not_believed(shown: bytes) -> None:
    keys = PlaceKeys(b"secret", expected={2: KEY}, junctions={9: KEY})
    assert not any(keys.accepts(rank, shown, at) for rank in range(5) for at in (0, 9))
