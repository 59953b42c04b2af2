"""Orders of clients to the daemons of nodes, which start processes and commands there."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sapwood.content import messages as stage_messages
from sapwood.contexts.launchers.specs import is_launched
from sapwood.core.errors import ConfigurationError, ProtocolError
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.hints import command
from sapwood.head.authorizer import Authorizer, refuse_staging
from sapwood.head.calls import NodeOrder
from sapwood.head.protocol.call import HeadPart, Reach, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.reserved import is_reserved, refused
from sapwood.nodes import messages
from sapwood.security import rights as r

if TYPE_CHECKING:
    from sapwood.head.node_sessions import NodeSessions
    from sapwood.head.node_table import NodeTable
    from sapwood.head.remote_commands import RemoteCommands
    from sapwood.head.sessions import HeadSessions
    from sapwood.nodes.control import ControlTree

RIGHT_OF_ORDER: Final[Mapping[str, str]] = {
    messages.OPEN: r.ALLOCATE,
    messages.RESUME: r.ALLOCATE,
    messages.LISTEN: r.ALLOCATE,
    messages.DETOUR: r.SPAWN,
    messages.CONFIGURE: r.SPAWN,
    messages.SPAWN: r.SPAWN,
    messages.KILL: r.SPAWN,
    messages.CLOSE: r.CONNECT,
    messages.COMMAND_START: r.SPAWN,
    messages.COMMAND_INPUT: r.CONNECT,
    messages.COMMAND_SIGNAL: r.CONNECT,
    messages.COMMAND_CANCEL: r.CONNECT,
    # Who begins processes on a node reads and writes its files anyway.
    stage_messages.LOOK: r.SPAWN,
    stage_messages.WRITE: r.SPAWN,
    stage_messages.FETCH: r.SPAWN,
    stage_messages.KEEP: r.SPAWN,
    stage_messages.SERVE: r.SPAWN,
    stage_messages.LIST: r.SPAWN,
    stage_messages.REMOVE: r.SPAWN,
    stage_messages.FIND: r.SPAWN,
    stage_messages.READ: r.SPAWN,
}
"""The right that each order to a node needs, on that node; ending one's own work needs none."""

STAGE_ORDERS: Final = frozenset(one for one in RIGHT_OF_ORDER if one.startswith("stage."))
"""The orders that are about staged files."""

SHARED_STAGE_ORDERS: Final = frozenset({stage_messages.KEEP, stage_messages.REMOVE})
"""Of these, those that change what commands and environments of all users find by its name."""

READING_ORDERS: Final[Mapping[str, Any]] = {
    stage_messages.FIND: stage_messages.FindFiles,
    stage_messages.READ: stage_messages.ReadPiece,
}
"""Of these, those that read any file of the node, and what they carry."""

ORDERS_OF_CALLER: Final = frozenset(
    {
        messages.CONFIGURE,
        messages.DETOUR,
        messages.SPAWN,
        messages.KILL,
        messages.CLOSE,
        messages.COMMAND_INPUT,
        messages.COMMAND_SIGNAL,
        messages.COMMAND_CANCEL,
    }
)
"""Orders about processes that the caller has started, and about no others."""

OF_OPEN_SESSION: Final = frozenset(
    {messages.CONFIGURE, messages.DETOUR, messages.SPAWN, messages.KILL}
)
"""Orders about a session that the caller has opened on that node."""

COMMAND_ORDERS: Final[Mapping[str, Any]] = {
    messages.COMMAND_INPUT: messages.CommandInput,
    messages.COMMAND_SIGNAL: messages.SignalCommand,
    messages.COMMAND_CANCEL: messages.CancelCommand,
}
"""Orders to a command that was started, and what they carry."""


