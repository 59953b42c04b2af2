"""What the processes of a session share, and how they start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.session.keys import SessionKeys
from sapwood.session.member import MemberConfiguration
from sapwood.session.options import SessionOptions
from sapwood.session.secondary_tree import PrimarySession, SharedAgents
from sapwood.session.supervisor import NodeSource, ProcessSetup


class SharedConfiguration:
    """The configuration of all processes of a session, as the tree is now.

    Args:
        options: How the session is made.
        first: The configuration at the start.
        keys: The secrets of places.
        lender: The session whose agents take part; None if it starts its own.
        nodes: What begins the processes of places on other machines.
        node_opened: Called with the number of a machine on which processes can begin now.

    Attributes:
        current: The configuration, with the keys of the root.
    """

    def __init__(
        self,
        options: SessionOptions,
        first: MemberConfiguration,
        keys: SessionKeys,
        lender: PrimarySession | None,
        nodes: NodeSource | None,
        node_opened: Callable[[int], None],
    ) -> None:
        self.current = first
        self._options = options
        self._keys = keys
        self._lender = lender
        self._nodes = nodes
        self._node_opened = node_opened

    def change(self, **changed: Any) -> ProcessSetup:
        """Change fields of the configuration; return how processes start from now on."""
        self.current = msgspec.structs.replace(self.current, **changed)
        return self.setup()

    def of(self, host: int) -> bytes:
        """Return what the places of a machine share, encoded."""
        return self._of(self.current, host)

    def _of(self, configuration: MemberConfiguration, host: int) -> bytes:
        """Return what the places of a machine share: each machine has its own keys."""
        keys = self._keys.of(host, configuration.tree, configuration.hosts)
        return msgspec.msgpack.encode(msgspec.structs.replace(configuration, keys=keys))

    def _of_rank(self, configuration: MemberConfiguration, rank: int) -> bytes:
        return self._of(configuration, configuration.hosts[rank] if configuration.hosts else 0)

    def setup(self) -> ProcessSetup:
        """Return how processes start now."""
        options, lender, configuration = self._options, self._lender, self.current
        encoded = msgspec.msgpack.encode(configuration)
        return ProcessSetup(
            configuration.cluster,
            self._entry,
            orders.ConfigureProcesses(configuration.folder, encoded, options.environment),
            ZygotePlan(
                () if lender is not None else (options.agent_entry.partition(":")[0],),
                (options.junction_entry.partition(":")[0], *options.runner_modules),
                options.runner_entry,
                options.interpreter,
            ),
            None
            if lender is None
            else SharedAgents(lender, configuration.cluster, partial(self._of_rank, configuration)),
            self._nodes,
            options.zygote,
            partial(self._of, configuration),
            options.node_patience,
            self._node_opened,
        )

    def _entry(self, rank: int) -> str:
        options = self._options
        is_agent = self.current.tree.is_agent(rank)
        return options.agent_entry if is_agent else options.junction_entry
