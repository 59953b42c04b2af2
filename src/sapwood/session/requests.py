"""Requests between the client and its agents: who asked what, and what came back."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import InvalidStateError
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    ErrorRecord,
    InputError,
    ProtocolError,
    SapwoodError,
)
from sapwood.core.failures import as_error, failing
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.shown import shown
from sapwood.session.back_pressure import ByteLimiter
from sapwood.session.loop_thread import LoopThread

SMALL_REQUEST = 4096
"""Bytes up to which a request never waits: the number of such requests is bounded instead."""


class RequestFuture(CallerFuture[Any]):
    """The future of a request.

    Attributes:
        number: Of the request; 0 until it is made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = 0


class PendingRequest(msgspec.Struct, frozen=True):
    """A request on its way from a user's thread to the loop's."""

    rank: int
    handler: str
    number: int
    body: bytes
    arrays: values.Encoded
    future: RequestFuture

    def answered(self, body: bytes, payload: memoryview | None, error: ErrorRecord | None) -> None:
        """Give the future what came.

        Args:
            body: The encoded answer.
            payload: Its arrays, which are copied.
            error: In place of an answer.
        """
        if error is not None:
            self.end(None, SapwoodError.from_record(error))
            return
        try:
            # A copy: the agent may use its memory again, and the user may write to the arrays.
            value = values.decode(body, bytearray(payload) if payload is not None else b"")
        except Exception as problem:  # noqa: BLE001 - it is about this answer only
            self.end(None, as_error(problem, f"answer of '{self.handler}'"))
        else:
            self.end(value, None)

    def end(self, value: Any, error: SapwoodError | None) -> None:
        """Give the future a result or an error, unless it has one; from any thread."""
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(value)


class ServedRequest:
    """A request of an agent to the client, to be answered once, from any thread.

    Args:
        thread: The loop's thread.
        post: Gives the client's node an event.
        asked: What the agent asked.
    """

    __slots__ = ("_post", "_thread", "asked")

    def __init__(
        self, thread: LoopThread, post: Callable[[ev.Event], None], asked: ev.Asked
    ) -> None:
        self._thread = thread
        self._post = post
        self.asked = asked

    def value(self) -> Any:
        """Return the argument, which must be without arrays.

        Raises:
            ProtocolError: It is malformed.
        """
        return plain.decode(self.asked.body)

    def give(self, value: Any, payload: Payload | None) -> None:
        """Answer with a value without arrays, and bytes beside it."""
        self._answer(plain.encode(value), payload, None)

    def fail(self, error: SapwoodError) -> None:
        """Answer with an error."""
        self._answer(b"", None, error.to_record())

    def answered_with_errors(self) -> AbstractContextManager[None]:
        """Answer with what is raised inside, of whatever type it is; unexpected types are logged.

        Whatever handles a request does so inside, on whatever thread: an exception is about that
        request and nothing else.
        """
        doing = f"request '{self.asked.handler}' of rank {self.asked.source}"
        return failing(doing, self.fail)

    def _answer(self, body: bytes, payload: Payload | None, error: ErrorRecord | None) -> None:
        asked = self.asked
        with contextlib.suppress(ClosedError):  # no agent is left that could receive it
            self._thread.post(
                self._post, ev.Answer(asked.source, asked.number, body, payload, error)
            )


