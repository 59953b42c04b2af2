"""The process of a junction whose streams may have own filters: it has a runner beside it."""

from sapwood.activity.filters import FilterHost
from sapwood.activity.orders import OUTPUT, decode_settings
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import gathering
from sapwood.comm.shared_memory import SharedBlock
from sapwood.comm.streams.stream import Position
from sapwood.contexts.forge import Forge
from sapwood.core.topology import ROOT
from sapwood.session.member import Member, MemberConfiguration, read_configuration


class Junction:
    """An inner vertex that routes, reduces, and has own filters called.

    Args:
        shared: What all processes share.
        rank: Place in the tree.
        incarnation: Which process at this place it is.
        forge: Has its runner forked.
    """

    def __init__(
        self, shared: MemberConfiguration, rank: int, incarnation: int, forge: Forge
    ) -> None:
        self._pool = BlockPool(shared.inline_limit)
        self._asked = 0
        self.member = Member(
            shared,
            rank,
            incarnation,
            {
                ev.Released: self._released,
                ev.Filter: self._filter,
                ev.StreamClosed: self._stream_closed,
            },
            gathering(self._pool.place),
        )
        self._filters = FilterHost(
            Position(rank, sum(1 for _ in shared.tree.ancestors(rank))),
            self.member.loop,
            decode_settings(shared.extra).runner,
            lambda: forge,
            self.member.place.post,
            self._printed,
        )

    def _filter(self, effect: ev.Filter) -> None:
        self._filters.call(effect)

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        self._filters.stream_closed(effect.stream)

    def _released(self, effect: ev.Released) -> None:
        owner = effect.payload.owner
        if isinstance(owner, SharedBlock):
            self._pool.give_back(owner)
        elif owner is not None:
            self._filters.released(effect.payload)

    def _printed(self, data: bytes) -> None:
        self._asked += 1
        self.member.place.post(ev.Ask(ROOT, OUTPUT, self._asked, plain.encode(data), None))


def main(configuration: bytes, rank: int, incarnation: int, forge: Forge) -> None:
    """Run a junction; entry of a forked process."""
    Junction(read_configuration(configuration), rank, incarnation, forge).member.run()
