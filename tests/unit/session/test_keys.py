"""Which machine of a session knows what."""

from __future__ import annotations

import msgspec
import pytest

from sapwood.comm.place_keys import PlaceKeys
from sapwood.core.topology import ROOT, by_host, flat, gateways
from sapwood.session.keys import KEY, SessionKeys

TREE, HOSTS = by_host([2, 2, 1, 2], [0, 1, 2, 0])
"""Machine 2 is below machine 1, 3 below 2, and 4 below the root."""

MACHINES = (1, 2, 3, 4)


def every(keys: SessionKeys) -> dict[int, PlaceKeys]:
    return {host: keys.of(host, TREE, HOSTS) for host in (0, *MACHINES)}


def test_places_of_one_machine_have_one_secret() -> None:
    keys = SessionKeys(flat(4), ()).of(0, flat(4), ())
    assert len(keys.secret) == KEY
    assert keys.accepts(3, keys.shown(3, above=0))
    assert keys.accepts(3, keys.shown(4, above=7))


def test_each_machine_has_a_secret_of_its_own() -> None:
    keys = every(SessionKeys(TREE, HOSTS))
    assert len({one.secret for one in keys.values()}) == 5


def test_each_place_is_believed_wherever_it_may_be_attached() -> None:
    keys = every(SessionKeys(TREE, HOSTS))
    for rank in TREE.subtree(ROOT)[1:]:
        for above in TREE.above(rank):
            shown = keys[HOSTS[rank]].shown(rank, above)
            assert keys[HOSTS[above]].accepts(rank, shown, at=above)
            if HOSTS[above] != HOSTS[rank]:
                assert shown != keys[HOSTS[rank]].secret


def test_what_a_machine_knows_makes_it_no_other_place() -> None:
    """Neither what it shows nor what it is shown is believed anywhere else."""
    keys = every(SessionKeys(TREE, HOSTS))
    inner = gateways(TREE, HOSTS)
    for thief in MACHINES:
        stolen = {keys[thief].secret, *keys[thief].junctions.values()}
        for tokens in keys[thief].tokens.values():
            stolen |= set(tokens.values())
        for rank in TREE.subtree(ROOT)[1:]:
            for above in TREE.above(rank):
                if above in inner and HOSTS[above] == thief:
                    stolen.add(keys[HOSTS[rank]].shown(rank, above))
        for at in (ROOT, *inner):
            for rank in TREE.subtree(at)[1:]:
                if thief not in (HOSTS[rank], HOSTS[at]):
                    assert not any(keys[HOSTS[at]].accepts(rank, one, at) for one in stolen)


def test_what_a_place_showed_before_it_moved_is_worth_nothing() -> None:
    made = SessionKeys(TREE, HOSTS)
    junction = next(rank for rank in TREE.junctions if HOSTS[rank] == 1)
    below = TREE.children(junction)[-1]
    before = made.of(1, TREE, HOSTS).shown(junction, ROOT)
    shown = made.of(2, TREE, HOSTS).shown(below, junction)
    made.renew(junction)
    moved = tuple(4 if rank == junction else host for rank, host in enumerate(HOSTS))
    assert not made.root.accepts(junction, before)
    assert not made.of(4, TREE, moved).accepts(below, shown, at=junction)
    anew = made.of(2, TREE, moved).shown(below, junction)
    assert made.of(4, TREE, moved).accepts(below, anew, at=junction)


@pytest.mark.parametrize("host", MACHINES)
def test_a_machine_is_told_nothing_that_the_root_expects(host: int) -> None:
    made = SessionKeys(TREE, HOSTS)
    told = msgspec.msgpack.encode(made.of(host, TREE, HOSTS))
    mine = {rank for rank, at in enumerate(HOSTS) if at == host}
    assert not any(token in told for rank, token in made.root.expected.items() if rank not in mine)
