"""``sapwood node``: this machine, and the nodes of a cluster that is up."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json, Set, assignments
from sapwood.cli.present import print_json, table, write
from sapwood.core.errors import InputError, ResourceError
from sapwood.core.shown import shown
from sapwood.environment.component import ComponentAction
from sapwood.environment.configuration import load_configuration
from sapwood.environment.platform import PlatformItem, PlatformReport, check_platform
from sapwood.environment.units import parse_duration

if TYPE_CHECKING:
    from sapwood.head.calls import NodeRecord

app = typer.Typer(
    help="Look at this machine, join a cluster, and see its nodes.", no_args_is_help=True
)

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "missing": ("✗", "red")}
"""Mark and colour of each status."""


@app.command()
def check(*, settings: Set = None, as_json: Json = False, debug: Debug = False) -> None:
    """Show what this machine offers and lacks, and how to get what is missing.

    The exit code is 5 when something is missing; warnings do not change it.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.gpu.devices.registry import (  # noqa: PLC0415 - --help must not load numpy
            discover_devices,
        )
        from sapwood.gpu.discovery import device_items  # noqa: PLC0415 - as above

        configuration = load_configuration(assignments(settings or (), "--set"))
        devices = discover_devices()
        report = check_platform(configuration.settings, lambda: device_items(devices))
        if as_json:
            print_json({"ok": report.ok, "items": report.items, "devices": devices})
        else:
            write(report_table(report), Text(_verdict(report)))
        if not report.ok:
            raise typer.Exit(ResourceError.exit_code)


def report_table(report: PlatformReport) -> Table:
    """Return one row for each thing looked at, and one below it for what to do about it."""
    made = table("", ("", "group", "what", "found"), (), wrap="found")
    group = ""
    for item in report.items:
        mark, colour = MARKS[item.status]
        shown = "" if item.group == group else item.group
        made.add_row(Text(mark, style=colour), shown, Text(item.name), Text(item.value))
        if item.hint:
            made.add_row("", "", "", Text(f"→ {item.hint}", style="italic"))
        group = item.group
    return made


def _verdict(report: PlatformReport) -> str:
    missing = [item for item in report.items if item.status == "missing"]
    warnings = [item for item in report.items if item.status == "warning"]
    if not missing and not warnings:
        return "nothing is missing"
    return f"missing: {_names(missing)}; warnings: {_names(warnings)}"


def _names(items: list[PlatformItem]) -> str:
    return ", ".join(item.name for item in items) or "none"


@app.command()
def join(
    line: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN@HOST:PORT",
            help="What `sapwood up` shows; - reads it from standard input.",
        ),
    ],
    *,
    label: Annotated[
        str, typer.Option("--as", metavar="LABEL", help="What this node is called.")
    ] = "",
    background: Annotated[
        bool, typer.Option("--background", help="Return when it has joined.")
    ] = False,
    find: Annotated[
        bool,
        typer.Option(
            "--find", help="Look for the head of the token on this network; no HOST:PORT is needed."
        ),
    ] = False,
    ready_descriptor: Annotated[int, typer.Option(hidden=True)] = -1,
    debug: Debug = False,
) -> None:
    """Make this machine a node of a cluster, until Ctrl-C or the cluster's end."""
    with reported(debug=debug):
        from sapwood.cli.node_joining import join_here  # noqa: PLC0415 - --help must load little

        join_here(line, label, ready_descriptor, behind=background, find=find)


@app.command("find")
def find_clusters(
    *,
    wait: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to wait for answers.")
    ] = "3s",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the clusters that are announced on this network; announcements are not verified.

    A machine joins one by `sapwood node join --find TOKEN`.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.nodes import discovery  # noqa: PLC0415 - --help must load little

        found = discovery.find_clusters(parse_duration(wait))
        if as_json:
            print_json({"clusters": found})
            return
        rows = [(one.name, one.cluster, ", ".join(one.places), one.pin) for one in found]
        write(table("", ("name", "cluster", "places", "pin"), rows, wrap="pin"))


