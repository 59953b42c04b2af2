"""What the server of a session tells the head of its cluster: each head that there is, in turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.failures import new_thread
from sapwood.environment.logs import logger
from sapwood.head import calls, session_records
from sapwood.head.folder import find_head
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.policy import Policy, PolicyRow
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.security.denials import Denials, DenialUpdate

PAUSE = 1.0
"""Seconds until a session server looks again whether there is a head."""

LONGEST_WAIT = 3600.0
"""Seconds for which it does nothing at most."""

CALL_TIMEOUT = 10.0
"""Seconds that a head may take to note a report."""

MAX_NOTED = 100
"""Events that wait until a head records them; of more, the last ones."""

ORDER: Sequence[HeadCall[..., Any]] = (
    Sessions.report,
    Sessions.report_tree,
    Sessions.report_metrics,
)
"""The order of reports to a head."""

_log = logger("session")


class HeadReports:
    """Tells the head how a session is; where there is none, the next one as soon as it is there.

    It hears from the head which credentials were revoked, and what the policy says.

    Args:
        cluster: What the user calls the cluster.
        announce: Called with the connection to each head that there is, and again after as many
            seconds as it returns.
        denials: Gets what was revoked.
        disowned: Receives why the session must end: for the head it is over, so no client finds it.
        policy: Told what the policy of the cluster says, by each head and after each change.
    """

    def __init__(
        self,
        cluster: str,
        announce: Callable[[ServiceClient], float],
        denials: Denials,
        disowned: Callable[[str], None],
        policy: Callable[[list[PolicyRow]], None],
    ) -> None:
        self._announce = announce
        self._disowned = disowned
        self._policy = policy
        self._policy_changed = False
        self._cluster = cluster
        self._denials = denials
        self._missed = False
        self._noted: deque[tuple[HeadCall[..., Any], msgspec.Struct]] = deque(maxlen=MAX_NOTED)
        self._changed = threading.Condition()
        self._last: dict[HeadCall[..., Any], msgspec.Struct] = {}  # by the call that tells it
        self._unsent: set[HeadCall[..., Any]] = set()
        self._closed = False
        self._thread = new_thread("sapwood-reports", self._work)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def tell(self, report: session_records.SessionReport) -> None:
        """Tell how the session is now; from any thread, it does not wait."""
        self._tell(Sessions.report, report)

    def tell_tree(self, tree: session_records.SessionTree) -> None:
        """Tell which places the session has; from any thread, it does not wait."""
        self._tell(Sessions.report_tree, tree)

    def tell_metrics(self, metrics: session_records.SessionMetrics) -> None:
        """Tell what the agents have done; from any thread, it does not wait."""
        self._tell(Sessions.report_metrics, metrics)

    def _tell(self, call: HeadCall[..., Any], what: msgspec.Struct) -> None:
        with self._changed:
            self._last[call] = what
            self._unsent.add(call)
            self._changed.notify_all()

    def refused(self, refusal: session_records.ClientRefused) -> None:
        """Tell of a client that was not let in, or cut off; from any thread."""
        self._note(Sessions.report_refused, refusal)

    def process(self, report: session_records.SessionProcess) -> None:
        """Report a process that ended unasked, or was replaced; from any thread."""
        self._note(Sessions.report_process, report)

    def _note(self, call: HeadCall[..., Any], what: msgspec.Struct) -> None:
        with self._changed:
            self._noted.append((call, what))
            self._changed.notify_all()

    def close(self) -> None:
        """End, after all reports were sent, if the head runs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CALL_TIMEOUT)

    def _work(self) -> None:
        last = False
        while not last:
            with self._changed:
                last = self._closed
            client: ServiceClient | None = None
            try:
                client = ServiceClient(
                    UnixWay(find_head(self._cluster).socket, self._cluster),
                    self._noticed,
                    self._head_gone,
                )
                self._serve(client)
            except ProtocolError as error:
                _log.warning("the head was not notified", cluster=self._cluster, reason=error.what)
            except SapwoodError as error:
                _log.debug("no head", reason=error.what)
            except Exception:  # noqa: BLE001 - an unexpected answer of a head
                _log.exception(
                    "the state of the session cannot be reported to the head", cluster=self._cluster
                )
            else:
                return
            finally:
                if client is not None:
                    client.close()
            with self._changed:
                self._changed.wait_for(lambda: self._closed, PAUSE)
                self._unsent.update(self._last)

    def _serve(self, client: ServiceClient) -> None:
        """Tell one head, until it is gone or this ends.

        A session that ends only tells: to be found by clients, or to hear of the policy, would fail
        where it serves no more, and its last report would be lost.
        """
        with self._changed:
            closed = self._closed
        due = inf
        if not closed:
            self._take_denials(client)  # before a client may show one of them
            self._take_policy(client)
            due = time.monotonic() + self._announce(client)
        while True:
            if time.monotonic() >= due and not closed:
                due = time.monotonic() + max(PAUSE, self._announce(client))
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._unsent
                        or self._closed
                        or self._missed
                        or self._policy_changed
                        or self._noted
                    ),
                    min(LONGEST_WAIT, max(0.0, due - time.monotonic())),
                )
                pending = [(call, self._last[call]) for call in ORDER if call in self._unsent]
                self._unsent.clear()
                closed, missed, self._missed = self._closed, self._missed, False
                changed, self._policy_changed = self._policy_changed, False
                noted = list(self._noted)
                self._noted.clear()
            if missed and not closed:
                self._take_denials(client)
            if changed and not closed:
                self._take_policy(client)
            for call, what in noted:
                client.call_within(CALL_TIMEOUT, call, what)
            for call, what in pending:
                if client.call_within(CALL_TIMEOUT, call, what) is False:
                    self._disowned("its head has it as ended")
            if closed and not pending:
                return

    def _take_denials(self, client: ServiceClient) -> None:
        """Get the whole list of what was revoked."""
        self._denials.take(client.call_within(CALL_TIMEOUT, IssuedCredentials.denials))

    def _take_policy(self, client: ServiceClient) -> None:
        """Hear what the policy says now."""
        self._policy(client.call_within(CALL_TIMEOUT, Policy.rows))

    def _noticed(self, name: str, value: Any) -> None:
        """Hear what was revoked, and that the policy is another; on the connection's thread."""
        if name == calls.POLICY_CHANGED:
            with self._changed:
                self._policy_changed = True
                self._changed.notify_all()
        if name != calls.DENIED:
            return
        try:
            whole = self._denials.take(typed.convert(value, DenialUpdate))
        except msgspec.ValidationError as error:
            _log.warning("malformed notice", name=name, reason=str(error))
            return
        if not whole:
            with self._changed:
                self._missed = True
                self._changed.notify_all()

    def _head_gone(self, reason: str) -> None:
        """Wake the thread, whose reports now say that the head is gone."""
        del reason
        with self._changed:
            self._unsent.update(self._last)
            self._changed.notify_all()
