"""What agents and junctions have in common: a process with a place, held by its parent."""

import functools
import gc
import os
import sys
from collections.abc import Callable
from functools import partial

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.driver import Handlers, NodeDriver, reconnect
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.node import Node
from sapwood.comm.reactor import Reactor
from sapwood.comm.streams.wave import NewGathering
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core import typed
from sapwood.core.errors import CommunicationError
from sapwood.core.topology import Tree

GARBAGE_THRESHOLD = 20_000
"""Objects that a member makes before Python looks for garbage among them."""


class MemberConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of a session needs to know.

    Attributes:
        cluster: Name of the cluster.
        folder: Where the sockets are.
        credential: What neighbours show each other.
        machine: Identity of this machine for shared memory; empty where nobody may share.
        tree: The whole tree.
        timing: When links speak and worry.
        inline_limit: Bytes up to which arrays travel in the message.
        extra: Settings of the layers above, encoded.
    """

    cluster: str
    folder: str
    credential: bytes
    machine: str
    tree: Tree
    timing: LinkTiming
    inline_limit: int
    extra: bytes = b""

    def address(self, rank: int) -> str:
        """Return where a place listens."""
        return f"{self.folder}/{rank}.sock"


# Made in the zygote, so that its children need not work the types out again.
_decode_configuration: Callable[[bytes], MemberConfiguration] = typed.unpacker(MemberConfiguration)


@functools.lru_cache(1)
def read_configuration(data: bytes) -> MemberConfiguration:
    """Return the configuration that a starter encoded."""
    return _decode_configuration(data)


class OutgoingRequests:
    """Requests of a place below the front end, and who waits for their answers.

    Args:
        post: Gives the place's node an event.
    """

    __slots__ = ("_next", "_post", "_waiting")

    def __init__(self, post: Callable[[ev.Event], None]) -> None:
        self._post = post
        self._next = 1
        self._waiting: dict[int, Callable[[ev.Answered], None]] = {}

    def ask(
        self,
        destination: int,
        handler: str,
        body: bytes,
        on_answer: Callable[[ev.Answered], None] | None = None,
    ) -> None:
        """Send a request to a place; ``on_answer`` gets its answer, or why there is none."""
        number = self._next
        self._next += 1
        if on_answer is not None:
            self._waiting[number] = on_answer
        self._post(ev.Ask(destination, handler, number, body, None))

    def answered(self, effect: ev.Answered) -> None:
        """Give an answer to whoever waits for it."""
        on_answer = self._waiting.pop(effect.number, None)
        if on_answer is not None:
            on_answer(effect)


class TreeMember:
    """A process of a session below the front end; it is assembled before it is forked.

    Args:
        configuration: What all processes share.
        rank: Place in the tree.
        incarnation: Which process at this place it is.
        handlers: What to do with effects.
        gather: What the node gathers with; agents need none.
        loop: The loop of the process, if it has one already.
    """

    def __init__(
        self,
        configuration: MemberConfiguration,
        rank: int,
        incarnation: int,
        handlers: Handlers,
        gather: NewGathering | None = None,
        loop: Reactor | None = None,
    ) -> None:
        self.configuration = configuration
        self.rank = rank
        self.loop = Reactor() if loop is None else loop
        self._identity = Identity(
            configuration.cluster,
            rank,
            incarnation,
            0,
            configuration.machine or f"rank {rank}",
            configuration.credential,
        )
        tree, timing = configuration.tree, configuration.timing
        node = (
            Node(self._identity, tree, timing, gather)
            if gather
            else Node(self._identity, tree, timing)
        )
        own: Handlers = {ev.ParentLost: self._parent_lost, ev.Connect: self._connect}
        self._transport = UnixTransport(self.loop)
        self.place = NodeDriver(
            node, {**own, **handlers}, self.loop, self._problem, self._reconnect
        )

    def run(self) -> None:
        """Live until no place of the tree takes this one any more.

        A mistake of Sapwood itself ends the process: a new one takes this place.
        """
        # A member makes little garbage and no cycles to speak of; measured on 64 agents, the
        # default thresholds cost a fifth of the time of a small wave.
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 50, 50)
        self.begin()
        self.loop.run()

    def begin(self) -> None:
        """Take the place; the loop may run already."""
        if self.configuration.tree.is_agent(self.rank):
            self._stand()
        else:
            self.loop.spawn(self._listen())

    def end(self) -> None:
        """Let :meth:`run` return."""
        self.loop.stop()

    async def _listen(self) -> None:
        address = self.configuration.address(self.rank)
        await self._transport.listen(address, self.place)
        self._stand()

    def _stand(self) -> None:
        self._identity.pid = os.getpid()
        self.place.post(ev.Begin())
        self.place.start()

    def _connect(self, effect: ev.Connect) -> None:
        self.loop.spawn(self._try_to_reach(effect.rank, effect.pause))

    async def _try_to_reach(self, rank: int, pause: float) -> None:
        if pause:
            await self.loop.sleep(pause)
        try:
            await self._transport.connect(self.configuration.address(rank), self.place)
        except CommunicationError:
            self.place.post(ev.Unreachable(rank))

    def _reconnect(self, link: int, attempt: int) -> None:
        address = self.configuration.address(self.place.channels[link].link.rank)
        connect = partial(self._transport.connect, address)
        self.loop.spawn(reconnect(self.place, link, attempt, connect, self.loop.sleep))

    def _parent_lost(self, _effect: ev.ParentLost) -> None:
        self.end()

    def _problem(self, text: str) -> None:
        sys.stderr.write(f"sapwood: rank {self.rank}: {text}\n")
