"""What ``sapwood node status`` shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from sapwood.cli.head_access import connected
from sapwood.cli.present import FittingTable, seconds, shortened, table
from sapwood.core.errors import InputError
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.environment.units import describe_size
from sapwood.head import calls
from sapwood.head.parts.nodes import Nodes
from sapwood.head_client.connection import CALL_TIMEOUT
from sapwood.nodes.messages import NodeActivity, ProcessActivity
from sapwood.views.words import RECENT, moment_shown, of_node, of_refusal


def status_of(name: str) -> calls.TreeStatus:
    """Ask the head of a cluster how its nodes are.

    Raises:
        NodeLostError: The cluster is not up.
    """
    with connected(name) as head:
        return head.client.call_within(CALL_TIMEOUT, Nodes.status)


def chosen(nodes: Sequence[calls.NodeStatus], names: str) -> list[calls.NodeStatus]:
    """Return the nodes of a set of names; all of them without one.

    Raises:
        InputError: There is no such node.
    """
    if not names:
        return list(nodes)
    wanted = expand_hosts(names)
    known = {one.record.name for one in nodes}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(
            f"node {fold_hosts(unknown)} does not exist", hint="`sapwood node list` shows them"
        )
    return [one for one in nodes if one.record.name in wanted]


# --- links ----------------------------------------------------------------------------------------


def links_shown(status: calls.TreeStatus) -> list[RenderableType]:
    """Return a table of links, and a line for each node that is not there."""
    columns = ["node", "state", "address", "by", "rtt>", "clock>", "cert>", "queue>", "drops>"]
    columns += ["resent>", "resumed>"]
    shown = [one for one in status.nodes if one.record.state != "removed"]
    rows = [_link_row(one, status.time) for one in shown]
    optional = ("resumed", "by", "cert", "resent", "queue", "clock")
    parts: list[RenderableType] = [FittingTable("", columns, rows, optional)]
    return parts + [Text(line) for line in explanations(status)]


def explanations(status: calls.TreeStatus) -> list[str]:
    """Return why nodes are not there, and who was not let in."""
    lines: list[str] = []
    for one in status.nodes:
        record = one.record
        if record.state == "ready" and not one.unanswered:
            continue
        why = record.reason or one.unanswered
        if 0 < one.certificate_end < status.time and record.state != "removed":
            why += f"; its certificate ended {moment_shown(one.certificate_end, status.time)}"
        lines.append(of_node([record.name], record.state, record.since, why, status.time))
    lines += detours(status.nodes)
    lines += [
        f"agent {one.agent.rank} of {one.session} joined by invitation {one.agent.id}: process "
        f"{one.agent.pid} on {one.agent.host}"
        for one in status.joined
    ]
    for refusal in status.refusals:
        if status.time - refusal.time < RECENT:
            lines.append(of_refusal(refusal, status.time))
    return list(dict.fromkeys(lines))


def detours(nodes: Sequence[calls.NodeStatus]) -> list[str]:
    """Return which places of sessions are attached elsewhere, as their home cannot be reached."""
    names = {0: "the root"} | {one.record.host: one.record.name for one in nodes}
    return [
        f"{one.record.name} reaches {names.get(detour.at, detour.at)} instead of "
        f"{names.get(detour.home, detour.home)}, which it cannot reach: rank {detour.rank} of "
        f"{session.session}"
        for one in nodes
        if one.activity is not None
        for session in one.activity.sessions
        for detour in session.detours
    ]


def _link_row(one: calls.NodeStatus, now: float) -> tuple[str, ...]:
    record, link = one.record, one.link
    if link is None:
        return (record.name, record.state, *[""] * 9)
    made = link.connection
    ends = (link, one.activity.link if one.activity else None)
    local = _host_of(made.local_address) if made else ""
    return (
        record.name,
        record.state if link.state == "up" else f"{record.state}, link {link.state}",
        _host_of(made.address) if made else "",
        f"{one.interface} {local}".strip(),
        "" if link.round_trip is None else seconds(link.round_trip),
        skew_shown(one),
        left(one.certificate_end - now) if one.certificate_end else "",
        describe_size(link.queued + (made.unsent if made else 0)),
        str(sum(end.dropped for end in ends if end)),
        str(sum(end.connection.resent or 0 for end in ends if end and end.connection)),
        str(link.resumptions),
    )


def skew_shown(one: calls.NodeStatus) -> str:
    """Return by how much a clock is ahead; the precision if the difference is below it."""
    if one.skew_error is not None and abs(one.skew) <= one.skew_error:
        return f"±{seconds(one.skew_error)}"
    return ("+" if one.skew >= 0 else "-") + seconds(abs(one.skew))


def left(duration: float) -> str:
    """Return how long something lasts still, in few characters.

    Example:
        >>> left(86000), left(400), left(59), left(3 * 86400), left(-1)
        ('23 h', '6 min', '59 s', '3 d', 'ended')
    """
    if duration < 0:
        return "ended"
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if duration >= (2 if unit == "d" else 1) * factor:
            return f"{int(duration // factor)} {unit}"
    return f"{int(duration)} s"


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


# --- what runs ------------------------------------------------------------------------------------


def activity_shown(
    status: calls.TreeStatus, nodes: Sequence[calls.NodeStatus]
) -> list[RenderableType]:
    """Return a table of what runs on nodes, and a line for each that does not say."""
    rows: list[Sequence[str]] = []
    for one in nodes:
        if one.activity is not None:
            rows += _activity_rows(one.record.name, one.activity)
    columns = ("node", "what", "name", "rank>", "process>", "memory>", "since")
    part = calls.TreeStatus(time=status.time, nodes=list(nodes), refusals=[])
    made = table("", columns, shortened(rows), wrap="name")
    return [made, *(Text(line) for line in explanations(part))]


def _activity_rows(node: str, activity: NodeActivity) -> Iterable[tuple[str, ...]]:
    free = f", {describe_size(activity.free_memory)} free" if activity.free_memory else ""
    staged = f", {describe_size(activity.staged)} staged" if activity.staged else ""
    machine = f"load {activity.load:.2f}{free}{staged}"
    yield (node, "daemon", machine, *_process(activity.daemon, activity.clock))
    for session in activity.sessions:
        name = session.session + (" (abandoned)" if session.abandoned else "")
        yield (node, "zygote", name, *_process(session.zygote, activity.clock))
        for process in sorted(session.processes, key=lambda one: one.rank):
            yield (node, "process", name, *_process(process, activity.clock))
    for command in activity.commands:
        words = " ".join(command.arguments)
        yield (node, "command", words, *_process(command.process, activity.clock))


def _process(process: ProcessActivity, now: float) -> tuple[str, str, str, str]:
    rank = str(process.rank) if process.rank >= 0 else ""
    memory = describe_size(process.memory) if process.memory else ""
    return rank, str(process.pid), memory, moment_shown(process.since, now)
