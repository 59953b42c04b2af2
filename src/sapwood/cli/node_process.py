"""What ``sapwood node join``, ``list``, ``drain`` and ``remove`` do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import typer

from sapwood.cli.head_connection import LOG_END, connected, read_line
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, NodeLostError, ResourceError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.state import state_folder
from sapwood.head import calls
from sapwood.nodes.daemon import join_by_hand
from sapwood.nodes.joining import JOIN_TIMEOUT, Joined
from sapwood.security.tokens import JoinToken

HIDDEN = "SAPWOOD_JOIN"
"""Set where the token came by standard input from this command itself."""

MAX_LINE = 64 * 1024
"""Characters of what a machine joins with."""


def join_here(line: str, label: str, *, background: bool) -> None:
    """Let this machine be a node.

    Raises:
        SecurityError: The token is not valid, or the head not the one that made it.
        CommunicationError: The head cannot be reached, or is gone.
    """
    if line != "-":
        parse_line(line)
        if background:
            _join_behind(line, label)
        else:
            _hide(line, label)
        return
    token, places = parse_line(sys.stdin.read(MAX_LINE).strip())
    timeout = load_configuration().settings.nodes.rejoin_timeout
    typer.echo(f"The node has ended: {join_by_hand(token, places, label, _say_joined, timeout)}.")


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


def _say_joined(joined: Joined, pid: int) -> None:
    typer.echo(f"joined as {joined.answer.node} by {joined.address}, process {pid}")
    sys.stdout.flush()


def _words(label: str) -> list[str]:
    words = [sys.executable, "-m", "sapwood", "node", "join", "-"]
    return [*words, "--as", label] if label else words


def _hide(line: str, label: str) -> None:
    """Go on as a command that has no secret among its words, which others may read."""
    reading, writing = os.pipe()
    os.write(writing, line.encode())
    os.close(writing)
    os.dup2(reading, 0)
    sys.stdout.flush()
    os.execv(sys.executable, _words(label))  # noqa: S606 - this program itself


def _join_behind(line: str, label: str) -> None:
    """Start a node in the background, and wait until it has joined."""
    folder = state_folder() / "nodes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / f"{label or 'node'}-{os.getpid()}.log"
    log.touch(mode=0o600)
    reading, writing = os.pipe()
    with log.open("ab") as file:
        try:
            node = subprocess.Popen(
                _words(label),
                stdin=subprocess.PIPE,
                stdout=writing,
                stderr=file,
                start_new_session=True,
            )
        except OSError as error:
            raise ResourceError(f"cannot start a process: {error.strerror}") from error
        finally:
            os.close(writing)
    assert node.stdin is not None  # noqa: S101 - it is a pipe
    with node.stdin as pipe:
        pipe.write(line.encode())
    try:
        said = read_line(reading, time.monotonic() + 2 * JOIN_TIMEOUT)
    finally:
        os.close(reading)
    if said:
        typer.echo(said.decode("utf-8", "replace").rstrip())
        return
    node.kill()
    node.wait()
    raise NodeLostError(
        "the node did not join",
        where=str(log),
        details={"end of its log": _end_of(log)},
    )


def _end_of(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-LOG_END:]


def nodes_of(name: str) -> list[calls.NodeRecord]:
    """Return the nodes of a cluster that is up.

    Raises:
        NodeLostError: It is not up.
    """
    with connected(name) as head:
        return list(typed.convert(head.client.call(calls.NODES), list[calls.NodeRecord]))


def remove_node(name: str, node: str, seconds: float) -> calls.NodeRecord:
    """Remove a node, and return what it was.

    Raises:
        ConfigurationError: There is none, or it is the head's own.
    """
    wanted = msgspec.to_builtins(calls.RemoveNode(node, seconds))
    with connected(name) as head:
        found = head.client.call(calls.REMOVE_NODE, wanted)
    return typed.convert(found, calls.NodeRecord)
