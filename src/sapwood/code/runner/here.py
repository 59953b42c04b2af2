"""Where user code is, and what it may ask of the tree while it runs: ``sapwood.here()``."""

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sapwood.code.runner import rpc_messages
from sapwood.code.runner.calls import MAX_DATAGRAM
from sapwood.code.runner.rpc_client import AgentRequest, RpcClient
from sapwood.comm import plain, values
from sapwood.comm.messaging.envelope import ANY, check_places, check_receive, check_tag, to_ranks
from sapwood.core.errors import ConfigurationError
from sapwood.core.rankset import from_ranges
from sapwood.core.request import Message, Request, take_message, wait_all, wait_any

if TYPE_CHECKING:
    from sapwood.comm.groups.handle import Group

ENTER_TIMEOUT = 60.0
"""Seconds in which all members must enter a group, unless the caller says otherwise."""


class AgentContext:
    """The place of the tree that user code runs at; made by :func:`sapwood.here`.

    Attributes:
        rank: This agent.
        agents: The ranks of all agents that there were when this one began.
    """

    def __init__(self, channel: RpcClient, welcome: rpc_messages.RpcWelcome) -> None:
        self._channel = channel
        self.rank: int = welcome.rank
        ranks = tuple(sorted(from_ranges(welcome.agents)))
        first_to_last = range(1, len(ranks) + 1)
        self.agents: Sequence[int] = first_to_last if ranks == (*first_to_last,) else ranks

    def group(
        self,
        members: Iterable[int],
        *,
        name: str = "",
        timeout: float | None = None,
        enter_timeout: float | None = ENTER_TIMEOUT,
        piece_bytes: int = 0,
    ) -> "Group":
        """Enter a group; return when all members have.

        Args:
            members: Ranks of agents, and 0 for the client; this one is among them.
            name: Tells groups of the same members apart.
            timeout: Seconds that each call may wait for the others; None for any time.
            enter_timeout: Seconds that the others may take to enter.
            piece_bytes: Reduce larger arrays in pieces of so many bytes, so that junctions add
                while they receive; the same at every member. It pays where links take time,
                between machines, and not on one. 0 is for in one piece.

        Raises:
            ConfigurationError: The members are not agents, or this one is not among them.
            GroupError: The others did not enter in time, or gave up.
            AgentLostError: A member is gone.
        """
        from sapwood.code.runner.group_entry import enter  # noqa: PLC0415 - few runners need it
        from sapwood.comm.groups.handle import GroupOptions  # noqa: PLC0415 - as above

        return enter(self, members, name, GroupOptions(timeout, piece_bytes), enter_timeout)

    @property
    def values(self) -> dict[str, Any]:
        """The values that this process keeps by name (see :class:`sapwood.types.AgentGroup`)."""
        from sapwood.code.runner.process_state import kept  # noqa: PLC0415 - few runners need it

        return kept

    def ask(
        self, name: str, value: Any = None, convert: Callable[[Any], Any] | None = None
    ) -> Request:
        """Ask the agent of this runner; for what is built on top of it.

        Args:
            name: The name of the agent's handler.
            value: The question.
            convert: Converts the answer into the result.

        Raises:
            DataValueError: The value cannot travel.
            CommunicationError: Too many answers are missing.
        """
        return self._channel.ask(name, value, convert)

    def send(self, destination: int | Iterable[int], value: Any, tag: int = 0) -> None:
        """Send a message and wait until it is there.

        A message whose arrays are large has arrived once the receiver takes it; use
        :meth:`send_later` where both sides send before they receive.

        Args:
            destination: Rank of the place, or several; 0 is the client.
            value: The message: values and arrays, nothing is pickled.
            tag: By which the receiver may choose.

        Raises:
            AgentLostError: The destination is gone.
            ConfigurationError: There is no such agent or tag.
            DataValueError: The value cannot travel.
        """
        self.send_later(destination, value, tag).result()

    def send_later(
        self, destination: int | Iterable[int], value: Any, tag: int = 0
    ) -> AgentRequest:
        """Send a message and return at once; the request ends when it is there."""
        ranks = to_ranks(destination)
        check_places(ranks, self.agents)
        encoded = values.encode(value)
        addressed = plain.encode([ranks, check_tag(tag), encoded.body])
        return self._channel.ask_encoded(rpc_messages.SEND, addressed, encoded, _nothing)

    def receive(self, source: int = ANY, tag: int = ANY, timeout: float | None = None) -> Message:
        """Wait for a message and return it.

        Args:
            source: Rank of the place that it must be from, or ``sapwood.types.ANY``.
            tag: Tag that it must have, or ``sapwood.types.ANY``.
            timeout: Seconds to wait; by default as long as it takes.

        Raises:
            TimeoutError: There was none in time; a later receive may get it.
            AgentLostError: The source is gone.
        """
        return take_message(self.receive_later(source, tag), timeout)

    def receive_later(self, source: int = ANY, tag: int = ANY) -> AgentRequest:
        """Ask for a message and return at once; the request's result is the message."""
        check_receive(source, tag, self.agents)
        wanted = values.encode([source, tag])
        return self._channel.ask_encoded(rpc_messages.RECEIVE, wanted.body, wanted, _message)

    @staticmethod
    def wait_all(requests: Iterable[Request], timeout: float | None = None) -> bool:
        """Wait until all requests are done; ``concurrent.futures.wait`` cannot do that on an agent.

        Args:
            requests: What :meth:`send_later` and :meth:`receive_later` returned.
            timeout: Seconds to wait; by default as long as it takes.

        Returns:
            Whether all are done.
        """
        return wait_all(requests, timeout)

    @staticmethod
    def wait_any(requests: Iterable[Request], timeout: float | None = None) -> Request | None:
        """Wait until one of several requests is done.

        Args:
            requests: What :meth:`send_later` and :meth:`receive_later` returned.
            timeout: Seconds to wait; by default as long as it takes.

        Returns:
            The first in order that is done, or None.
        """
        return wait_any(requests, timeout)

    def __repr__(self) -> str:
        return f"<AgentContext: agent {self.rank} of {len(self.agents)}>"


