"""Requests of the front end, and what becomes of their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm import plain, values
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import AgentLostError
from sapwood.session.back_pressure import ByteLimiter
from sapwood.session.requests import PendingRequests


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
