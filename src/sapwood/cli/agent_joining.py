"""What ``sapwood agent join`` does: it hides the line, and is an agent then.

It imports little: the process that becomes the agent imports all of it anyway.
"""

from __future__ import annotations

import os
import sys

import typer

from sapwood.cli.node_joining import MAX_LINE, hide_line
from sapwood.environment import background
from sapwood.security.invitations import AgentInvitation


def join(line: str) -> None:
    """Be an agent of a session, until it is over.

    Raises:
        SapwoodError: It is not let in, or the session is lost.
    """
    if line != "-":
        AgentInvitation.parse(line)
        hide_line(line, background.own_command("agent", "join", "-"))
        return  # it continues as another command
    from sapwood.activity.joined_agent import join_as_agent  # noqa: PLC0415 - see above

    text = sys.stdin.read(MAX_LINE)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - what children of this process read
        os.dup2(nothing.fileno(), 0)
    typer.echo(f"It has ended: {join_as_agent(text, on_join=_joined)}.")


def _joined(rank: int, session: str) -> None:
    print(f"Agent {rank} of the session {session}: process {os.getpid()}.", flush=True)  # noqa: T201 - a line for programs that wait for it
