"""A snapshot at all nodes: what many viewers may ask for twice a second, with a thousand nodes.

A status polls every node, and waits. A snapshot does not wait: it contains what nodes reported
last, and asks those again whose word is the oldest, a bounded number at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sapwood.comm.link_figures import LinkFigures
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import when_done
from sapwood.environment.component import ComponentView
from sapwood.head import calls
from sapwood.nodes import messages

if TYPE_CHECKING:
    from sapwood.nodes.registry import NodeView

MAX_ASKED: Final = 32
"""Nodes that are asked at most for one snapshot."""

LEAST_AGE: Final = 2.0
"""Seconds for which what a node said is new enough."""

PATIENCE: Final = 30.0
"""Seconds after which a node that has not answered is asked again."""

ROUNDED: Final = 3
"""Significant digits of a round trip: so that a glance is like the last one where nothing new is.
"""


class NodeSnapshots:
    """What nodes said last, and whom to ask next; from any thread.

    Args:
        ask: Asks a node how it is.
        clock: Returns seconds that only grow.
    """

    def __init__(
        self, ask: Callable[[int], Future[Any]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[int, messages.NodeActivity] = {}
        self._next: dict[int, float] = {}  # when it may be asked again

    def said(self, host: int) -> messages.NodeActivity | None:
        """Return what a node said last."""
        with self._lock:
            return self._said.get(host)

    def look(self, hosts: Sequence[int]) -> list[int]:
        """Ask some of these nodes how they are; forget all others.

        Returns:
            Those that were asked.
        """
        now, there = self._clock(), set(hosts)
        with self._lock:
            for gone in self._next.keys() - there:
                del self._next[gone]
                self._said.pop(gone, None)
            due = [host for host in hosts if self._next.get(host, 0.0) <= now]
            due.sort(key=lambda host: self._next.get(host, 0.0))
            chosen = due[:MAX_ASKED]
            self._next.update((host, now + PATIENCE) for host in chosen)
        for host in chosen:
            try:
                when_done(self._ask(host), partial(self._answered, host))
            except SapwoodError:
                self._wait(host)
        return chosen

    def _wait(self, host: int) -> None:
        with self._lock:
            if host in self._next:
                self._next[host] = self._clock() + LEAST_AGE

    def _answered(self, host: int, answer: Future[Any]) -> None:
        self._wait(host)
        try:
            said = messages.from_value(answer.result(), messages.NodeActivity)
        except SapwoodError:
            return
        with self._lock:
            if host in self._next:
                self._said[host] = said


def node_snapshot(
    record: calls.NodeRecord,
    view: NodeView | None,
    link: LinkFigures | None,
    said: messages.NodeActivity | None,
) -> calls.NodeSnapshot:
    """Return how a node is in short.

    Args:
        record: Who it is.
        view: The same, as the control tree has it; None once it was removed.
        link: The link to it.
        said: What it said last.
    """
    trouble: list[str] = []
    if view is not None and view.components is not None:
        trouble = troubles(view.components.components)
    metrics: dict[str, Any] = {}
    if link is not None:
        trip = link.round_trip
        metrics = {
            "link": link.state,
            "round_trip": None if trip is None else float(f"{trip:.{ROUNDED}g}"),
            "queued": link.queued + (link.connection.unsent if link.connection else 0),
            "sent": link.bytes_sent,
            "received": link.bytes_received,
        }
    if said is not None:
        metrics |= {
            "load": round(said.load, 2),
            "free_memory": said.free_memory,
            "sessions": [one.session for one in said.sessions],
            "processes": sum(len(one.processes) for one in said.sessions),
            "commands": len(said.commands),
        }
    return calls.NodeSnapshot(
        host=record.host,
        name=record.name,
        state=record.state,
        since=record.since,
        reason=record.reason,
        cores=record.facts.cores if record.facts else 0,
        skew=round(record.skew, 3),
        certificate_end=view.certificate_end if view else 0.0,
        trouble=trouble,
        **metrics,
    )


def troubles(components: Sequence[ComponentView]) -> list[str]:
    """Return which components do not do what they are for, and why.

    Example:
        >>> troubles([ComponentView(name="stage", state="failed", since=1.0, reason="disk full")])
        ['stage is failed: disk full']
    """
    return [
        f"{one.name} is {one.state}" + (f": {one.reason}" if one.reason else "")
        for one in components
        if not one.works or one.state == "degraded"
    ]


def cluster_snapshot(
    records: Sequence[calls.NodeRecord],
    views: Mapping[int, NodeView],
    links: Mapping[int, LinkFigures],
    snapshots: NodeSnapshots,
) -> list[calls.NodeSnapshot]:
    """Return how all nodes are in short, having asked some of them."""
    snapshots.look([one.host for one in records if one.can_be_asked])
    return [
        node_snapshot(one, views.get(one.host), links.get(one.host), snapshots.said(one.host))
        for one in records
        if one.state != "removed"
    ]
