"""Changes of nodes: clients are notified, and the ledger records them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any, Final

from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.head.calls import NODES_CHANGED, NodesChanged
from sapwood.head.credential_issuer import DenialFeed
from sapwood.head.leadership import Leadership
from sapwood.head.ledger import Ledger
from sapwood.head.node_table import NodeTable
from sapwood.head.parts.components import Components
from sapwood.head.parts.policy import Policy
from sapwood.head.remote_commands import RemoteCommands
from sapwood.head.removals import Removals
from sapwood.head.service import ServiceServer
from sapwood.head.status import link_ended
from sapwood.lifecycle.machine_events import MachineNews, NotifySessions
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree
from sapwood.session.loop_thread import LoopThread
from sapwood.session.options import PlacesChanged

MAX_LOST: Final = 1000
"""Nodes that joined and are lost that a head keeps; of more, the one lost longest is removed."""


class LostNodes:
    """The nodes that are lost at present; on the loop of the control tree.

    Args:
        table: The nodes.
        control: The tree of nodes.
        ledger: It records which nodes are lost, and which are back.
        policy: It says whether lost nodes are removed.
        removals: They remove those that stay away.
        thread: Its loop removes them.
    """

    def __init__(
        self,
        table: NodeTable,
        control: ControlTree,
        ledger: Ledger,
        policy: Policy,
        removals: Removals,
        thread: LoopThread,
    ) -> None:
        self._table = table
        self._control = control
        self._ledger = ledger
        self._policy = policy
        self._removals = removals
        self._thread = thread
        self._away: dict[int, None] = {}  # the one lost longest first

    def note(self, rank: int, change: PlacesChanged) -> None:
        """Note once that a node is gone, and that it is back if it need not join again for that."""
        was_away = rank in self._away
        if change.back or change.added or change.removed:
            self._away.pop(rank, None)
            if was_away and change.back and change.disconnected:
                self._ledger.note_of_node(
                    "node.back", "its link is there again", node=self._control.name_of(rank)
                )
        elif not was_away:
            self._away[rank] = None
            self._lost(rank, change.reason)

    def _lost(self, rank: int, reason: str) -> None:
        """Note that a node is gone; if the policy says so, it is removed when it stays away.

        The list has a bound under any policy: machines that come under new names do not fill it.
        """
        self._ledger.note_of_node("node.lost", reason, node=self._control.name_of(rank))
        recovery = self._policy.current.recovery
        if recovery.lost_nodes == "remove" and not self._table.is_own(rank):
            with contextlib.suppress(ClosedError):
                self._thread.post(
                    self._thread.loop.call_later, recovery.patience, self._remove, rank
                )
        lost = [one for one in self._away if not self._table.is_own(one)]
        if len(lost) > MAX_LOST:
            with contextlib.suppress(ClosedError):
                self._thread.post(partial(self._remove, lost[0], always=True))

    def _remove(self, rank: int, *, always: bool = False) -> None:
        """Remove a node that is still lost, if the policy still says so.

        Args:
            rank: The node.
            always: Remove it whatever the policy says.
        """
        found = self._table.of(rank)
        if found is None or found.state not in {"lost", "disconnected"}:
            return
        if always or self._policy.current.recovery.lost_nodes == "remove":
            with contextlib.suppress(SapwoodError):
                self._removals.remove(found.name)


class NodeNews:
    """Tells nodes what they have missed, and where they find the next head.

    Args:
        table: The nodes.
        control: The tree of nodes.
        feed: It tells nodes which credentials were revoked.
        addresses: Returns where this head and those that stand by are reached.
        leadership: That of this head, where several heads share a store.
    """

    def __init__(
        self,
        table: NodeTable,
        control: ControlTree,
        feed: DenialFeed,
        addresses: Callable[[], list[str]],
        leadership: Leadership | None,
    ) -> None:
        self._table = table
        self._control = control
        self._feed = feed
        self._addresses = addresses
        self._leadership = leadership

    def watch(self) -> None:
        """Tell the nodes when other heads stand by."""
        if self._leadership is not None:
            self._leadership.when_heads_change(self._heads_changed)

    def tell(self, host: int) -> None:
        """Tell a node that came, or came back."""
        self._feed.tell(host)
        self._tell_heads(host)

    def _heads_changed(self) -> None:
        for one in self._table.records():
            if one.can_be_asked:
                self._tell_heads(one.host)

    def _tell_heads(self, host: int) -> None:
        if self._leadership is not None:
            with contextlib.suppress(SapwoodError):
                self._control.ask(host, messages.HEADS, self._addresses())


class NodeChanges:
    """Handles the changes of nodes; on the loop of the control tree.

    The life cycle of machines decides what sessions learn of a node: clients receive the same news.

    Args:
        table: The nodes.
        control: The tree of nodes.
        server: It notifies clients.
        lost: The nodes that are lost.
        commands: The commands of clients on nodes.
        components: The components of the head and of nodes.
        news: Tells nodes what they have missed.
    """

    def __init__(
        self,
        table: NodeTable,
        control: ControlTree,
        server: ServiceServer,
        lost: LostNodes,
        commands: RemoteCommands,
        components: Components,
        news: NodeNews,
    ) -> None:
        self._table = table
        self._control = control
        self._server = server
        self._lost = lost
        self._commands = commands
        self._components = components
        self._news = news
        self._changed: dict[int, None] = {}
        self._unsent: list[NotifySessions] = []

    def watch(self) -> None:
        """Hear of changes from now on."""
        self._control.session.subscribe(self._places_changed)
        self._control.watch_components(self._components_changed)
        self._control.watch_links(self._link_changed)
        self._control.watch_machines(self._machine_changed)
        self._news.watch()

    def _machine_changed(self, order: NotifySessions) -> None:
        """Notify clients of what sessions learn of a node."""
        self._unsent.append(order)
        self._send_later([order.rank])

    def _send_later(self, hosts: Iterable[int]) -> None:
        """Notify clients of nodes once all that one event changes has changed."""
        if not self._changed:
            with contextlib.suppress(ClosedError):
                self._control.session.on_loop(self._send)
        self._changed |= dict.fromkeys(hosts)

    def _send(self) -> None:
        changed, self._changed = self._changed, {}
        unsent, self._unsent = self._unsent, []
        for (news, reason), orders in groupby(unsent, lambda one: (one.news, one.reason)):
            hosts = dict.fromkeys(order.rank for order in orders)
            self._notify(
                hosts,
                back=news is MachineNews.READY,
                gone=news is not MachineNews.READY,
                for_good=news in {MachineNews.GIVEN_UP, MachineNews.REMOVED},
                reason=reason,
            )
            changed = {host: None for host in changed if host not in hosts}
        if changed:
            self._notify(changed)

    def _notify(self, hosts: Iterable[int], **how: Any) -> None:
        nodes = [one for one in map(self._table.of, hosts) if one is not None]
        self._server.tell_all(NODES_CHANGED, NodesChanged(nodes, **how))

    def _places_changed(self, change: PlacesChanged) -> None:
        """Nodes have changed."""
        self._table.causes.changed(change, time.time())
        if not change.back and not change.disconnected:
            self._commands.nodes_gone(change.ranks)
        self._send_later(change.ranks)
        for rank in change.ranks:
            if change.back or change.added:
                self._news.tell(rank)
            self._lost.note(rank, change)
        self._components.look_soon()

    def _components_changed(self, host: int, turned: bool) -> None:  # noqa: FBT001 - the signature of a listener
        """Components of a node are not what they were."""
        view = next((one for one in self._control.nodes if one.host == host), None)
        if turned and view is not None:
            self._table.causes.note([host], view.closed, time.time())
            self._send_later([host])
            if not view.closed:
                self._news.tell(host)
        self._components.look_soon()

    def _link_changed(self, host: int, reason: str) -> None:
        """The link to a node has no connection, or continues."""
        cause = link_ended(reason) if reason else ""
        self._table.causes.note([host], cause, time.time())
        self._send_later([host])
        self._components.look_soon()
