"""``sapwood credential``: issue, list and revoke the credentials of a running cluster."""

from __future__ import annotations

import datetime as dt
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.core.errors import InputError
from sapwood.core.hostset import fold_hosts
from sapwood.environment.units import parse_duration
from sapwood.head.calls import IssueCredential
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.security.capabilities import (
    Capability,
    HolderKey,
    holder_text,
    read_holder,
)
from sapwood.security.credential_file import (
    MAX_FILE,
    read_secret,
    write_secret,
)

app = typer.Typer(help="Issue, list and revoke credentials.", no_args_is_help=True)

Rights = Annotated[
    str, typer.Option(metavar="RIGHT,RIGHT", help="Rights, for example connect,attach.")
]
ForSession = Annotated[
    str, typer.Option("--session", metavar="SESSION", help="Restrict it to this session.")
]
ForNodes = Annotated[
    str,
    typer.Option("--nodes", metavar="SET", help="Restrict it to these nodes, such as gpu[1-4]."),
]
Holder = Annotated[
    str,
    typer.Option(
        metavar="PUBLIC", help="Bind it to this key, which `sapwood credential key` shows."
    ),
]
Subject = Annotated[
    str, typer.Option("--for", metavar="TEXT", help="Describe who it is for; lists show the text.")
]
User = Annotated[
    str,
    typer.Option(
        "--user", metavar="USER", help="Run its processes as this user, on nodes that root started."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write it to a new file that only you can read."
    ),
]
Given = Annotated[
    str, typer.Argument(metavar="FILE", help="File with the credential; - reads standard input.")
]


@app.command()
@reporting
def issue(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    name: Cluster = "default",
    rights: Rights = "",
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="Give it the rights of this role of the policy.")
    ] = "",
    session: ForSession = "",
    nodes: ForNodes = "",
    ttl: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Lifetime, for example 8h; default: 7d, or less if the policy says so.",
        ),
    ] = "",
    holder: Holder = "",
    user: User = "",
    subject: Subject = "",
    output: Output = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Issue a credential: a line of text, whose holders have its rights.

    Example: `sapwood credential issue --role user --for Ann --output ann.credential`
    """
    wanted = IssueCredential(
        subject=subject,
        rights=_words(rights),
        role=role,
        session=session,
        nodes=nodes,
        lifetime=parse_duration(ttl) if ttl else 0.0,
        holder=read_holder(holder) if holder else b"",
        user=user,
    )
    made = asked_head(name, CALL_TIMEOUT, IssuedCredentials.issue, wanted)
    _give(made.text, output, made.facts.id, as_json=as_json, more={"places": made.addresses})


@app.command()
@reporting
def attenuate(  # noqa: PLR0913 - each parameter is one option of the command line
    given: Given,
    *,
    rights: Rights = "",
    session: ForSession = "",
    nodes: ForNodes = "",
    ttl: Annotated[
        str, typer.Option(metavar="TIME", help="Lifetime from now, for example 8h.")
    ] = "",
    holder: Holder = "",
    user: User = "",
    subject: Subject = "",
    output: Output = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Derive a credential with fewer rights from another one, without the head."""
    made = _read(given).attenuate(
        rights=_words(rights) if rights else None,
        session=session or None,
        nodes=nodes or None,
        not_after=time.time() + parse_duration(ttl) if ttl else None,
        holder=read_holder(holder) if holder else None,
        user=user or None,
        subject=subject,
    )
    _give(made.text, output, made.id, as_json=as_json, more={})


