"""The process of a junction: an inner vertex that routes and reduces."""

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import gathering
from sapwood.contexts.forge import Forge
from sapwood.session.member import Member, read_configuration


def main(configuration: bytes, rank: int, incarnation: int, _forge: Forge) -> None:
    """Run a junction; entry of a forked process."""
    shared = read_configuration(configuration)
    pool = BlockPool(shared.inline_limit)

    def released(effect: ev.Released) -> None:
        if effect.payload.owner is not None:
            pool.give_back(effect.payload.owner)

    def discarded(effect: gev.Discarded) -> None:
        if effect.payload.owner is not None:
            effect.payload.owner.close()

    Member(
        shared,
        rank,
        incarnation,
        {ev.Released: released, gev.Discarded: discarded},
        gathering(pool.place),
    ).run()
