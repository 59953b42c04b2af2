"""``sapwood profile``: how often which user code runs on the agents of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sapwood.activity.profile_round import RATE
from sapwood.cli.failures import reporting
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json
from sapwood.cli.report import write_page
from sapwood.cli.session_work import attached
from sapwood.cli.stack import ranks_of
from sapwood.code.profiles import FOLDED, SPEEDSCOPE, ProfileResult, check_profile_file
from sapwood.core.terminal_text import printable
from sapwood.environment.units import describe_size, parse_duration
from sapwood.views import page


@reporting
def profile(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its name, id or name#id.")],
    *,
    seconds: Annotated[
        str, typer.Option("--seconds", metavar="TIME", help="How long to sample, up to 60s.")
    ] = "5s",
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Samples per second, from 1 to 200.")
    ] = RATE,
    agents: Annotated[
        str,
        typer.Option(
            "--agents", metavar="SET", help="Ranks of the agents, such as 2-4,7; default: all."
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="FILE.html: flame graph; FILE.json: speedscope; FILE.folded: collapsed stacks.",
            show_default="print the collapsed stacks",
        ),
    ] = None,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Sample how often which user code runs on the agents of a session.

    Example: `sapwood profile night --seconds 10 -o night.html`
    """
    if output is not None:
        check_profile_file(output)
    length = parse_duration(seconds)
    with attached(session, "watch", cluster) as watcher:
        found = watcher.profile(length, rate=rate, agents=ranks_of(agents))
    size = 0 if output is None else write_profile(found, output)
    if as_json:
        print_json(msgspec.to_builtins(found))
    elif output is None:
        typer.echo(printable(found.folded()))
    else:
        typer.echo(f"Wrote {output} ({describe_size(size)}): {found.samples} samples.")


def write_profile(found: ProfileResult, file: Path) -> int:
    """Write a profile in the form that the name of its file says; return how many bytes it has.

    Raises:
        InputError: The file cannot be written.
    """
    if file.suffix in FOLDED:
        text = found.folded() + "\n"
    elif file.suffix == SPEEDSCOPE:
        text = msgspec.json.encode(found.speedscope()).decode()
    else:
        text = page.profile(found)
    return write_page(text, file, "profile")
