"""Reports of a node about itself, and the removal of processes without a supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from sapwood.comm.loop import Timer
from sapwood.contexts.process import children, resident_memory
from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.lifecycle import State
from sapwood.environment.log_ring import LogRing, kept_lines
from sapwood.environment.memory import available_memory
from sapwood.nodes import messages
from sapwood.nodes.control_link import ControlLink
from sapwood.session.agent import IncomingRequest


def process_activity(pid: int, since: float, rank: int = -1) -> messages.ProcessActivity:
    """Return a process, for people."""
    return messages.ProcessActivity(pid=pid, since=since, memory=resident_memory(pid), rank=rank)


class NodeMonitor:
    """Keeps the last lines of the daemon's log, and says what runs on the node.

    Args:
        link: The link with the head.
        sessions: Returns the sessions that have processes.
        commands: Returns the commands that run.
        staged: Returns how many bytes are staged.
    """

    name = "monitor"

    def __init__(
        self,
        link: ControlLink,
        sessions: Callable[[], list[messages.SessionActivity]],
        commands: Callable[[], list[messages.CommandActivity]],
        staged: Callable[[], int] = int,
    ) -> None:
        self._link = link
        self._sessions = sessions
        self._commands = commands
        self._staged = staged
        self._since = time.time()
        self._lines = LogRing()
        self._keeping = contextlib.ExitStack()
        self.requests: dict[str, Callable[[IncomingRequest], None]] = {
            messages.STATUS: self._tell_status,
            messages.LOGS: self._tell_lines,
        }

    def start(self, _context: ComponentContext) -> None:
        """Keep log lines; lines of an earlier life are still available."""
        self._keeping.enter_context(kept_lines(self._lines))

    def check(self) -> State:
        """Return READY."""
        return State.READY

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing: the supervisor logs what components go through."""

    def stop(self) -> None:
        """Keep no more lines."""
        self._keeping.close()

    def _tell_status(self, request: IncomingRequest) -> None:
        # Later: meanwhile the question itself is counted.
        self._link.loop.call_soon(self._say_status, request)

    def _say_status(self, request: IncomingRequest) -> None:
        from sapwood.nodes.port import interface_of  # noqa: PLC0415 - psutil only where asked

        link = self._link.figures()
        local = link.connection.local_address if link and link.connection else ""
        found = messages.NodeActivity(
            clock=time.time(),
            daemon=process_activity(os.getpid(), self._since),
            sessions=self._sessions(),
            commands=self._commands(),
            link=link,
            interface=interface_of(local) if local else "",
            load=os.getloadavg()[0],
            free_memory=available_memory(),
            staged=self._staged(),
        )
        request.reply(messages.to_value(found))

    def _tell_lines(self, request: IncomingRequest) -> None:
        wanted = messages.from_value(request.value(), messages.ReadLogs)
        request.reply(messages.to_value(self._lines.read(wanted.after, wanted.level)))


class OrphanReaper:
    """Ends what zygotes have left that were killed: it has come to the daemon.

    Args:
        link: The link with the head: its loop, and how often to look.
        known: Returns the children of the daemon that are supervised.
        before: Called before each look.
    """

    name = "reaper"

    def __init__(
        self, link: ControlLink, known: Callable[[], set[int]], before: Callable[[], None]
    ) -> None:
        self._link = link
        self._known = known
        self._before = before
        self._timer: Timer | None = None

    def start(self, _context: ComponentContext) -> None:
        """Look now, and then at each heartbeat."""
        self._look()

    def check(self) -> State:
        """Return READY."""
        return State.READY

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._link.loop.call_later(self._link.heartbeat, self._look)
        self.end_orphans()

    def end_orphans(self) -> None:
        """End the children of this process that are not supervised."""
        self._before()
        found = children(os.getpid())  # first: what a command forks meanwhile is not looked at
        known = self._known()
        for pid in found:
            if pid not in known:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
