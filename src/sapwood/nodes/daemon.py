"""The daemon of a node: the process that stands for a machine in a cluster.

It is a leaf of the control tree. At the request of the head it begins processes of sessions on its
machine: each session has a zygote here, and the daemon passes its orders and reports on. It ends,
and all that it began ends with it, when the launcher's channel ends or the head is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.machine import machine_id
from sapwood.contexts import orders
from sapwood.contexts.process import adopt_orphans, children, resident_memory
from sapwood.contexts.spawner import Spawner
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    ResourceError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.topology import ROOT
from sapwood.environment.log_ring import LogRing, kept_lines
from sapwood.environment.logs import logger
from sapwood.nodes import messages
from sapwood.nodes.command_processes import CommandProcesses, Done
from sapwood.nodes.joining import Joined, join, join_again
from sapwood.security.authority import make_request, valid_until
from sapwood.security.credentials import Credentials
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.security.tokens import JoinToken
from sapwood.session.agent import READY, Agent, Contribution, IncomingRequest
from sapwood.session.folder import make_folder
from sapwood.session.member import MemberConfiguration
from sapwood.session.shared_reactor import SharedReactor

LOOKS = 8
"""A zygote that gives no sign of life at so many heartbeats is taken for dead."""

RENEW_AFTER = 2 / 3
"""Part of a certificate's life after which it is renewed."""

LINK_PATIENCE = 2.0
"""Seconds for which a node that can join again looks for its place in the tree before."""

RENEW_PAUSE = 5.0
"""Seconds until a head that gave no certificate is asked again."""

FIRST_LOOKS = 60
"""The same for one that is not ready yet."""

_log = logger("nodes")


class DaemonOrder(msgspec.Struct, frozen=True):
    """What the launcher tells a daemon at its start, on standard input: one line of JSON.

    Attributes:
        token: The join token.
        addresses: Where the head may be, ``host:port`` each.
        environment: Variables to be set.
    """

    token: str
    addresses: list[str]
    environment: dict[str, str] = {}


