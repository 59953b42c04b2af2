"""What the root of a session tells the head of its cluster: each head that there is, in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.environment.logs import logger
from sapwood.head import calls
from sapwood.head.folder import find_head
from sapwood.head.service import ServiceClient, UnixWay
from sapwood.security.denials import Denials, DenialUpdate

PAUSE = 1.0
"""Seconds until a root looks again whether there is a head."""

LONGEST_WAIT = 3600.0
"""Seconds for which it does nothing at most."""

CALL_TIMEOUT = 10.0
"""Seconds that a head may take to note a report."""

_log = logger("session")


class HeadReports:
    """Tells the head how a session is; where there is none, the next one as soon as it is there.

    Args:
        cluster: What the user calls the cluster.
        announce: Called with the connection to each head that there is, and again after as many
            seconds as it returns.
        denials: Gets what each head tells of revoked credentials.
        disowned: Told why the session is to end: the head has it as ended, so nobody finds it.
    """

    def __init__(
        self,
        cluster: str,
        announce: Callable[[ServiceClient], float],
        denials: Denials,
        disowned: Callable[[str], None],
    ) -> None:
        self._announce = announce
        self._disowned = disowned
        self._denials = denials
        self._cluster = cluster
        self._changed = threading.Condition()
        self._last: calls.SessionReport | None = None
        self._untold = False
        self._missed = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="sapwood-reports", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def tell(self, report: calls.SessionReport) -> None:
        """Tell how the session is now; from any thread, it does not wait."""
        with self._changed:
            self._last, self._untold = report, True
            self._changed.notify_all()

    def close(self) -> None:
        """End, after what was to be told has been, if there is a head."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CALL_TIMEOUT)

    def _work(self) -> None:
        while True:
            client: ServiceClient | None = None
            try:
                way = UnixWay(find_head(self._cluster).socket)
                client = ServiceClient(way, self._noticed, self._head_gone)
                self._serve(client)
            except SapwoodError as error:
                _log.debug("no head", reason=error.what)
            else:
                return
            finally:
                if client is not None:
                    client.close()
            with self._changed:
                if self._closed:
                    return
                self._changed.wait_for(lambda: self._closed, PAUSE)
                self._untold = self._last is not None

    def _serve(self, client: ServiceClient) -> None:
        """Tell one head, until it is gone or this ends."""
        self._take_list(client.call(calls.DENIALS, None, CALL_TIMEOUT))
        due = time.monotonic() + self._announce(client)
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + max(PAUSE, self._announce(client))
            with self._changed:
                self._changed.wait_for(
                    lambda: self._untold or self._closed or self._missed,
                    min(LONGEST_WAIT, max(0.0, due - time.monotonic())),
                )
                report, self._untold = self._last if self._untold else None, False
                closed = self._closed
                missed, self._missed = self._missed, False
            if missed:
                self._take_list(client.call(calls.DENIALS, None, CALL_TIMEOUT))
            if report is not None:
                told = msgspec.to_builtins(report)
                if client.call(calls.REPORT_SESSION, told, CALL_TIMEOUT) is False:
                    self._disowned("its head has it as ended")
            elif closed:
                return

    def _noticed(self, name: str, value: Any) -> None:
        """Take in what the head tells by itself; on the connection's thread."""
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

    def _take_list(self, value: Any) -> None:
        try:
            self._denials.take(typed.convert(value, DenialUpdate))
        except msgspec.ValidationError as error:
            raise ProtocolError(f"malformed list of revoked credentials: {error}") from error

    def _head_gone(self, reason: str) -> None:
        """Wake the thread: what it tells now says that there is no head."""
        del reason
        with self._changed:
            self._untold = self._last is not None
            self._changed.notify_all()
