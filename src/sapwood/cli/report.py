"""``sapwood report``: a run as one HTML file; ``report_command.py`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, or the start of it.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file; default: run-ID.html. - is stdout."
        ),
    ] = None,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write all that is known of a detached run into one HTML file, which needs no network.

    It has who worked and who waited for whom, rates, what moved, losses, the result, or why the
    run failed. For an active run it shows the present state. `sapwood run --report FILE` writes the
    same for a run that you wait for.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import report_command  # noqa: PLC0415 - --help must load little

        report_command.write_detached(run, cluster, output, as_json=as_json)