class SessionProcesses:
    """The processes of one session on this machine.

    Args:
        order: What the head wants.
        credentials: What its processes show to other machines.
        loop: The loop of the daemon.
        heartbeat: Seconds between two looks at the zygote.
        tell: Tells the head something.

    Attributes:
        gone: Whether all processes have ended.
        abandoned: Whether nobody orders anything any more: it ends with its last process.
    """

    def __init__(
        self,
        order: messages.OpenProcesses,
        credentials: Credentials,
        loop: SharedReactor,
        heartbeat: float,
        tell: Callable[[messages.ProcessesReported], None],
    ) -> None:
        self._order = order
        self._loop = loop
        self._heartbeat = heartbeat
        self._tell = tell
        self._folder = make_folder()
        self._credentials = credentials
        self._configuration = order.configuration
        self.abandoned = False
        self._since = time.time()
        self._processes: dict[int, tuple[int, float]] = {}
        self._spawner = Spawner(
            order.plan,
            orders.ConfigureProcesses(
                str(self._folder), self._localised(order.configuration), order.environment
            ),
            self._reported,
            partial(self._ended, "the zygote ended"),
        )
        self._open = True
        self.gone = False

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
            zygote=_activity(self.zygote, self._since),
            processes=[
                _activity(pid, since, rank) for pid, (rank, since) in self._processes.items()
            ],
            abandoned=self.abandoned,
        )

    def start(self) -> None:
        """Start the zygote.

        Raises:
            ResourceError: It cannot be started.
        """
        try:
            self._spawner.start()
        except ResourceError:
            self._remove()
            raise
        self._spawner.listen(self._loop)
        self._loop.call_later(self._heartbeat, self._look)

    def spawn(self, processes: list[orders.ProcessSpec]) -> None:
        """Begin processes."""
        self._spawner.spawn(processes)

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that begin from now on."""
        self._configuration = configuration
        self._spawner.reconfigure(self._localised(configuration))

    def renew(self, credentials: Credentials) -> None:
        """Let processes that begin from now on show other credentials."""
        self._credentials = credentials
        if self._open:
            self.reconfigure(self._configuration)

    def _localised(self, configuration: bytes) -> bytes:
        """Return a configuration with what this machine has of its own."""
        found = typed.unpacker(MemberConfiguration)(configuration)
        node = self._credentials.node
        local = msgspec.structs.replace(
            found,
            folder=str(self._folder),
            host=self._order.host,
            machine=f"{machine_id()}/{node}" if found.machine else "",
            credentials=self._credentials,
        )
        return msgspec.msgpack.encode(local)

    def kill(self, pid: int, number: int) -> None:
        """Send a signal to a process."""
        self._spawner.kill(pid, signal.Signals(number))

    def close(self, done: Callable[[], None]) -> None:
        """End all processes; ``done`` is called on the loop when they are gone."""
        self._open = False
        self._spawner.detach()

        def wait() -> None:
            self._spawner.close()
            self._remove()
            self.gone = True
            with contextlib.suppress(ClosedError):  # the daemon ends
                self._loop.call_soon_threadsafe(done)

        threading.Thread(target=wait, name="sapwood-close", daemon=True).start()

    def close_now(self) -> None:
        """End all processes and wait for that: the daemon ends."""
        self._open = False
        self._spawner.detach()
        self._spawner.close()
        self._remove()
        self.gone = True

    def _look(self) -> None:
        if not self._open:
            return
        if self._spawner.is_silent(LOOKS, FIRST_LOOKS):
            self._spawner.end()
            self._ended("the zygote gave no sign of life")
            return
        self._loop.call_later(self._heartbeat, self._look)

    def _reported(self, report: orders.Report) -> None:
        order = self._order
        if isinstance(report, orders.Spawned):
            self._processes[report.pid] = (report.rank, time.time())
        elif isinstance(report, orders.Exited):
            self._processes.pop(report.pid, None)
        self._tell(messages.ProcessesReported(order.session, order.life, report))

    def _ended(self, reason: str) -> None:
        if not self._open:
            return
        order = self._order
        _log.warning("session lost", session=order.session, reason=reason)
        told = messages.ProcessesReported(order.session, order.life, None, reason)
        self.close(partial(self._tell, told))

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class NodeDaemon:
    """The daemon of this machine.

    Args:
        joined: Its place in the cluster.
        patience: Seconds for which it looks for its place when the link is gone; by default what
            the head says.
        lines: What it has logged.
    """

    def __init__(
        self, joined: Joined, patience: float | None = None, lines: LogRing | None = None
    ) -> None:
        self.loop = SharedReactor()
        self._lines = lines or LogRing()
        self._since = time.time()
        self._patience = patience
        self.left = ""
        self._stopped = False
        self._linked = False
        self._sessions: dict[str, SessionProcesses] = {}
        self._opened: list[SessionProcesses] = []  # also those that are being closed
        self._renewal: Timer | None = None
        self._denials = Denials()
        self._take_place(joined)

    def _take_place(self, joined: Joined) -> None:
        """Get ready for a link with the head."""
        self.credentials = joined.credentials
        configuration = typed.unpacker(MemberConfiguration)(joined.answer.configuration)
        answer, timing = joined.answer, configuration.timing
        if self._patience is not None:
            timing = msgspec.structs.replace(timing, give_up_after=self._patience)
        local = msgspec.structs.replace(
            configuration,
            timing=timing,
            folder="",  # a leaf listens nowhere
            host=answer.rank,
            credentials=joined.credentials,
        )
        self._heartbeat = configuration.timing.heartbeat
        self.agent = Agent(local, answer.rank, answer.incarnation, self.loop)
        self.agent.requests |= {
            messages.OPEN: partial(self._serve, self._open_session),
            messages.CONFIGURE: partial(self._serve, self._configure),
            messages.SPAWN: partial(self._serve, self._spawn),
            messages.KILL: partial(self._serve, self._kill),
            messages.CLOSE: partial(self._serve, self._close_session),
            messages.LEAVE: partial(self._serve, self._leave),
            messages.STATUS: partial(self._serve, self._tell_status),
            messages.LOGS: partial(self._serve, self._tell_lines),
            messages.DENY: partial(self._serve, self._deny),
        }
        self._commands = CommandProcesses(self.loop, self._command_wrote, self._command_ended)
        for name, serve in self._commands.requests.items():
            self.agent.requests[name] = partial(self._serve, partial(_pass_on, serve))
        for session in self._opened:
            session.renew(joined.credentials)
        self._plan_renewal()

    def run(self) -> None:
        """Live until the head is gone, or :meth:`end`."""
        self._look_for_orphans()
        try:
            self._live()
        finally:
            self._close()

    def stay(self, come_back: Callable[[Credentials, Callable[[], bool]], Joined]) -> None:
        """Live until the head says so, or :meth:`end`; when the head is gone, look for it.

        Meanwhile the sessions here go on: their roots are elsewhere.

        Args:
            come_back: Joins the head again: given the credentials that the node had, and what says
                whether to give up; called on a thread of its own.

        Raises:
            SapwoodError: The head does not come back, or wants this node no more.
        """
        self._look_for_orphans()
        try:
            self._live()
            while not self.left and not self._stopped:
                _log.warning("head gone", then="this node looks for it")
                self._commands.close()
                self.agent.place.close()
                for session in self._opened:
                    session.abandoned = True
                self._sessions.clear()
                self._take_place(self._joined_again(come_back))
                self._live()
        finally:
            self._close()

    def _live(self) -> None:
        self._linked = True
        _log.info("node joined", certificate=self.credentials.node)
        try:
            self.agent.run()
        finally:
            self._linked = False

    def _joined_again(
        self, come_back: Callable[[Credentials, Callable[[], bool]], Joined]
    ) -> Joined:
        """Join the head again while the loop looks after sessions."""
        found: list[Joined | Exception] = []

        def work() -> None:
            try:
                found.append(come_back(self.credentials, lambda: self._stopped))
            except Exception as error:  # noqa: BLE001 - handed to the loop's thread
                found.append(error)
            self.loop.call_soon_threadsafe(self.loop.stop)

        thread = threading.Thread(target=work, name="sapwood-join", daemon=True)
        thread.start()
        while not found:
            self.loop.run()
        thread.join()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _close(self) -> None:
        self._commands.close()
        for session in self._opened:
            session.close_now()
        self._end_orphans()
        self.agent.place.close()
        self.loop.close()

    # --- certificates --------------------------------------------------------------------------

    def _plan_renewal(self) -> None:
        """Have the certificate renewed before it ends."""
        if self._renewal is not None:
            self._renewal.cancel()
        left = valid_until(self.credentials.certificate) - time.time()
        self._renewal = self.loop.call_later(max(left, 0.0) * RENEW_AFTER, self._renew)

    def _renew(self) -> None:
        """Ask for another certificate, over the link that there is."""
        if not self._linked:
            self._renewal = self.loop.call_later(self._heartbeat, self._renew)
            return
        key, request = make_request()
        self.agent.ask(ROOT, messages.RENEW, plain.encode(request), partial(self._renewed, key))

    def _renewed(self, key: bytes, answer: ev.Answered) -> None:
        if answer.error is not None or answer.payload is not None:
            _log.warning("certificate not renewed", again_in=RENEW_PAUSE)
            self._renewal = self.loop.call_later(RENEW_PAUSE, self._renew)
            return
        certificate = bytes(plain.decode(answer.body))
        self.credentials = msgspec.structs.replace(
            self.credentials, certificate=certificate, key=key
        )
        self.agent.renew(self.credentials)
        for session in self._opened:
            session.renew(self.credentials)
        _log.info("certificate renewed", until=round(valid_until(certificate)))
        self._plan_renewal()

    def when_ready(self, function: Callable[[], None]) -> None:
        """Have a function called when the head knows that the node is there; before it runs."""
        note = self.agent.waves[READY]

        def told(contribution: Contribution) -> None:
            self.agent.waves[READY] = note
            note(contribution)
            function()

        self.agent.waves[READY] = told

    def end(self) -> None:
        """Let :meth:`run` return; from any thread."""
        self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    # --- requests of the head ------------------------------------------------------------------

    def _serve(self, handler: Callable[[IncomingRequest], None], request: IncomingRequest) -> None:
        """Answer a request; one that fails for whatever reason must not end the node.

        Only the head may ask: whoever has another node must not get this one by that.
        """
        if request.asked.source != ROOT:
            raise SecurityError(
                "only the head may ask a node for this", where=f"rank {request.asked.source}"
            )
        try:
            handler(request)
        except SapwoodError:
            raise
        except Exception as error:
            raise ResourceError(f"the node cannot do this: {error!r}") from error

    def _open_session(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.OpenProcesses)
        self._refuse_denied(order.credential)
        old = self._sessions.pop(order.session, None)
        if old is not None:
            old.close_now()
        made = SessionProcesses(order, self.credentials, self.loop, self._heartbeat, self._tell)
        made.start()
        self._opened.append(made)
        self._sessions[order.session] = made
        _log.info("session opened", session=order.session)
        request.reply(None)

    def _configure(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.ConfigureSession)
        self._session(order.session).reconfigure(order.configuration)
        request.reply(None)

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

    def _kill(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.KillProcess)
        self._session(order.session).kill(order.pid, order.signal)
        request.reply(None)

    def _close_session(self, request: IncomingRequest) -> None:
        session = self._sessions.pop(str(request.value()), None)
        if session is None:
            request.reply(None)
        else:
            _log.info("session closed", session=str(request.value()))
            session.close(partial(request.reply, None))

    def _tell_status(self, request: IncomingRequest) -> None:
        # Later: meanwhile the question itself is counted.
        self.loop.call_soon(self._say_status, request)

    def _say_status(self, request: IncomingRequest) -> None:
        from sapwood.nodes.port import interface_of  # noqa: PLC0415 - psutil only where asked

        links = self.agent.place.figures()
        link = links[0] if links else None
        local = link.connection.local_address if link and link.connection else ""
        found = messages.NodeActivity(
            clock=time.time(),
            daemon=_activity(os.getpid(), self._since),
            sessions=[one.activity() for one in self._opened if not one.gone],
            commands=self._commands.activity(),
            link=link,
            interface=interface_of(local) if local else "",
        )
        request.reply(messages.to_value(found))

    def _tell_lines(self, request: IncomingRequest) -> None:
        wanted = messages.from_value(request.value(), messages.ReadLogs)
        request.reply(messages.to_value(self._lines.read(wanted.after, wanted.level)))

    def _leave(self, request: IncomingRequest) -> None:
        self.left = str(request.value()) or "it was told to"
        _log.info("node leaves", reason=self.left)
        request.reply(None)
        self.loop.call_later(0.0, self.loop.stop)  # after the answer is on its way

    def _session(self, name: str) -> SessionProcesses:
        found = self._sessions.get(name)
        if found is None:
            raise SapwoodError(f"the session {name} is not open on this node")
        return found

    def _look_for_orphans(self) -> None:
        self._end_orphans()
        self.loop.call_later(self._heartbeat, self._look_for_orphans)

    def _end_orphans(self) -> None:
        """End what zygotes have left that were killed: it has come to this process."""
        self._opened = [session for session in self._opened if not session.gone]
        for session in self._opened:
            if session.abandoned and not session.gone and not children(session.zygote):
                session.abandoned = False
                session.close(_nothing)
        found = children(os.getpid())  # first: what a command forks meanwhile is not looked at
        known = {session.zygote for session in self._opened} | self._commands.processes()
        for pid in found:
            if pid not in known:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _tell(self, report: messages.ProcessesReported) -> None:
        if not self._linked:
            return  # whoever would hear it knows that the node is gone
        self.agent.ask(ROOT, messages.REPORT, plain.encode(messages.to_value(report)))

    def _command_wrote(self, output: messages.CommandOutput, taken: Done) -> None:
        body = plain.encode(messages.to_value(output))
        self.agent.ask(ROOT, messages.COMMAND_OUTPUT, body, lambda _: taken())

    def _command_ended(self, report: messages.CommandEnded) -> None:
        self.agent.ask(ROOT, messages.COMMAND_ENDED, plain.encode(messages.to_value(report)))


def _activity(pid: int, since: float, rank: int = -1) -> messages.ProcessActivity:
    return messages.ProcessActivity(pid=pid, since=since, memory=resident_memory(pid), rank=rank)


def _pass_on(serve: Callable[[Any, Done], None], request: IncomingRequest) -> None:
    serve(request.value(), partial(request.reply, None))


def watch_channel(loop: Loop, descriptor: int, ended: Callable[[], None]) -> None:
    """Have a function called when the launcher's channel ends."""

    def readable() -> None:
        try:
            data = os.read(descriptor, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(descriptor)
            ended()

    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, readable)


