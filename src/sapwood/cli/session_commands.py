"""The commands of ``sapwood session``."""

from __future__ import annotations

import typer

from sapwood.cli.lazy import LazyEntry, LazyGroup

COMMANDS = {
    "create": LazyEntry(
        "sapwood.cli.session_work:create",
        "Start a session, which lives until it is deleted or idle for too long.",
    ),
    "list": LazyEntry(
        "sapwood.cli.session:show_all", "List the sessions with their owners and what they hold."
    ),
    "show": LazyEntry("sapwood.cli.session:show", "Show a session, or why it ended."),
    "credential": LazyEntry(
        "sapwood.cli.session_work:credential",
        "Show the line with which a program on another machine attaches; it is a secret.",
    ),
    "follow": LazyEntry(
        "sapwood.cli.session_work:follow",
        "Show what the agents of a session print, until it ends or Ctrl-C.",
    ),
    "merge": LazyEntry(
        "sapwood.cli.session_work:merge",
        "Let streams of a session also use the agents of another session.",
    ),
    "split": LazyEntry("sapwood.cli.session_work:split", "End a merge; both sessions continue."),
    "expand": LazyEntry(
        "sapwood.cli.session_work:expand", "Add agents to a session while it works."
    ),
    "contract": LazyEntry(
        "sapwood.cli.session_work:contract",
        "Remove agents from a session, after they finished their work.",
    ),
    "delete": LazyEntry("sapwood.cli.session:delete", "Delete a session: stop all its processes."),
}
"""The commands, with their lines in ``sapwood session --help``."""


class SessionGroup(LazyGroup):
    """The commands of ``sapwood session``."""

    entries = COMMANDS


app = typer.Typer(cls=SessionGroup, no_args_is_help=True)