@app.command("list")
def show_all(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """List the nodes of a cluster that is up."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.node_process import nodes_of  # noqa: PLC0415 - --help must load little

        found = nodes_of(name)
        if as_json:
            print_json({"nodes": found})
            return
        columns = ("node", "state", "cores>", "Python", "reserved", "since", "why")
        write(table("", columns, map(_node_row, found), wrap="why"))


@app.command()
def show(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which one, as list shows it.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show all that is known of a node."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.node_process import nodes_of  # noqa: PLC0415 - --help must load little

        found = [one for one in nodes_of(name) if one.name == node]
        if not found:
            raise InputError(
                f"node {shown(node)} does not exist", hint="`sapwood node list` shows them"
            )
        if as_json:
            print_json(found[-1])
            return
        rows = [row for row in _facts(found[-1]) if row[1]]
        write(table("", ("", "value"), rows, wrap="value"))


@app.command()
def status(
    *,
    name: Cluster = "default",
    node: Annotated[
        str, typer.Option(metavar="SET", help="Only of these nodes, for example n1 or n[1-4].")
    ] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what runs on the nodes of a cluster, and the components of the nodes and the head."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import component_command, status_tables  # noqa: PLC0415 - as above

        found = status_tables.status_of(name)
        nodes, with_head = component_command.owners_of(found.nodes, node)
        if as_json:
            seconds = found.ready_seconds
            print_json(
                {"time": found.time, "head": found.head, "ready_seconds": seconds, "nodes": nodes}
            )
            return
        owners = [(one.record.name, one.components.components) for one in nodes if one.components]
        if with_head:
            owners.insert(0, (component_command.HEAD, found.head))
        write(
            *status_tables.activity_shown(found, nodes),
            component_command.components_shown(owners, found.time),
        )


Component = Annotated[
    str, typer.Argument(metavar="COMPONENT", help="Which one, as `node status` shows it.")
]
Where = Annotated[
    str,
    typer.Option(
        "--node", metavar="SET", help="On these nodes: n1, n[1-4], or head; by default all nodes."
    ),
]


@app.command()
def start(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a component of nodes that was stopped, or given up after it had died."""
    _act(ComponentAction.START, component, node, name, as_json=as_json, debug=debug)


@app.command()
def stop(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a component of nodes; what it does there ends with it."""
    _act(ComponentAction.STOP, component, node, name, as_json=as_json, debug=debug)


@app.command()
def restart(
    component: Component,
    *,
    node: Where = "",
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a component of nodes and start it again."""
    _act(ComponentAction.RESTART, component, node, name, as_json=as_json, debug=debug)


def _act(
    action: ComponentAction, component: str, node: str, name: str, *, as_json: bool, debug: bool
) -> None:
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import component_command  # noqa: PLC0415 - --help must load little

        found = component_command.act(name, component, action, node)
        if as_json:
            print_json({"components": [{"node": who, "component": view} for who, view in found]})
        else:
            write(
                component_command.components_shown(
                    [(who, [view]) for who, view in found], time.time()
                )
            )
        wanted = "stopped" if action is ComponentAction.STOP else ""
        if any(view.state != wanted if wanted else not view.works for _, view in found):
            raise typer.Exit(ResourceError.exit_code)


@app.command()
def remove(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which one, as list shows it.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End a node, and all that runs on it, for good."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.node_process import remove_node  # noqa: PLC0415 - --help must load little

        _say_removed(remove_node(name, node, 0.0), as_json=as_json)


@app.command()
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which one, as list shows it.")],
    *,
    name: Cluster = "default",
    within: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for what runs on it.")
    ] = "10min",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Begin nothing more on a node, wait until nothing runs there, then remove it."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.node_process import remove_node  # noqa: PLC0415 - --help must load little

        _say_removed(remove_node(name, node, parse_duration(within)), as_json=as_json)


def _say_removed(record: NodeRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        typer.echo(f"{record.name} is removed.")


def _node_row(record: NodeRecord) -> tuple[str, ...]:
    facts = record.facts
    return (
        record.name,
        record.state,
        str(facts.cores) if facts else "",
        facts.python if facts else "",
        "yes" if record.reserved else "",
        _clock(record.joined),
        record.reason,
    )


def _facts(record: NodeRecord) -> list[tuple[str, str]]:
    found = [
        ("name", record.name),
        ("state", record.state),
        ("why", record.reason),
        ("certificate", record.node),
        ("joined", _clock(record.joined)),
        ("reserved", "yes" if record.reserved else ""),
    ]
    if record.facts is not None:
        facts = record.facts
        found += [
            ("cores", str(facts.cores)),
            ("processor", facts.architecture),
            ("Python", facts.python),
            ("process", str(facts.pid)),
            ("user", facts.user),
            ("clock", f"{record.skew:+.3f} s"),
        ]
    return found


def _clock(seconds: float) -> str:
    when = dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone()
    return f"{when:%Y-%m-%d %H:%M}" if seconds else ""
