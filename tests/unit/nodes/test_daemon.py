"""How a daemon that a launcher has started reaches the head: directly, or by the launcher's way."""

from __future__ import annotations

import contextlib
import io
import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from sapwood.core.errors import CommunicationError
from sapwood.nodes import daemon, stub
from sapwood.nodes.daemon import DaemonOrder

from .conftest import Head

Answers = Callable[[bytes], None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Answers:
    """Lets the launcher say something on the channel."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)

    def say(line: bytes) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(line)))

    return say


@pytest.fixture
def nobody() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_the_launcher_is_not_asked_where_the_head_answers(
    head: Head, nobody: str, answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(b"")
    order = DaemonOrder(head.tokens.create(slot=2).text, [nobody, head.address], way=True)
    with contextlib.ExitStack() as stack:
        joined, way = daemon._joined(order, stack, stub.say)
    assert (joined.address, way) == (head.address, None)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"refused": "ssh forwards nothing"}\n', "ssh forwards nothing"),
        (b"", "the launcher's channel has ended"),
    ],
)
def test_without_a_way_it_is_told_what_cannot_be_reached_and_why(
    head: Head,
    nobody: str,
    answers: Answers,
    line: bytes,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers(line)
    order = DaemonOrder(head.tokens.create().text, [nobody], way=True)
    with (
        contextlib.ExitStack() as stack,
        pytest.raises(
            CommunicationError, match=f"the head cannot be reached, and {reason}"
        ) as told,
    ):
        daemon._joined(order, stack, stub.say)
    assert told.value.where == nobody
    asked = json.loads(capsys.readouterr().out)["way"]
    assert asked.endswith("/head.sock")
    assert list(tmp_path.iterdir()) == []
