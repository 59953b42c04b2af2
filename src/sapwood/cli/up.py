"""``sapwood up`` and ``sapwood down``; ``head_process.py`` has the process that they are about."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sapwood.cli import head_process
from sapwood.cli.declared import declared
from sapwood.cli.failures import reporting
from sapwood.cli.head_process import UpRequest
from sapwood.cli.options import Cluster, Debug, Json, NewCluster, Set, assignments


@declared
def up(
    *,
    name: NewCluster = "default",
    request: UpRequest,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run the head in this process, until Ctrl-C.")
    ] = False,
    ready_descriptor: Annotated[int, typer.Option(hidden=True)] = -1,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a long-lived cluster, and show how other machines join it.

    Its head runs in the background until `sapwood down`. Run programs on its nodes by
    `sapwood run PROGRAM --on head`, in Python by sapwood.connect().
    """
    del debug  # the declaration reports errors
    flags = assignments(settings or (), "--set")
    request = msgspec.structs.replace(request, name=name, flags=flags)
    if foreground:
        head_process.run_here(request, ready_descriptor, as_json=as_json)
    else:
        head_process.start_behind(request, as_json=as_json)


@reporting
def down(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """Stop a cluster, its nodes, and all that runs on them."""
    head_process.end(name, as_json=as_json)
