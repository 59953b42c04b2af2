from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sapwood.nodes import messages
from sapwood.nodes.command_processes import CHUNK, CommandProcesses, Done, shown_words
from sapwood.session.shared_reactor import SharedReactor

PATIENCE = 30.0


class Head:
    """Hears of commands, and lets the loop run until it has heard enough."""

    def __init__(self) -> None:
        self.loop = SharedReactor()
        self.output: list[tuple[messages.CommandOutput, Done]] = []
        self.ends: list[messages.CommandEnded] = []
        self.processes = CommandProcesses(
            self.loop, lambda output, taken: self.output.append((output, taken)), self.ends.append
        )

    def order(self, *words: str, window: int = 2) -> None:
        order = messages.StartCommand(
            command=1, arguments=[word.encode() for word in words], window=window
        )
        self.ask(messages.COMMAND_START, order)

    def ask(self, request: str, message: object, done: Done = lambda: None) -> None:
        self.processes.requests[request](messages.to_value(message), done)  # type: ignore[arg-type]

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        over = self.loop.call_later(seconds, self.loop.stop)

        def look() -> None:
            if until():
                self.loop.stop()
            else:
                self.loop.call_later(0.005, look)

        look()
        self.loop.run()
        over.cancel()


@pytest.fixture
def head() -> Iterator[Head]:
    made = Head()
    with contextlib.closing(made.loop), contextlib.closing(made.processes):
        yield made


@pytest.mark.slow
def test_a_command_is_read_only_while_there_is_room(head: Head) -> None:
    head.order("yes", window=3)
    head.run(PATIENCE, lambda: len(head.output) == 3)
    head.run(0.2)
    assert len(head.output) == 3
    for _, taken in head.output[:2]:
        taken()
    head.run(PATIENCE, lambda: len(head.output) == 5)
    head.run(0.2)
    assert len(head.output) == 5
    assert all(len(output.data) <= CHUNK for output, _ in head.output)


@pytest.mark.slow
def test_the_end_is_told_when_all_output_was_taken(head: Head) -> None:
    head.order("sh", "-c", "echo 1; echo 2 >&2; exit 5", window=2)
    head.run(PATIENCE, lambda: len(head.output) == 2)
    head.run(0.3)
    assert not head.ends
    for _, taken in head.output:
        taken()
    head.run(PATIENCE, lambda: bool(head.ends))
    assert head.ends == [messages.CommandEnded(1, 5)]
    assert {output.stream: output.data for output, _ in head.output} == {1: b"1\n", 2: b"2\n"}


def test_a_command_that_is_cancelled_ends_with_its_output_untaken(head: Head) -> None:
    done: list[bool] = []
    head.order("yes", window=1)
    head.run(PATIENCE, lambda: bool(head.output))
    head.ask(messages.COMMAND_CANCEL, messages.CancelCommand(1), lambda: done.append(True))
    head.run(PATIENCE, lambda: bool(done))
    assert head.ends == [messages.CommandEnded(1, -9)]


@pytest.mark.slow
def test_a_command_that_leaves_a_writer_behind_ends(head: Head) -> None:
    head.order("sh", "-c", "while :; do echo x; sleep 0.05; done & exit 0", window=2)

    def taking() -> bool:
        while head.output:
            head.output.pop()[1]()
        return bool(head.ends)

    head.run(PATIENCE, taking)
    assert head.ends == [messages.CommandEnded(1, 0)]


@pytest.mark.slow
def test_a_writer_left_behind_that_is_held_up_ends_after_a_signal(head: Head) -> None:
    head.order("sh", "-c", "trap 'exit 3' TERM; (trap '' TERM; yes) & wait", window=1)
    head.run(PATIENCE, lambda: bool(head.output))
    head.ask(messages.COMMAND_SIGNAL, messages.SignalCommand(1, signal.SIGTERM))

    def taking() -> bool:
        if len(head.output) == 1:
            head.output.pop()[1]()
        return bool(head.ends)

    head.run(PATIENCE, taking)
    assert head.ends == [messages.CommandEnded(1, 3)]


def test_requests_about_a_command_that_is_over_are_answered(head: Head) -> None:
    answered: list[str] = []
    for request, message in (
        (messages.COMMAND_INPUT, messages.CommandInput(9, b"x")),
        (messages.COMMAND_SIGNAL, messages.SignalCommand(9, 2)),
        (messages.COMMAND_CANCEL, messages.CancelCommand(9)),
    ):
        head.ask(request, message, lambda request=request: answered.append(request))  # type: ignore[misc]
    assert len(answered) == 3


@pytest.mark.row("C5-RES")
def test_a_command_of_a_user_who_is_not_there_says_so(head: Head) -> None:
    order = messages.StartCommand(command=1, arguments=[b"true"], user="no-such-user")
    head.ask(messages.COMMAND_START, order)
    (ended,) = head.ends
    assert ended.status == 126
    assert "user 'no-such-user' does not exist on this node" in ended.reason


@pytest.mark.row("C5-RES")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root begins processes as others")
def test_root_does_not_enter_folders_for_others(head: Head, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    for folder in ("closed", "closed/nothing"):
        order = messages.StartCommand(
            command=1, arguments=[b"true"], user="nobody", folder=str(tmp_path / folder)
        )
        head.ask(messages.COMMAND_START, order)
        assert head.ends.pop().reason.endswith(": Permission denied")


def test_the_words_of_a_command_that_a_node_reports_are_bounded() -> None:
    words = [b"run", b"x" * 2**20, *[b"y"] * 1000]
    shown = shown_words(words)
    assert shown[0] == "run"
    assert len(shown[1]) == messages.MAX_WORD
    assert len(shown) == messages.MAX_WORDS
    assert shown[-1] == "…"
    assert shown_words([b"echo", b"\xff"]) == ["echo", "\N{REPLACEMENT CHARACTER}"]
