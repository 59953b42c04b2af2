"""Where user code is, and what it may ask of the tree while it runs: ``sapwood.here()``."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sapwood.code.runner import asks
from sapwood.code.runner.calls import INLINE, MAX_DATAGRAM, Bulk
from sapwood.comm import values
from sapwood.comm.shared_memory import SharedBlock, private_view
from sapwood.core.errors import ClosedError, CommunicationError, ConfigurationError, SapwoodError
from sapwood.core.request import Request

if TYPE_CHECKING:
    from sapwood.comm.groups.handle import Group

ENTER_TIMEOUT = 60.0
"""Seconds in which all members must enter a group, unless the caller says otherwise."""

FAREWELL = 5.0
"""Seconds that an agent has to take back what a call left open."""


class Channel:
    """The runner's end of the socket over which it asks its agent; for any thread of it.

    Whoever waits for an answer reads the socket, for all others as well.

    Args:
        connection: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._send_lock = threading.Lock()
        self._reading = False
        self._next = 1
        self._open: dict[int, AgentRequest] = {}
        self._blocks: dict[int, list[SharedBlock]] = {}

    def ask(
        self, name: str, value: Any, convert: Callable[[Any], Any] | None = None
    ) -> "AgentRequest":
        """Send a question; the request is its answer.

        Raises:
            DataValueError: The value cannot travel.
            CommunicationError: Too many answers are missing.
            ClosedError: The agent is gone, or this is a fork of the runner.
        """
        if os.getpid() != self._pid:
            raise ClosedError(
                f"sapwood.here() belongs to process {self._pid}, from which this one was forked"
            )
        encoded = values.encode(value)
        blocks: list[SharedBlock] = []
        body = _bulk(encoded.body, blocks)
        payload = _arrays(encoded, blocks)
        with self._lock:
            if len(self._open) >= asks.MAX_OPEN:
                raise CommunicationError(
                    f"more than {asks.MAX_OPEN} requests of one runner are open",
                    hint="wait for some of them first",
                )
            number = self._next
            self._next += 1
            request = self._open[number] = AgentRequest(self, number, convert)
            self._blocks[number] = blocks
        self._send(asks.Ask(number, name, body, payload))
        return request

    def pump(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Take answers in until something is so, or ``timeout`` seconds have passed."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not done():
                left = None if end is None else max(0.0, end - time.monotonic())
                if self._reading:
                    self._lock.wait(left)
                else:
                    self._read(left)
                if end is not None and time.monotonic() >= end:
                    return done()
        return True

    def forget_all(self) -> None:
        """Take back what is open: the call that asked is over."""
        with self._lock:
            numbers = list(self._open)
        cancels = [self.ask(asks.CANCEL, number) for number in numbers]
        self.pump(lambda: all(one.done() for one in cancels), FAREWELL)
        with self._lock:
            for number in list(self._open):
                self._open.pop(number).abandon()

    def _read(self, timeout: float | None) -> None:
        """Read one answer; the lock is free meanwhile."""
        self._reading = True
        self._lock.release()
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            ready = poll.poll(None if timeout is None else timeout * 1000)
            data = self._socket.recv(MAX_DATAGRAM) if ready else None
            if data is not None:
                self._arrived(data)
        finally:
            self._lock.acquire()
            self._reading = False
            self._lock.notify_all()

    def _arrived(self, data: bytes) -> None:
        if not data:
            self._end()
            return
        answer = asks.decode_answer(data)
        if answer.total:
            request = self._open.get(answer.number)
            if request is not None:
                request.done_bytes, request.total_bytes = answer.arrived, answer.total
            return
        with self._lock:
            request = self._open.pop(answer.number, None)
            blocks = self._blocks.pop(answer.number, [])
        for block in blocks:
            block.close()
        try:
            if request is not None:
                request.answered(answer)
        finally:
            if answer.body.shared is not None or answer.payload.shared is not None:
                self._send(asks.Ask(answer.number, ""))

    def _end(self) -> None:
        with self._lock:
            requests, self._open = self._open, {}
        for request in requests.values():
            request.set_exception(ClosedError("the agent of this runner is gone"))

    def _send(self, ask: asks.Ask) -> None:
        with self._send_lock:
            try:
                self._socket.send(asks.encode(ask))
            except OSError as error:
                raise ClosedError("the agent of this runner is gone") from error


class AgentRequest(Request):
    """A question to the agent of this runner.

    Args:
        channel: Where the answer comes from.
        number: Its number.
        convert: Makes the result of what is answered.
    """

    def __init__(
        self, channel: Channel, number: int, convert: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__(lambda _: self._take_back())
        self._channel = channel
        self._number = number
        self.convert = convert or _as_it_is

    def answered(self, answer: asks.Answer) -> None:
        """Take the answer in."""
        if self.done():
            return
        if answer.error is not None:
            self.set_exception(SapwoodError.from_record(answer.error))
            return
        try:
            value = values.decode(_bytes(answer.body), _bytes(answer.payload))
            self.set_result(self.convert(value))
        except SapwoodError as error:
            self.set_exception(error)

    def abandon(self) -> None:
        """Nobody waits any more."""
        if not self.done():
            super(Request, self).cancel()

    def _take_back(self) -> bool:
        answer = self._channel.ask(asks.CANCEL, self._number)
        return bool(answer.result())

    def _progress(self, timeout: float | None) -> bool:
        return self._channel.pump(self.done, timeout)

    def _until_any(self, requests: list[Request], timeout: float | None) -> None:
        self._channel.pump(lambda: any(one.done() for one in requests), timeout)

    def _left(self, timeout: float | None) -> float | None:
        self._channel.pump(self.done, timeout)
        return 0.0


class Here:
    """The place of the tree that user code runs at; made by :func:`sapwood.here`.

    Attributes:
        rank: This agent.
        agents: All agents' ranks.
    """

    def __init__(self, channel: Channel, welcome: asks.Welcome) -> None:
        self._channel = channel
        self.rank = welcome.rank
        self.agents = range(1, welcome.agents + 1)

    def group(
        self,
        members: Iterable[int],
        *,
        name: str = "",
        timeout: float | None = None,
        enter_timeout: float | None = ENTER_TIMEOUT,
    ) -> "Group":
        """Enter a group; return when all members have.

        Args:
            members: Ranks of agents, and 0 for the front end; this one is among them.
            name: Tells groups of the same members apart.
            timeout: Seconds that each call may wait for the others; None for any time.
            enter_timeout: Seconds that the others may take to enter.

        Raises:
            ConfigurationError: The members are no agents, or this one is not among them.
            GroupError: The others did not enter in time, or gave up.
            AgentLostError: A member is gone.
        """
        from sapwood.code.runner.grouping import enter  # noqa: PLC0415 - few runners need it

        return enter(self, members, name, timeout, enter_timeout)

    def ask(
        self, name: str, value: Any = None, convert: Callable[[Any], Any] | None = None
    ) -> Request:
        """Ask the agent of this runner; for what is built on top of it.

        Args:
            name: Whom at the agent the question is for.
            value: What is asked.
            convert: Makes the result of what is answered.

        Raises:
            DataValueError: The value cannot travel.
            CommunicationError: Too many answers are missing.
        """
        return self._channel.ask(name, value, convert)

    def __repr__(self) -> str:
        return f"<Here: agent {self.rank} of {len(self.agents)}>"


class _Runner:
    """What this process knows of its agent, if it is a runner."""

    def __init__(self) -> None:
        self.control: socket.socket | None = None
        self.channel: Channel | None = None
        self.here: Here | None = None
        self.busy = False
        self.lock = threading.Lock()

    def find(self) -> Here:
        with self.lock:
            if self.here is None:
                if self.control is None or not self.busy:
                    raise ConfigurationError(
                        "sapwood.here() is for functions that run on an agent",
                        hint="call it inside of a function given to submit or map, or of a "
                        "program's map",
                    )
                self.control.send(asks.WANTED)
                data, descriptors, _, _ = socket.recv_fds(self.control, MAX_DATAGRAM, 1)
                self.channel = Channel(socket.socket(fileno=descriptors[0]))
                self.here = Here(self.channel, asks.decode_welcome(data))
            return self.here


_runner = _Runner()


def serve(control: socket.socket) -> None:
    """Say that this process is a runner, and how it reaches its agent."""
    _runner.control = control


def begin_call() -> None:
    """A call begins: user code may ask."""
    _runner.busy = True


def end_call() -> None:
    """The call is over, and so is what it asked."""
    _runner.busy = False
    if _runner.channel is not None:
        _runner.channel.forget_all()


def here() -> Here:
    """Return where this code runs: for functions given to ``submit`` or ``map``, and programs.

    Raises:
        ConfigurationError: This is not a call on an agent.

    Example:
        ::

            def where():
                return sapwood.here().rank

            cluster.submit(where).result()  # the rank of some agent
    """
    return _runner.find()


def _bulk(data: bytes, blocks: list[SharedBlock]) -> Bulk:
    if len(data) <= INLINE:
        return Bulk(data)
    block = SharedBlock(len(data))
    blocks.append(block)
    block.view[: len(data)] = data
    return Bulk(shared=block.ref(0, len(data)))


def _arrays(encoded: values.Encoded, blocks: list[SharedBlock]) -> Bulk:
    if encoded.nbytes <= INLINE:
        return Bulk(bytes(encoded.payload()))
    block = SharedBlock(encoded.nbytes)
    blocks.append(block)
    encoded.write_into(block.view)
    return Bulk(shared=block.ref(0, encoded.nbytes))


def _bytes(bulk: Bulk) -> memoryview:
    """Return bytes that user code may write to."""
    return memoryview(bytearray(bulk.inline)) if bulk.shared is None else private_view(bulk.shared)


def _as_it_is(value: Any) -> Any:
    return value