@app.command()
@reporting
def show(given: Given, *, as_json: Json = False, debug: Debug = False) -> None:
    """Show the rights that a credential states; only the head can verify them."""
    credential = _read(given)
    said = credential.claims
    facts = {
        "id": credential.id,
        "ids": list(said.ids),
        "cluster": said.cluster,
        "subject": said.subject,
        "rights": sorted(said.names),
        "session": said.session,
        "nodes": "" if said.nodes is None else fold_hosts(sorted(said.nodes)),
        "not_after": said.not_after,
        "holder": holder_text(said.holder) if said.holder else "",
        "user": said.user,
        "pin": credential.authority,
    }
    if as_json:
        print_json(facts)
        return
    ended = " (over)" if said.not_after < time.time() else ""
    rows = [
        ("id", credential.id),
        *((("of", ", ".join(said.ids[:-1])),) if len(said.ids) > 1 else ()),
        ("cluster", said.cluster),
        ("for", said.subject or "any holder"),
        ("rights", ", ".join(sorted(said.names)) or "none"),
        ("session", said.session or "all"),
        ("nodes", "all" if said.nodes is None else str(facts["nodes"]) or "none"),
        ("until", _time(said.not_after) + ended),
        ("runs as", said.user or "the user of each node"),
        ("bound to", str(facts["holder"]) or "nobody"),
    ]
    write(table("", ("", "credential"), rows, wrap="credential"))


@app.command()
@reporting
def key(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of the key; it is created if missing.")
    ],
    *,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the public half of a key, for --holder; create the key if its file is missing."""
    made = not file.exists()
    if made:
        write_secret(file, HolderKey.create().text)
    public = holder_text(HolderKey.parse(read_secret(file)).public)
    if as_json:
        print_json({"public": public, "made": made})
    else:
        typer.echo(public)


@app.command("list")
@reporting
def show_all(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """List the credentials that the head has issued; it keeps no secrets."""
    found = asked_head(name, CALL_TIMEOUT, IssuedCredentials.known)
    if as_json:
        print_json({"credentials": found})
        return
    rows = [
        (
            one.id,
            one.subject or "-",
            f"revoked {_time(one.revoked)}" if one.revoked else _time(one.not_after),
            _summary(one),
        )
        for one in found
    ]
    write(table("", ("id", "for", "until", "allows"), rows, wrap="allows"))


@app.command()
@reporting
def revoke(
    block: Annotated[str, typer.Argument(metavar="ID", help="Id of the credential, or its file.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Revoke a credential and all derived from it, and disconnect clients that use it."""
    wanted = _read(block).id if Path(block).is_file() else block
    done = asked_head(name, CALL_TIMEOUT, IssuedCredentials.revoke, wanted)
    if as_json:
        print_json(done)
        return
    count = len(done.nodes) + len(done.missing)
    typer.echo(
        f"revoked {done.id}: {len(done.nodes)} of {count} nodes know, "
        f"{done.clients} clients were cut off"
    )
    if not done.known:
        typer.echo("This head did not issue it; a holder may have narrowed another one to it.")
    if done.missing:
        typer.echo(f"These nodes are notified when they are back: {', '.join(done.missing)}")


def _read(given: str) -> Any:
    if given == "-":
        return Capability.parse(sys.stdin.read(MAX_FILE))
    if given.startswith("swc1."):
        raise InputError(
            "a credential does not belong on a command line: others can read that",
            hint="write it to a file that only you read, or give - and standard input",
        )
    return Capability.parse(read_secret(Path(given)))


def _give(
    text: str, output: Path | None, block: str, *, as_json: bool, more: dict[str, Any]
) -> None:
    """Show a new credential, or write it to a file."""
    if output is not None:
        write_secret(output, text)
    if as_json:
        shown = {"credential": text} if output is None else {"file": str(output)}
        print_json({"id": block, **shown, **more})
    elif output is None:
        typer.echo(text)
    else:
        typer.echo(f"wrote {block} to {output}")


def _summary(facts: Any) -> str:
    parts = [", ".join(facts.rights)]
    if facts.session:
        parts.append(f"session {facts.session}")
    if facts.nodes:
        parts.append(f"nodes {facts.nodes}")
    if facts.user:
        parts.append(f"as {facts.user}")
    if facts.bound:
        parts.append("bound to a key")
    return "; ".join(parts)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _time(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone():%Y-%m-%d %H:%M}"
