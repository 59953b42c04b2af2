"""The process of a junction: an inner vertex that routes and reduces."""

from collections.abc import Callable

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.groups import events as gev
from sapwood.comm.links import Handlers
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import gathering
from sapwood.comm.shared_memory import SharedBlock
from sapwood.content.refs import ContentChunk
from sapwood.contexts.plan import Main
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.shown import shown
from sapwood.session.member import (
    READDRESS,
    MemberConfiguration,
    TreeMember,
    read_configuration,
)


class Junction:
    """An inner vertex that routes and reduces.

    Args:
        shared: What all processes share.
        rank: Place in the tree.
        incarnation: Which process at this place it is.
        more: What to do with further effects.

    Attributes:
        member: The process with its place.
        requests: What to do with a request, by its handler.
        on_lent: Given memory of others that was lent to this place and is needed no more.
    """

    def __init__(
        self, shared: MemberConfiguration, rank: int, incarnation: int, more: Handlers
    ) -> None:
        self._pool = BlockPool(shared.inline_limit)
        self.on_lent: Callable[[Payload], None] = _nobody
        self.requests: dict[str, Callable[[ev.Asked], None]] = {READDRESS: self._readdressed}
        handlers: Handlers = {
            ev.Released: self._released,
            ev.Asked: self._asked,
            gev.Discarded: _discarded,
            **more,
        }
        gather = gathering(self._pool.store)
        self.member = TreeMember(
            shared, rank, incarnation, handlers, gather, on_failure={ev.Asked: self.fail}
        )

    def answer(self, asked: ev.Asked, payload: Payload | None = None) -> None:
        """Answer a request, with bytes or without."""
        body = plain.encode(None)
        self.member.driver.post(ev.Answer(asked.source, asked.number, body, payload))

    def fail(self, asked: ev.Asked, error: SapwoodError) -> None:
        """Answer a request with an error."""
        record = error.to_record()
        self.member.driver.post(ev.Answer(asked.source, asked.number, b"", None, record))

    def _asked(self, asked: ev.Asked) -> None:
        handler = self.requests.get(asked.handler)
        try:
            if handler is None:
                raise InputError(f"no request handler {shown(asked.handler)} at a junction")
            handler(asked)
        except SapwoodError as error:
            self.fail(asked, error)

    def _readdressed(self, asked: ev.Asked) -> None:
        self.member.readdress(asked)
        self.answer(asked)

    def _released(self, effect: ev.Released) -> None:
        owner = effect.payload.owner
        if isinstance(owner, SharedBlock):
            self._pool.give_back(owner)
        elif isinstance(owner, ContentChunk):
            owner.taken()
        elif owner is not None:
            self.on_lent(effect.payload)


def _discarded(effect: gev.Discarded) -> None:
    if effect.payload.owner is not None:
        effect.payload.owner.close()


def _nobody(_payload: Payload) -> None:
    pass


def main(configuration: bytes, rank: int, incarnation: int, _runner_factory: RunnerFactory) -> Main:
    """Assemble a junction without own filters; entry of a forked process."""
    return Junction(read_configuration(configuration), rank, incarnation, {}).member.run