def main(told: dict[str, Any]) -> None:
    """Join the cluster and be its node; standard input is the launcher's channel.

    Args:
        told: A :class:`DaemonOrder`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front end decides
    try:
        order = typed.convert(told, DaemonOrder)
        os.environ.update(order.environment)
        adopt_orphans()
        joined = join(JoinToken.parse(order.token), _addresses(order.addresses))
        lines = LogRing()
        daemon = NodeDaemon(joined, lines=lines)
    except SapwoodError as error:
        _say(error=str(error))
        sys.exit(error.exit_code)
    os.chdir(Path.home() if Path.home().is_dir() else "/")
    _say(joined=joined.answer.node, address=joined.address, pid=os.getpid())
    watch_channel(daemon.loop, sys.stdin.fileno(), daemon.loop.stop)
    signal.signal(signal.SIGTERM, lambda *_: daemon.end())
    with kept_lines(lines):
        daemon.run()
    os._exit(0)  # threads of the interpreter's own end are nobody's business here


def join_by_hand(
    token: JoinToken,
    addresses: Sequence[str],
    name: str,
    joined: Callable[[Joined, int], None],
    rejoin_timeout: float,
) -> str:
    """Be a node until the head says so, or a signal comes.

    When the head is gone, the node looks for it, and joins it again by its certificate.

    Args:
        token: The join token.
        addresses: Where the head may be, ``host:port`` each; they are tried in turn.
        name: What the node calls itself; empty for the machine's name.
        joined: Told when the node has joined, with its place and its process id.
        rejoin_timeout: Seconds to look for a head that is gone.

    Returns:
        Why it ended.

    Raises:
        SecurityError: The head refuses, or is not the one that made the token.
        CommunicationError: The head cannot be reached, or does not come back.
    """
    adopt_orphans()
    place = join(token, addresses, name=name)

    def come_back(credentials: Credentials, stop: Callable[[], bool]) -> Joined:
        return join_again(credentials, addresses, rejoin_timeout, name, stop)

    lines = LogRing()
    daemon = NodeDaemon(place, LINK_PATIENCE, lines)
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        daemon.end()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    daemon.when_ready(partial(joined, place, os.getpid()))
    try:
        with kept_lines(lines):
            daemon.stay(come_back)
    except SapwoodError:
        if not stopped:
            raise
    return f"stopped by {signal.Signals(stopped[0]).name}" if stopped else daemon.left


def _addresses(known: list[str]) -> list[str]:
    """Return where the head may be, first where ssh says that it is."""
    found = list(known)
    came_from = os.environ.get("SSH_CONNECTION", "").split()
    if came_from and known:
        port = known[0].rpartition(":")[2]
        host = f"[{came_from[0]}]" if ":" in came_from[0] else came_from[0]
        found.insert(0, f"{host}:{port}")
    return list(dict.fromkeys(found))


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _nothing() -> None:
    pass
