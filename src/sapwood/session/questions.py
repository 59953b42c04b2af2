"""Requests between the front end and its agents: who asked what, and what came back."""

import itertools
from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.letters import events as le
from sapwood.comm.pool import BlockPool
from sapwood.core.errors import ClosedError, ProtocolError, SapwoodError
from sapwood.session.express.express import Express
from sapwood.session.gate import Gate
from sapwood.session.loop_thread import LoopThread
from sapwood.session.question import Answer, Question

SMALL_REQUEST = 4096
"""Bytes up to which a request never waits: the number of such requests is bounded instead."""


class Questions:
    """The requests of a front end.

    Args:
        thread: The loop's thread.
        post: Gives the front end's node an event; to be called on the loop's thread.
        pool: Where large arrays are put.
        gate: What the bytes of requests go through, unless they are few.
        express: Exchanges requests that are waited for one after the other.
    """

    def __init__(
        self,
        thread: LoopThread,
        post: Callable[[ev.Event], None],
        pool: BlockPool,
        gate: Gate,
        express: Express,
    ) -> None:
        self._thread = thread
        self._post = post
        self._pool = pool
        self._gate = gate
        self._express = express
        express.asking.send = self._send
        self._open: dict[int, Question] = {}
        self._handlers: dict[str, Callable[[int, Any], None]] = {}
        self._numbers = itertools.count(1)
        self._closed: SapwoodError | None = None

    def ask(
        self,
        rank: int,
        handler: str,
        body: bytes,
        arrays: values.Encoded,
        future: Answer | None = None,
    ) -> Answer:
        """Have a handler called at an agent; from any thread.

        A large request waits while those that are not answered hold too many bytes.

        Args:
            rank: The agent.
            handler: What is called there.
            body: Encoded argument.
            arrays: Its arrays.
            future: Gets the answer; without one there is a new one, which cannot be cancelled.
        """
        if future is None:
            future = Answer()
            future.set_running_or_notify_cancel()  # what was asked cannot be taken back
        nbytes = len(body) + arrays.nbytes
        if nbytes > SMALL_REQUEST:
            self._gate.enter(nbytes)
            future.add_done_callback(lambda _: self._gate.leave(nbytes))
        future.number = next(self._numbers)
        question = Question(rank, handler, future.number, body, arrays, future)
        if nbytes > SMALL_REQUEST or not self._express.asking.begin(question):
            self._thread.post(self._send, question)
        return future

    def withdraw(self, future: Answer) -> None:
        """Take a question back: its future ends with CancelledError; from any thread."""
        self._thread.post(self._withdraw, future.number)

    def answer(self, handler: str, function: Callable[[int, Any], None]) -> None:
        """Have ``function(rank, value)`` called when an agent asks."""
        self._handlers[handler] = function

    def abandon(self, reason: SapwoodError) -> None:
        """Answer what is open, and all that comes, with an error; on the loop's thread."""
        self._closed = reason
        self._gate.close(reason)
        questions, self._open = self._open, {}
        for question in questions.values():
            question.end(None, reason)

    def answered(self, effect: ev.Answered) -> None:
        """Take an answer in; on the loop's thread."""
        question = self._open.pop(effect.number, None)
        if question is None:
            return
        payload = effect.payload
        view = payload.view if payload is not None else None
        settle = question.answered(effect.body, view, effect.error)
        if question.future.awaited:
            self._express.deliver_answer(question.rank, settle)
        else:
            settle()

    def asked(self, effect: ev.Asked) -> None:
        """Answer an agent; on the loop's thread."""
        handler = self._handlers.get(effect.handler)
        error = None
        if handler is None:
            error = ProtocolError(f"no request handler '{effect.handler}'").to_record()
        else:
            view = effect.payload.view if effect.payload is not None else b""
            handler(effect.source, values.decode(effect.body, view))
        self._post(ev.Answer(effect.source, effect.number, plain.encode(None), None, error))

    def _withdraw(self, number: int) -> None:
        if number in self._open:
            self._post(le.Withdraw(number))

    def _send(self, question: Question) -> None:
        try:
            if self._closed is not None:
                raise ClosedError(self._closed.what)
            payload = self._pool.place(question.arrays)
        except SapwoodError as error:
            question.end(None, error)
            return
        self._open[question.number] = question
        if payload is not None and payload.owner is not None:
            owner = payload.owner
            question.future.add_done_callback(lambda _: self._pool.give_back(owner))
        event = ev.Ask(question.rank, question.handler, question.number, question.body, payload)
        self._post(event)
