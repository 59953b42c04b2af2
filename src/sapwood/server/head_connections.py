"""Connections to the head: each acts for one client, with the rights of the client's credential.

The head decides which client may call what, by one table for all clients. The server itself has
one more connection, over which it serves and reports refusals.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeVar

from sapwood.core.errors import SapwoodError, SecurityError
from sapwood.head.folder import find_head
from sapwood.head.ledger import EventQuery
from sapwood.head.parts.events import Events
from sapwood.head.parts.web import WebServer
from sapwood.head.protocol import greeting
from sapwood.head.protocol.call import HeadCall
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.head_client.remote import show
from sapwood.security.capabilities import Capability
from sapwood.security.rights import ADMIN

MAX_CONNECTIONS: Final = 48
"""Connections that are kept; of more, an idle one is closed."""

MAX_OPENING: Final = 8
"""ConnectionPool that are opened at a time; more wait."""

IDLE: Final = 60.0
"""Seconds until an idle connection is closed."""

CALL_TIMEOUT: Final = 30.0
"""Seconds in which the head answers."""

MAX_FORGOTTEN: Final = 1024
"""Credentials that were refused lately, and are refused again without a question."""

REFUSED_FOR: Final = 10.0
"""Seconds for which they are."""

P = ParamSpec("P")
R = TypeVar("R")

Heard = Callable[[str, Any], None]
"""``heard(name, value)`` receives a notice of the head; no name: the connection has ended."""


class UnauthorizedError(SecurityError):
    """The client has shown no valid credential."""


class HeadConnection:
    """A connection to the head.

    Args:
        client: Its transport.
        rights: The rights of its client; None for all.
        loop: The loop of the server.

    Attributes:
        rights: As given.
        used: The time of its last use, by a monotonic clock.
        users: The number of requests that use it now.
        is_new: Whether the request that it was opened for has not used it yet.
    """

    def __init__(
        self,
        client: ServiceClient,
        rights: greeting.RightsFacts | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.client = client
        self.rights = rights
        self.used = time.monotonic()
        self.users = 0
        self.is_new = True
        self._loop = loop
        self._listeners: list[Heard] = []
        self._follows: asyncio.Future[Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.client.is_over

    async def call(self, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the head and return its answer.

        Raises:
            SapwoodError: What the head says.
        """
        return await self._waited(self.client.ask(call, *args, **kwargs))

    async def call_within(
        self, seconds: float, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the head, which may take so long, and return its answer.

        Raises:
            SapwoodError: What the head says.
        """
        return await self._waited(self.client.ask(call, *args, **kwargs), seconds)

    async def _waited(self, asked: Future[R], seconds: float = CALL_TIMEOUT) -> R:
        answer = asyncio.wrap_future(asked, loop=self._loop)
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            raise SapwoodError(
                f"the head did not answer within {seconds:g} s", hint="try again"
            ) from None

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Call a function with each notice on the server's loop; return what ends that."""
        self._listeners.append(heard)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(heard)

        return end

    async def follow(self) -> None:
        """Receive events from now on.

        Raises:
            SecurityError: The credential does not give that right.
        """
        if self._follows is None:
            self._follows = asyncio.ensure_future(self.call(Events.follow, EventQuery()))
        try:
            await asyncio.shield(self._follows)
        except SapwoodError:
            self._follows = None
            raise

    def tell(self, name: str, value: Any) -> None:
        """Pass a notice on; on any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._received, name, value)

    def _received(self, name: str, value: Any) -> None:
        for heard in list(self._listeners):
            heard(name, value)


class ConnectionPool:
    """The connections of a server.

    Args:
        cluster: What the user calls the cluster.
        own: The server's own connection.

    Attributes:
        cluster: As given.
        own: As given.
    """

    def __init__(self, cluster: str, own: HeadConnection) -> None:
        self.cluster = cluster
        self.own = own
        self._connections: OrderedDict[bytes, HeadConnection] = OrderedDict()
        self._opening: dict[bytes, asyncio.Task[HeadConnection]] = {}
        self._refused: OrderedDict[bytes, tuple[float, SapwoodError]] = OrderedDict()
        self._room = asyncio.Semaphore(MAX_OPENING)

    @contextlib.asynccontextmanager
    async def of(self, credential: str, address: str) -> Any:
        """Give the connection that speaks for a client during the block.

        Args:
            credential: What the client shows.
            address: Where it is.

        Raises:
            UnauthorizedError: The head refuses the credential.
            SapwoodError: The head cannot be reached.
        """
        connection = await self._find(credential, address)
        connection.users += 1
        connection.is_new = False
        try:
            yield connection
        finally:
            connection.users -= 1
            connection.used = time.monotonic()

    async def _find(self, credential: str, address: str) -> HeadConnection:
        self.sweep()
        key = hashlib.sha256(f"{address.rpartition(':')[0]} {credential}".encode()).digest()
        found = self._connections.get(key)
        if found is not None and not found.is_over:
            self._connections.move_to_end(key)
            return found
        known = self._refused.get(key)
        if known is not None and known[0] > time.monotonic():
            raise known[1]
        task = self._opening.get(key)
        if task is None:
            task = asyncio.ensure_future(self._open(key, credential, address))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    async def _open(self, key: bytes, credential: str, address: str) -> HeadConnection:
        async with self._room:
            try:
                loop = asyncio.get_running_loop()
                connection = await asyncio.to_thread(
                    open_connection, self.cluster, loop, (credential, address)
                )
            except SecurityError as error:
                self._refused[key] = (time.monotonic() + REFUSED_FOR, error)
                while len(self._refused) > MAX_FORGOTTEN:
                    self._refused.popitem(last=False)
                raise
        self._connections[key] = connection
        self.sweep()
        return connection

    def sweep(self) -> None:
        """Close connections that are idle, have ended, or are too many."""
        late = time.monotonic() - IDLE
        for key, connection in list(self._connections.items()):
            if connection.users:
                continue
            too_many = len(self._connections) > MAX_CONNECTIONS and not connection.is_new
            if connection.is_over or connection.used < late or too_many:
                del self._connections[key]
                _close(connection)

    async def close(self) -> None:
        """Close all of them, but not the server's own."""
        for task in list(self._opening.values()):
            with contextlib.suppress(Exception):
                await task
        connections, self._connections = list(self._connections.values()), OrderedDict()
        await asyncio.gather(
            *(asyncio.to_thread(connection.client.close) for connection in connections)
        )


def _close(connection: HeadConnection) -> None:
    asyncio.get_running_loop().run_in_executor(None, connection.client.close)


def open_connection(
    cluster: str,
    loop: asyncio.AbstractEventLoop,
    client: tuple[str, str] | None = None,
    ended: Callable[[str], None] | None = None,
) -> HeadConnection:
    """Open a connection to the head of this machine; this waits for the head.

    Args:
        cluster: What the user calls the cluster.
        loop: The loop of the server.
        client: Credential and address of the client that it is to speak for; None for the server
            itself.
        ended: Receives why it ended, on a separate thread.

    Raises:
        UnauthorizedError: The head refuses the credential.
        SapwoodError: The head cannot be reached.
    """
    shown = None
    if client is not None:
        try:
            shown = Capability.parse(client[0])
        except SecurityError as error:
            raise UnauthorizedError(error.what, hint=error.hint) from error
        if shown.claims.holder:
            raise UnauthorizedError(
                "this credential is bound to the key of its holder, and a header cannot prove that",
                hint="HTTP needs one without --holder, with few rights and a short life; the "
                "right 'admin' is needed: `sapwood credential issue --role observer --ttl 1h "
                f"--output browser.credential`{_by_key(shown)}",
            )
    made: list[HeadConnection] = []

    def noticed(name: str, value: Any) -> None:
        if made:
            made[0].tell(name, value)

    def over(reason: str) -> None:
        if made:
            made[0].tell("", reason)
        if ended is not None:
            ended(reason)

    link = ServiceClient(UnixWay(find_head(cluster).socket, cluster), noticed, over)
    try:
        rights = None
        if client is not None and shown is not None:
            link.call_within(CALL_TIMEOUT, WebServer.speak_for, client[1])
            rights = _shown(link, shown)
        made.append(HeadConnection(link, rights, loop))
    except BaseException:
        link.close()
        raise
    return made[0]


def _by_key(shown: Capability) -> str:
    """Say how a holder makes one by the bound credential itself, if it allows that."""
    if ADMIN not in shown.claims.names:
        return ""
    return (
        "; you may, with this credential in SAPWOOD_CREDENTIAL_FILE, its key in SAPWOOD_KEY_FILE, "
        "and `--cluster sapwood://HOST:PORT`"
    )


def _shown(link: ServiceClient, credential: Capability) -> greeting.RightsFacts:
    try:
        return show(link, credential, None, None, CALL_TIMEOUT)
    except SecurityError as error:
        raise UnauthorizedError(error.what, where=error.where, hint=error.hint) from error