class Orders(HeadPart):
    """Orders to nodes.

    Args:
        control: The tree of nodes.
        authorizer: The authorizer.
        table: The nodes.
        on_nodes: The sessions that have processes on nodes.
        commands: The commands of clients on nodes.
        registry: The sessions with session servers.
    """

    def __init__(
        self,
        control: ControlTree,
        authorizer: Authorizer,
        table: NodeTable,
        on_nodes: NodeSessions,
        commands: RemoteCommands,
        registry: HeadSessions,
    ) -> None:
        self._control = control
        self._authorizer = authorizer
        self._table = table
        self._on_nodes = on_nodes
        self._commands = commands
        self._registry = registry

    @call("taken", right=r.CONNECT, reach=Reach.CALLER)
    def taken(self, caller: ServiceCaller, number: int) -> None:
        """Note that the caller has room for more output of its command.

        Args:
            caller: The caller.
            number: That of the output that it has taken.
        """
        self._commands.taken(caller, number)

    @call("order", right=r.CONNECT)
    def give(self, caller: ServiceCaller, order: NodeOrder) -> Future[Any]:
        """Give an order to the daemon of a node; return the answer of the daemon.

        Args:
            caller: It needs the right for this order besides: see :data:`RIGHT_OF_ORDER`.
            order: The order.
        """
        if order.handler not in RIGHT_OF_ORDER:
            raise ProtocolError(f"a client may not ask a node for '{order.handler}'")
        self._check(caller, order)
        self._check_reserved(caller, order)
        begins = order.handler in {messages.OPEN, messages.COMMAND_START}
        if begins and self._table.is_draining(order.host):
            raise ConfigurationError(
                f"the node {self._control.name_of(order.host)} is being drained",
                hint="take another one",
            )
        rights = caller.granted
        if order.handler == messages.OPEN:
            opening = messages.from_value(order.value, messages.OpenProcesses)
            self._on_nodes.own(caller, opening.session, order.host)
            order = _with(order, opening, credential=rights.ids, user=rights.user)
        elif order.handler == messages.RESUME:
            return self._resume(caller, order)
        elif order.handler == messages.CLOSE:
            name = str(order.value)
            if not self._on_nodes.disown(caller, name, order.host) and (
                self._on_nodes.callers_of(name) or not caller.is_local
            ):
                return _done(None)  # it is closed, was never open, or belongs to another client
            # A client of the head's user clears what a killed one has left.
        elif order.handler == messages.COMMAND_START:
            starting = messages.from_value(order.value, messages.StartCommand)
            user = rights.user
            if not user and order.session:  # as the processes of that session
                creator = self._registry.find(order.session).creator
                user = "" if creator is None else creator.user
            return self._commands.start(caller, _with(order, starting, user=user))
        elif order.handler in SHARED_STAGE_ORDERS:
            refuse_staging(rights)
        elif order.handler in READING_ORDERS:
            reading = messages.from_value(order.value, READING_ORDERS[order.handler])
            order = _with(order, reading, user=rights.user)
        return self._control.ask(order.host, order.handler, order.value)

    def _resume(self, caller: ServiceCaller, order: NodeOrder) -> Future[Any]:
        """Give a session on a node back to who has opened it; the node knows who that was."""
        resuming = messages.from_value(order.value, messages.ResumeProcesses)
        known = self._on_nodes.of(resuming.session, order.host) is not None
        self._on_nodes.own(caller, resuming.session, order.host)
        session = self._on_nodes.of(resuming.session, order.host)
        if not known and session is not None:
            session.is_resumed = True
        order = _with(order, resuming, credential=caller.granted.ids)
        answer = self._control.ask(order.host, order.handler, order.value)

        def answered(done: Future[Any]) -> None:
            if not known and (done.cancelled() or done.exception() is not None):
                self._on_nodes.disown(caller, resuming.session, order.host)

        when_done(answer, answered)
        return answer

    def _check(self, caller: ServiceCaller, order: NodeOrder) -> None:
        """Refuse orders that a client has no right for, or that concern processes of other clients.

        Raises:
            SecurityError: It has no right for it on that node, or for that session.
            ProtocolError: It is another client's.
        """
        if order.handler == messages.COMMAND_START and order.session:
            self._check_command_of_session(caller, order)
            return
        right = RIGHT_OF_ORDER[order.handler]
        begun = _session_of(order)
        node = self._control.name_of(order.host) if right != r.CONNECT else ""
        self._authorizer.require_right(caller, right, session=begun, node=node, what=order.handler)
        if order.handler in OF_OPEN_SESSION:
            known = self._on_nodes.of(begun, order.host)
            if known is None or known.caller is not caller:
                raise ProtocolError(f"the session {begun} is not this client's on that node")
        elif order.handler in COMMAND_ORDERS:
            command = messages.from_value(order.value, COMMAND_ORDERS[order.handler]).command
            if not self._commands.may(caller, command, order.host):
                raise ProtocolError(f"the command {command} is another client's")
        if order.handler == messages.SPAWN:
            spawning = messages.from_value(order.value, messages.SpawnProcesses)
            self._on_nodes.spawned(caller, order.host, spawning)

    def _check_reserved(self, caller: ServiceCaller, order: NodeOrder) -> None:
        """Refuse what begins processes on a reserved node, or reads its files.

        Raises:
            SecurityError: The credential may not use such nodes, or the session leaves them out.
        """
        if RIGHT_OF_ORDER[order.handler] == r.CONNECT or not is_reserved(
            self._control.registry.facts_of(order.host)
        ):
            return
        node = self._control.name_of(order.host)
        what = f"'{order.handler}' on this node"
        self._authorizer.require_reserved(caller, what, where=f"node {node}", wanted=order.handler)
        if caller.session and self._registry.find(caller.session).shared:
            raise refused("code of credentials that use this session", f"node {node}")

    def _check_command_of_session(self, caller: ServiceCaller, order: NodeOrder) -> None:
        """Let who may run code at a session's agents run a command where they are.

        Raises:
            SecurityError: It has no right for that.
            ConfigurationError: There is no such session, or it is not on that node.
        """
        record = self._registry.find(order.session)
        node = self._control.name_of(order.host)
        self._authorizer.require_session(caller, r.RUN, record, what=order.handler)
        self._authorizer.require_right(
            caller, r.RUN, session=record.name, node=node, what=order.handler
        )
        own_machines = is_launched(record.on)  # the names of those may be the same
        if own_machines or record.report is None or node not in record.report.nodes:
            raise ConfigurationError(
                f"the session '{record.handle}' is not on the node {node}",
                hint=f"{command('session', 'show', record.handle)} says where it is",
            )


def _with(order: NodeOrder, carried: msgspec.Struct, **changes: Any) -> NodeOrder:
    """Return an order whose value has some fields changed.

    Args:
        order: The order.
        carried: Its value.
        changes: The fields.
    """
    value = messages.to_value(msgspec.structs.replace(carried, **changes))
    return msgspec.structs.replace(order, value=value)


def _session_of(order: NodeOrder) -> str:
    """Return the session that an order is about; empty for a command."""
    if order.handler == messages.CLOSE:
        return str(order.value)
    kinds: dict[str, Any] = {
        messages.OPEN: messages.OpenProcesses,
        messages.RESUME: messages.ResumeProcesses,
        messages.DETOUR: messages.NoteDetour,
        messages.CONFIGURE: messages.ConfigureSession,
        messages.SPAWN: messages.SpawnProcesses,
        messages.KILL: messages.KillProcess,
    }
    kind = kinds.get(order.handler)
    return "" if kind is None else str(messages.from_value(order.value, kind).session)


def _done(value: Any) -> Future[Any]:
    made: Future[Any] = CallerFuture()
    made.set_result(value)
    return made
