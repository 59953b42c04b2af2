"""Who is believed to be which place."""

import pytest

from sapwood.comm.place_keys import PlaceKeys
from sapwood.session.host import KEY, new_keys

HOSTS = (0, 1, 1, 2, 0, 1)
"""Machines of the places 0 to 5."""


def test_places_of_one_machine_have_one_secret() -> None:
    (keys,) = new_keys(()).values()
    assert len(keys.secret) == KEY
    assert keys.accepts(3, keys.shown(3, above=0))
    assert keys.accepts(3, keys.shown(4, above=7))


def test_each_machine_has_a_secret_of_its_own() -> None:
    keys = new_keys(HOSTS)
    assert len({one.secret for one in keys.values()}) == 3
    assert keys[1].accepts(2, keys[1].shown(2, above=5))
    assert not keys[2].accepts(2, keys[1].shown(2, above=5))


def test_the_root_believes_a_place_its_own_token_only() -> None:
    keys = new_keys(HOSTS)
    root = keys[0]
    for rank, host in enumerate(HOSTS):
        assert root.accepts(rank, keys[host].shown(rank, above=0))
        for other in range(len(HOSTS)):
            if other != rank and HOSTS[other] + host:
                assert not root.accepts(other, keys[host].shown(rank, above=0))


def test_a_machine_cannot_speak_for_places_of_another() -> None:
    """Whoever has all that machine 1 was given knows nothing that the root takes for machine 2."""
    keys = new_keys(HOSTS)
    stolen = {keys[1].secret, *keys[1].tokens.values()}
    assert not any(keys[0].accepts(rank, one) for rank in (3, 4) for one in stolen)
    assert not keys[1].expected
    assert keys[1].tokens.keys() == {1, 2, 5}


@pytest.mark.parametrize("shown", [b"", b"x", bytes(KEY), bytes(2 * KEY)])
def test_nonsense_is_not_believed(shown: bytes) -> None:
    root = new_keys(HOSTS)[0]
    assert not any(root.accepts(rank, shown) for rank in range(len(HOSTS)))


def test_without_keys_nothing_is_what_is_shown() -> None:
    assert PlaceKeys().accepts(1, PlaceKeys().shown(1, above=0))
    assert not PlaceKeys().accepts(1, b"x")
