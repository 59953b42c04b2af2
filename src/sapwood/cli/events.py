"""``sapwood events``: what happened in a cluster that is up."""

from __future__ import annotations

import datetime as dt
import math
import queue
import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_access import connected
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.parquet import Parquet, check_only_parquet, write_events
from sapwood.cli.present import print_json
from sapwood.core import typed
from sapwood.core.errors import CommunicationError, InputError
from sapwood.core.hostset import expand_hosts
from sapwood.core.shown import shown
from sapwood.core.terminal_text import printable
from sapwood.environment.units import parse_duration
from sapwood.head import calls
from sapwood.head.ledger import MAX_FOUND, EventQuery, LedgerEvent
from sapwood.head.parts.events import Events
from sapwood.head_client.connection import ServiceClient

SHOWN = 100
"""Events that are shown by default."""

LOOK = 0.5
"""Seconds between two checks whether the head still runs."""


@reporting
def events(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    name: Cluster = "default",
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Events since then: 10min (ago), or 2026-01-31T12:00."),
    ] = "",
    nodes: Annotated[
        str,
        typer.Option("--nodes", metavar="SET", help="Events about these nodes, such as gpu[1-4]."),
    ] = "",
    session: Annotated[
        str, typer.Option(metavar="SESSION", help="Events about this session.")
    ] = "",
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Events of this kind, such as node.lost, or node for all."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="The last N events at most.",
            show_default=f"{SHOWN}; with --parquet all",
        ),
    ] = None,
    parquet: Parquet = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the events of a cluster: nodes, refusals, credentials, sessions, runs, policy."""
    query = EventQuery(
        since=_since(since) if since else 0.0,
        nodes=expand_hosts(nodes) if nodes else [],
        session=session,
        kinds=list(kind or ()),
        limit=SHOWN if limit is None else limit,
    )
    check_only_parquet(parquet, json=as_json, follow=follow)
    if parquet is not None:
        with connected(name) as head:
            count = write_events(parquet, _pages(head.client, query, limit))
        typer.echo(f"{parquet} has {count} event{'s' * (count != 1)}.")
        return
    coming: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def noticed(what: str, value: Any) -> None:
        if what == calls.EVENT_NOTED:
            coming.put(typed.convert(value, LedgerEvent))

    with connected(name) as head:
        if follow:
            head.subscribe(noticed)
            head.client.call(Events.follow, query)
        page = head.client.call(Events.find, query)
        if as_json and not follow:
            print_json({"events": page.events, "ledger": page.state})
            return
        for event in page.events:
            _show(event, as_json=as_json)
        if page.state.trouble:
            typer.echo(f"The ledger cannot be written: {page.state.trouble}.", err=True)
        last = max((one.number for one in page.events), default=0)
        if follow:
            _follow(head, coming, last, as_json=as_json)


def _pages(
    client: ServiceClient, query: EventQuery, limit: int | None
) -> Iterator[list[LedgerEvent]]:
    """Yield the last events, or all, in parts: the newest part first."""
    left, before = math.inf if limit is None else limit, 0
    while left > 0:
        most = int(min(left, MAX_FOUND))
        wanted = msgspec.structs.replace(query, limit=most, before=before)
        page = client.call(Events.find, wanted).events
        if page:
            yield page
        if len(page) < most:
            return
        before = page[0].number
        left -= len(page)


def _follow(head: Any, coming: queue.SimpleQueue[Any], last: int, *, as_json: bool) -> None:
    """Show what comes until the head is gone."""
    while True:
        try:
            event = coming.get(timeout=LOOK)
        except queue.Empty:
            if head.gone:
                raise CommunicationError(head.gone) from None
            continue
        if event.number > last:  # else it was found before
            _show(event, as_json=as_json)


def _show(event: LedgerEvent, *, as_json: bool) -> None:
    if as_json:
        print_json(event, one_line=True)
        return
    when = dt.datetime.fromtimestamp(event.time, dt.UTC).astimezone()
    about = " ".join(one for one in (event.node, event.session) if one)
    more = ", ".join(f"{name} {value}" for name, value in event.facts.items() if value)
    text = (f"{about}: " if about else "") + event.text + (f" ({more})" if more else "")
    typer.echo(printable(f"{when:%m-%d %H:%M:%S}  {event.kind:<19}  {text}"))


def _since(text: str) -> float:
    """Return the time that a text means: so long ago, or a date.

    Raises:
        InputError: It is neither.
    """
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        return dt.datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise InputError(
            f"--since cannot be {shown(text)}", hint="write 10min, 2h, 3d or 2026-01-31T12:00"
        ) from None
