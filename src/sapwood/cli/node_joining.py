"""``sapwood node join``: it hides the token, and may go behind.

It imports little: the process that becomes the node imports all of it anyway.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from sapwood.cli import starting
from sapwood.cli.failures import reporting
from sapwood.cli.node_ready import NodeReady, show_ready
from sapwood.cli.options import Debug
from sapwood.contexts import background
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, NodeLostError
from sapwood.environment.folders import make_private, state_folder
from sapwood.security.invitations import NODES, Invitation

MAX_LINE = 64 * 1024
"""Characters of what a machine joins with."""

READY_TIMEOUT = 60.0
"""Seconds until a node that starts in the background must have joined."""


_read_ready: Callable[[bytes], NodeReady] = typed.json_reader(NodeReady)


@reporting
def join(
    line: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN@HOST:PORT",
            help="Text that `sapwood up` shows; - reads standard input.",
        ),
    ],
    *,
    label: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Name of this node; default: the host name.")
    ] = "",
    background: Annotated[
        bool, typer.Option("--background", help="Return when the node has joined.")
    ] = False,
    find: Annotated[
        bool,
        typer.Option(
            "--find", help="Find the head of the token on this network; then TOKEN suffices."
        ),
    ] = False,
    ready_descriptor: Annotated[int, typer.Option(hidden=True)] = -1,
    debug: Debug = False,
) -> None:
    """Make this machine a node of a cluster, until Ctrl-C or the cluster's end."""
    join_here(line, label, ready_descriptor, behind=background, find=find)


def join_here(
    line: str, label: str, ready_descriptor: int, *, behind: bool, find: bool = False
) -> None:
    """Make this machine a node.

    Args:
        line: What it joins with; ``-`` reads it from standard input.
        label: What this node is called; empty for the machine's name.
        ready_descriptor: Where to say that it has joined; -1 for standard output.
        behind: Whether to return when it has joined.
        find: Whether to look on the local network for the head that has made the token.

    Raises:
        NodeLostError: No such head is announced.
        SecurityError: The token is not valid, or the head not the one that made it.
        CommunicationError: The head cannot be reached, or is gone.
    """
    hidden = line == "-"
    if hidden:
        line = sys.stdin.read(MAX_LINE).strip()
    words = background.own_command("node", "join", "-", *(["--as", label] if label else []))
    if find and not behind and not hidden:
        NODES.parse(line.partition("@")[0])
        hide_line(line, [*words, "--find"])
    if find:
        line = find_line(line)
    if hidden and not behind:
        from sapwood.cli.node_process import be_node  # noqa: PLC0415 - see above

        be_node(*parse_line(line), label, ready_descriptor)
        return
    _, addresses = parse_line(line)
    if behind:
        _join_behind(line, words, ", ".join(addresses))
    else:
        hide_line(line, words)


def parse_line(line: str) -> tuple[Invitation, list[str]]:
    """Return the token and the addresses of what ``sapwood up`` shows.

    Raises:
        ConfigurationError: It names no address.
        SecurityError: It has no token.
    """
    token, at, addresses = line.strip().partition("@")
    if not at or not addresses:
        raise ConfigurationError(
            "the join line has no address of a head",
            hint="copy the whole line that `sapwood up` shows: TOKEN@HOST:PORT",
        )
    return NODES.parse(token), addresses.split(",")


def find_line(line: str) -> str:
    """Return a token with the addresses at which its head is announced on the local network.

    The pin of the token says which cluster is meant. Whoever announces the same pin is tried, and
    gets the token's secret only if it has the key that belongs to the pin.

    Raises:
        SecurityError: It has no token.
        NodeLostError: No such head is announced.
    """
    from sapwood.nodes.discovery import find_clusters  # noqa: PLC0415 - see above

    token = NODES.parse(line.partition("@")[0])
    found = find_clusters(enough=lambda one: one.pin == token.pin)
    addresses = [address for one in found if one.pin == token.pin for address in one.addresses]
    if not addresses:
        others = ", ".join(f"{one.name} ({one.cluster})" for one in found)
        raise NodeLostError(
            "no head on this network has made the token",
            where=f"announced are {others}" if others else "none is announced",
            hint="the head announces itself by `sapwood up --announce`; "
            "or give the address: TOKEN@HOST:PORT",
        )
    return f"{token.text}@{','.join(dict.fromkeys(addresses))}"


def hide_line(line: str, words: list[str]) -> None:
    """Go on as a command that has no secret among its words, which others may read."""
    reading, writing = os.pipe()
    os.write(writing, line.encode())
    os.close(writing)
    os.dup2(reading, 0)
    sys.stdout.flush()
    os.execv(words[0], words)  # noqa: S606 - this program itself


def _join_behind(line: str, words: list[str], addresses: str) -> None:
    """Start a node in the background, and wait until it has joined."""

    def waiting(seconds: float) -> None:
        starting.wait(f"waiting for the head at {addresses}", seconds)

    folder = state_folder() / "nodes"
    make_private(folder)
    log = folder / f"{os.getpid()}.log"
    said = background.start(words, log, line.encode(), READY_TIMEOUT, waiting)
    show_ready(_read_ready(said))
