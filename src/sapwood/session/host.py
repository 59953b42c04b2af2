"""The host of a session: the root of its tree, the supervision of its processes, nothing else.

It has no threads and no futures: whoever drives it gives it a loop and calls it on the loop's
thread. What users of the session hold is a port (``port.py``).
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.driver import NO_FAILURE_HANDLERS, FailureHandlers, NodeDriver
from sapwood.comm.link import Identity
from sapwood.comm.machine import machine_id
from sapwood.comm.node import Node
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import Listener
from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.core.topology import ROOT, Tree
from sapwood.environment.logs import logger
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.core import LifecyclePolicy, ProcessLifecycle
from sapwood.lifecycle.processes import census_of
from sapwood.session.folder import make_folder
from sapwood.session.gateways import Gateways
from sapwood.session.interface import NewAgent
from sapwood.session.keys import SessionKeys
from sapwood.session.listeners import SessionListeners
from sapwood.session.member import READDRESS, MemberConfiguration
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.secondary_tree import PrimarySession
from sapwood.session.shared_configuration import SharedConfiguration
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import (
    HostOrder,
    NodeNetwork,
    NodeSource,
    ProcessSupervisor,
    SupervisionTimeouts,
)

_log = logger("session")


Handlers = Mapping[type[ev.Effect], Callable[[Any], None]]
"""What the interface does with the effects of the root that concern it."""

Ask = Callable[[int, str, Any], Any]
"""Sends a request to a place: its rank, the handler, the value."""


class SessionHost:
    """The root of a tree and the supervision of all processes below it.

    Args:
        options: How the session is made.
        loop: The loop that drives it.
        lender: The session whose agents take part, as leaves of this secondary tree; without one
            the session starts its own.
        nodes: What begins the processes of places on other machines.

    Attributes:
        tree: The present tree.
        pool: Shared memory for large values.
        node: The root.
        supervisor: Supervises the processes.
        place: The root at work; set by :meth:`connect`.
        listeners: Subscribers of changes of places, links and processes.
    """

    def __init__(
        self,
        options: SessionOptions,
        loop: SharedReactor,
        lender: PrimarySession | None = None,
        nodes: NodeSource | None = None,
    ) -> None:
        self.options = options
        self.pool = BlockPool(options.inline_limit)
        self._loop = loop
        self._lender = lender
        self._visitors: dict[int, str] = {}  # Pythons of agents that joined by an invitation
        self._nodes = nodes
        self._port = None if nodes is None else nodes.open_port(loop)
        # Without a zygote, which would remove it, and without places on this machine, it is not
        # needed.
        self._folder = make_folder() if options.zygote else None
        self.listeners = SessionListeners()
        self._server: Listener | None = None
        self._next_stream = 1
        self._keys = SessionKeys(options.tree, options.hosts)
        timing, search = options.timing, options.search_timeout or options.ready_timeout
        timing = msgspec.structs.replace(timing, give_up_after=search)
        timeouts = SupervisionTimeouts(
            attach=options.attach_timeout or 2 * timing.failure_after,
            join=options.join_timeout,
            heartbeat=timing.heartbeat,
            silence=timing.failure_after,
        )
        self._life = ProcessLifecycle(options.tree, options.hosts, self._policy(timeouts))
        network = nodes if isinstance(nodes, NodeNetwork) and lender is None else None
        root = "" if self._port is None else self._port.address
        self._gateways = Gateways(network, self._life, loop, options.node_listen, root)
        self._gateways.open()
        configuration = MemberConfiguration(
            cluster=f"sapwood-{secrets.token_hex(5)}",
            folder=str(self._folder or ""),
            keys=self._keys.root,
            machine=machine_id() if options.shared_memory else "",
            tree=options.tree,
            timing=timing,
            inline_limit=options.inline_limit,
            extra=options.extra,
            hosts=options.hosts,
            addresses=self._gateways.addresses(),
            transport=options.transport,
        )
        self._configuration = SharedConfiguration(
            options, configuration, self._keys, lender, nodes, self._look_where
        )
        identity = Identity(
            configuration.cluster,
            ROOT,
            1,
            os.getpid(),
            configuration.machine or "client",
            configuration.keys,
        )
        self._address = configuration.socket_path(ROOT)
        self.node = Node(identity, options.tree, timing, gathering(self.pool.store))
        self.supervisor = ProcessSupervisor(
            self._life,
            self._configuration.setup(),
            timeouts,
            self._perform,
            self.listeners.reported,
        )
        self.driver: NodeDriver
        self._ask: Ask

    def connect(
        self, handlers: Handlers, ask: Ask, on_failure: FailureHandlers = NO_FAILURE_HANDLERS
    ) -> None:
        """Set the handlers of the root's effects; before anything is started.

        Args:
            handlers: By effect: performs it.
            ask: Sends a request to a place without waiting.
            on_failure: By effect: fails what it was for, if that raised an unexpected exception.
        """
        self._ask = ask
        own: Handlers = {
            ev.PlaceJoined: self._joined,
            ev.PlacesLost: self.supervisor.post,
            ev.LinkChanged: lambda effect: self.listeners.link_changed(effect.rank, effect.reason),
        }
        self.driver = NodeDriver(
            self.node, {**own, **handlers}, self._loop, _problem, on_failure=on_failure
        )

    # --- any thread --------------------------------------------------------------------------

    @property
    def platforms(self) -> tuple[tuple[str, str], ...]:
        """Architecture and C library of each kind of processes; none before the start."""
        if self._lender is not None:
            return self._lender.platforms
        return tuple((zygote.architecture, zygote.libc) for zygote in self.supervisor.zygotes)

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of the Pythons of all processes, the root's first, each once."""
        if self._lender is not None:
            return self._lender.pythons
        here = ".".join(map(str, sys.version_info[:3]))
        begun = (zygote.python for zygote in self.supervisor.zygotes)
        return tuple(dict.fromkeys((here, *begun, *self._visitors.values())))

    def try_transport(self) -> None:
        """Try the transport if it is a plug-in, before anything is started.

        Raises:
            ConfigurationError: There is no such transport, or it does not work.
        """
        name = self.options.transport
        if name and self._lender is None:
            from sapwood.comm.transport.trial import (  # noqa: PLC0415 - rarely needed
                try_transport,
            )

            try_transport(name, self._configuration.current.new_transport(), self._address)

    def close(self) -> None:
        """End all processes and leave nothing behind; after :meth:`end`, on any thread."""
        self.supervisor.close()

    def remove(self) -> None:
        """Remove what is on disk and in shared memory; when the loop has ended."""
        self.pool.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(self._nodes, NodeNetwork):
            self._nodes.close()

    # --- on the loop's thread ----------------------------------------------------------------

    def listen(self) -> None:
        """Take connections of the places below, and begin to supervise."""
        try:
            if self._folder is not None:
                transport = self._configuration.current.new_transport()
                self._server = transport.listen(self._address, self.driver, self._loop)
            if self._port is not None:
                self._port.serve(self.node.identity.cluster, self.driver)
        except SapwoodError as error:
            self.supervisor.post(lev.GiveUp(error))
        self.driver.start()
        self.supervisor.listen(self._loop)

    def post(self, event: ev.Event) -> None:
        """Give the root an event and do what it wants done."""
        self.driver.post(event)

    def new_stream(self) -> int:
        """Return a number for a stream; the caller holds the lock under which it is opened."""
        number = self._next_stream
        self._next_stream += 1
        return number

    def end(self) -> None:
        """End all links; processes are ended by :meth:`close`."""
        self.supervisor.detach()
        if self._server is not None:
            self._server.close()
        if self._port is not None:
            self._port.close()
        self.driver.close()

    @property
    def tree(self) -> Tree:
        """The present tree."""
        return self._life.tree

    def _perform(self, order: HostOrder) -> None:
        """Carry out what the life cycle of the processes orders."""
        if isinstance(order, lev.Notify):
            self._notify(order.change)
        elif isinstance(order, lev.NewTree):
            setup = self._configuration.change(tree=order.tree, hosts=order.hosts)
            self.post(ev.ChangeTree(order.tree))
            self.supervisor.reconfigure(setup)
        else:
            self._move(order)

    def _move(self, order: lev.MoveRanks) -> None:
        """Have ranks start on another machine."""
        for rank in order.ranks:
            self._keys.renew(rank)
        setup = self._configuration.change(hosts=order.hosts, addresses=self._gateways.addresses())
        self._look_where(order.host)
        self.supervisor.reconfigure(setup)

    def _notify(self, change: lev.ProcessChange) -> None:
        if not change.disconnected:
            self.post(
                census_of(self.supervisor.processes, change.ranks, change.reason, back=change.back)
            )
        if change.removed:
            for rank in change.ranks:
                self._visitors.pop(rank, None)
        agents = tuple(rank for rank in change.ranks if self.tree.is_agent(rank))
        told = PlacesChanged(
            change.ranks,
            agents,
            change.back,
            change.reason,
            change.disconnected,
            change.for_good,
            change.added,
            change.removed,
            self.tree.epoch,
        )
        self.listeners.changed(told)

    # --- the tree changes, on the loop's thread -----------------------------------------------

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add agents to the tree and have their processes begun; return their ranks.

        Raises:
            ConfigurationError: There cannot be such an agent.
            ResourceError: The launcher of their processes cannot be started.
        """
        tree = self.tree
        ranks = tuple(range(tree.size, tree.size + len(places)))
        if tree.agents + len(places) > self.options.most_agents:
            raise ConfigurationError(
                f"{tree.agents} and {len(places)} more agents are more than the limit of "
                f"{self.options.most_agents}",
                hint="raise limits.agents if this is meant",
            )
        for place in places:
            begun_by_nodes = self._nodes is not None and self._lender is None
            if place.host < 0 or (place.host and not begun_by_nodes):
                raise ConfigurationError(
                    "this session has no such node", where=f"host {place.host}"
                )
            if not place.host and not (self.options.zygote and self.options.agents_here):
                raise ConfigurationError(
                    "this session begins nothing on the machine of its root",
                    where=f"host {place.host}",
                )
        homes = {rank: place.parent for rank, place in zip(ranks, places, strict=True)}
        tree.with_agents(homes)  # before keys are renewed
        hosts = {rank: place.host for rank, place in zip(ranks, places, strict=True)}
        self._expand(homes, hosts)
        return ranks

    def _expand(self, homes: dict[int, int], hosts: dict[int, int]) -> None:
        for rank, host in hosts.items():
            if host:
                self._keys.renew(rank)
        self.supervisor.post(lev.Expand(homes, hosts))

    def take_in(self, python: str) -> int:
        """Add an agent whose process joined by an invitation; return its rank.

        That process counts as a separate machine, which has the negative of the rank as its
        number. If it is lost, its place is removed.

        Args:
            python: Version of its Python.

        Raises:
            ConfigurationError: The agents of this tree belong to another one.
        """
        if self._lender is not None:
            raise ConfigurationError("the agents of this tree belong to another one")
        rank = self.tree.size
        self._visitors[rank] = python
        self._expand({rank: ROOT}, {rank: -rank})
        return rank

    def drain(self, ranks: Sequence[int]) -> None:
        """Take places out of the tree; their processes finish what they were asked for.

        Raises:
            ConfigurationError: One is not a place of the tree, or has children that stay.
        """
        self.supervisor.post(lev.Drain(tuple(ranks)))

    @property
    def hosts(self) -> tuple[int, ...]:
        """The machine of each place, by rank; none where all are on one."""
        return self._life.hosts

    def ready_hosts(self) -> list[int]:
        """Return the other machines on which processes can begin now; from any thread."""
        return self._nodes.ready_hosts() if isinstance(self._nodes, NodeNetwork) else []

    def contract(self, ranks: Sequence[int], reason: str) -> None:
        """End the processes of ranks for good, and remove the ranks from the tree."""
        self.supervisor.post(lev.Remove(tuple(ranks), reason))

    def configuration_of(self, host: int) -> bytes:
        """Return what the places of a machine share, as the tree is now, encoded."""
        return self._configuration.of(host)

    def _joined(self, effect: ev.PlaceJoined) -> None:
        self.supervisor.post(effect)
        record = self.supervisor.processes[effect.rank]
        if record.is_ready and record.incarnation == effect.incarnation:
            self.listeners.joined(effect.rank)
        self._gateways.joined(effect.rank, self.node.router, self.node.identity.cluster)

    def _look_where(self, host: int) -> None:
        """Ask a machine on which processes can begin where it listens, if others are below it."""
        self._gateways.look(host, self._addresses_changed)

    def _addresses_changed(self, news: dict[int, str]) -> None:
        """Tell the places below a machine where it listens now."""
        setup = self._configuration.change(addresses=self._gateways.addresses())
        self.supervisor.reconfigure(setup)
        hosts, changed = self._life.hosts, set(news)
        below = {one for rank in news for one in self.tree.subtree(rank)}
        here = {hosts[rank] for rank in changed}
        for one in sorted(below):
            if hosts[one] not in here and self.supervisor.processes[one].is_ready:
                self._ask(one, READDRESS, [[rank, where] for rank, where in news.items()])

    # --- how processes start -----------------------------------------------------------------

    def _policy(self, timeouts: SupervisionTimeouts) -> LifecyclePolicy:
        options = self.options
        return LifecyclePolicy(
            options.restart,
            attach=timeouts.attach,
            join=timeouts.join,
            join_polls=timeouts.polls(timeouts.join) if timeouts.join else 0,
            lost_nodes=options.lost_nodes,
            interpreters=options.interpreters,
            shared=self._lender is not None,
        )


def _problem(text: str) -> None:
    _log.warning("peer cut off", reason=text)
