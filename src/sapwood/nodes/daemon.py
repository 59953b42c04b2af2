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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm import plain
from sapwood.comm.loop import Loop
from sapwood.comm.machine import machine_id
from sapwood.contexts import orders
from sapwood.contexts.process import adopt_orphans, children
from sapwood.contexts.spawner import Spawner
from sapwood.core import typed
from sapwood.core.errors import ClosedError, ResourceError, SapwoodError
from sapwood.core.topology import ROOT
from sapwood.nodes import messages
from sapwood.nodes.command_processes import CommandProcesses, Done
from sapwood.nodes.joining import Joined, join
from sapwood.security.credentials import Credentials
from sapwood.security.tokens import JoinToken
from sapwood.session.agent import Agent, IncomingRequest
from sapwood.session.folder import make_folder
from sapwood.session.member import MemberConfiguration
from sapwood.session.shared_reactor import SharedReactor

LOOKS = 8
"""A zygote that gives no sign of life at so many heartbeats is taken for dead."""

FIRST_LOOKS = 60
"""The same for one that is not ready yet."""


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
    def zygote(self) -> int:
        """Process id of the zygote."""
        return self._spawner.pid

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
        self._spawner.reconfigure(self._localised(configuration))

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
        self._tell(messages.ProcessesReported(order.session, order.life, report))

    def _ended(self, reason: str) -> None:
        if not self._open:
            return
        order = self._order
        told = messages.ProcessesReported(order.session, order.life, None, reason)
        self.close(partial(self._tell, told))

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class NodeDaemon:
    """The daemon of this machine.

    Args:
        joined: Its place in the cluster.
    """

    def __init__(self, joined: Joined) -> None:
        self.credentials = joined.credentials
        self.loop = SharedReactor()
        configuration = typed.unpacker(MemberConfiguration)(joined.answer.configuration)
        answer = joined.answer
        local = msgspec.structs.replace(
            configuration,
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
        }
        self._sessions: dict[str, SessionProcesses] = {}
        self._opened: list[SessionProcesses] = []  # also those that are being closed
        self._commands = CommandProcesses(self.loop, self._command_wrote, self._command_ended)
        for name, serve in self._commands.requests.items():
            self.agent.requests[name] = partial(_pass_on, serve)

    def run(self) -> None:
        """Live until the head is gone, or :meth:`end`."""
        self._look_for_orphans()
        try:
            self.agent.run()
        finally:
            self._commands.close()
            for session in self._opened:
                session.close_now()
            self._end_orphans()
            self.agent.place.close()
            self.loop.close()

    def end(self) -> None:
        """Let :meth:`run` return; from any thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)

    # --- requests of the head ------------------------------------------------------------------

    def _serve(self, handler: Callable[[IncomingRequest], None], request: IncomingRequest) -> None:
        """Answer a request; one that fails for whatever reason must not end the node."""
        try:
            handler(request)
        except SapwoodError:
            raise
        except Exception as error:
            raise ResourceError(f"the node cannot do this: {error!r}") from error

    def _open_session(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.OpenProcesses)
        old = self._sessions.pop(order.session, None)
        if old is not None:
            old.close_now()
        made = SessionProcesses(order, self.credentials, self.loop, self._heartbeat, self._tell)
        made.start()
        self._opened.append(made)
        self._sessions[order.session] = made
        request.reply(None)

    def _configure(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.ConfigureSession)
        self._session(order.session).reconfigure(order.configuration)
        request.reply(None)

    def _spawn(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.SpawnProcesses)
        self._session(order.session).spawn(order.processes)
        request.reply(None)

    def _kill(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.KillProcess)
        self._session(order.session).kill(order.pid, order.signal)
        request.reply(None)

    def _close_session(self, request: IncomingRequest) -> None:
        session = self._sessions.pop(str(request.value()), None)
        if session is None:
            request.reply(None)
        else:
            session.close(partial(request.reply, None))

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
        found = children(os.getpid())  # first: what a command forks meanwhile is not looked at
        known = {session.zygote for session in self._opened} | self._commands.processes()
        for pid in found:
            if pid not in known:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _tell(self, report: messages.ProcessesReported) -> None:
        self.agent.ask(ROOT, messages.REPORT, plain.encode(messages.to_value(report)))

    def _command_wrote(self, output: messages.CommandOutput, taken: Done) -> None:
        body = plain.encode(messages.to_value(output))
        self.agent.ask(ROOT, messages.COMMAND_OUTPUT, body, lambda _: taken())

    def _command_ended(self, report: messages.CommandEnded) -> None:
        self.agent.ask(ROOT, messages.COMMAND_ENDED, plain.encode(messages.to_value(report)))


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
        daemon = NodeDaemon(joined)
    except SapwoodError as error:
        _say(error=str(error))
        sys.exit(error.exit_code)
    os.chdir(Path.home() if Path.home().is_dir() else "/")
    _say(joined=joined.answer.node, address=joined.address, pid=os.getpid())
    watch_channel(daemon.loop, sys.stdin.fileno(), daemon.loop.stop)
    signal.signal(signal.SIGTERM, lambda *_: daemon.end())
    daemon.run()
    os._exit(0)  # threads of the interpreter's own end are nobody's business here


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
