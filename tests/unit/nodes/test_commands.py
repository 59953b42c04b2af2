"""A command on several nodes, as the client sees it, without nodes."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from sapwood.nodes import messages
from sapwood.nodes.commands import Commands, RunningCommand


class WillingCarrier:
    """Two nodes that do at once what they are asked."""

    names = ("a", "b")

    def ask(self, number: int, request: str, message: msgspec.Struct) -> Future[Any]:
        del number, request, message
        answer: Future[Any] = Future()
        answer.set_result(None)
        return answer

    def close(self) -> None:
        """Do nothing."""


def output(running: RunningCommand, data: bytes) -> messages.CommandOutput:
    return messages.CommandOutput(running.number, 1, data)


def test_a_node_may_forget_what_nobody_will_read() -> None:
    """Whoever closes a command has read some of its output, and more may be on its way."""
    commands = Commands(lambda _told: WillingCarrier())
    taken: list[str] = []
    running = commands.start(["yes"])
    for word in ("read", "unread", "unread too"):
        commands.wrote(1, output(running, word.encode()), partial(taken.append, word))
    assert running.next() is not None
    running.close()
    assert taken == ["read", "unread", "unread too"]
    commands.wrote(2, output(running, b"late"), partial(taken.append, "late"))
    running.wrote(2, output(running, b"later"), partial(taken.append, "later"))
    assert taken[3:] == ["late", "later"]
