"""How the nodes of a head are: their links, their clocks, what runs there, and why one is not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.core.errors import SapwoodError
from sapwood.core.futures import CallerFuture, when_done
from sapwood.environment.component import ComponentView
from sapwood.head import calls
from sapwood.nodes import messages
from sapwood.nodes.port import interface_of
from sapwood.session.options import PlacesChanged

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree

MAX_CAUSES = 10_000
"""Nodes of which a head remembers since when they are as they are, and why."""

ANSWER_TIMEOUT = 2.0
"""Seconds that a node has to say how it is."""


class NodeCause(msgspec.Struct, frozen=True):
    """Why a node is as it is.

    Attributes:
        reason: In words; empty for one that is there.
        since: Since when, seconds since 1970.
        former: Why it was missing before.
        former_time: When that was.
    """

    reason: str = ""
    since: float = 0.0
    former: str = ""
    former_time: float = 0.0


def link_ended(reason: str) -> str:
    """Return why a node is not there whose link ended."""
    return f"its link ended ({reason}); it may come back"


class NodeCauses:
    """Since when nodes are as they are, and why; from any thread.

    Example:
        >>> causes = NodeCauses()
        >>> causes.note([1], "nothing heard for 4.1 s", 100.0)
        >>> causes.note([1], "", 160.0)
        >>> causes.of(1)
        NodeCause(reason='', since=160.0, former='nothing heard for 4.1 s', former_time=100.0)
    """

    def __init__(self, limit: int = MAX_CAUSES) -> None:
        self._limit = limit
        self._causes: dict[int, NodeCause] = {}
        self._lock = Lock()

    def of(self, host: int) -> NodeCause:
        """Return what is known of a node."""
        with self._lock:
            return self._causes.get(host, NodeCause())

    def changed(self, change: PlacesChanged, now: float) -> None:
        """Take a change of the control tree in."""
        reason = "" if change.back or change.added else change.reason
        if change.disconnected:
            reason = link_ended(change.reason)
        self.note(change.ranks, reason, now)

    def note(self, hosts: Sequence[int], reason: str, now: float) -> None:
        """Note why nodes are gone, or that they are there: then there is no reason."""
        with self._lock:
            for host in hosts:
                old = self._causes.pop(host, NodeCause())
                since, former = now, (old.former, old.former_time)
                if old.reason and reason:
                    since = old.since  # it was gone before, for another reason
                elif old.reason:
                    former = (old.reason, old.since)
                self._causes[host] = NodeCause(reason, since, *former)
            while len(self._causes) > self._limit:
                del self._causes[next(iter(self._causes))]


def with_session_names(status: calls.TreeStatus, names: Mapping[str, str]) -> calls.TreeStatus:
    """Return a status in which sessions have the names that users know.

    Args:
        status: How nodes are.
        names: These names, by those that nodes use.
    """

    def renamed(node: calls.NodeStatus) -> calls.NodeStatus:
        if node.activity is None:
            return node
        sessions = [
            msgspec.structs.replace(one, session=names.get(one.session, one.session))
            for one in node.activity.sessions
        ]
        return msgspec.structs.replace(
            node, activity=msgspec.structs.replace(node.activity, sessions=sessions)
        )

    return msgspec.structs.replace(status, nodes=[renamed(one) for one in status.nodes])


def tree_status(
    control: ControlTree,
    records: Sequence[calls.NodeRecord],
    head: Sequence[ComponentView] = (),
    ready_seconds: float | None = None,
    timeout: float = ANSWER_TIMEOUT,
) -> calls.TreeStatus:
    """Ask all nodes how they are, and say it; those that do not answer in time are said, too.

    Args:
        control: The control tree.
        records: The nodes.
        head: How the components of the head are.
        ready_seconds: How long it took until all of them and all nodes were ready.
        timeout: Seconds that the nodes have.
    """
    links = control.links().result(timeout)
    asked = {one.host: _Asked(control, one.host) for one in records if one.can_be_asked}
    wait([one.answer for one in asked.values()], timeout)
    views = {view.host: view for view in control.nodes}
    nodes: list[calls.NodeStatus] = []
    for record in records:
        link, question = links.get(record.host), asked.get(record.host)
        view = views.get(record.host)
        local = link.connection.local_address if link and link.connection else ""
        activity, unanswered = question.result() if question else (None, "")
        skew, error = record.skew, None
        if question is not None and activity is not None:
            skew, error = question.skew(activity.clock)
        nodes.append(
            calls.NodeStatus(
                record=record,
                link=link,
                interface=interface_of(local) if local else "",
                skew=skew,
                skew_error=error,
                certificate_end=view.certificate_end if view else 0.0,
                activity=activity,
                unanswered=unanswered,
                components=view.components if view else None,
            )
        )
    return calls.TreeStatus(
        time=time.time(),
        nodes=nodes,
        refusals=control.desk.refusals,
        head=list(head),
        ready_seconds=ready_seconds,
    )


class _Asked:
    """A node that was asked how it is, and the times of question and answer by this clock."""

    def __init__(self, control: ControlTree, host: int) -> None:
        self._answered = self._began = time.time()
        self.answer: Future[Any]
        try:
            self.answer = control.ask(host, messages.STATUS, None)
        except SapwoodError as error:
            self.answer = CallerFuture()
            self.answer.set_exception(error)
        when_done(self.answer, self._note_time)

    def _note_time(self, _answer: Future[Any]) -> None:
        self._answered = time.time()

    def result(self) -> tuple[messages.NodeActivity | None, str]:
        """Return the answer, or why there is none."""
        if not self.answer.done():
            return None, f"it does not answer within {ANSWER_TIMEOUT:g} s"
        try:
            return messages.from_value(self.answer.result(), messages.NodeActivity), ""
        except SapwoodError as error:
            return None, error.what

    def skew(self, clock: float) -> tuple[float, float]:
        """Return by how much a clock that was read in between is ahead, and how wrong that is."""
        half = (self._answered - self._began) / 2
        return clock - (self._began + half), half
