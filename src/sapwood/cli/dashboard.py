"""``sapwood dashboard``: lets a browser in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json


def dashboard(
    *,
    name: Cluster = "default",
    lifetime: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="For how long the browser is let in.")
    ] = "12h",
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Let the browser also cancel runs, end sessions and change the cluster by the "
            "HTTP API. Without this option it can only read.",
        ),
    ] = False,
    authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the certificate of the cluster's authority there: browsers and "
            "`curl --cacert` know the server by it.",
        ),
    ] = None,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the browser of this machine.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a link that lets a browser in, once, within five minutes.

    The link signs the browser in, for reading only. `sapwood credential list` shows its
    credential 'dashboard', and `sapwood credential revoke` signs the browser out.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import dashboard_command  # noqa: PLC0415 - --help must load little

        made = dashboard_command.ticket(name, lifetime, allow_changes=allow_changes)
        if authority is not None:
            authority.write_bytes(made.authority)
        links = dashboard_command.links(made)
        if open_browser:
            typer.launch(links[0])
        if as_json:
            print_json({"links": links, "expires": made.expires, "credential": made.credential})
        else:
            dashboard_command.show(made)
