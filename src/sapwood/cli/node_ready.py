"""What a node says when it has joined."""

from __future__ import annotations

import sys

import msgspec
import typer


class NodeReady(msgspec.Struct, frozen=True):
    """A node has joined.

    Attributes:
        name: What users call it.
        address: Of the head.
        pid: Its process.
    """

    name: str
    address: str
    pid: int


def show_ready(ready: NodeReady) -> None:
    """Say that a node has joined."""
    typer.echo(f"joined as {ready.name} at {ready.address}, process {ready.pid}")
    sys.stdout.flush()