class Caller:
    """What this process knows of its agent, if it is a runner.

    Attributes:
        control: The connection to the agent.
        channel: Over which it asks; once it has.
        here: The place; once user code asked for it.
        busy: Whether there is a call, whose code may ask.
    """

    def __init__(self) -> None:
        self.control: socket.socket | None = None
        self.channel: RpcClient | None = None
        self.here: AgentContext | None = None
        self.busy = False
        self.lock = threading.Lock()

    def find(self) -> AgentContext:
        """Return where user code is; the agent is asked the first time.

        Raises:
            ConfigurationError: This is not a call on an agent.
        """
        with self.lock:
            if self.here is None:
                if self.control is None or not self.busy:
                    raise _not_here()
                self.control.send(rpc_messages.WANTED)
                data, descriptors, _, _ = socket.recv_fds(self.control, MAX_DATAGRAM, 1)
                if not descriptors:
                    raise _not_here()
                self.channel = RpcClient(socket.socket(fileno=descriptors[0]))
                self.here = AgentContext(self.channel, rpc_messages.decode_welcome(data))
            return self.here


runner: Final = Caller()


def serve(control: socket.socket) -> None:
    """Say that this process is a runner, and how it reaches its agent."""
    runner.control = control


def here() -> AgentContext:
    """Return where this code runs: for functions given to ``submit`` or ``map``, and programs.

    Raises:
        ConfigurationError: This is not a call on an agent.

    Example:
        ::

            def where():
                return sapwood.here().rank

            cluster.submit(where).result()  # the rank of some agent
    """
    return runner.find()


def _not_here() -> ConfigurationError:
    return ConfigurationError(
        "sapwood.here() is for functions that run on an agent",
        hint="call it inside of a function given to submit or map, or of a program's map; a "
        "filter has self.rank and self.depth",
    )


def _nothing(_body: memoryview, _arrays: memoryview) -> None:
    return None


def _message(body: memoryview, arrays: memoryview) -> Message:
    source, tag, inner = plain.decode(body)
    return Message(values.decode(inner, arrays), source, tag)
