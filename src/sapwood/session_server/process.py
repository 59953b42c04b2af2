"""The process of a session server: a head starts it, and it outlives clients and heads."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm.loop import Timer
from sapwood.comm.transport.base import Listener
from sapwood.comm.transport.unix import UnixTransport
from sapwood.contexts import background
from sapwood.contexts.launchers.specs import is_launched
from sapwood.contexts.local_user import is_own_user
from sapwood.core import typed
from sapwood.core.errors import ClosedError, ConfigurationError, SapwoodError, SecurityError
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration
from sapwood.environment.core_dumps import leave_no_core_dump
from sapwood.environment.logs import configure_logging, logger
from sapwood.environment.settings import Settings
from sapwood.head import session_records
from sapwood.head.parts.policy import PolicyRow
from sapwood.head.session_notices import SessionNotice, remove_notice, write_notice
from sapwood.head.session_registry import ServerPlan, ServerReady
from sapwood.head.watched import started
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.connection import ServiceClient
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree
from sapwood.security.denials import Denials
from sapwood.session.folder import make_folder
from sapwood.session.supervisor import NodeSource
from sapwood.session_server.allocating import SessionMachines
from sapwood.session_server.making import (
    SessionPlan,
    host_filters,
    let_agents_join,
    plan_here,
    plan_over,
)
from sapwood.session_server.process_reports import ProcessReports
from sapwood.session_server.remote import RemotePort
from sapwood.session_server.reporting import HeadReports
from sapwood.session_server.rights import same_user, secret_holder
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.server import RemoteDoor, SessionServer
from sapwood.session_server.session_life import SessionLife
from sapwood.session_server.session_policy import SessionPolicy
from sapwood.session_server.waiting import REVOKED, WaitingServer

KEPT_INTERVAL = 2.0
"""Seconds between two checks of the detached buffer."""

NODES_PATIENCE = 20.0
"""Seconds for which a restarted session server waits for nodes of its session."""

_read_plan: Callable[[bytes], ServerPlan] = typed.json_reader(ServerPlan)

_log = logger("session")


class ServerProcess:
    """A session server: the session, its clients, and the reports to the head.

    Args:
        given: What it is to be.
        settings: All settings.
        control: The nodes that it brings along, if it does; they end with it.

    Raises:
        SapwoodError: There can be no such session.
    """

    def __init__(
        self, given: ServerPlan, settings: Settings, control: ControlTree | None = None
    ) -> None:
        wanted = given.wanted
        self._credential = frozenset(given.credential) if control is not None else frozenset()
        self._id = given.id
        self._name = wanted.name
        self._cluster = given.cluster
        self.over = threading.Event()
        self._kept_timer: Timer | None = None
        self._listener: Listener | None = None
        self._folder: Path | None = None
        self._denials = Denials()
        self._denials.subscribe(self._denied)
        self._brings = control is not None
        planned, self._nodes_of = _planned(given, settings, control)
        nodes = _source(self._nodes_of)
        self.session = ServedSession(planned.options, nodes)
        self._policy = SessionPolicy(given.idle, given.disconnect, chosen=wanted.idle is not None)
        loop = self.session.loop
        self.life = SessionLife(given.id, given.idle, loop.call_later, loop.time, self.over.set)
        self._reports = HeadReports(
            given.cluster, self._announce, self._denials, self.life.end, self._policy_changed
        )
        self.server = SessionServer(
            self.session,
            given.id,
            wanted.name,
            same_user,
            self._changed,
            self.life.end,
            given.disconnect,
            refused=self._reports.refused,
            largest=settings.comm.max_payload,
            abandoned=given.abandoned,
        )
        if planned.options.zygote:
            host_filters(self.session, planned.runners, self._filter_wrote)
        let_agents_join(self.session, settings, wanted.name, self._place_changed)
        self._process_reports = ProcessReports(
            self.session, given.id, self._nodes_of, self._reports, self._place_changed
        )
        self._remote: RemotePort | None = None
        self._secret = given.secret

    def start(self) -> ServerReady:
        """Start the session and serve clients; return what to say of it."""
        self._write_notice("", ready=False)  # whoever clears up after it knows of it by that
        self.session.start()
        try:
            self._folder = make_folder()
            path = str(self._folder / "root.sock")
            self._write_notice(path, ready=False)
            self.session.call(self._listen, path)
            verify = secret_holder(self._secret, denials=self._denials)
            door = RemoteDoor(self.server, verify)
            self._remote = RemotePort(self._id, door, self.session.loop, self._folder)
        except BaseException:
            self.close()
            raise
        self._write_notice(path, ready=True)
        if self._brings:  # the head may know of it as of one that waits
            self._reports.tell(self.session.call(self.report))
        self._reports.start()
        nodes = self._nodes_of
        return ServerReady(
            pid=os.getpid(),
            socket=path,
            idle=self.life.patience,
            report=self.session.call(self.report),
            machines=0 if self._brings else len({*self.session.hosts} - {0}),
            folders=nodes.handed.folders if isinstance(nodes, HeadAccess) else [],
            tree=self.session.host.node.identity.cluster,
        )

    def _write_notice(self, path: str, *, ready: bool) -> None:
        pid = os.getpid()
        notice = SessionNotice(self._id, self._name, pid, started(pid), path, ready)
        write_notice(self._cluster, notice)

    def close(self) -> None:
        """End the session and leave nothing behind."""
        with contextlib.suppress(SapwoodError):
            self.session.call(self._drain)
        self.session.close()
        self.server.calls.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        remove_notice(self._cluster, self._id)
        self._reports.close()

    def report(self) -> session_records.SessionReport:
        """Return how the session is; on the loop's thread."""
        status = self.server.status()
        return session_records.SessionReport(
            id=self._id,
            state=self.life.state.value,
            reason=self.life.reason,
            nodes=self._process_reports.nodes(),
            pid=os.getpid(),
            idle=self.life.patience,
            policy=self._policy.rows,
            **msgspec.structs.asdict(status),
        )

    # --- on the loop's thread ------------------------------------------------------------------

    def _listen(self, path: str) -> None:
        self._listener = UnixTransport().listen(path, self.server, self.session.loop)
        self.life.started(abandoned=self.server.abandoned)
        self._tell_kept((0, 0))
        self._process_reports.start()

    def _denied(self, ids: frozenset[str]) -> None:
        """Credentials were revoked; from any thread."""
        if ids & self._credential:
            self.life.end(REVOKED)
        with contextlib.suppress(ClosedError):
            self.session.on_loop(self.server.deny, ids)

    def _policy_changed(self, rows: list[PolicyRow]) -> None:
        """Hear what the policy of the cluster says; on the thread that speaks with the head."""
        with contextlib.suppress(ClosedError):
            self.session.on_loop(self._act_by, rows)

    def _act_by(self, rows: list[PolicyRow]) -> None:
        """Act by the policy as it is now."""
        try:
            if not self._policy.take(rows):
                return
        except ConfigurationError as error:  # of a head of another version
            _log.warning("policy left as it was", reason=str(error))
            return
        if self._policy.idle != self.life.idle:
            self.life.change_idle(self._policy.idle)
        self.server.change_keeping(self._policy.disconnect)
        self._reports.tell(self.report())

    def _announce(self, client: ServiceClient) -> float:
        """Have a head hand over the clients of other machines."""
        return inf if self._remote is None else self._remote.announce(client)

    def _drain(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        self._process_reports.close()
        if self._kept_timer is not None:
            self._kept_timer.cancel()
        if self._listener is not None:
            self._listener.close()
        self.life.draining()
        self._reports.tell(self.report())
        self.server.close(self.life.reason or "it was ended")

    def _changed(self) -> None:
        """Clients have come or gone, or sessions that are merged with this one."""
        server = self.server
        self.life.changed(
            attached=server.attached, merged=server.merged, abandoned=server.abandoned
        )
        self._reports.tell(self.report())

    def _tell_kept(self, last: tuple[int, int]) -> None:
        """Report the size of the detached buffer to the head periodically."""
        report = self.report()
        kept = (report.kept, report.dropped)
        if kept != last:
            self._reports.tell(report)
        self._kept_timer = self.session.loop.call_later(KEPT_INTERVAL, self._tell_kept, kept)

    def _place_changed(self, _event: object) -> None:
        """Report an event of an invited agent, or that agents are on other nodes."""
        self._reports.tell(self.report())

    def _filter_wrote(self, rank: int, data: bytes) -> None:
        self.session.on_loop(self.server.news.wrote, rank, data)


def _source(nodes: HeadAccess | ControlTree | None) -> NodeSource | None:
    """Return what begins processes on nodes, which end with the session."""
    access = nodes.access if isinstance(nodes, ControlTree) else nodes
    return None if access is None else access.source(owned=True)


def _planned(
    given: ServerPlan, settings: Settings, control: ControlTree | None
) -> tuple[SessionPlan, HeadAccess | ControlTree | None]:
    """Return how a session is made, and what has the nodes on which its processes begin.

    Raises:
        SapwoodError: There can be no such session.
    """
    wanted = given.wanted
    if control is not None:
        brought = plan_over(control.access, settings, wanted.agents, wanted.agents_per_node)
        options = msgspec.structs.replace(brought.options, agents_here=False, fastpath=False)
        return msgspec.structs.replace(brought, options=options), control
    if wanted.on == "local":
        if wanted.agents_per_node is not None:
            raise ConfigurationError(
                "agents_per_node is for nodes", hint="on one machine, say agents"
            )
        here = plan_here(settings, wanted.agents, wanted.fanout)
        options = msgspec.structs.replace(here.options, fastpath=False)
        return msgspec.structs.replace(here, options=options), None
    if wanted.on != "head":
        raise ConfigurationError(
            f"a session cannot be on {shown(wanted.on)}",
            hint="say head for the nodes of the cluster, local for the head's machine, or which "
            "machines it brings along: slurm:4, ssh:n1,n2, ray:2",
        )
    others = bool(given.user) and not is_own_user(given.user)
    if others and wanted.settings is not None and settings.environment.source:
        raise SecurityError(
            f"shell files of the head's machine are not read for the user {given.user}",
            where="environment.source",
            hint="leave this setting out",
        )
    head = HeadAccess(given.cluster, session=given.id)
    try:
        _wait_for_nodes(head, given.machines)
        head.known.refuse_reserved()
        if given.former:
            ending = [head.ask(one.host, messages.CLOSE, given.former) for one in head.nodes]
            wait(ending, NODES_PATIENCE)
        planned = plan_over(head, settings, wanted.agents, wanted.agents_per_node)
        # Where others are its user, nothing of theirs runs here: this process is the head's user's.
        options = msgspec.structs.replace(
            planned.options, zygote=not others, agents_here=False, fastpath=False
        )
        planned = msgspec.structs.replace(planned, options=options)
    except BaseException:
        head.close()
        raise
    return planned, head


def _wait_for_nodes(head: HeadAccess, wanted: int) -> None:
    """Wait a while until a cluster has as many nodes as before: they come back to a new head."""
    end = time.monotonic() + NODES_PATIENCE
    changed = threading.Event()
    forget = head.subscribe(lambda _name, _value: changed.set())
    try:
        while len(head.nodes) < wanted and time.monotonic() < end:
            changed.wait(1.0)
            changed.clear()
    finally:
        forget()


class FirstWord:
    """What the process says once to the head that began it, and that waits for it.

    Args:
        descriptor: What ``--ready-descriptor`` says.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, message: msgspec.Struct) -> bool:
        """Say it, if nothing was said yet; return whether there was a head to hear it."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor < 0 or background.tell(descriptor, message)


def main(words: list[str] | None = None) -> None:
    """Serve a session until it ends.

    Args:
        words: ``--ready-descriptor`` and a number; by default the command line's.
    """
    first = FirstWord(int((sys.argv[1:] if words is None else words)[1]))
    os.umask(0o077)
    leave_no_core_dump()
    given = _read_plan(sys.stdin.buffer.read())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - what children of this process read
        os.dup2(nothing.fileno(), 0)
    try:
        settings = (
            load_configuration().settings
            if given.wanted.settings is None
            else typed.convert(given.wanted.settings, Settings)
        )
        with configure_logging(settings.log):
            if is_launched(given.wanted.on):
                _run_on_own_machines(given, settings, first)
            else:
                _run(ServerProcess(given, settings), first)
    except SapwoodError as error:
        first.say(background.Failure(error.to_record()))
        raise SystemExit(1) from error
    except msgspec.ValidationError as error:
        problem = ConfigurationError(f"the settings of the session are wrong: {error}")
        first.say(background.Failure(problem.to_record()))
        raise SystemExit(1) from error


def _run_on_own_machines(given: ServerPlan, settings: Settings, first: FirstWord) -> None:
    """Get the machines of a session, and serve it on them until it ends.

    Raises:
        SapwoodError: It cannot start; the reason was sent to the head.
    """
    machines = SessionMachines(given.wanted, settings)
    waiting = WaitingServer(given, machines.end)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: machines.end("it was deleted"))
    waiting.begin()

    def on_wait(what: str) -> None:
        report = waiting.tell(what)
        ready = ServerReady(pid=os.getpid(), socket="", idle=given.idle, report=report)
        if what and not first.say(ready):
            machines.end("its head ended while it began")

    try:
        control = machines.obtain(on_wait)
        given = msgspec.structs.replace(given, wanted=machines.completed(given.wanted))
        server = ServerProcess(given, machines.settings, control)
        waiting.pause()
        machines.watch(control, server.life.end)
        _run(server, first, lambda: machines.reason)
    except SapwoodError as error:
        waiting.failed(error)
        raise
    finally:
        machines.close()
        waiting.close()


def _run(server: ServerProcess, first: FirstWord, ended: Callable[[], str] = lambda: "") -> None:
    """Serve a session until it ends.

    Args:
        server: The process.
        first: Says that it is ready.
        ended: Returns why it was ended meanwhile; empty if it was not.
    """
    ready = server.start()
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _ender(server))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if ended():
            server.life.end(ended())
        if not first.say(ready):
            server.life.end("its head ended while it began")  # no other head would know of it
        while not server.over.wait(3600.0):
            pass
    finally:
        server.close()


def _ender(server: ServerProcess) -> Any:
    def end(*_: object) -> None:
        server.life.end("it was deleted")

    return end


if __name__ == "__main__":
    main()
