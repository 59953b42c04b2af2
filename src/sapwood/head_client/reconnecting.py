"""A connection to the head of a cluster that outlives the head: it finds the next one."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from sapwood.core.errors import CommunicationError, SapwoodError, SecurityError
from sapwood.core.failures import as_error, start_thread
from sapwood.environment.logs import logger
from sapwood.head import calls
from sapwood.head.folder import find_head
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol import greeting
from sapwood.head_client.connection import CALL_TIMEOUT, SCHEME, ServiceClient
from sapwood.head_client.remote import TlsWay, show, way_to
from sapwood.security.capabilities import Capability, HolderKey

LOOK_PAUSE, MAX_LOOK_PAUSE = 0.1, 2.0
"""Seconds between two looks for a head that was killed: the first pause, and the longest."""

MAX_LOOK_PAUSE_OF_SEVERAL = 0.5
"""The longest where another head may serve at any moment."""

SILENCE = 2.0
"""Seconds between two looks whether a head answers that another one may take over from: as long
as it may take for that."""

_log = logger("head")


class HeadListener(Protocol):
    """The user of a connection to a head; all calls but the first come on its threads."""

    def connected(self, client: ServiceClient, *, again: bool) -> None:
        """Fetch what is to be known of a head before it is used.

        Args:
            client: The connection to it.
            again: Whether it is another head than before.

        Raises:
            SapwoodError: It does not serve; it is tried again later.
        """

    def noticed(self, name: str, value: Any) -> None:
        """Take a notice of the head."""

    def head_gone(self) -> None:
        """Note that the head is gone, and that another one is looked for."""

    def head_back(self) -> None:
        """Note that a head serves again."""

    def head_given_up(self, reason: str) -> None:
        """Note that no head will serve any more; this comes once."""


class ReconnectingClient:
    """A connection to the head of a cluster; when the head was started again, it finds it.

    Args:
        name: What the user calls the cluster, or ``sapwood://host:port``.
        credential: What this side may do; None for all.
        holder: The key of its holder, if the credential names one.
        session: The id of the session whose root this side is, if it is one.
        listener: Its user.

    Attributes:
        name: As given.
        client: The connection to the present head.
        facts: What the present head says of itself.
        rights: What this side may do; None for all.
        heads: Where else the head may be, if there are several.
        away: Why the head is gone, for now or for good; empty if it serves.
    """

    client: ServiceClient
    facts: HeadFacts

    def __init__(
        self,
        name: str,
        credential: Capability | None,
        holder: HolderKey | None,
        session: str,
        listener: HeadListener,
    ) -> None:
        self.name = name
        self._credential = credential
        self._holder = holder
        self._session = session
        self._listener = listener
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._number = -1  # of the connection that is in use
        self.rights: greeting.RightsFacts | None = None
        self.heads: list[str] = []
        self.away = ""
        self._over = False

    def open(self) -> None:
        """Connect to the head that is there now.

        Raises:
            NodeLostError: No head runs on this machine.
            CommunicationError: It does not answer.
            SecurityError: It is another head, or refuses the credential.
        """
        self.client, self.facts = self._connected(0)
        self._number = 0
        self.heads = self.facts.heads
        if self.client.is_over:
            self._head_gone(0, "the connection was closed")
        self._plan_look()

    @property
    def is_open(self) -> bool:
        """Whether it was ever connected."""
        return self._number >= 0

    @property
    def is_remote(self) -> bool:
        """Whether the head is on another machine."""
        return self.name.startswith(SCHEME)

    @property
    def is_away(self) -> bool:
        """Whether the head is gone, for now or for good."""
        return bool(self.away) or self.client.is_over

    def close(self) -> None:
        """Leave, and look for no other head."""
        self._closed.set()
        self.client.close()

    def _connected(self, number: int) -> tuple[ServiceClient, HeadFacts]:
        """Connect to the head that is there now; connections are counted."""
        way, where, hint = way_to(self.name, self._credential, self.heads)
        try:
            client = ServiceClient(way, self._noticed, partial(self._head_gone, number))
        except CommunicationError as error:
            raise CommunicationError(
                f"the head of the cluster '{self.name}' does not answer", where=where, hint=hint
            ) from error
        try:
            if self._credential is not None:
                far = way if isinstance(way, TlsWay) else None
                self.rights = show(client, self._credential, self._holder, far, CALL_TIMEOUT)
            if self._session:
                self.rights = client.call_within(CALL_TIMEOUT, Sessions.act_for, self._session)
            facts = client.call_within(CALL_TIMEOUT, WholeCluster.facts)
            if number and facts.cluster != self.facts.cluster:
                raise SecurityError(f"another cluster is called '{self.name}' now")
            self._listener.connected(client, again=number > 0)
        except BaseException:
            client.close()
            raise
        return client, facts

    # --- a head that was killed ------------------------------------------------------------------

    def _head_gone(self, number: int, reason: str) -> None:
        """Running work continues; new work waits for the next head, if there may be one."""
        with self._lock:
            if number != self._number or self.away:
                return  # it was not used yet, or counts as gone already
            self.away = f"the head is gone: {reason}"
        _log.warning("head gone", reason=reason)
        try:
            if not self.is_remote:
                find_head(self.name)  # a head that ends removes its file first
        except SapwoodError:
            self._give_up(f"the cluster '{self.name}' is down")
        if not self._over:
            self._listener.head_gone()
            start_thread("sapwood-look", self._look_for_head, failed=self._look_failed)
        self._listener.noticed(calls.HEAD_GONE, self.away)

    def _noticed(self, name: str, value: Any) -> None:
        if name == calls.ENDED:
            self._give_up(f"the cluster '{self.name}' is down")
        self._listener.noticed(name, value)

    def _give_up(self, reason: str) -> None:
        """Nothing can begin any more; the first reason counts."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._listener.head_given_up(reason)

    def _look_for_head(self) -> None:
        """Look for the next head until this is closed, on a separate thread."""
        pause = LOOK_PAUSE
        longest = MAX_LOOK_PAUSE_OF_SEVERAL if self.heads else MAX_LOOK_PAUSE
        while not self._closed.wait(pause):
            pause = min(2 * pause, longest)
            try:
                client, facts = self._connected(self._number + 1)
            except SecurityError as error:  # the credential was revoked, or it is another cluster
                self._give_up(error.what)
                return
            except Exception as error:  # noqa: BLE001 - a head of another version may say anything
                _log.debug("no head", reason=as_error(error).what)
                continue
            if self._returned(client, facts):
                return

    def _look_failed(self, error: SapwoodError) -> None:
        self._give_up(f"the next head cannot be looked for: {error.what}")

    def _returned(self, client: ServiceClient, facts: HeadFacts) -> bool:
        """Use another head from now on; return whether it still exists."""
        with self._lock:
            if client.is_over:
                return False
            former, self.client, self.facts = self.client, client, facts
            self._number += 1
            self.away = ""
            self.heads = facts.heads
        former.close()
        self._plan_look()
        _log.info("head is back", pid=facts.pid)
        self._listener.head_back()
        return True

    # --- a head that is silent, where another one may serve by now --------------------------------

    def _plan_look(self) -> None:
        """Look soon whether the head answers, if another one may take over from it."""
        if self.heads:
            self.client.later(SILENCE, self._look_at_head)

    def _look_at_head(self) -> None:
        """Ask the head where the others are; on the connection's thread."""
        client = self.client
        answer = client.ask(WholeCluster.facts)

        def look() -> None:
            if client is not self.client or client.is_over:
                return
            if not answer.done():
                start_thread("sapwood-look", self._look_elsewhere, client, answer)
                return
            with contextlib.suppress(SapwoodError):
                self.heads = answer.result().heads
            self._plan_look()

        client.later(SILENCE, look)

    def _look_elsewhere(self, client: ServiceClient, answer: Future[Any]) -> None:
        """Look whether another head serves, as this one is silent; only then leave it.

        A head that is slow must not see this side go: it would end its sessions.
        """
        while not self._closed.wait(LOOK_PAUSE) and not client.is_over:
            if answer.done():
                self._plan_look()
                return
            if self._another_serves():
                client.cut("it is silent, and another one serves")
                return

    def _another_serves(self) -> bool:
        try:
            way, _, _ = way_to(self.name, self._credential, self.heads)
            client = ServiceClient(way)
        except SapwoodError:
            return False
        try:
            if self._credential is not None:
                far = way if isinstance(way, TlsWay) else None
                show(client, self._credential, self._holder, far, CALL_TIMEOUT)
            found = client.call_within(SILENCE, WholeCluster.facts)
        except SapwoodError:
            return False
        finally:
            client.close()
        same = (found.pid, found.started) == (self.facts.pid, self.facts.started)
        return found.cluster == self.facts.cluster and not same
