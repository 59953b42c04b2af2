"""Runner RPC, the runner's side: user code sends requests to its agent while a job runs."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from sapwood.code.runner import rpc_messages
from sapwood.code.runner.calls import INLINE, MAX_DATAGRAM, Bulk
from sapwood.comm import values
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core.errors import ClosedError, CommunicationError, SapwoodError
from sapwood.core.request import Request

MAX_POLL = 1e6
"""Seconds of one wait: the system takes 31 bits of milliseconds."""

FAREWELL = 5.0
"""Seconds that an agent has to take back what a call left open."""


Read = Callable[[memoryview, memoryview], Any]
"""Makes a value of a body and the bytes of its arrays."""


class RpcClient:
    """Sends the requests of a runner to its agent; for any thread of the runner.

    A thread that waits for an answer reads the socket, for all other threads as well.

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
        """Send a request; its result is the answer.

        Raises:
            DataValueError: The value cannot travel.
            CommunicationError: Too many answers are missing.
            ClosedError: The agent is gone, or this is a fork of the runner.
        """
        encoded = values.encode(value)
        read: Read | None = None
        if convert is not None:
            read = lambda body, arrays: convert(values.decode(body, arrays))  # noqa: E731 - short
        return self.ask_encoded(name, encoded.body, encoded, read)

    def ask_encoded(
        self, name: str, encoded_body: bytes, encoded: values.Encoded, read: "Read | None" = None
    ) -> "AgentRequest":
        """As :meth:`ask`, with a body that the caller encoded and the arrays that belong to it."""
        if os.getpid() != self._pid:
            raise ClosedError(
                f"sapwood.here() belongs to process {self._pid}, from which this one was forked"
            )
        blocks: list[SharedBlock] = []
        body = Bulk.pack(encoded_body, blocks.append)
        payload = _arrays(encoded, blocks)
        with self._lock:
            if len(self._open) >= rpc_messages.MAX_OPEN:
                raise CommunicationError(
                    f"more than {rpc_messages.MAX_OPEN} requests of one runner are open",
                    hint="wait for some of them first",
                )
            number = self._next
            self._next += 1
            request = self._open[number] = AgentRequest(self, number, read)
            self._blocks[number] = blocks
        self._send(rpc_messages.RpcRequest(number, name, body, payload))
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
        cancels = [self.ask(rpc_messages.CANCEL, number) for number in numbers]
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
            ready = poll.poll(None if timeout is None else min(timeout, MAX_POLL) * 1000)
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
        answer = rpc_messages.decode_response(data)
        if answer.total:
            request = self._open.get(answer.number)
            if request is not None:
                request.moved(answer.arrived, answer.total)
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
                self._send(rpc_messages.RpcRequest(answer.number, ""))

    def _end(self) -> None:
        with self._lock:
            requests, self._open = self._open, {}
        for request in requests.values():
            request.set_exception(ClosedError("the agent of this runner is gone"))

    def _send(self, ask: rpc_messages.RpcRequest) -> None:
        with self._send_lock:
            try:
                self._socket.send(rpc_messages.encode(ask))
            except OSError as error:
                raise ClosedError("the agent of this runner is gone") from error


class AgentRequest(Request):
    """A request to the agent of this runner.

    Args:
        channel: Where the answer comes from.
        number: Its number.
        read: Makes the result of the answer's body and arrays.
    """

    def __init__(self, channel: RpcClient, number: int, read: "Read | None" = None) -> None:
        super().__init__(lambda _: self._take_back())
        self._channel = channel
        self._number = number
        self._read: Read = read or values.decode

    def answered(self, answer: rpc_messages.RpcResponse) -> None:
        """Take the answer in."""
        if self.done():
            return
        if answer.error is not None:
            self.set_exception(SapwoodError.from_record(answer.error))
            return
        try:
            self.set_result(self._read(answer.body.unpack(), answer.payload.unpack()))
        except SapwoodError as error:
            self.set_exception(error)

    def abandon(self) -> None:
        """Give up waiting for the answer."""
        if not self.done():
            super(Request, self).cancel()

    def _take_back(self) -> bool:
        answer = self._channel.ask(rpc_messages.CANCEL, self._number)
        return bool(answer.result())

    def _progress(self, timeout: float | None) -> bool:
        return self._channel.pump(self.done, timeout)

    def _until_any(self, requests: list[Request], timeout: float | None) -> None:
        self._channel.pump(lambda: any(one.done() for one in requests), timeout)

    def _left(self, timeout: float | None) -> float | None:
        self._channel.pump(self.done, timeout)
        return 0.0


def _arrays(encoded: values.Encoded, blocks: list[SharedBlock]) -> Bulk:
    if encoded.nbytes <= INLINE:
        return Bulk(bytes(encoded.payload()))
    return Bulk.spill(encoded.nbytes, encoded.parts(), blocks.append)
