"""What agents and junctions have in common: a process with a place, held by its parent."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.driver import NO_FAILURE_HANDLERS, FailureHandlers, NodeDriver, reconnect
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.links import Handlers
from sapwood.comm.node import Node
from sapwood.comm.place_keys import PlaceKeys
from sapwood.comm.reactor import Reactor
from sapwood.comm.streams.wave import NewGathering
from sapwood.comm.transport.base import ConnectionHandler, Failed, Transport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core import typed
from sapwood.core.errors import CommunicationError, ProtocolError
from sapwood.core.failures import log_loop_failure
from sapwood.core.topology import ROOT, Tree
from sapwood.security.credentials import Credentials

if TYPE_CHECKING:
    from sapwood.session.between_machines import JunctionPort, MachineLinks

GARBAGE_THRESHOLD = 20_000
"""Objects that a member makes before Python looks for garbage among them."""

MANY_FAILURES = 1000
"""Unexpected exceptions of callbacks after which a process ends rather than repeats them."""

READDRESS = "tree.readdress"
"""Request of the root: places listen elsewhere now; addresses by rank."""

MACHINE_PAUSE = 0.05
"""Seconds before a place of another machine is tried again, which has not begun yet."""

HOME_PAUSE = 30.0
"""Seconds until a place of a machine that did not answer is tried again."""


class MemberConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of a session needs to know.

    Attributes:
        cluster: Name of the cluster.
        folder: Where the sockets are.
        keys: Secrets that neighbours check.
        machine: Identity of this machine for shared memory; empty where it may not be shared.
        tree: The whole tree.
        timing: When links speak and worry.
        inline_limit: Bytes up to which arrays travel in the message.
        extra: Settings of the layers above, encoded.
        host: Number of this machine; 0 is the root's.
        hosts: The machine of each place, by rank; none where all are on one.
        addresses: Where places listen for other machines, by rank.
        credentials: What this machine shows to others; None where there is only one.
        transport: What links the places of a machine; empty for Unix sockets.
    """

    cluster: str
    folder: str
    keys: PlaceKeys
    machine: str
    tree: Tree
    timing: LinkTiming
    inline_limit: int
    extra: bytes = b""
    host: int = 0
    hosts: tuple[int, ...] = ()
    addresses: dict[int, str] = {}
    credentials: Credentials | None = None
    transport: str = ""

    def is_near(self, rank: int) -> bool:
        """Whether a place is on this machine."""
        return not self.hosts or self.hosts[rank] == self.host

    def socket_path(self, rank: int) -> str:
        """Return where a place of this machine listens."""
        return f"{self.folder}/{rank}.sock"

    def port_path(self, rank: int) -> str:
        """Return where a junction of this machine is given connections from other machines."""
        return f"{self.folder}/{rank}.port"

    def is_gateway(self, rank: int) -> bool:
        """Whether places of other machines are below a junction of this one."""
        hosts = self.hosts
        return bool(hosts) and any(hosts[one] != self.host for one in self.tree.subtree(rank))

    def new_transport(self) -> Transport:
        """Return what links the places of this machine.

        Raises:
            ConfigurationError: It is a plug-in that cannot be loaded here.
        """
        if not self.transport:
            return UnixTransport()
        from sapwood.comm.transport.registry import (  # noqa: PLC0415 - it looks at all packages
            transport_of_machine,
        )

        return transport_of_machine(self.transport)


def tree_protocol(cluster: str) -> str:
    """Return what the links of a tree are called between machines (ALPN).

    Example:
        >>> tree_protocol("sapwood-x1")
        'sapwood-tree/1/sapwood-x1'
    """
    return f"sapwood-tree/1/{cluster}"


# Made in the zygote, so that its children need not work the types out again.
_decode_configuration: Callable[[bytes], MemberConfiguration] = typed.unpacker(MemberConfiguration)


@functools.lru_cache(1)
def read_configuration(data: bytes) -> MemberConfiguration:
    """Return the configuration that a starter encoded."""
    return _decode_configuration(data)


