"""The processes of sessions on a node: each session has a zygote there, which begins the others."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.machine import machine_id
from sapwood.contexts import orders
from sapwood.contexts.local_user import LocalUser, find_user
from sapwood.contexts.process import children
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import ClosedError, SapwoodError, SecurityError
from sapwood.core.failures import new_thread
from sapwood.core.topology import gateways
from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.lifecycle import State
from sapwood.environment.logs import logger
from sapwood.nodes import messages
from sapwood.nodes.control_link import JOINED, RENEWED, ControlLink
from sapwood.nodes.head_way import HeadWay
from sapwood.nodes.monitor import process_activity
from sapwood.nodes.staged_use import with_environment
from sapwood.security.authority import make_request, places_id
from sapwood.security.credentials import Credentials
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.session.agent import IncomingRequest
from sapwood.session.folder import make_folder
from sapwood.session.member import MemberConfiguration
from sapwood.session.shared_reactor import SharedReactor

if TYPE_CHECKING:
    from sapwood.nodes.port import NodePort

CLOSE_TIMEOUT = 2.0
"""Seconds that the node waits for the end of former processes of a session that is opened."""

LOOKS = 8
"""A zygote that gives no sign of life at so many heartbeats is taken for dead."""

FIRST_LOOKS = 60
"""The same for one that is not ready yet."""

_log = logger("nodes")


class SessionProcesses:
    """The processes of one session on this machine.

    Args:
        order: What the head wants.
        credentials: What its processes show to other machines.
        loop: The loop of the daemon.
        heartbeat: Seconds between two looks at the zygote.
        tell: Tells the head something.
        way: How the launcher leads connections to the head; None if it does not.
        owner: Whose the processes are; None for the daemon's user.

    Raises:
        ProtocolError: The configuration of its processes cannot be read.

    Attributes:
        owner: See above.
        gone: Whether all processes have ended.
        abandoned: Whether no more orders come: it ends with its last process.
    """

    def __init__(
        self,
        order: messages.OpenProcesses,
        credentials: Credentials,
        loop: SharedReactor,
        heartbeat: float,
        tell: Callable[[messages.ProcessesReported], None],
        way: HeadWay | None = None,
        owner: LocalUser | None = None,
    ) -> None:
        configuration = _read_configuration(order.configuration)
        inherited = dict(os.environ) if owner is None else owner.environment()
        variables = with_environment(order.environment, inherited, owner)
        self.owner = owner
        self._order = order
        self._way = way
        self._loop = loop
        self._heartbeat = heartbeat
        self._tell = tell
        self._folder = make_folder(owner)
        self._credentials = credentials
        self._configuration = configuration
        self._unspawned: list[orders.ProcessSpec] = []
        self.abandoned = False
        self._since = time.time()
        self._processes: dict[int, tuple[orders.Spawned, float]] = {}
        self._spawner = Spawner(
            order.plan,
            orders.ConfigureProcesses(
                str(self._folder),
                self._localised(configuration),
                {**_own_folders(owner, str(self._folder)), **variables},
            ),
            self._reported,
            partial(self._ended, "the zygote ended"),
            owner=owner,
        )
        self._closing: threading.Thread | None = None
        self._done: list[Callable[[], None]] = []
        self.gone = False
        self._port: NodePort | None = None
        self._delegations: list[Callable[[], None]] = []
        self._detours: dict[int, messages.Detour] = {}

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._closing is None

    @property
    def credential(self) -> Sequence[str]:
        """Ids of the credential by which it was opened; none for what the head's user opens."""
        return self._order.credential

    @property
    def zygote(self) -> int:
        """Process id of the zygote."""
        return self._spawner.pid

    def activity(self) -> messages.SessionActivity:
        """Return what it is, for people."""
        return messages.SessionActivity(
            session=self._order.session,
            zygote=process_activity(self.zygote, self._since),
            processes=[
                process_activity(pid, since, one.rank)
                for pid, (one, since) in self._processes.items()
            ],
            abandoned=self.abandoned,
            detours=list(self._detours.values()),
        )

    def note(self, detour: messages.Detour) -> None:
        """Note where a place is attached."""
        self._detours.pop(detour.rank, None)
        if detour.home != detour.at:
            self._detours[detour.rank] = detour

    @property
    def life(self) -> int:
        """Which opening of the session on this machine it is."""
        return self._order.life

    def resume(self) -> messages.ResumedProcesses:
        """Be ordered about again; return the processes that live."""
        self.abandoned = False
        return messages.ResumedProcesses([one for one, _ in self._processes.values()])

    def start(self) -> None:
        """Start the zygote.

        Raises:
            ResourceError: It cannot be started.
        """
        try:
            self._spawner.start()
        except BaseException:
            self._remove()
            raise
        self._spawner.listen(self._loop)
        self._loop.call_later(self._heartbeat, self._look)

    def spawn(self, processes: list[orders.ProcessSpec]) -> None:
        """Start processes; another user's after their certificate has arrived."""
        if self._credentials.certificate:
            self._spawner.spawn(processes)
        else:
            self._unspawned += processes

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that begin from now on.

        Raises:
            ProtocolError: It cannot be read.
        """
        self._configuration = _read_configuration(configuration)
        self._use_configuration()

    def _use_configuration(self) -> None:
        self._spawner.reconfigure(self._localised(self._configuration))
        self._delegate()

    def listen_at(self, port: NodePort) -> None:
        """Give connections from other machines to the junctions here that they are for."""
        self._port = port
        self._delegate()

    def _delegate(self) -> None:
        self._end_delegations()
        if self._port is None or not self.is_open:
            return
        found = self._configuration
        for rank in gateways(found.tree, found.hosts):
            if found.hosts[rank] == self._order.host:
                path = msgspec.structs.replace(found, folder=str(self._folder)).port_path(rank)
                self._delegations.append(
                    self._port.delegate(found.cluster, rank, path, lambda: self._credentials)
                )

    def _end_delegations(self) -> None:
        while self._delegations:
            self._delegations.pop()()

    def renew(self, credentials: Credentials) -> None:
        """Let processes that begin from now on show other credentials."""
        self._credentials = credentials
        if self.is_open:
            self._use_configuration()
            waiting, self._unspawned = self._unspawned, []
            self._spawner.spawn(waiting)

    def uncertified(self, reason: str) -> None:
        """Go on with the certificate that there is; without one, end."""
        if self._credentials.certificate:
            _log.warning("certificate not renewed", session=self._order.session, reason=reason)
        else:
            self._ended(reason)

    def _localised(self, found: MemberConfiguration) -> bytes:
        """Return a configuration with the settings of this machine."""
        node = self._credentials.node
        local = msgspec.structs.replace(
            found,
            folder=str(self._folder),
            host=self._order.host,
            machine=f"{machine_id()}/{node}" if found.machine else "",
            addresses=self._way.added_to(found.addresses) if self._way else found.addresses,
            credentials=self._credentials,
        )
        return msgspec.msgpack.encode(local)

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to a process."""
        self._spawner.kill(pid, number)

    def close(self, done: Callable[[], None]) -> None:
        """End all processes; ``done`` is called on the loop when they are gone.

        A session is closed once: a second caller waits for the same.
        """
        self._done.append(done)
        if not self.is_open:
            if self.gone:
                self._loop.call_soon(self._tell_done)
            return
        self._closing = new_thread("sapwood-close", self._wait)
        self._end_delegations()
        self._spawner.detach()
        self._closing.start()

    def _wait(self) -> None:
        self._spawner.close()
        self._remove()
        self.gone = True
        with contextlib.suppress(ClosedError):  # the daemon ends
            self._loop.call_soon_threadsafe(self._tell_done)

    def _tell_done(self) -> None:
        done, self._done = self._done, []
        for function in done:
            function()

    def wait_closed(self, timeout: float | None = None) -> None:
        """End all processes and wait for that, at most ``timeout`` seconds."""
        self.close(_nothing)
        if self._closing is not None:
            self._closing.join(timeout)

    def _look(self) -> None:
        if not self.is_open:
            return
        self._loop.call_later(self._heartbeat, self._look)  # first: also after a look that fails
        if self._spawner.is_silent(LOOKS, FIRST_LOOKS):
            self._spawner.end()
            self._ended("the zygote gave no sign of life")

    def _reported(self, report: orders.Report) -> None:
        order = self._order
        if isinstance(report, orders.Spawned):
            self._processes[report.pid] = (report, time.time())
        elif isinstance(report, orders.Exited):
            self._processes.pop(report.pid, None)
        self._tell(messages.ProcessesReported(order.session, order.life, report))

    def _ended(self, reason: str) -> None:
        if not self.is_open:
            return
        order = self._order
        _log.warning("session lost", session=order.session, reason=reason)
        told = messages.ProcessesReported(order.session, order.life, None, reason)
        self.close(partial(self._tell, told))

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class SessionZygotes:
    """All sessions on this machine: the component that begins their processes.

    When it stops, their processes end, and the head tells their roots that the node begins
    nothing: to a session that is what a lost machine is. When it starts, roots may begin
    processes here again.

    Args:
        link: The link to the head.
        tell: Reports state changes of processes to the head.
    """

    name = messages.ZYGOTES

    def __init__(
        self, link: ControlLink, tell: Callable[[messages.ProcessesReported], None]
    ) -> None:
        self._link = link
        self._tell = tell
        self._sessions: dict[str, SessionProcesses] = {}
        self._former: dict[str, SessionProcesses] = {}  # sessions that a former head had started
        self._opened: list[SessionProcesses] = []  # also those that are being closed
        self._stopped: list[SessionProcesses] = []  # sessions of an earlier life of the component
        self._port: NodePort | None = None
        self._denials = Denials()
        self.requests: dict[str, Callable[[IncomingRequest], None]] = {
            messages.OPEN: self._open_session,
            messages.RESUME: self._resume_session,
            messages.CONFIGURE: self._configure,
            messages.DETOUR: self._note_detour,
            messages.LISTEN: self._listen,
            messages.SPAWN: self._spawn,
            messages.KILL: self._kill,
            messages.CLOSE: self._close_session,
            messages.DENY: self._deny,
        }

    # --- as a component ------------------------------------------------------------------------

    def start(self, _context: ComponentContext) -> None:
        """Let sessions begin processes."""

    def check(self) -> State:
        """Return READY, when the processes of an earlier life are gone.

        A session that is closed because it is over says nothing about the component.
        """
        self._stopped = [session for session in self._stopped if not session.gone]
        return State.STARTING if self._stopped else State.READY

    def receive(self, event: ComponentEvent) -> None:
        """Show other credentials, if the certificate was renewed."""
        if event.topic in {JOINED, RENEWED}:
            if self._port is not None:
                self._port.renew(self._link.credentials)
            for session in self._left():
                if session.owner is None:
                    session.renew(self._link.credentials)
                else:
                    self._certify(session)

    def stop(self) -> None:
        """Start to end all processes; this does not wait."""
        self._sessions.clear()
        self._former.clear()
        self._stopped = list(self._left())
        for session in self._stopped:
            session.close(_nothing)

    # --- for the daemon ------------------------------------------------------------------------

    def activity(self) -> list[messages.SessionActivity]:
        """Return what runs, for people."""
        return [one.activity() for one in self._left()]

    def processes(self) -> set[int]:
        """Return the zygotes."""
        return {session.zygote for session in self._left()}

    def abandon(self) -> None:
        """Let each session end with its last process, because no more orders come.

        The next head may have it resumed before.
        """
        self._former |= self._sessions
        self._sessions.clear()
        for session in self._left():
            session.abandoned = True

    def close_abandoned(self) -> None:
        """Close abandoned sessions without processes."""
        for session in self._left():
            if session.abandoned and not children(session.zygote):
                session.abandoned = False
                session.close(_nothing)

    def wait_closed(self) -> None:
        """Wait until all processes are gone, after :meth:`stop`; listen no more."""
        if self._port is not None:
            self._port.close()
        for session in self._opened:
            session.wait_closed()

    def listen(self, where: str) -> NodePort:
        """Return where this node is reached by others; it listens from the first time on.

        Args:
            where: ``host:port``; port 0 takes a free one.

        Raises:
            CommunicationError: The port is taken, or the address is none of this machine.
        """
        if self._port is None:
            # Only a node that has others below it needs it.
            from sapwood.nodes.port import NodePort  # noqa: PLC0415 - see above

            self._port = NodePort(where, self._link.loop, self._link.credentials)
            _log.info("listening for nodes", addresses=list(self._port.addresses))
            for session in self._left():
                session.listen_at(self._port)
        return self._port

    def _left(self) -> list[SessionProcesses]:
        """Return the sessions that still have processes."""
        self._opened = [session for session in self._opened if not session.gone]
        self._former = {name: one for name, one in self._former.items() if one.is_open}
        return self._opened

    # --- requests of the head ------------------------------------------------------------------

    def _open_session(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.OpenProcesses)
        self._refuse_denied(order.credential)
        for sessions in (self._sessions, self._former):
            self._refuse_others(sessions.get(order.session), order.credential)
        credentials, owner = self._link.credentials, None
        if order.user:
            owner = find_user(order.user)
            owner.check_python()
            # Its processes begin when there is a certificate for them.
            credentials = Credentials(places_id(credentials.node), b"", b"", credentials.authority)
        for sessions in (self._sessions, self._former):
            old = sessions.pop(order.session, None)
            if old is not None:
                old.wait_closed(CLOSE_TIMEOUT)
        made = SessionProcesses(
            order,
            credentials,
            self._link.loop,
            self._link.heartbeat,
            self._tell,
            self._link.way,
            owner,
        )
        made.start()
        self._opened.append(made)
        self._sessions[order.session] = made
        if owner is not None:
            self._certify(made)
        if self._port is not None:
            made.listen_at(self._port)
        _log.info("session opened", session=order.session, user=order.user or "-")
        request.reply(None)

    def _certify(self, session: SessionProcesses) -> None:
        """Get another certificate for places that run as another user, who can read its key."""
        key, csr = make_request()
        node = self._link.credentials

        def answered(answer: ev.Answered) -> None:
            if answer.error is not None or answer.payload is not None:
                session.uncertified("its places get no certificate from the head")
                return
            session.renew(
                Credentials(
                    places_id(node.node), bytes(plain.decode(answer.body)), key, node.authority
                )
            )

        self._link.ask(messages.CERTIFY_PLACES, csr, answered)

    def _resume_session(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.ResumeProcesses)
        self._refuse_denied(order.credential)
        session = self._sessions.get(order.session) or self._former.get(order.session)
        self._refuse_others(session, order.credential)
        if session is None or session.life != order.life or not session.is_open:
            raise SapwoodError(f"nothing of the session {order.session} is on this node any more")
        self._former.pop(order.session, None)
        self._sessions[order.session] = session
        _log.info("session resumed", session=order.session)
        request.reply(messages.to_value(session.resume()))

    def _configure(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.ConfigureSession)
        self._session(order.session).reconfigure(order.configuration)
        request.reply(None)

    def _note_detour(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.NoteDetour)
        self._session(order.session).note(order.detour)
        request.reply(None)

    def _listen(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.ListenForNodes)
        request.reply(list(self.listen(order.listen).addresses))

    def _spawn(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.SpawnProcesses)
        session = self._session(order.session)
        self._refuse_denied(session.credential)
        session.spawn(order.processes)
        request.reply(None)

    def _deny(self, request: IncomingRequest) -> None:
        request.reply(self._denials.take(messages.from_value(request.value(), DenialUpdate)))

    def _refuse_denied(self, credential: Sequence[str]) -> None:
        """Begin nothing for who has a credential that was revoked, whatever the head says."""
        denied = self._denials.any_of(credential)
        if denied:
            raise SecurityError("the credential was revoked", where=denied)

    def _refuse_others(self, session: SessionProcesses | None, credential: tuple[str, ...]) -> None:
        """Check that the opener of a session resumes it: a new head may not know the owner."""
        if session is not None and session.is_open and tuple(session.credential) != credential:
            raise SecurityError("the session was opened by another credential")

    def _kill(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.KillProcess)
        self._session(order.session).kill(order.pid, order.signal)
        request.reply(None)

    def _close_session(self, request: IncomingRequest) -> None:
        name = str(request.value())
        session = self._sessions.pop(name, None) or self._former.pop(name, None)
        if session is None:
            request.reply(None)
        else:
            _log.info("session closed", session=str(request.value()))
            session.close(partial(request.reply, None))

    def _session(self, name: str) -> SessionProcesses:
        found = self._sessions.get(name)
        if found is None:
            raise SapwoodError(f"the session {name} is not open on this node")
        return found


def _read_configuration(data: bytes) -> MemberConfiguration:
    return messages.from_value(data, MemberConfiguration)


def _own_folders(owner: LocalUser | None, folder: str) -> dict[str, str]:
    """Return the variables of a user without a home folder, who has the session's own."""
    if owner is None or owner.is_this_process or Path(owner.home).is_dir():
        return {}
    return {"XDG_CACHE_HOME": f"{folder}/cache"}


def _nothing() -> None:
    pass
