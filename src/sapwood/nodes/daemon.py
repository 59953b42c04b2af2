"""The daemon of a node: the process that stands for a machine in a cluster.

It is a leaf of the control tree. At the request of the head it begins processes of sessions on its
machine: each session has a zygote here, and the daemon passes its orders and reports on. What it
does is the work of its components, which a supervisor looks after on the daemon's loop. It ends,
and all that it began ends with it, when the launcher's channel ends or the head is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from sapwood.comm.loop import Loop
from sapwood.comm.transport.tls_identity import parse_address
from sapwood.contexts.process import adopt_orphans
from sapwood.core import typed
from sapwood.core.errors import CommunicationError, ResourceError, SapwoodError, SecurityError
from sapwood.core.failures import new_thread
from sapwood.core.hints import command
from sapwood.core.topology import ROOT
from sapwood.environment.component import (
    Component,
    ComponentAction,
    ComponentEvent,
    ComponentView,
)
from sapwood.environment.component_entry import EntryComponent
from sapwood.environment.core_dumps import leave_no_core_dump
from sapwood.environment.folders import home_folder
from sapwood.environment.logs import logger
from sapwood.environment.settings import Settings
from sapwood.environment.supervisor import ALL_READY, Supervisor
from sapwood.nodes import messages
from sapwood.nodes.control_link import CertificateRenewal, ControlLink
from sapwood.nodes.head_way import HeadWay
from sapwood.nodes.joining import MAX_ATTEMPT, FirstAnswer, Joined, join, join_again
from sapwood.nodes.monitor import NodeMonitor, OrphanReaper
from sapwood.nodes.node_commands import NodeCommands
from sapwood.nodes.session_processes import SessionZygotes
from sapwood.nodes.stage import NodeStage, StageFolder
from sapwood.nodes.staged_use import STAGE_VARIABLE
from sapwood.security.authority import make_request
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import NODES, Invitation
from sapwood.session.agent import READY, Contribution, IncomingRequest

LINK_PATIENCE = 2.0
"""Seconds for which a node that can join again looks for its place in the tree before."""

COMPONENT_NAMES = frozenset(
    one.name
    for one in (
        NodeMonitor,
        ControlLink,
        CertificateRenewal,
        OrphanReaper,
        NodeCommands,
        NodeStage,
        SessionZygotes,
    )
)
"""The components that each node has."""

_log = logger("nodes")


class DaemonOrder(msgspec.Struct, frozen=True):
    """What the launcher tells a daemon at its start, on standard input: one line of JSON.

    Attributes:
        token: The join token.
        addresses: Where the head may be, ``host:port`` each.
        environment: Variables to be set.
        way: Whether the launcher can lead connections to the head if none of these answers.
    """

    token: str
    addresses: list[str]
    environment: dict[str, str] = {}
    way: bool = False


class NodeDaemon:
    """The daemon of this machine.

    Args:
        joined: Its place in the cluster.
        patience: Seconds for which it looks for its place when the link is gone; by default what
            the head says.
        way: How the launcher leads connections to the head; None if it does not.
        label: What the node calls itself; empty for the machine's name.

    Attributes:
        left: Why the head wants it to end; empty if it does not.
        heads: Where the head said that the next one is found, ``host:port`` each.
    """

    def __init__(
        self,
        joined: Joined,
        patience: float | None = None,
        way: HeadWay | None = None,
        label: str = "",
    ) -> None:
        self.left = ""
        self.heads: list[str] = []
        self._name = joined.answer.name
        self._stopped = False
        self._ready_seconds: float | None = None
        self._telling = False
        self._link = ControlLink(joined, patience, self._serve, way)
        self.loop = self._link.loop
        self._zygotes = SessionZygotes(self._link, self._tell)
        self._commands = NodeCommands(self._link)
        self._reaper = OrphanReaper(self._link, self._known, self._zygotes.close_abandoned)
        answer = joined.answer
        authority = joined.credentials.authority
        folder = StageFolder(answer.stage_folder, authority, label or socket.gethostname())
        self.stage = NodeStage(self._link, folder, answer.stage_limit, self._zygotes.listen)
        monitor = NodeMonitor(
            self._link, self._zygotes.activity, self._commands.activity, self.stage.held
        )
        parts: list[Component] = [
            monitor,
            self._link,
            CertificateRenewal(self._link),
            self._reaper,
            self._commands,
            self.stage,
            self._zygotes,
        ]
        parts += map(EntryComponent, joined.answer.components)
        self._handlers: dict[str, tuple[str, Callable[[IncomingRequest], None]]] = {
            messages.LEAVE: ("", self._leave),
            messages.COMPONENT: ("", self._act),
            messages.CLUSTER_READY: ("", self._cluster_ready),
            messages.HEADS: ("", self._note_heads),
        }
        for part in (monitor, self._commands, self.stage, self._zygotes):
            self._handlers |= {name: (part.name, work) for name, work in part.requests.items()}
        self._link.answer(tuple(self._handlers))
        settings = Settings(restart=joined.answer.restart)
        self.supervisor = Supervisor(parts, settings, refusals=_refusals(self._name))

    def run(self) -> None:
        """Live until the head is gone, or :meth:`end`."""
        try:
            self._start()
            self._link.run()
        finally:
            self._close()

    def stay(self, come_back: Callable[[Credentials, Callable[[], bool]], Joined]) -> None:
        """Live until the head says so, or :meth:`end`; when the head is gone, look for it.

        Meanwhile the sessions here continue: their roots are elsewhere.

        Args:
            come_back: Joins the head again: given the credentials that the node had, and what says
                whether to give up; called on a separate thread.

        Raises:
            SapwoodError: The head does not come back, or wants this node no more.
        """
        try:
            self._start()
            self._link.run()
            while not self.left and not self._stopped:
                _log.warning("head gone", then="this node looks for it")
                self._commands.abandon()
                self._link.agent.driver.close()
                self._zygotes.abandon()
                self._link.take_place(self._joined_again(come_back))
                self._changed()
                self._link.run()
        finally:
            self._close()

    def _start(self) -> None:
        self.supervisor.subscribe(self._heard)
        self.supervisor.start()
        self.supervisor.attend(self.loop)

    def _joined_again(
        self, come_back: Callable[[Credentials, Callable[[], bool]], Joined]
    ) -> Joined:
        """Join the head again while the loop looks after sessions."""
        found: list[Joined | Exception] = []

        def work() -> None:
            try:
                found.append(come_back(self._link.credentials, lambda: self._stopped))
            except Exception as error:  # noqa: BLE001 - handed to the loop's thread
                found.append(error)
            self.loop.call_soon_threadsafe(self.loop.stop)

        thread = new_thread("sapwood-join", work)
        thread.start()
        while not found:
            self.loop.run()
        thread.join()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _close(self) -> None:
        self.supervisor.stop()
        self._commands.wait_closed()
        self._zygotes.wait_closed()
        self.stage.wait_closed()
        self._reaper.end_orphans()
        self.loop.close()

    def when_ready(self, function: Callable[[], None]) -> None:
        """Have a function called when the head knows that the node is there; before it runs."""
        agent = self._link.agent
        note = agent.waves[READY]

        def told(contribution: Contribution) -> None:
            agent.waves[READY] = note
            note(contribution)
            function()

        agent.waves[READY] = told

    def end(self) -> None:
        """Let :meth:`run` return; from any thread."""
        self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    # --- requests of the head ------------------------------------------------------------------

    def _serve(self, name: str, request: IncomingRequest) -> None:
        """Answer a request.

        Only the head may ask, so that a compromised node does not reach this one.
        """
        if request.asked.source != ROOT:
            raise SecurityError(
                "only the head may ask a node for this", where=f"rank {request.asked.source}"
            )
        component, handler = self._handlers[name]
        self._check_works(component)
        handler(request)

    def _check_works(self, component: str) -> None:
        """Refuse what a component would do that does not run."""
        if component and not (state := self.supervisor.state_of(component)).works:
            raise ResourceError(
                f"the node's component '{component}' is {state.value}",
                hint=f"{command('node', 'start', component, '--nodes', self._name)} starts it",
            )

    def _act(self, request: IncomingRequest) -> None:
        order = messages.from_value(request.value(), messages.ComponentOrder)

        def settled(view: ComponentView) -> None:
            self._tell_components()  # first, so that the head knows it before the answer arrives
            request.reply(messages.to_value(view))

        self.supervisor.act(order.component, order.action)
        self.supervisor.when_settled(order.component, settled)

    def _cluster_ready(self, request: IncomingRequest) -> None:
        self.supervisor.tell(messages.CLUSTER_READY, float(request.value()))
        request.reply(None)

    def _note_heads(self, request: IncomingRequest) -> None:
        found = typed.convert(request.value(), list[str])
        for address in found:
            parse_address(f"head@{address}")
        self.heads = found
        request.reply(None)

    def _leave(self, request: IncomingRequest) -> None:
        self.left = str(request.value()) or "on request"
        _log.info("node leaves", reason=self.left)
        request.reply(None)
        self.loop.call_later(0.0, self.loop.stop)  # after the answer is on its way

    # --- reports to the head -------------------------------------------------------------------

    def _known(self) -> set[int]:
        """Return the children that are supervised."""
        way = {self._link.way.pid} if self._link.way else set()
        known = self._zygotes.processes() | self._commands.processes()
        return known | self.supervisor.processes | way

    def _heard(self, event: ComponentEvent) -> None:
        """Take note of what happens to components, and tell the head of it."""
        if event.topic == ALL_READY:
            self._ready_seconds = event.value
            _log.info("components ready", seconds=round(event.value, 4))
        self._changed()

    def _changed(self) -> None:
        """Tell the head how the components are, once for all that happens now."""
        if not self._telling:
            self._telling = True
            self.loop.call_soon(self._tell_components)

    def _tell_components(self) -> None:
        self._telling = False
        if not self._link.linked:
            return  # the head is notified when it is back
        zygotes = self.supervisor.state_of(SessionZygotes.name)
        told = messages.NodeComponents(
            components=self.supervisor.views(),
            ready_seconds=self._ready_seconds,
            closed="" if zygotes.works else f"its component 'zygotes' is {zygotes.value}",
        )
        self._link.ask(messages.COMPONENTS, messages.to_value(told))

    def _tell(self, report: messages.ProcessesReported) -> None:
        if self._link.linked:  # else whoever would hear it knows that the node is gone
            self._link.ask(messages.REPORT, messages.to_value(report))


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


def main(told: dict[str, Any], say: Callable[..., None]) -> None:
    """Join the cluster and be its node; standard input is the launcher's channel.

    Args:
        told: A :class:`DaemonOrder`.
        say: Writes an answer to the launcher's channel, given by keywords.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides
    with contextlib.ExitStack() as stack:
        try:
            leave_no_core_dump()
            order = typed.convert(told, DaemonOrder)
            os.environ.update(order.environment)
            adopt_orphans()
            joined, way = _joined(order, stack, say)
            daemon = NodeDaemon(joined, way=way)
        except SapwoodError as error:
            stack.close()
            say(error=str(error))
            sys.exit(error.exit_code)
        home = home_folder()
        os.chdir(home if home is not None and home.is_dir() else "/")
        say(joined=joined.answer.node, address=joined.address, pid=os.getpid())
        watch_channel(daemon.loop, sys.stdin.fileno(), daemon.loop.stop)
        signal.signal(signal.SIGTERM, lambda *_: daemon.end())
        os.environ[STAGE_VARIABLE] = str(daemon.stage.names)
        daemon.run()
    os._exit(0)  # without waiting for threads at the end of the interpreter


