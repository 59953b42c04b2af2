"""``sapwood up`` and ``sapwood down``: the options; ``head_process.py`` does what they say."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json, Set, assignments


def up(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    name: Cluster = "default",
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where other machines reach this one, for example 0.0.0.0:7700; "
            "default: nowhere but on this machine.",
        ),
    ] = "127.0.0.1:0",
    own_node: Annotated[
        bool,
        typer.Option("--node/--no-node", help="Whether this machine is a node of the cluster."),
    ] = True,
    announce: Annotated[
        bool,
        typer.Option(
            "--announce", help="Let `sapwood node find` show it to machines on this network."
        ),
    ] = False,
    store: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where the head keeps what it must not forget: etcd://HOST:PORT,HOST:PORT/PREFIX. "
            "A second `sapwood up` with the same store stands by and takes over. "
            "Default: SQLite on this machine.",
        ),
    ] = "",
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve HTTP (API, dashboard, metrics) also here, without TLS: an address of this "
            "machine only, such as 127.0.0.1:8787. Default: with TLS, by the port of --listen.",
        ),
    ] = "",
    http_no_token: Annotated[
        bool,
        typer.Option(
            "--http-no-token",
            help="Let everybody on this machine do everything there, without a credential.",
        ),
    ] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and end with Ctrl-C.")
    ] = False,
    ready_descriptor: Annotated[int, typer.Option(hidden=True)] = -1,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a cluster that stays, and show the line with which other machines join it.

    Its head runs in the background until `sapwood down`. Programs use its nodes by
    `sapwood run DIR --on head`, Python by sapwood.connect().
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import head_process  # noqa: PLC0415 - --help must load little

        request = head_process.UpRequest(
            name=name,
            listen=listen,
            own_node=own_node,
            announce=announce,
            store=store,
            flags=assignments(settings or (), "--set"),
            http=http,
            http_no_token=http_no_token,
        )
        if foreground:
            head_process.run_here(request, ready_descriptor, as_json=as_json)
        else:
            head_process.start_behind(request, as_json=as_json)


def down(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """End a cluster, its nodes, and all that runs on them."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import head_process  # noqa: PLC0415 - --help must load little

        head_process.end(name, as_json=as_json)
