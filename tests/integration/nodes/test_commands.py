"""Commands on nodes, through the control tree and on this machine directly."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sapwood
from sapwood.client.executing import commands_on
from sapwood.core.errors import ConfigurationError
from sapwood.environment.settings import Settings
from sapwood.nodes.commands import Commands, NodeExit, NodeOutput, RunningCommand

PATIENCE = 30.0


@pytest.fixture(scope="module", params=["local", "nodes:2"])
def commands(
    nothing_is_left_behind_by_all: None, request: pytest.FixtureRequest
) -> Iterator[Commands]:
    """Nodes for all tests of this module."""
    del nothing_is_left_behind_by_all
    with commands_on(request.param, Settings()) as made:
        with made.start(["true"]) as running:
            finish(running)  # what stands beside the commands is there, too
        yield made


def finish(running: RunningCommand) -> tuple[dict[str, bytes], dict[str, NodeExit]]:
    """What a command writes to standard output, and its ends, by node."""
    written: dict[str, bytes] = {}
    ends: dict[str, NodeExit] = {}
    while not running.is_over:
        event = running.next(PATIENCE)
        assert event is not None
        if isinstance(event, NodeExit):
            ends[event.node] = event
        elif event.stream == "stdout":
            written[event.node] = written.get(event.node, b"") + event.data
    return written, ends


def everywhere(commands: Commands, value: object) -> dict[str, object]:
    return dict.fromkeys(commands.names, value)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until_gone(pids: list[int]) -> None:
    for _ in range(3000):
        if not any(map(alive, pids)):
            return
        threading.Event().wait(0.01)
    pytest.fail(f"still there: {pids}")


def first_numbers(running: RunningCommand, count: int) -> list[int]:
    """The numbers that a command writes first, from all nodes."""
    texts: dict[str, bytes] = {}  # pieces of one line from two nodes may come in turns
    while sum(map(lines, texts.values())) < count:
        event = running.next(PATIENCE)
        assert isinstance(event, NodeOutput), event
        texts[event.node] = texts.get(event.node, b"") + event.data
    return [int(word) for text in texts.values() for word in text.split()]


def lines(text: bytes) -> int:
    return text.count(b"\n")


def test_output_and_status_come_from_each_node(commands: Commands) -> None:
    with commands.start(
        ["sh", "-c", "echo $WORD; echo err >&2; exit 3"], environment={"WORD": "x"}
    ) as running:
        written, ends = finish(running)
    assert written == everywhere(commands, b"x\n")
    assert {end.status for end in ends.values()} == {3}
    assert set(ends) == set(commands.names)


def test_a_signal_counts_as_128_and_its_number(commands: Commands) -> None:
    with commands.start(["sh", "-c", "echo last words; kill -9 $$"]) as running:
        written, ends = finish(running)
    assert written == everywhere(commands, b"last words\n")
    assert {end.status for end in ends.values()} == {128 + signal.SIGKILL}


@pytest.mark.parametrize(
    ("words", "folder", "status", "reason"),
    [
        (["no-such-command"], "", 127, "command not found: 'no-such-command'"),
        (["/etc/passwd"], "", 126, "'/etc/passwd' cannot be started: Permission denied"),
        (["true"], "/nowhere", 126, "it cannot start in /nowhere: No such file or directory"),
        (["true", "\0"], "", 126, "'true' cannot be started: embedded null byte"),
    ],
)
def test_what_cannot_be_started_says_why(
    commands: Commands, words: list[str], folder: str, status: int, reason: str
) -> None:
    with commands.start(words, folder=folder) as running:
        _, ends = finish(running)
    assert {(end.status, end.reason) for end in ends.values()} == {(status, reason)}


def test_ten_megabytes_of_input_arrive_whole_everywhere(commands: Commands) -> None:
    data = os.urandom(1 << 20) * 10
    with commands.start(["sha256sum"], input_to=commands.names) as running:
        feeding = threading.Thread(target=give, args=(running, data))
        feeding.start()
        written, _ = finish(running)
        feeding.join()
    expected = f"{hashlib.sha256(data).hexdigest()}  -\n".encode()
    assert written == everywhere(commands, expected)


def give(running: RunningCommand, data: bytes) -> None:
    for start in range(0, len(data), 50_000):
        assert running.give(data[start : start + 50_000])
    running.give(b"")


def test_input_goes_to_the_node_that_is_named(commands: Commands) -> None:
    last = commands.names[-1]
    with commands.start(["cat"], input_to=[last]) as running:
        running.give(b"for you")
        running.give(b"")
        written, _ = finish(running)
    assert written == {last: b"for you"}


@pytest.mark.row("C3-IOF")
def test_a_command_runs_on_the_nodes_that_are_meant() -> None:
    with commands_on("nodes:3", Settings(), nodes="local[1,3]") as some:
        assert some.names == ["local1", "local3"]
        with some.start(["cat"], input_to=["local3"]) as running:
            assert running.give(b"for you")
            running.give(b"")
            written, ends = finish(running)
        assert written == {"local3": b"for you"}
        assert set(ends) == {"local1", "local3"}
        with pytest.raises(ConfigurationError, match="node 'local2' does not exist") as refused:
            some.start(["cat"], input_to=["local2"])
        assert "nodes are local[1,3]" in str(refused.value)


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ("local,gpu[1-2]", r"node gpu\[1-2\] takes no commands now.*nodes are local"),
        ("gpu[1", r"gpu\[1"),
        (",", "names no nodes"),
    ],
)
def test_a_set_that_names_what_is_not_there_is_refused(nodes: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        sapwood.execute(["true"], on="local", nodes=nodes)
    found = sapwood.execute(["true"], on="local", nodes="local")
    assert set(found.nodes) == {"local"}


def test_who_does_not_read_holds_up_nobody_after_its_end(commands: Commands) -> None:
    with commands.start(
        ["sh", "-c", "exec <&-; read x < /dev/null; exit 0"], input_to=commands.names
    ) as running:
        for _ in range(100):
            if not running.give(bytes(100_000)):
                break
        _, ends = finish(running)
        assert not running.give(b"more")
    assert {end.status for end in ends.values()} == {0}


def test_a_node_that_is_not_there_gets_no_input(commands: Commands) -> None:
    with pytest.raises(sapwood.errors.ConfigurationError, match="node 'n9' does not exist"):
        commands.start(["cat"], input_to=["n9"])


def test_what_nobody_takes_waits_in_the_pipe(commands: Commands) -> None:
    """A command that writes without end stops at the window while its output is unread."""
    script = "import os\nwhile True: os.write(1, bytes(65536)); os.write(2, b'.')"
    with commands.start(["python3", "-c", script]) as running:
        total = dict.fromkeys(commands.names, 0)
        for _ in range(200):
            event = running.next(PATIENCE)
            assert isinstance(event, NodeOutput)
            total[event.node] += len(event.data)
    assert running.is_over is False  # it was killed; the rest is not requested


def test_two_megabytes_arrive_whole_and_in_order(commands: Commands) -> None:
    script = "for i in range(20): print(str(i) * 65536 * 2)"
    with commands.start(["python3", "-c", script]) as running:
        written, _ = finish(running)
    expected = b"".join(str(i).encode() * 65536 * 2 + b"\n" for i in range(20))
    assert written == everywhere(commands, expected)


def test_a_signal_reaches_the_command_on_all_nodes(commands: Commands) -> None:
    script = "trap 'echo heard; exit 7' USR1; echo 1; while :; do sleep 0.01; done"
    with commands.start(["sh", "-c", script]) as running:
        first_numbers(running, len(commands.names))
        running.signal(signal.SIGUSR1)
        written, ends = finish(running)
    assert written == everywhere(commands, b"heard\n")
    assert {end.status for end in ends.values()} == {7}


def test_an_interrupt_is_not_ignored(commands: Commands) -> None:
    """A daemon ignores SIGINT; what it starts does not."""
    script = (
        "import os, time\ntry: print(os.getpid(), flush=True); time.sleep(600)\nfinally: print(2)"
    )
    with commands.start([sys.executable, "-S", "-c", script]) as running:
        first_numbers(running, len(commands.names))
        running.signal(signal.SIGINT)
        written, ends = finish(running)
    assert written == everywhere(commands, b"2\n")
    assert {end.status for end in ends.values()} == {128 + signal.SIGINT}


DAEMONS = "setsid sleep 600 > /dev/null 2>&1 & echo $!; setsid sleep 600 & echo $!; echo $$; "
"""Begins processes that leave the session, with and without the command's output."""