def _joined(
    order: DaemonOrder, stack: contextlib.ExitStack, say: Callable[..., None]
) -> tuple[Joined, HeadWay | None]:
    """Join the head directly, or else by the way of the launcher; also return that way.

    Args:
        order: What the launcher said.
        stack: Closes the way.
        say: As for :func:`main`.
    """
    token, addresses = NODES.parse(order.token), _addresses(order.addresses)
    if not order.way:
        return join(token, addresses), None
    own = make_request()
    answer = FirstAnswer(addresses)
    if answer.address:
        with contextlib.suppress(CommunicationError):
            return join(token, [answer.address], MAX_ATTEMPT, answer=answer, own=own), None
    way = HeadWay()
    stack.callback(way.close)
    say(way=way.path)
    heard = json.loads(sys.stdin.buffer.readline() or b"{}")
    refused = heard.get("refused", "the launcher's channel has ended")
    if refused:
        raise CommunicationError(
            f"the head cannot be reached, and {refused}",
            where=", ".join(addresses),
            hint="let this machine connect to one of these addresses",
        )
    return join(token, [way.endpoint], own=own), way


def join_by_hand(
    token: Invitation,
    addresses: Sequence[str],
    name: str,
    joined: Callable[[Joined, int], None],
    rejoin_timeout: float,
    failed: Callable[[str], None] = lambda _reason: None,
) -> str:
    """Be a node until the head says so, or a signal comes.

    When the head is gone, the node looks for it, and joins it again by its certificate.

    Args:
        token: The join token.
        addresses: Where the head may be, ``host:port`` each; they are tried in turn.
        name: What the node calls itself; empty for the machine's name.
        joined: Told when the node has joined, with its place and its process id.
        rejoin_timeout: Seconds to look for a head that is gone.
        failed: Told why the head was not reached yet.

    Returns:
        Why it ended.

    Raises:
        SecurityError: The head refuses, or is not the one that made the token.
        CommunicationError: The head cannot be reached, or does not come back.
    """
    adopt_orphans()
    leave_no_core_dump()
    place = join(token, addresses, name=name, failed=failed)

    def come_back(credentials: Credentials, stop: Callable[[], bool]) -> Joined:
        heads = list(dict.fromkeys([*daemon.heads, *addresses]))
        return join_again(credentials, heads, rejoin_timeout, name, stop)

    daemon = NodeDaemon(place, LINK_PATIENCE, label=name)
    os.environ[STAGE_VARIABLE] = str(daemon.stage.names)
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        daemon.end()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    daemon.when_ready(partial(joined, place, os.getpid()))
    try:
        daemon.stay(come_back)
    except SapwoodError:
        if not stopped:
            raise
    return f"stopped by {signal.Signals(stopped[0]).name}" if stopped else daemon.left


def _refusals(node: str) -> Mapping[str, Mapping[ComponentAction, str]]:
    """Return what users may not do with components of a node, and what to do instead."""
    instead = f"the head reaches the node by it: {command('node', 'delete', node)} ends the node"
    return {ControlLink.name: {ComponentAction.STOP: instead, ComponentAction.RESTART: instead}}


def _addresses(known: list[str]) -> list[str]:
    """Return where the head may be, first where ssh says that it is."""
    found = list(known)
    came_from = os.environ.get("SSH_CONNECTION", "").split()
    if came_from and known:
        port = known[0].rpartition(":")[2]
        host = f"[{came_from[0]}]" if ":" in came_from[0] else came_from[0]
        found.insert(0, f"{host}:{port}")
    return list(dict.fromkeys(found))
