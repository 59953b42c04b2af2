"""An agent's place in a further tree: the same process, another parent."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from sapwood.core import typed
from sapwood.session.agent import JOIN, LEAVE, Agent, Question
from sapwood.session.member import MemberConfiguration, read_configuration


class Invitation(msgspec.Struct, frozen=True):
    """Which place of which tree an agent is to take.

    Attributes:
        configuration: What all places of the tree share, encoded.
        incarnation: Which process at its place it is to be.
    """

    configuration: bytes
    incarnation: int


class Guest(Agent):
    """A leaf of a further tree, in the process of an agent and on its loop.

    What happens in that tree is no reason for the process to end: a guest that no place takes
    any more only leaves.

    Args:
        configuration: What all places of the tree share.
        incarnation: Which process at its place it is.
        host: The agent whose process and loop it shares; its rank is the same.
        on_end: Told when it has left.
    """

    def __init__(
        self,
        configuration: MemberConfiguration,
        incarnation: int,
        host: Agent,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(configuration, host.rank, incarnation, host.loop)
        self.tree = configuration.cluster
        self._on_end = on_end
        self._left = False

    def end(self) -> None:
        """Leave the tree; what it kept for others is given back."""
        if self._left:
            return
        self._left = True
        for stream in self.place.node.streams.values():
            for several in stream.kept.values():
                for one in several:
                    if one.payload is not None:
                        self.on_released(one.payload)
        self.place.close()
        self._on_end()

    async def _try_to_reach(self, rank: int, pause: float) -> None:
        if pause:
            await self.loop.sleep(pause)
        if not self._left:
            await super()._try_to_reach(rank, 0.0)


class Guests:
    """The further trees of an agent: joined and left as the front end asks.

    Args:
        host: The agent.
        settle: Makes a guest work; what it returns ends that.
    """

    def __init__(self, host: Agent, settle: Callable[[Guest], Callable[[], None]]) -> None:
        self._host = host
        self._settle = settle
        self._guests: dict[str, Guest] = {}
        host.requests[JOIN] = self.join
        host.requests[LEAVE] = self._leave

    def join(self, question: Question) -> None:
        """Take a place as a question asks."""
        invitation = typed.convert(question.value(), Invitation)
        configuration = read_configuration(invitation.configuration)
        self._end(configuration.cluster)

        def left() -> None:
            if self._guests.get(guest.tree) is guest:
                del self._guests[guest.tree]
            stop_working()

        guest = Guest(configuration, invitation.incarnation, self._host, left)
        stop_working = self._settle(guest)
        self._guests[guest.tree] = guest
        question.reply(os.getpid())
        guest.begin()

    def _leave(self, question: Question) -> None:
        self._end(str(question.value()))
        question.reply(None)

    def _end(self, tree: str) -> None:
        guest = self._guests.get(tree)
        if guest is not None:
            guest.end()
