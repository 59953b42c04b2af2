"""How nodes are removed from a head: drained, then ended and refused from then on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor

import msgspec

from sapwood.core.errors import ClosedError, ConfigurationError
from sapwood.core.futures import CallerFuture
from sapwood.head.calls import GONE, NodeRecord
from sapwood.head.ledger import Ledger
from sapwood.head.node_table import NodeTable
from sapwood.nodes.control import ControlTree
from sapwood.session.loop_thread import LoopThread

REMOVALS = 16
"""Nodes that leave at a time; more wait for them."""

LOOK = 0.1
"""Seconds between two looks at what runs on a node that is drained."""

LAST_WORD = 1.0
"""Seconds that what runs on a node gets to end when the node is removed."""


class Removals:
    """Removes nodes of a head.

    Args:
        table: The nodes.
        control: The tree of nodes.
        ledger: It records what was removed.
        thread: Its loop looks whether nodes are idle.
        deny: Refuses a node from now on, by its id.
        busy: Returns whether something runs on a node.
        draining: Called when a node has begun to drain.
    """

    def __init__(
        self,
        table: NodeTable,
        control: ControlTree,
        ledger: Ledger,
        thread: LoopThread,
        deny: Callable[[str], None],
        busy: Callable[[int], bool],
        draining: Callable[[int], None],
    ) -> None:
        self._table = table
        self._control = control
        self._ledger = ledger
        self._thread = thread
        self._deny = deny
        self._busy = busy
        self._begun = draining
        self._lock = threading.Lock()
        self._under_way: dict[int, _Removal] = {}
        self._leaving = ThreadPoolExecutor(REMOVALS, "sapwood-leaving")
        self._closed = False

    def remove(self, name: str, drain: float = 0.0) -> Future[NodeRecord]:
        """Remove a node, when its work is done or its time is over.

        Args:
            name: What users call it.
            drain: Seconds that it gets to finish what it does.

        Raises:
            ConfigurationError: There is no such node, or it is the head's own.
        """
        there = [one for one in self._table.records() if not one.is_gone]
        found = [one for one in there if one.name == name]
        if not found:
            known = ", ".join(one.name for one in there)
            raise ConfigurationError(
                f"node '{name}' does not exist", hint=f"nodes are {known}" if known else ""
            )
        record = found[-1]  # one that is leaving may have the same name
        if self._table.is_own(record.host):
            raise ConfigurationError(
                f"'{name}' is the head's own node",
                hint="`sapwood down` ends it; `sapwood up --no-node` makes a head without one",
            )
        with self._lock:
            self._table.drain(record.host, time.monotonic() + drain)
            under_way = self._under_way.get(record.host)
            if under_way is not None:  # a second request may have a shorter time
                return under_way.done
            how = "it was drained and removed" if drain > 0 else "it was removed"
            removal = self._under_way[record.host] = _Removal(record, how)
        self._begun(record.host)
        self._thread.post(self._drain, removal)
        return removal.done

    def close(self) -> None:
        """End all removals: those who wait for them get an error."""
        with self._lock:
            self._closed = True
            waiting = list(self._under_way.values())
        for one in waiting:
            one.end(error=ClosedError("the head ends"))

    def stop(self) -> None:
        """Wait for the removals that have begun."""
        self._leaving.shutdown(cancel_futures=True)

    def _drain(self, removal: _Removal) -> None:
        """Look whether a node is idle, or its time over, and then remove it; on the loop.

        It takes no thread: a drain may last for hours.
        """
        if self._closed:
            return
        host = removal.record.host
        if self._table.time_is_over(host) or not self._busy(host):
            self._leaving.submit(self._remove, removal)
        else:
            self._thread.loop.call_later(LOOK, self._drain, removal)

    def _remove(self, removal: _Removal) -> None:
        record = removal.record
        host = record.host
        gone = msgspec.structs.replace(record, state=GONE, reason=removal.reason, since=time.time())
        failed: BaseException | None = None
        try:
            if self._closed:
                raise ClosedError("the head ends")
            if record.node:
                self._deny(record.node)
            self._table.removing(gone)
            self._control.remove_node(host, LAST_WORD)
            self._ledger.note("node.removed", removal.reason, node=record.name)
        except BaseException as error:  # noqa: BLE001 - handed to those who wait
            failed = error
        with self._lock:
            self._table.removed(host, failed=failed is not None)
            del self._under_way[host]
        removal.end(gone, failed)


class _Removal:
    """A node that is to leave.

    Attributes:
        record: The node.
        reason: Why it leaves.
        done: Has the answer to those who wait for that.
    """

    def __init__(self, record: NodeRecord, reason: str) -> None:
        self.record = record
        self.reason = reason
        self.done: Future[NodeRecord] = CallerFuture()
        self.done.set_running_or_notify_cancel()

    def end(self, answer: NodeRecord | None = None, error: BaseException | None = None) -> None:
        """Answer those who wait, if they have no answer yet."""
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.done.set_exception(error)
            elif answer is not None:
                self.done.set_result(answer)
