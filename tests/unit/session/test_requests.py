"""Requests of the client, and their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import AgentLostError, DataValueError, InternalError
from sapwood.session.back_pressure import ByteLimiter
from sapwood.session.requests import PendingRequests, RequestFuture


class Requests:
    """The requests of a client, all on one thread, and what they posted."""

    def __init__(self) -> None:
        thread: Any = SimpleNamespace(
            post=lambda function, *args: function(*args), is_current=False
        )
        self.posted: list[ev.Event] = []
        self.all = PendingRequests(
            thread, self.posted.append, BlockPool(0), ByteLimiter(2**20, thread)
        )

    def answer_to(self, handler: str, body: bytes) -> ev.Answer:
        """Return what an agent gets that asks."""
        self.posted.clear()
        self.all.asked(ev.Asked(1, handler, 7, body, None))
        (answer,) = self.posted
        assert isinstance(answer, ev.Answer)
        assert (answer.destination, answer.number) == (1, 7)
        return answer


@pytest.mark.parametrize(
    "body", [plain.encode("text"), plain.encode(2**40), plain.encode(-1), b"", b"\xc1"]
)
@pytest.mark.parametrize("way", ["serve", "answer"])
def test_whatever_a_handler_raises_is_the_answer_of_that_request(
    way: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    requests = Requests()
    taken: list[Any] = []

    def unpack(value: Any) -> None:
        first, second = value  # a TypeError, unless it is malformed before
        taken.append((first, second))

    requests.all.serve("serve", lambda question: unpack(question.value()))
    requests.all.answer("answer", lambda _rank, value: unpack(value))
    error = requests.answer_to(way, body).error
    assert error is not None
    assert error.code in {"SW900", "SW401"}
    assert (error.code == "SW900") == ("request '" in caplog.text)
    assert taken == []
    good = requests.answer_to("answer", values.encode([1, 2]).body)
    assert good.error is None
    assert taken == [(1, 2)]


def test_an_unknown_request_is_the_fault_of_who_asks() -> None:
    error = Requests().answer_to("nonsense", plain.encode(None)).error
    assert error is not None
    assert (error.code, error.what) == ("SW100", "no request handler 'nonsense'")


def test_a_request_that_cannot_be_sent_fails_alone() -> None:
    requests = Requests()

    def post(event: ev.Event) -> None:
        if isinstance(event, ev.Ask) and event.handler == "bad":
            raise KeyError("no such thing")

    requests.all = PendingRequests(
        requests.all._thread, post, BlockPool(0), ByteLimiter(2**20, requests.all._thread)
    )
    good = requests.all.ask(1, "good", b"", values.encode(None))
    bad = requests.all.ask(1, "bad", b"", values.encode(None))
    with pytest.raises(InternalError, match="KeyError: 'no such thing'"):
        bad.result(0)
    requests.all.answered(ev.Answered(good.number, values.encode(5).body, None, None))
    assert good.result(0) == 5


def test_an_answer_whose_memory_is_gone_is_the_loss_of_its_agent() -> None:
    """It comes behind the end of the process that made it, and may be asked for again."""
    thread: Any = SimpleNamespace(post=lambda function, *args: function(*args), is_current=False)
    posted: list[ev.Event] = []
    requests = PendingRequests(thread, posted.append, BlockPool(0), ByteLimiter(2**20, thread))
    future = requests.ask(1, "test", b"", values.encode(None))
    with SharedBlock(4096) as block:
        gone = Payload.mapped(block.ref(), MappedBlocks())
    (asked,) = posted
    assert isinstance(asked, ev.Ask)
    requests.answered(ev.Answered(asked.number, plain.encode(None), gone, None))
    with pytest.raises(AgentLostError, match="agent 1 ended: shared memory of process"):
        future.result(0)


def test_a_request_that_does_not_fit_into_a_message_is_an_error_of_its_call() -> None:
    thread: Any = SimpleNamespace(post=lambda function, *args: function(*args), is_current=False)
    posted: list[ev.Event] = []
    requests = PendingRequests(thread, posted.append, BlockPool(0), ByteLimiter(2**20, thread))
    with pytest.raises(DataValueError, match="cannot travel between processes"):
        requests.ask(1, "test", bytes(plain.MAX_BODY + 1), values.encode(None))
    assert posted == []


def test_memory_is_used_again_when_the_request_is_over_and_not_when_its_future_is() -> None:
    """A user cancels the future on any thread, while the agent reads the arguments."""
    requests = Requests()
    thread: Any = SimpleNamespace(post=lambda function, *args: function(*args), is_current=False)
    pool = BlockPool(0)
    try:
        pending = PendingRequests(thread, requests.posted.append, pool, ByteLimiter(2**20, thread))
        future = pending.ask(1, "test", b"", values.encode(np.arange(1000)), RequestFuture())
        (asked,) = requests.posted
        assert isinstance(asked, ev.Ask)
        assert asked.payload is not None
        assert future.cancel()
        other = pool.take(8000)
        assert other is not asked.payload.owner
        pending.answered(ev.Answered(asked.number, values.encode(1).body, None, None))
        assert pool.take(8000) is asked.payload.owner
    finally:
        pool.close()
