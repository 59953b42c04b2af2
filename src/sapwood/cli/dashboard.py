"""``sapwood dashboard``: lets a browser in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json
from sapwood.core.errors import InputError
from sapwood.core.shown import shown
from sapwood.environment.units import parse_duration
from sapwood.head.parts.web import DashboardTicket, OpenDashboard, WebServer
from sapwood.security.rights import ADMIN, CONNECT, DELETE, OBSERVE

START_TIMEOUT = 60.0
"""Seconds that the HTTP server may take to start."""


@reporting
def dashboard(
    *,
    name: Cluster = "default",
    lifetime: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="How long the browser stays signed in.")
    ] = "12h",
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Let the browser also stop runs, delete sessions and change the cluster by the "
            "HTTP API; default: read only.",
        ),
    ] = False,
    authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the certificate of the cluster's authority to this file: browsers and "
            "`curl --cacert` verify the server by it.",
        ),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the link in the browser of this machine.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a link that opens the dashboard of a cluster.

    The link signs one browser in, once, within five minutes, for reading only.
    `sapwood credential list` shows its credential 'dashboard', and `sapwood credential revoke`
    signs the browser out.
    """
    made = ticket(name, lifetime, allow_changes=allow_changes)
    if authority is not None:
        authority.write_bytes(made.authority)
    found = links(made)
    if open_browser:
        typer.launch(found[0])
    if as_json:
        print_json({"links": found, "expires": made.expires, "credential": made.credential})
    else:
        show(made)


def ticket(cluster: str, lifetime: str, *, allow_changes: bool) -> DashboardTicket:
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
    wanted = OpenDashboard(rights=rights, lifetime=seconds)
    return asked_head(cluster, START_TIMEOUT, WebServer.open, wanted)


def links(made: DashboardTicket) -> list[str]:
    """Return the links that let a browser in: one of them, once."""
    return [f"{url}/login#{made.ticket}" for url in made.urls]


def show(made: DashboardTicket) -> None:
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