class OutgoingRequests:
    """Requests of a place below the client, and who waits for their answers.

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
    """A process of a session below the client; it is assembled before it is forked.

    Args:
        configuration: What all processes share.
        rank: Place in the tree.
        incarnation: Which process at this place it is.
        handlers: What to do with effects.
        gather: What the node gathers with; agents need none.
        loop: The loop of the process, if it has one already.
        on_failure: By effect: fails what it was for, if its handler raised an unexpected exception.
    """

    def __init__(
        self,
        configuration: MemberConfiguration,
        rank: int,
        incarnation: int,
        handlers: Handlers,
        gather: NewGathering | None = None,
        loop: Reactor | None = None,
        on_failure: FailureHandlers = NO_FAILURE_HANDLERS,
    ) -> None:
        self.configuration = configuration
        self.rank = rank
        self._failures = 0
        self.loop = Reactor(self._failed) if loop is None else loop
        self._identity = Identity(
            configuration.cluster,
            rank,
            incarnation,
            0,
            configuration.machine or f"rank {rank}",
            configuration.keys,
        )
        tree, timing = configuration.tree, configuration.timing
        node = (
            Node(self._identity, tree, timing, gather)
            if gather
            else Node(self._identity, tree, timing)
        )
        own: Handlers = {
            ev.ParentLost: self._parent_lost,
            ev.Connect: self._connect,
            ev.EpochBegun: self._tree_changed,
        }
        self._near = configuration.new_transport()
        self._far: MachineLinks | None = None
        self._port: JunctionPort | None = None
        self._absent: set[int] = set()
        self.driver = NodeDriver(
            node,
            {**own, **handlers},
            self.loop,
            self._problem,
            self._reconnect,
            on_failure=on_failure,
        )

    def run(self) -> None:
        """Live until no place of the tree takes this one any more.

        A mistake of Sapwood itself fails what it concerns. A process with :data:`MANY_FAILURES`
        of them ends: a new one takes this place.
        """
        # A member makes little garbage and no cycles to speak of; measured on 64 agents, the
        # default thresholds cost a fifth of the time of a small wave.
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 50, 50)
        self.begin()
        self.loop.run()

    def begin(self) -> None:
        """Take the place; the loop may run already."""
        if not self.configuration.tree.is_agent(self.rank):
            self._near.listen(self.configuration.socket_path(self.rank), self.driver, self.loop)
            if self.configuration.is_gateway(self.rank):
                self._listen_for_machines()
        self._stand()

    def _listen_for_machines(self) -> None:
        from sapwood.session.between_machines import (  # noqa: PLC0415 - not needed on one machine
            JunctionPort,
            protocol_of,
        )

        configuration = self.configuration
        if configuration.credentials is None:
            return
        self._port = JunctionPort(
            configuration.port_path(self.rank),
            protocol_of(tree_protocol(configuration.cluster), self.rank),
            self.driver,
            self.loop,
            configuration.credentials,
            lambda address, reason: self._problem(f"{address} was not let in: {reason}"),
        )

    def end(self) -> None:
        """Let :meth:`run` return."""
        self.loop.stop()

    def _stand(self) -> None:
        self._identity.pid = os.getpid()
        self.driver.post(ev.Begin())
        self.driver.start()

    def _connect(self, effect: ev.Connect) -> None:
        pause = effect.pause
        if pause:
            if not self.configuration.is_near(effect.rank):
                pause = max(pause, MACHINE_PAUSE)
            self.loop.call_later(pause, self._try_to_reach, effect.rank)
        else:
            self._try_to_reach(effect.rank)

    def _try_to_reach(self, rank: int) -> None:
        if rank in self._absent:  # each loss of a parent would wait for it anew
            self.loop.call_soon(self.driver.post, ev.Unreachable(rank, absent=True))
        else:
            self._dial(rank, self.driver, partial(self._unreachable, rank))

    def _unreachable(self, rank: int, error: CommunicationError) -> None:
        absent = rank != ROOT and not self.configuration.is_near(rank) and self._is_absent(error)
        if absent and rank in self.configuration.addresses:
            self._problem(f"rank {rank} cannot be reached, the next above it is: {error}")
            self._absent.add(rank)
            self.loop.call_later(HOME_PAUSE, self._try_again, rank)
        self.driver.post(ev.Unreachable(rank, absent))

    @staticmethod
    def _is_absent(error: CommunicationError) -> bool:
        from sapwood.comm.transport.tls_dial import is_unserved  # noqa: PLC0415 - as above

        return not is_unserved(error)  # else it may be about to begin

    def _try_again(self, rank: int) -> None:
        self._absent.discard(rank)
        self.driver.post(ev.TryAgain(rank))

    def readdress(self, asked: ev.Asked) -> None:
        """Take in that places listen elsewhere now, as the root says.

        Raises:
            ProtocolError: It is not the root, or the addresses are malformed.
        """
        if asked.source != ROOT:
            raise ProtocolError(f"rank {asked.source} says where places listen")
        try:
            addresses = dict(typed.convert(plain.decode(asked.body), list[tuple[int, str]]))
        except msgspec.ValidationError as error:
            raise ProtocolError(f"malformed addresses: {error}") from error
        known = self.configuration.addresses | addresses
        self.configuration = msgspec.structs.replace(self.configuration, addresses=known)
        for rank in addresses:
            self._try_again(rank)

    def _reconnect(self, link: int, attempt: int) -> None:
        connect = partial(self._dial, self.driver.channels[link].link.rank)
        reconnect(self.driver, link, attempt, connect, self.loop)

    def _dial(self, rank: int, handler: ConnectionHandler, failed: Failed) -> None:
        """Connect to a place, on this machine or another."""
        configuration = self.configuration
        if configuration.is_near(rank):
            self._near.connect(configuration.socket_path(rank), handler, self.loop, failed)
            return
        address = configuration.addresses.get(rank)
        if address is None:
            error = CommunicationError(
                "it accepts connections from its own machine only", where=f"rank {rank}"
            )
            self.loop.call_soon(failed, error)
            return
        if self._far is None:
            self._far = self._between_machines()
        self._far.connect(rank, address, handler, failed)

    def content_sources(self) -> tuple[int, ...]:
        """Return the places that may have content for this machine, nearest first."""
        near = self.configuration.is_near
        above = self.configuration.tree.above(self.rank)
        return (*(rank for rank in above if rank != ROOT and not near(rank)), ROOT)

    def renew(self, credentials: Credentials) -> None:
        """Show other credentials on connections that are made from now on."""
        self.configuration = msgspec.structs.replace(self.configuration, credentials=credentials)
        self._far = None

    def _between_machines(self) -> MachineLinks:
        from sapwood.session.between_machines import MachineLinks  # noqa: PLC0415 - as above

        credentials = self.configuration.credentials
        assert credentials is not None  # noqa: S101 - whoever is on another machine has some
        return MachineLinks(credentials, tree_protocol(self.configuration.cluster), self.loop)

    def _parent_lost(self, _effect: ev.ParentLost) -> None:
        self.end()

    def _tree_changed(self, effect: ev.EpochBegun) -> None:
        self.configuration = msgspec.structs.replace(self.configuration, tree=effect.tree)

    def _problem(self, text: str) -> None:
        from sapwood.environment.standard_error import stderr_writer  # noqa: PLC0415 - as above

        stderr_writer.write(f"sapwood: rank {self.rank}: {text}\n")
        stderr_writer.flush()  # the process may be about to end

    def _failed(self, exception: BaseException) -> None:
        """Log what a callback of the loop raised."""
        log_loop_failure(f"rank {self.rank}", exception)
        self._failures += 1
        if self._failures >= MANY_FAILURES:
            raise exception
