"""The log lines of a head and all of its nodes, merged by time."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec
import typer

from sapwood.cli.head_access import connected
from sapwood.cli.log_lines import described
from sapwood.cli.present import answer_stream
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.hostset import fold_hosts
from sapwood.environment.log_files import LogLine, Wanted, parsed, seconds_of
from sapwood.environment.log_ring import LogPage
from sapwood.environment.logs import LEVELS
from sapwood.head.parts.components import Components
from sapwood.head.parts.nodes import Nodes
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.connection import CALL_TIMEOUT
from sapwood.nodes import messages

FOLLOW_PAUSE = 0.5
"""Seconds between two looks for new lines."""

ANSWER_TIMEOUT = 5.0
"""Seconds that a node has to give its lines."""

FOLD_WITHIN = 1.0
"""Seconds within which equal lines of several nodes are one."""

HEAD = "head"
"""What lines of the head itself are labelled with."""


@dataclass
class _Source:
    """A ring of lines: where reading it has come to."""

    host: int
    name: str
    skew: float
    ring: str = ""
    at: int = 0
    last: str = ""


@dataclass
class FoldedLine:
    """A line of one or several nodes."""

    time: float
    line: LogLine
    nodes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The nodes, folded."""
        return fold_hosts(self.nodes)


def folded(lines: Iterable[LogLine]) -> list[FoldedLine]:
    """Return lines by time; equal ones of several nodes are one. Those of a node keep their order.

    Example:
        >>> lines = [LogLine(f"1970-01-01T00:00:0{n}.1Z", event="up", node=f"n{n}") for n in (1, 2)]
        >>> [one.label for one in folded(lines)]
        ['n[1-2]']
    """
    found: list[FoldedLine] = []
    known: dict[bytes, int] = {}
    last: dict[str, int] = {}
    for line in sorted(lines, key=lambda one: seconds_of(one.timestamp)):
        moment = seconds_of(line.timestamp)
        key = msgspec.json.encode(
            (line.level, line.component, line.event, line.exception, line.fields)
        )
        at = known.get(key, -1)
        if at < 0 or moment - found[at].time > FOLD_WITHIN or last.get(line.node, -1) >= at:
            at = known[key] = len(found)
            found.append(FoldedLine(moment, line))
        found[at].nodes.append(line.node)
        last[line.node] = at
    return found


def show(name: str, wanted: Wanted, *, follow: bool, as_json: bool) -> None:
    """Print what the head and its nodes have logged.

    Args:
        name: Of the cluster.
        wanted: Which lines.
        follow: Whether to continue with new lines until the cluster ends.
        as_json: Whether to print a line of JSON for each.

    Raises:
        NodeLostError: The cluster is not up.
        InputError: It has no such node.
    """
    with connected(name) as head:
        reader = _Reader(head, wanted)
        reader.refuse_unknown()
        while True:
            _print(reader.read(), as_json=as_json)
            for text in reader.problems():
                typer.echo(text, err=True)
            if not follow:
                return
            time.sleep(FOLLOW_PAUSE)


