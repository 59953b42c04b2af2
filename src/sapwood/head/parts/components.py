"""The components of a head and its nodes: their logs, and how they are started and stopped."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from sapwood.core.errors import ClosedError
from sapwood.core.futures import CallerFuture, then
from sapwood.environment.component import ComponentEvent, ComponentView
from sapwood.environment.log_ring import LogPage, LogRing, kept_lines
from sapwood.environment.logs import logger
from sapwood.environment.supervisor import ALL_READY, Supervisor
from sapwood.head.protocol.call import HeadPart, call
from sapwood.nodes import messages
from sapwood.nodes.messages import ComponentOrder, ReadLogs
from sapwood.security.rights import ADMIN, OBSERVE

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree
    from sapwood.session.loop_thread import LoopThread

_log = logger("head")


class Components(HeadPart):
    """The components of the head, and the way to those of nodes.

    Args:
        control: The tree of nodes.
        thread: Its loop supervises the components of the head.
        supervisor: It supervises the components of the head.

    Attributes:
        ready_seconds: How long it took the head and all nodes to become ready; None before.
    """

    def __init__(
        self,
        control: ControlTree,
        thread: LoopThread,
        supervisor: Supervisor,
    ) -> None:
        self._control = control
        self._thread = thread
        self._lines = LogRing()
        self._keeping = contextlib.ExitStack()
        self._supervisor = supervisor
        self._lock = threading.Lock()
        self._look_planned = self._ended = False
        self.ready_seconds: float | None = None

    @call("component", right=ADMIN)
    def act(self, host: int, order: ComponentOrder) -> Future[ComponentView]:
        """Start, stop or restart a component.

        Args:
            host: The number of its node; 0 for the head.
            order: What to do with which component.
        """
        if host:
            answer = self._control.act(host, order)
            return then(answer, lambda found: messages.from_value(found, ComponentView))
        done: Future[ComponentView] = CallerFuture()
        self._supervisor.act(order.component, order.action)
        self._supervisor.when_settled(order.component, done.set_result)
        return done

    @call("logs", right=OBSERVE)
    def logs(self, host: int, read: ReadLogs) -> Future[LogPage]:
        """Return what the daemon of a node, or the head, has logged.

        Args:
            host: The number of the node; 0 for the head.
            read: Which lines.
        """
        if host:
            answer = self._control.ask(host, messages.LOGS, messages.to_value(read))
            return then(answer, lambda found: messages.from_value(found, LogPage))
        done: Future[LogPage] = CallerFuture()
        done.set_result(self._lines.read(read.after, read.level))
        return done

    def views(self) -> list[ComponentView]:
        """Return how the components of the head are."""
        return self._supervisor.views()

    # --- the life of the head's components -------------------------------------------------------

    def keep_lines(self) -> None:
        """Keep what the head logs from now on."""
        self._keeping.enter_context(kept_lines(self._lines))

    def start(self, begun: float) -> None:
        """Look after the components of the head from now on; on the loop.

        Args:
            begun: When the head began, by the monotonic clock.
        """
        self._supervisor.subscribe(self._heard)
        self._supervisor.start(begun)
        self._supervisor.attend(self._thread.loop)

    def leave(self) -> None:
        """Look after them no more; on the loop."""
        self._ended = True
        self._supervisor.detach()

    def stop(self) -> None:
        """Stop them."""
        self._supervisor.stop()

    def keep_no_lines(self) -> None:
        """Keep nothing more of what the head logs."""
        self._keeping.close()

    def look_soon(self) -> None:
        """Look at them, once for all that happens now; from any thread."""
        with self._lock:
            planned, self._look_planned = self._look_planned, True
        if not planned:
            with contextlib.suppress(ClosedError):
                self._thread.post(self._look)

    def _look(self) -> None:
        with self._lock:
            self._look_planned = False
        if not self._ended:
            self._supervisor.look()

    def _heard(self, event: ComponentEvent) -> None:
        """Say that all is ready, when it is: the head, and each component of each node."""
        if event.topic == ALL_READY:
            self.ready_seconds = event.value
            _log.info("cluster ready", seconds=round(event.value, 4))
            self._control.tell_ready(event.value)
