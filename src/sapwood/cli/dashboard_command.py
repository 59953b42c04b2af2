"""What ``sapwood dashboard`` does."""

from __future__ import annotations

import msgspec
import typer

from sapwood.cli.head_connection import asked_head
from sapwood.core import typed
from sapwood.core.errors import InputError
from sapwood.core.shown import shown
from sapwood.environment.units import parse_duration
from sapwood.head import calls
from sapwood.security.rights import ADMIN, CONNECT, DELETE, OBSERVE

START_TIMEOUT = 60.0
"""Seconds that the HTTP server may take to start."""


def ticket(cluster: str, lifetime: str, *, allow_changes: bool) -> calls.DashboardTicket:
    """Ask the head for a ticket.

    Raises:
        InputError: The lifetime is not a duration.
        NodeLostError: No such head is up here.
    """
    try:
        seconds = parse_duration(lifetime)
    except ValueError:
        raise InputError(
            f"--ttl cannot be {shown(lifetime)}", hint="write 30min, 12h or 1d"
        ) from None
    rights = [CONNECT, OBSERVE, DELETE, ADMIN] if allow_changes else [CONNECT, OBSERVE]
    wanted = calls.OpenDashboard(rights=rights, lifetime=seconds)
    made = asked_head(cluster, calls.OPEN_DASHBOARD, msgspec.to_builtins(wanted), START_TIMEOUT)
    return typed.convert(made, calls.DashboardTicket)


def links(made: calls.DashboardTicket) -> list[str]:
    """Return the links that let a browser in: one of them, once."""
    return [f"{url}/login#{made.ticket}" for url in made.urls]


def show(made: calls.DashboardTicket) -> None:
    """Show the links."""
    found = links(made)
    typer.echo(found[0])
    if found[0].startswith("https:"):
        typer.echo(
            "The browser does not know the cluster's own authority and asks whether you trust it: "
            "--authority FILE\nwrites it for import, and `sapwood up --http 127.0.0.1:8787` "
            "serves this machine without TLS.",
            err=True,
        )
    for other in found[1:]:
        typer.echo(f"or {other}")
