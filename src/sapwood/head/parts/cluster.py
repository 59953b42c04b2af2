"""The cluster as a whole: what its head is, and its end."""

from __future__ import annotations

import importlib.metadata
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sapwood.head.protocol.call import HeadPart, call
from sapwood.security.rights import ADMIN, CONNECT

if TYPE_CHECKING:
    from sapwood.head.leadership import Leadership
    from sapwood.head.service import ServiceServer
    from sapwood.nodes.control import ControlTree
    from sapwood.session.loop_thread import LoopThread


class HeadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a head says of itself.

    Attributes:
        name: What the user calls it.
        cluster: Name of the cluster in certificates.
        version: Of Sapwood.
        pid: Its process.
        started: When it began, seconds since 1970.
        addresses: Where nodes reach it, ``host:port`` each.
        clients: How many clients are there.
        issuer: Public key of its issuer of credentials: with it, whoever knows what was revoked
            verifies credentials of this cluster.
        heads: Where clients find the next head, where several share a store: the addresses of
            all of them, this one first. Empty where there is only one.
        urls: Where browsers reach its HTTP server, those on its machine without TLS first.
    """

    name: str
    cluster: str
    version: str
    pid: int
    started: float
    addresses: list[str] = msgspec.field(name="places")
    clients: int
    issuer: bytes = b""
    heads: list[str] = []
    urls: list[str] = []


class WholeCluster(HeadPart):
    """The cluster as a whole.

    Args:
        name: What the user calls it.
        control: The tree of nodes.
        leadership: That of this head, where several heads share a store.
        issuer: Public key of its issuer of credentials.
        urls: Returns where browsers reach its HTTP server.
        server: It knows the clients.
        thread: Its loop answers the calls.
        ended: Set when the head is to end.
    """

    def __init__(
        self,
        name: str,
        control: ControlTree,
        leadership: Leadership | None,
        issuer: bytes,
        urls: Callable[[], list[str]],
        server: ServiceServer,
        thread: LoopThread,
        ended: threading.Event,
    ) -> None:
        self._name = name
        self._control = control
        self._leadership = leadership
        self._issuer = issuer
        self._urls = urls
        self._server = server
        self._thread = thread
        self._ended = ended
        self._started = time.time()
        self._version = importlib.metadata.version("sapwood")  # it is in a file

    def addresses(self) -> list[str]:
        """Where this head is reached, and then those that stand by; ``host:port`` each."""
        others = self._leadership.others if self._leadership is not None else []
        return [*self._control.addresses, *others]

    @call("hello", right=CONNECT)
    def facts(self) -> HeadFacts:
        """Return what the head is."""
        return HeadFacts(
            name=self._name,
            cluster=self._control.authority.cluster,
            version=self._version,
            pid=os.getpid(),
            started=self._started,
            addresses=list(self._control.addresses),
            heads=self.addresses() if self._leadership is not None else [],
            clients=len(self._server.callers),
            issuer=self._issuer,
            urls=self._urls(),
        )

    @call("down", right=ADMIN)
    def down(self) -> None:
        """End the head, and all nodes with it."""
        if self._leadership is not None:
            self._leadership.end_cluster()
        self._thread.loop.call_soon(self._ended.set)  # after the answer
