"""The nodes of a head as its clients see them, with those that were removed lately."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sapwood.head.calls import NodeRecord
from sapwood.head.reserved import is_reserved
from sapwood.head.status import NodeCauses

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree
from sapwood.nodes.registry import NodeView

MAX_REMOVED = 100
"""The most removed nodes that are still listed, the last ones."""

AWAY = "it is away; it is taken back if it comes again"


class NodeTable:
    """The nodes of a head; any thread may use it.

    Args:
        control: The tree of nodes.
        shared: Whether the policy opens reserved nodes to all credentials.

    Attributes:
        causes: Since when nodes are in their state, and why.
    """

    def __init__(self, control: ControlTree, shared: Callable[[], bool]) -> None:
        self._control = control
        self._shared = shared
        self._lock = threading.Lock()
        self._joined: dict[int, float] = {}
        self._removed: dict[int, NodeRecord] = {}
        self._draining: dict[int, float] = {}  # until when, monotonic
        self.causes = NodeCauses()

    def records(self) -> list[NodeRecord]:
        """Return the nodes that are there, and those that were removed."""
        found = [self.record(view) for view in self._control.nodes]
        known = {one.host for one in found}
        with self._lock:
            found += [one for host, one in self._removed.items() if host not in known]
        return sorted(found, key=lambda one: one.host)

    def some(self, hosts: list[int] | None) -> list[NodeRecord]:
        """Return these nodes, or all of them."""
        return [one for one in self.records() if hosts is None or one.host in hosts]

    def of(self, host: int) -> NodeRecord | None:
        """Return a node by its number; None if there was none, or none lately."""
        view = next((one for one in self._control.nodes if one.host == host), None)
        if view is not None:
            return self.record(view)
        with self._lock:
            return self._removed.get(host)

    def record(self, view: NodeView) -> NodeRecord:
        """Return what clients see of a node.

        Args:
            view: What the tree of nodes knows of it.
        """
        cause, state = self.causes.of(view.host), view.state
        with self._lock:
            if view.facts is not None:
                self._joined.setdefault(view.host, time.time())
                if state == "starting" and not self.is_own(view.host):
                    state = "lost"  # it is not started from here: it may come back
            if state == "ready" and view.host in self._draining:
                state = "draining"
            if view.state == "ready" and view.closed:
                state = "closed"
            joined = self._joined.get(view.host, 0.0)
        reason = "" if state in {"ready", "draining"} else cause.reason
        return NodeRecord(
            host=view.host,
            name=view.name,
            node=view.node,
            state=state,
            facts=view.facts,
            skew=view.skew,
            reason=view.trouble or reason or (AWAY if state == "lost" else ""),
            joined=joined,
            since=cause.since,
            former=cause.former,
            former_time=cause.former_time,
            reserved=is_reserved(view.facts) and not self._shared(),
        )

    def is_own(self, host: int) -> bool:
        """Whether the head itself has started a node."""
        return host <= len(self._control.hosts)

    # --- nodes that leave ------------------------------------------------------------------------

    def is_draining(self, host: int) -> bool:
        """Whether nothing new may begin on a node, because it is to be removed."""
        with self._lock:
            return host in self._draining

    def drain(self, host: int, until: float) -> bool:
        """Have nothing new begin on a node; return whether that is new.

        Args:
            host: The node.
            until: When it is removed at the latest, monotonic; of several times the first counts.
        """
        with self._lock:
            is_new = host not in self._draining
            self._draining[host] = min(self._draining.get(host, until), until)
        return is_new

    def time_is_over(self, host: int) -> bool:
        """Whether a draining node is to be removed now."""
        with self._lock:
            return time.monotonic() >= self._draining[host]

    def removing(self, record: NodeRecord) -> None:
        """List a node as removed from now on.

        Args:
            record: The node, removed.
        """
        with self._lock:
            self._removed[record.host] = record
            for old in list(self._removed)[:-MAX_REMOVED]:
                del self._removed[old]

    def removed(self, host: int, *, failed: bool) -> None:
        """Forget that a node is draining: it was removed, or could not be.

        Args:
            host: The node.
            failed: Whether it could not be removed.
        """
        with self._lock:
            if failed:
                self._removed.pop(host, None)
            del self._draining[host]
            self._joined.pop(host, None)
