"""The sessions that have processes on nodes of a head, with the clients that started these."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from sapwood.contexts.orders import Exited, ProcessSpec
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.environment.logs import logger
from sapwood.head import calls
from sapwood.head.ledger import Ledger
from sapwood.head.process_events import ProcessEvent, event_of, replacement_of
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.service import ServiceServer
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree

_log = logger("head")


class NodeSession:
    """Passes reports about a session on a node to its client, which learns of nodes otherwise."""

    def __init__(
        self,
        name: str,
        host: int,
        caller: ServiceCaller,
        service: ServiceServer,
        exited: Callable[[int, messages.ProcessesReported], None],
    ) -> None:
        self._exited = exited
        self._agents: set[int] = set()
        self.since = time.time()
        self.is_resumed = False
        self.name = name
        self.host = host
        self.caller = caller
        self.forget: Callable[[], object] = bool
        self._service = service

    @property
    def shown(self) -> str:
        """What users know the session by."""
        return self.caller.session_name or f"connection-{self.caller.number}"

    @property
    def agents(self) -> int | None:
        """How many agents it has on the node; None if they are older than this head."""
        return None if self.is_resumed else len(self._agents)

    def spawned(self, processes: Sequence[ProcessSpec], agent_entry: str) -> None:
        """Note processes that the node is asked to start."""
        self._agents |= {one.rank for one in processes if one.entry == agent_entry}

    def heard(self, report: messages.ProcessesReported) -> None:
        """Pass on what the node reports."""
        if report.report is None:
            self._agents = set()
        elif isinstance(report.report, Exited):
            self._agents -= {report.report.rank}
        self._exited(self.host, report)
        notice = calls.OfNode(self.host, messages.to_value(report))
        self._service.tell(self.caller, calls.PROCESSES_REPORTED, notice)


class NodeSessions:
    """The sessions that have processes on nodes; any thread may use it.

    Args:
        control: The tree of nodes.
        server: It passes reports of nodes on.
        ledger: It records the start and end of sessions, and lost processes.
        agent_entry: The entry point of agents.
    """

    def __init__(
        self, control: ControlTree, server: ServiceServer, ledger: Ledger, agent_entry: str
    ) -> None:
        self._control = control
        self._server = server
        self._ledger = ledger
        self._agent_entry = agent_entry
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, int], NodeSession] = {}

    def of(self, name: str, host: int) -> NodeSession | None:
        """Return a session on a node; None if it has no processes there."""
        with self._lock:
            return self._sessions.get((name, host))

    def names(self) -> dict[str, str]:
        """Return what users call the sessions that have processes on nodes."""
        with self._lock:
            return {one.name: one.shown for one in self._sessions.values()}

    def callers_of(self, name: str) -> list[ServiceCaller]:
        """Return the callers that have processes of a session on nodes."""
        with self._lock:
            return [one.caller for (known, _), one in self._sessions.items() if known == name]

    def hosts_of(self, session: str) -> set[int]:
        """Return the nodes on which the server of a session has processes.

        Args:
            session: The id of the session.
        """
        with self._lock:
            return {
                host for (_, host), one in self._sessions.items() if one.caller.session == session
            }

    def are_on(self, host: int) -> bool:
        """Whether a session has processes on a node."""
        with self._lock:
            return any(one == host for _, one in self._sessions)

    def connected(self, name_of: Callable[[int], str]) -> list[calls.ConnectedUser]:
        """Return the programs that use nodes without a named session, the newest first.

        Args:
            name_of: Returns what users call a node.
        """
        found: dict[str, list[NodeSession]] = {}
        with self._lock:
            for one in self._sessions.values():
                if not one.caller.session:
                    found.setdefault(one.name, []).append(one)
        made = [_connected_user(some, name_of) for some in found.values()]
        return sorted(made, key=lambda one: -one.since)

    def own(self, caller: ServiceCaller, name: str, host: int) -> None:
        """Note whose a session on a node is.

        Raises:
            ProtocolError: It is another client's.
        """
        key = (name, host)
        if any(owner is not caller for owner in self.callers_of(name)):
            raise ProtocolError(f"the session {name} is another client's")
        if self.of(name, host) is not None:
            return
        made = NodeSession(name, host, caller, self._server, self._exited)
        made.forget = caller.when_gone(partial(self._abandoned, key))
        with self._lock:
            first = not any(one == name for one, _ in self._sessions)
            self._sessions[key] = made
        self._control.access.forward(made)
        if first:
            rights = caller.granted
            self._ledger.note_caused(
                "session.created",
                f"started to use nodes for {rights.subject or 'the user of the head'}",
                rights.owner,
                session=made.shown,
                facts={"client": str(caller.number), "address": caller.address or "here"},
            )

    def disown(self, caller: ServiceCaller, name: str, host: int) -> bool:
        """Forget a session on a node; return whether it was this client's."""
        with self._lock:
            known = self._sessions.get((name, host))
            if known is None or known.caller is not caller:
                return False
            del self._sessions[name, host]
        known.forget()
        self._control.access.part(known)
        self._left(known, "closed")
        return True

    def spawned(self, caller: ServiceCaller, host: int, spawning: messages.SpawnProcesses) -> None:
        """Note processes that a node is asked to start."""
        session = self.of(spawning.session, host)
        if session is not None:
            session.spawned(spawning.processes, self._agent_entry)
        for one in spawning.processes:
            if one.incarnation > 1:
                event = replacement_of(one.rank, one.incarnation)
                self._ledger.note_caused(
                    event.kind,
                    event.text,
                    caller.granted.owner,
                    node=self._control.name_of(host),
                    session=spawning.session if session is None else session.shown,
                    facts=event.facts,
                )

    def _abandoned(self, key: tuple[str, int]) -> None:
        """A client is gone without a word: nothing of its session stays on a node."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            self._control.access.part(session)
            _log.info("session ended with its client", session=key[0], host=key[1])
            self._left(session, "its client is gone")
            with contextlib.suppress(SapwoodError):
                self._control.ask(key[1], messages.CLOSE, key[0])

    def _left(self, left: NodeSession, reason: str) -> None:
        """Note that a session is gone, if that was its last node."""
        with self._lock:
            there = any(one == left.name for one, _ in self._sessions)
        if not there:
            rights = left.caller.rights
            by = "" if rights is None else rights.owner
            self._ledger.note_caused("session.ended", reason, by, session=left.shown)

    def _exited(self, host: int, report: messages.ProcessesReported) -> None:
        """A process of a session ended; on a thread of the control tree."""
        if report.report is None:
            text = f"all its processes there: {report.reason}"
            event: ProcessEvent | None = ProcessEvent("process.lost", text, {})
        else:
            event = event_of(report.report)
        if event is None:
            return
        node = self._control.name_of(host)
        self._ledger.note_caused(
            event.kind,
            event.text,
            node,
            node=node,
            session=self.names().get(report.session, report.session),
            facts=event.facts,
        )


def _connected_user(
    some: Sequence[NodeSession], name_of: Callable[[int], str]
) -> calls.ConnectedUser:
    """Return the program that uses one or several nodes."""
    caller = some[0].caller
    agents = [one.agents for one in some]
    return calls.ConnectedUser(
        name=some[0].shown,
        user=caller.rights.subject if caller.rights is not None else "",
        address=caller.address,
        since=min(one.since for one in some),
        nodes=[name_of(one.host) for one in some],
        agents=None if None in agents else sum(one or 0 for one in agents),
        runs=[calls.ConnectedRun(name, since) for name, since in list(caller.runs.items())],
    )
