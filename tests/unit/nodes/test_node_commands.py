from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sapwood.core.clock import VirtualClock
from sapwood.environment.component import ComponentAction
from sapwood.environment.lifecycle import State
from sapwood.environment.supervisor import Supervisor
from sapwood.nodes import messages
from sapwood.nodes.node_commands import NodeCommands
from sapwood.session.shared_reactor import SharedReactor

PATIENCE = 30.0


class Link:
    """Hears what the head would be asked."""

    def __init__(self) -> None:
        self.loop = SharedReactor()
        self.asked: list[tuple[str, Any]] = []

    def ask(self, handler: str, body: Any, _answered: object = None) -> None:
        self.asked.append((handler, body))

    def run(self, until: Callable[[], object]) -> None:
        watchdog = self.loop.call_later(PATIENCE, self.loop.stop)

        def look() -> None:
            if until():
                self.loop.stop()
            else:
                self.loop.call_later(0.005, look)

        look()
        self.loop.run()
        watchdog.cancel()


class Request:
    """A request of the head."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.answered = False

    def value(self) -> bytes:
        return self._value

    def reply(self, _value: object) -> None:
        self.answered = True


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    with contextlib.closing(made.loop):
        yield made


@pytest.mark.row("A-ENV-6")
def test_commands_that_run_when_it_stops_are_killed_and_the_head_hears_of_each(link: Link) -> None:
    part = NodeCommands(link)  # type: ignore[arg-type]  # all that it uses of one
    supervisor = Supervisor([part], clock=VirtualClock())
    supervisor.start()
    for number in (1, 2):
        order = messages.StartCommand(command=number, arguments=[b"sleep", b"1000"])
        request = Request(messages.to_value(order))
        part.requests[messages.COMMAND_START](request)  # type: ignore[arg-type]  # as above
        assert request.answered
    assert len(part.activity()) == 2
    view = supervisor.act("commands", ComponentAction.RESTART)
    assert view.state == "starting"  # until the commands of its former life are gone
    link.run(lambda: supervisor.poll() and supervisor.state_of("commands") is State.READY)
    ends = [
        messages.from_value(body, messages.CommandEnded)
        for handler, body in link.asked
        if handler == messages.COMMAND_ENDED
    ]
    assert sorted((one.command, one.status) for one in ends) == [(1, -9), (2, -9)]
    assert not part.activity()
    supervisor.stop()
    part.wait_closed()
