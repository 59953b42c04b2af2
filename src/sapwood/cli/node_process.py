"""The process of a node that joins by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence

import typer

from sapwood.cli import starting
from sapwood.cli.node_ready import NodeReady, show_ready
from sapwood.contexts import background
from sapwood.core.errors import SapwoodError
from sapwood.environment.configuration import load_configuration
from sapwood.nodes.daemon import join_by_hand
from sapwood.nodes.joining import Joined, check_label
from sapwood.security.invitations import Invitation


def be_node(token: Invitation, addresses: Sequence[str], label: str, ready_descriptor: int) -> None:
    """Be a node until the head says so, or a signal comes.

    Args:
        token: The join token.
        addresses: Where the head may be.
        label: What the node is called; empty for the machine's name.
        ready_descriptor: Where to say that it has joined; -1 for standard output.

    Raises:
        SecurityError: The head refuses, or is not the one that made the token.
        CommunicationError: The head cannot be reached, or does not come back.
    """

    def say(joined: Joined, pid: int) -> None:
        ready = NodeReady(joined.answer.name, joined.address, pid)
        if ready_descriptor >= 0:
            background.tell(ready_descriptor, ready)
        else:
            show_ready(ready)

    try:
        if label:
            check_label(label)
        timeout = load_configuration().settings.nodes.rejoin_timeout
        begun = time.monotonic()

        def failed(reason: str) -> None:
            starting.wait(f"waiting for the head at {reason}", time.monotonic() - begun)

        why = join_by_hand(token, addresses, label, say, timeout, failed)
    except SapwoodError as error:
        background.tell(ready_descriptor, background.Failure(error.to_record()))
        raise
    typer.echo(f"The node has ended: {why}.")
