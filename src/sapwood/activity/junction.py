"""The process of a junction whose streams may have own filters: it has a runner beside it."""

from sapwood.activity.agent_requests import OUTPUT, decode_settings
from sapwood.activity.filters import FilterHost
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.place import Handlers
from sapwood.comm.streams.stream import Position
from sapwood.contexts.forge import Forge
from sapwood.contexts.plan import Assembled
from sapwood.core.topology import ROOT
from sapwood.session.junction import Junction
from sapwood.session.member import MemberConfiguration, read_configuration


class FilteringJunction(Junction):
    """An inner vertex that has own filters called.

    Args:
        shared: What all processes share.
        rank: Place in the tree.
        incarnation: Which process at this place it is.
        forge: Has its runner forked.
    """

    def __init__(
        self, shared: MemberConfiguration, rank: int, incarnation: int, forge: Forge
    ) -> None:
        more: Handlers = {ev.Filter: self._filter, ev.StreamClosed: self._stream_closed}
        super().__init__(shared, rank, incarnation, more)
        self._asked = 0
        self._filters = FilterHost(
            Position(rank, sum(1 for _ in shared.tree.ancestors(rank))),
            self.member.loop,
            decode_settings(shared.extra).runner,
            lambda: forge,
            self.member.place.post,
            self._printed,
        )
        self.on_lent = self._filters.released

    def _filter(self, effect: ev.Filter) -> None:
        self._filters.call(effect)

    def _stream_closed(self, effect: ev.StreamClosed) -> None:
        self._filters.stream_closed(effect.stream)

    def _printed(self, data: bytes) -> None:
        self._asked += 1
        self.member.place.post(ev.Ask(ROOT, OUTPUT, self._asked, plain.encode(data), None))


def main(configuration: bytes, rank: int, incarnation: int, forge: Forge) -> Assembled:
    """Assemble a junction; entry of a forked process."""
    shared = read_configuration(configuration)
    return FilteringJunction(shared, rank, incarnation, forge).member.assemble()
