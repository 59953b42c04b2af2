"""The process of a junction whose streams may have own filters: it has a runner beside it."""

from sapwood.activity.filters import FilterHost
from sapwood.activity.orders import OUTPUT, decode_settings
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.driver import Handlers
from sapwood.comm.streams.stream import Position
from sapwood.contexts.plan import Main
from sapwood.contexts.runner_factory import RunnerFactory
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
        self, shared: MemberConfiguration, rank: int, incarnation: int, forge: RunnerFactory
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


def main(configuration: bytes, rank: int, incarnation: int, forge: RunnerFactory) -> Main:
    """Assemble a junction; entry of a forked process."""
    shared = read_configuration(configuration)
    return FilteringJunction(shared, rank, incarnation, forge).member.run