def test_nothing_is_left_of_a_command_that_ends(commands: Commands) -> None:
    with commands.start(["sh", "-c", DAEMONS]) as running:
        pids = first_numbers(running, 3 * len(commands.names))
        finish(running)
        assert not any(map(alive, pids))


def test_nothing_is_left_of_a_command_that_is_closed(commands: Commands) -> None:
    with commands.start(["sh", "-c", f"trap '' INT TERM; {DAEMONS} sleep 600"]) as running:
        pids = first_numbers(running, 3 * len(commands.names))
        assert all(map(alive, pids))
    until_gone(pids)


def test_nothing_is_left_of_a_command_that_is_killed(commands: Commands) -> None:
    with commands.start(["sh", "-c", f"{DAEMONS} sleep 600"]) as running:
        pids = first_numbers(running, 3 * len(commands.names))
        running.signal(signal.SIGKILL)
        _, ends = finish(running)
        assert {end.status for end in ends.values()} == {128 + signal.SIGKILL}
        assert not any(map(alive, pids))


def test_several_commands_run_side_by_side(commands: Commands) -> None:
    with (
        commands.start(["cat"], input_to=commands.names) as first,
        commands.start(["cat"], input_to=commands.names) as second,
    ):
        for running, word in ((second, b"two"), (first, b"one")):
            running.give(word)
            running.give(b"")
        assert finish(first)[0] == everywhere(commands, b"one")
        assert finish(second)[0] == everywhere(commands, b"two")