class _Reader:
    """Reads the rings of a head and its nodes."""

    def __init__(self, head: HeadAccess, wanted: Wanted) -> None:
        self._head = head
        self._wanted = wanted
        self._sources = {0: _Source(0, HEAD, 0.0)}
        self._status = head.client.call_within(CALL_TIMEOUT, Nodes.status)
        self._skews = {one.record.host: one.skew for one in self._status.nodes}
        self._told: dict[int, str] = {}
        self._problems: dict[int, str] = {}

    def refuse_unknown(self) -> None:
        """Raise InputError if a node is wanted that never was there."""
        known = {HEAD, *(one.record.name for one in self._status.nodes)}
        unknown = [name for name in self._wanted.nodes if name not in known]
        if unknown:
            raise InputError(
                f"node {fold_hosts(unknown)} does not exist",
                hint=f"there are {fold_hosts(sorted(known))}",
            )

    def problems(self) -> Iterator[str]:
        """Say which nodes cannot be asked, once each."""
        for host, text in self._problems.items():
            if self._told.get(host) != text:
                self._told[host] = text
                yield f"sapwood: {text}"

    def read(self) -> list[LogLine]:
        """Return the wanted lines that have come, by the clock of the head."""
        self._find_sources()
        found: list[LogLine] = []
        open_sources = list(self._sources.values())
        while open_sources:
            asked = [(one, self._ask(one)) for one in open_sources]
            open_sources = [one for one, answer in asked if self._take(one, answer, found)]
        return found

    def _find_sources(self) -> None:
        records = self._head.client.call_within(CALL_TIMEOUT, Nodes.every)
        self._problems = {}
        for one in records:
            if self._wanted.nodes and one.name not in self._wanted.nodes:
                continue
            if one.can_be_asked:
                skew = self._skews.get(one.host, one.skew)
                self._sources.setdefault(one.host, _Source(one.host, one.name, skew))
            elif one.state != "removed":
                self._problems[one.host] = (
                    f"{one.name} is {one.state}, its lines cannot be read: {one.reason}"
                )
        if self._wanted.nodes and HEAD not in self._wanted.nodes:
            self._sources.pop(0, None)
        there = {0, *(one.host for one in records if one.can_be_asked)}
        self._sources = {host: one for host, one in self._sources.items() if host in there}

    def _ask(self, source: _Source) -> Future[LogPage]:
        level = LEVELS[self._wanted.level] if self._wanted.level else 0
        read = messages.ReadLogs(source.at, level)
        return self._head.client.ask(Components.logs, source.host, read)

    def _take(self, source: _Source, answer: Future[LogPage], found: list[LogLine]) -> bool:
        """Take lines in; say whether there are more."""
        try:
            page = answer.result(ANSWER_TIMEOUT)
        except (SapwoodError, TimeoutError) as error:
            reason = error.what if isinstance(error, SapwoodError) else "it does not answer"
            self._problems[source.host] = f"the lines of {source.name} cannot be read: {reason}"
            return False
        if page.ring != source.ring and source.at:
            source.at = 0  # another process writes now: from its beginning
            return True
        lines = [line for line in self._parsed(source, page.lines) if self._wanted.has(line)]
        if page.dropped and (source.at or not self._wanted.after):
            found.append(_loss(source, page, lines))
        found += lines
        source.ring, source.at = page.ring, page.next
        return page.more

    def _parsed(self, source: _Source, lines: Sequence[bytes]) -> Iterator[LogLine]:
        for raw in lines:
            line = parsed(raw, source.last)
            source.last = line.timestamp
            moment = seconds_of(line.timestamp) - source.skew
            yield msgspec.structs.replace(line, timestamp=_written(moment), node=source.name)


def _loss(source: _Source, page: LogPage, lines: Sequence[LogLine]) -> LogLine:
    """Return a line that says that others were dropped."""
    moment = lines[0].timestamp if lines else _written(time.time())
    return LogLine(
        moment,
        "warning",
        "logs",
        f"… {page.dropped} lines dropped",
        source.name,
        fields={"dropped": page.dropped},
    )


def _written(moment: float) -> str:
    text = dt.datetime.fromtimestamp(max(0.0, moment), dt.UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def _print(lines: Iterable[LogLine], *, as_json: bool) -> None:
    stream = answer_stream()
    if as_json:
        for line in sorted(lines, key=lambda one: one.timestamp):
            known = {
                "timestamp": line.timestamp,
                "node": line.node,
                "pid": line.pid,
                "level": line.level,
                "component": line.component,
                "event": line.event,
            }
            more = {"exception": line.exception} if line.exception else {}
            typer.echo(msgspec.json.encode({**line.fields, **known, **more}), file=stream)
        return
    for one in folded(lines):
        pid = one.line.pid if len(one.nodes) == 1 else 0
        shown = msgspec.structs.replace(one.line, node=one.label, pid=pid)
        typer.echo(described(shown), file=stream)