class PendingRequests:
    """The requests of a client.

    Args:
        thread: The loop's thread.
        post: Gives the client's node an event; to be called on the loop's thread.
        pool: Where large arrays are put.
        limiter: What the bytes of requests go through, unless they are few.
    """

    def __init__(
        self,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        pool: BlockPool,
        limiter: ByteLimiter,
    ) -> None:
        self._thread = thread
        self._post = post
        self._pool = pool
        self._limiter = limiter
        self._open: dict[int, PendingRequest] = {}
        self._blocks: dict[int, SharedBlock] = {}  # what the agents of open requests read
        self._handlers: dict[str, Callable[[int, Any], None]] = {}
        self._served: dict[str, Callable[[ServedRequest], None]] = {}
        self._numbers = itertools.count(1)
        self._closed: SapwoodError | None = None

    def ask(
        self,
        rank: int,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: RequestFuture | None = None,
    ) -> RequestFuture:
        """Have a handler called at an agent; from any thread.

        A large request waits while those that are not answered hold too many bytes.

        Args:
            rank: The agent.
            handler: Name of the handler there.
            body: Encoded argument.
            arrays: Its arrays.
            future: Gets the answer; without one there is a new one, which cannot be cancelled.

        Raises:
            DataValueError: The body is too large.
        """
        plain.check_body(body)
        if future is None:
            future = RequestFuture()
            future.set_running_or_notify_cancel()  # a sent request cannot be cancelled
        nbytes = len(body) + arrays.nbytes
        if nbytes > SMALL_REQUEST:
            self._limiter.enter(nbytes)
            when_done(future, lambda _: self._limiter.leave(nbytes))
        future.number = self.new_number()
        request = PendingRequest(rank, handler, future.number, body, arrays, future)
        self._thread.post(self._send, request)
        return future

    def new_number(self) -> int:
        """Return a number that no other request has; from any thread."""
        return next(self._numbers)

    def withdraw(self, future: RequestFuture) -> None:
        """Take a request back: its future ends with CancelledError; from any thread."""
        self._thread.post(self._withdraw, future.number)

    def waiting_for(self, ranks: Iterable[int]) -> list[RequestFuture]:
        """Return the futures of requests that places have not answered; on the loop's thread."""
        several = set(ranks)
        return [one.future for one in self._open.values() if one.rank in several]

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have ``function(rank, value)`` called when an agent asks."""
        self._handlers[handler] = function

    def serve(self, handler: str, function: Callable[[ServedRequest], None]) -> None:
        """Have ``function(question)`` called when an agent asks; it answers when it likes."""
        self._served[handler] = function

    def abandon(self, reason: SapwoodError) -> None:
        """Answer what is open, and all that comes, with an error; on the loop's thread."""
        self._closed = reason
        self._limiter.close(reason)
        for number in tuple(self._blocks):
            self._read(number)
        requests, self._open = self._open, {}
        for request in requests.values():
            request.end(None, reason)

    def answered(self, effect: ev.Answered) -> None:
        """Take an answer in; on the loop's thread."""
        self._read(effect.number)
        request = self._open.pop(effect.number, None)
        if request is None:
            return
        payload = effect.payload
        try:
            view = payload.view if payload is not None else None
        except ProtocolError as gone:  # the neighbour that passed the answer on is not to blame
            request.end(None, AgentLostError(f"agent {request.rank} ended: {gone.what}"))
            return
        request.answered(effect.body, view, effect.error)

    def not_answered(self, effect: ev.Answered, error: SapwoodError) -> None:
        """Fail a request whose answer could not be taken in; on the loop's thread."""
        self._read(effect.number)
        request = self._open.pop(effect.number, None)
        if request is not None:
            request.end(None, error)

    def not_handled(self, effect: ev.Asked, error: SapwoodError) -> None:
        """Answer a request with an error that its handler could not give; on the loop's thread."""
        ServedRequest(self._thread, self._post, effect).fail(error)

    def asked(self, effect: ev.Asked) -> None:
        """Answer an agent; on the loop's thread."""
        question = ServedRequest(self._thread, self._post, effect)
        with question.answered_with_errors():
            self._handle(question, effect)

    def _handle(self, question: ServedRequest, effect: ev.Asked) -> None:
        serve = self._served.get(effect.handler)
        if serve is not None:
            serve(question)
            return
        handler = self._handlers.get(effect.handler)
        if handler is None:
            raise InputError(f"no request handler {shown(effect.handler)}")
        view = effect.payload.view if effect.payload is not None else b""
        handler(effect.source, values.decode(effect.body, view))
        self._post(ev.Answer(effect.source, effect.number, plain.encode(None), None, None))

    def _read(self, number: int) -> None:
        """Use the memory of a request again: its agent has answered, or never will.

        The future may have ended before: a user may cancel it on any thread, while the agent reads.
        """
        block = self._blocks.pop(number, None)
        if block is not None:
            self._pool.give_back(block)

    def _withdraw(self, number: int) -> None:
        if number in self._open:
            self._post(mev.CancelRequest(number))

    def _send(self, request: PendingRequest) -> None:
        try:
            if self._closed is not None:
                raise ClosedError(self._closed.what)
            payload = self._pool.store(request.arrays)
            self._open[request.number] = request
            if payload is not None and isinstance(payload.owner, SharedBlock):
                self._blocks[request.number] = payload.owner
            event = ev.Ask(request.rank, request.handler, request.number, request.body, payload)
            self._post(event)
        except Exception as exception:  # noqa: BLE001 - it is about this request only
            self._open.pop(request.number, None)
            self._read(request.number)
            request.end(None, as_error(exception, f"request '{request.handler}'"))
