"""What ``sapwood node join`` does before it is a node: it hides the token, and may go behind.

It imports little: the process that becomes the node imports all of it anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from sapwood.cli.node_ready import NodeReady, show_ready
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.environment import background
from sapwood.environment.state import state_folder
from sapwood.security.tokens import JoinToken

MAX_LINE = 64 * 1024
"""Characters of what a machine joins with."""

READY_TIMEOUT = 60.0
"""Seconds until a node that starts in the background must have joined."""


_read_ready: Callable[[bytes], NodeReady] = typed.json_reader(NodeReady)


def join_here(line: str, label: str, ready_descriptor: int, *, behind: bool) -> None:
    """Let this machine be a node.

    Raises:
        SecurityError: The token is not valid, or the head not the one that made it.
        CommunicationError: The head cannot be reached, or is gone.
    """
    if line == "-":
        line = sys.stdin.read(MAX_LINE).strip()
        if not behind:
            from sapwood.cli.node_process import be_node  # noqa: PLC0415 - see above

            be_node(*parse_line(line), label, ready_descriptor)
            return
    parse_line(line)
    words = background.own_command("node", "join", "-", *(["--as", label] if label else []))
    if behind:
        _join_behind(line, words)
    else:
        _hide(line, words)


def parse_line(line: str) -> tuple[JoinToken, list[str]]:
    """Return the token and the places of what ``sapwood up`` shows.

    Raises:
        ConfigurationError: It names no place.
        SecurityError: It has no token.
    """
    token, at, places = line.strip().partition("@")
    if not at or not places:
        raise ConfigurationError(
            "this names no place of a head",
            hint="copy all of what `sapwood up` shows: TOKEN@HOST:PORT",
        )
    return JoinToken.parse(token), places.split(",")


def _hide(line: str, words: list[str]) -> None:
    """Go on as a command that has no secret among its words, which others may read."""
    reading, writing = os.pipe()
    os.write(writing, line.encode())
    os.close(writing)
    os.dup2(reading, 0)
    sys.stdout.flush()
    os.execv(words[0], words)  # noqa: S606 - this program itself


def _join_behind(line: str, words: list[str]) -> None:
    """Start a node in the background, and wait until it has joined."""
    folder = state_folder() / "nodes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / f"{os.getpid()}.log"
    show_ready(_read_ready(background.start(words, log, line.encode(), READY_TIMEOUT)))
