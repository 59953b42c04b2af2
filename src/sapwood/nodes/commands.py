"""Commands on many nodes, as the client sees them: one :class:`RunningCommand` for all nodes."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import Empty, SimpleQueue
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from sapwood.comm import plain, values
from sapwood.core.errors import ClosedError, ConfigurationError, NodeLostError
from sapwood.core.failures import failing
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.core.shown import shown
from sapwood.nodes import messages
from sapwood.nodes.command_processes import CHUNK, STREAMS, CommandProcesses, Done
from sapwood.session.loop_thread import LoopThread
from sapwood.session.options import PlacesChanged
from sapwood.session.requests import ServedRequest

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree

OUTPUT_MEMORY = 64 * 2**20
"""Bytes of output that all nodes of a command together may have on their way to the client."""

INPUT_WINDOW = 4
"""Pieces of standard input that one node may have on its way."""

CANCEL_TIMEOUT = 10.0
"""Seconds that nodes get to kill a command."""


class NodeOutput(msgspec.Struct, frozen=True):
    """What a command wrote on one node.

    Attributes:
        node: The node.
        stream: ``stdout`` or ``stderr``.
        data: The bytes, as they came.
    """

    node: str
    stream: str
    data: bytes


class NodeExit(msgspec.Struct, frozen=True):
    """A command has ended on one node.

    Attributes:
        node: The node.
        status: Exit code; 128 + n if signal n ended it, as shells have it; 126 and 127 if it could
            not be started; 6 if the node was lost.
        reason: Why it could not be started, or how the node was lost; else empty.
    """

    node: str
    status: int
    reason: str = ""


class CommandCarrier(Protocol):
    """The way to the nodes."""

    @property
    def names(self) -> Sequence[str]:
        """What users call them; the first has number 1."""

    def ask(self, number: int, request: str, message: msgspec.Struct) -> Future[Any]:
        """Send a request to a node."""

    def close(self) -> None:
        """Kill all commands."""


class NodeChoice(msgspec.Struct, frozen=True):
    """Which nodes of those that there are commands start on.

    Attributes:
        nodes: The set of nodes, such as ``n[1-3,7]``; empty for all.
        exclude: The set of nodes that are left out.
        pick: How many of the rest are taken, by chance; 0 for all.
    """

    nodes: str = ""
    exclude: str = ""
    pick: int = 0


class Commands:
    """Starts commands on nodes.

    Args:
        new_carrier: Returns the connection to the nodes, given the functions that it calls with
            a node's number: for output, for an end and for the loss of a node.
        nodes: Which of them are meant; a text is :attr:`NodeChoice.nodes`.
    """

    def __init__(
        self, new_carrier: Callable[[Commands], CommandCarrier], nodes: NodeChoice | str = ""
    ) -> None:
        self._choice = NodeChoice(nodes) if isinstance(nodes, str) else nodes
        self._picked: frozenset[str] | None = None
        self._numbers = itertools.count(secrets.randbits(48) + 1)  # others use the nodes as well
        self._lock = Lock()
        self._running: dict[int, RunningCommand] = {}
        self._carrier = new_carrier(self)

    @property
    def names(self) -> Sequence[str]:
        """The nodes that are meant.

        Raises:
            ConfigurationError: The set is malformed, or names a node that is not there.
        """
        return list(self._meant().values())

    def _meant(self) -> dict[int, str]:
        """Return the nodes that are meant, by their numbers."""
        there = dict(enumerate(self._carrier.names, 1))
        choice = self._choice
        wanted = set(_known(choice.nodes, there.values()) if choice.nodes else there.values())
        wanted -= set(_known(choice.exclude, there.values()) if choice.exclude else ())
        if choice.pick and self._picked is None:
            self._picked = _picked([one for one in there.values() if one in wanted], choice.pick)
        wanted &= wanted if self._picked is None else self._picked
        if not wanted:
            raise ConfigurationError(
                "no node is left", where="nodes", hint=f"nodes are {fold_hosts(there.values())}"
            )
        return {number: name for number, name in there.items() if name in wanted}

    def start(
        self,
        arguments: Sequence[str | bytes],
        *,
        folder: str = "",
        environment: Mapping[str, str] | None = None,
        input_to: Iterable[str] = (),
    ) -> RunningCommand:
        """Start a command on the nodes that are meant.

        Args:
            arguments: Its words, the program first.
            folder: Where it starts; by default the home folder, or on this machine the current one.
            environment: Variables, besides the node's own.
            input_to: The nodes where it is given standard input; elsewhere that is empty.
        """
        meant = self._meant()
        wants = set(input_to)
        if unknown := sorted(wants - set(meant.values())):
            raise ConfigurationError(
                f"node {shown(unknown[0])} does not exist",
                hint=f"nodes are {fold_hosts(meant.values())}",
            )
        running = RunningCommand(self._carrier, next(self._numbers), meant, self._forget)
        with self._lock:
            self._running[running.number] = running
        window = max(1, min(messages.MAX_WINDOW, OUTPUT_MEMORY // (CHUNK * len(meant))))
        for number, name in meant.items():
            running.start(
                number,
                messages.StartCommand(
                    command=running.number,
                    arguments=[w if isinstance(w, bytes) else _encoded(w) for w in arguments],
                    folder=folder,
                    environment=dict(environment or {}),
                    wants_input=name in wants,
                    window=window,
                ),
            )
        return running

    def close(self) -> None:
        """Kill all commands; the nodes stay."""
        with self._lock:
            running = list(self._running.values())
        for command in running:
            command.close()
        self._carrier.close()

    # --- told by the carrier, on any thread ------------------------------------------------------

    def wrote(self, number: int, output: messages.CommandOutput, taken: Done) -> None:
        """Take in what a command wrote on a node."""
        with self._lock:
            running = self._running.get(output.command)
        if running is None:
            taken()
        else:
            running.wrote(number, output, taken)

    def ended(self, number: int, report: messages.CommandEnded) -> None:
        """Take in that a command has ended on a node."""
        with self._lock:
            running = self._running.get(report.command)
        if running is not None:
            status = report.status if report.status >= 0 else 128 - report.status
            running.ended(number, status, report.reason)

    def lost(self, number: int, reason: str) -> None:
        """Take in that a node is gone, and with it all commands there."""
        with self._lock:
            running = list(self._running.values())
        for command in running:
            command.ended(number, NodeLostError.exit_code, reason)

    def _forget(self, number: int) -> None:
        with self._lock:
            self._running.pop(number, None)


def _known(text: str, there: Iterable[str]) -> list[str]:
    """Return the names of a set of nodes.

    Raises:
        ConfigurationError: The set is malformed, empty, or names a node that is not there.
    """
    names, known = expand_hosts(text), list(there)
    unknown = set(names) - set(known)
    if unknown or not names:
        raise ConfigurationError(
            f"node {fold_hosts(unknown)} takes no commands now"
            if unknown
            else f"{shown(text)} names no nodes",
            where="nodes",
            hint=f"nodes are {fold_hosts(known)}",
        )
    return names


def _picked(names: Sequence[str], count: int) -> frozenset[str]:
    """Return some of the nodes, by chance.

    Raises:
        ConfigurationError: There are not so many.
    """
    if count > len(names):
        raise ConfigurationError(
            f"{count} of {len(names)} nodes cannot be picked", hint="pick fewer, or leave it out"
        )
    return frozenset(random.SystemRandom().sample(names, count))


class RunningCommand:
    """A command that runs on some nodes.

    Output waits in the nodes until :meth:`next` is called, so a command without a reader waits.

    Args:
        carrier: The way to the nodes.
        number: Of the command.
        nodes: The numbers of the nodes.
        forget: Called with the number when it is over on all nodes, or closed.

    Attributes:
        status: The largest exit code of the nodes where it has ended.
    """

    def __init__(
        self,
        carrier: CommandCarrier,
        number: int,
        nodes: Iterable[int],
        forget: Callable[[int], None],
    ) -> None:
        self.number = number
        self.status = 0
        self._carrier = carrier
        self._forget = forget
        self._events: SimpleQueue[tuple[NodeOutput | NodeExit, Done]] = SimpleQueue()
        self._taken: Done = _nothing
        self._changed = Condition()
        self._inputs: dict[int, int] = {}  # pieces on their way, by node
        self._alive = set(nodes)
        self._unheard = len(self._alive)
        self._closed = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended on all nodes, and :meth:`next` has returned all there was."""
        return not self._unheard

    def next(self, timeout: float | None = None) -> NodeOutput | NodeExit | None:
        """Return what happens next; None if nothing does in some seconds, or all is over.

        Each call says that the caller is done with what the one before returned.
        """
        taken, self._taken = self._taken, _nothing
        taken()
        if self.is_over:
            return None
        try:
            event, self._taken = self._events.get(timeout=timeout)
        except Empty:
            return None
        if isinstance(event, NodeExit):
            self._unheard -= 1
            self.status = max(self.status, event.status)
        return event

    def give(self, data: bytes) -> bool:
        """Give standard input to the nodes that were named; wait until all have room for it.

        No bytes are the end of the input. A node where the command reads no more has always room.

        Returns:
            Whether a reader is left that could read more.
        """
        with self._changed:
            self._changed.wait_for(self._has_room)
            nodes = self._readers()
            for number in nodes:
                self._inputs[number] += 1
        for number in nodes:
            request = messages.CommandInput(self.number, data)
            answer = self._ask(number, messages.COMMAND_INPUT, request)
            when_done(answer, partial(self._given, number))
        return bool(nodes)

    def signal(self, number: int) -> None:
        """Send a signal to the command on all nodes where it runs."""
        for node in self._still_running():
            self._ask(node, messages.COMMAND_SIGNAL, messages.SignalCommand(self.number, number))

    def close(self) -> None:
        """Kill it where it still runs, and wait until it is gone there."""
        with self._changed:
            closed, self._closed = self._closed, True
            self._changed.notify_all()
        if closed:
            return
        order = messages.CancelCommand(self.number)
        wait(
            [self._ask(node, messages.COMMAND_CANCEL, order) for node in self._still_running()],
            CANCEL_TIMEOUT,
        )
        self._forget(self.number)
        self._drop_unread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- told by Commands, on any thread ---------------------------------------------------------

    def start(self, number: int, order: messages.StartCommand) -> None:
        """Start it on a node."""
        if order.wants_input:
            self._inputs[number] = 0
        answer = self._ask(number, messages.COMMAND_START, order)
        when_done(answer, partial(self._started, number))

    def wrote(self, number: int, output: messages.CommandOutput, taken: Done) -> None:
        """Take in what it wrote on a node."""
        name = self._carrier.names[number - 1]
        with self._changed:
            if not self._closed:
                self._events.put((NodeOutput(name, STREAMS[output.stream], output.data), taken))
                return
        taken()

    def ended(self, number: int, status: int, reason: str) -> None:
        """Take in that it has ended on a node."""
        with self._changed:
            if number not in self._alive:
                return
            self._alive.remove(number)
            self._changed.notify_all()
        self._events.put((NodeExit(self._carrier.names[number - 1], status, reason), _nothing))

    def _drop_unread(self) -> None:
        """Make the nodes drop output that will not be read."""
        taken, self._taken = self._taken, _nothing
        taken()
        with contextlib.suppress(Empty):
            while True:
                self._events.get_nowait()[1]()

    def _started(self, number: int, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None:
            self.ended(number, NodeLostError.exit_code, str(error))

    def _given(self, number: int, _answer: Future[Any]) -> None:
        with self._changed:
            self._inputs[number] -= 1
            self._changed.notify_all()

    def _ask(self, number: int, request: str, message: msgspec.Struct) -> Future[Any]:
        try:
            return self._carrier.ask(number, request, message)
        except ClosedError as error:
            refused: Future[Any] = CallerFuture()
            refused.set_exception(error)
            return refused

    def _readers(self) -> list[int]:
        return [] if self._closed else [number for number in self._inputs if number in self._alive]

    def _has_room(self) -> bool:
        return all(self._inputs[number] < INPUT_WINDOW for number in self._readers())

    def _still_running(self) -> list[int]:
        with self._changed:
            return sorted(self._alive)


class TreeCarrier:
    """The way to the nodes of a control tree.

    Args:
        control: The control tree; it was not started yet.
        commands: Told of what happens.
    """

    def __init__(self, control: ControlTree, commands: Commands) -> None:
        self.names = control.hosts
        self._commands = commands
        self._session = control.session
        serve = self._session.requests.serve
        serve(messages.COMMAND_OUTPUT, self._wrote)
        serve(messages.COMMAND_ENDED, self._ended)
        self._unsubscribe = self._session.subscribe(self._places_changed)

    def ask(self, number: int, request: str, message: msgspec.Struct) -> Future[Any]:
        """Send a request to a node."""
        body = plain.encode(messages.to_value(message))
        return self._session.ask_encoded(number, request, body, values.Encoded(body, [], [], 0))

    def close(self) -> None:
        """Hear no more of the nodes."""
        self._unsubscribe()

    def _wrote(self, request: ServedRequest) -> None:
        output = messages.from_value(request.value(), messages.CommandOutput)
        taken = partial(request.give, None, None)
        self._commands.wrote(request.asked.source, output, taken)

    def _ended(self, request: ServedRequest) -> None:
        report = messages.from_value(request.value(), messages.CommandEnded)
        self._commands.ended(request.asked.source, report)
        request.give(None, None)

    def _places_changed(self, change: PlacesChanged) -> None:
        if not change.disconnected and not change.added:
            for number in change.ranks:
                reason = change.reason or "its daemon ended"
                self._commands.lost(number, f"the node is gone: {reason}")


class LocalCarrier:
    """The connection to this machine: a separate loop.

    Args:
        commands: Told of what happens.
    """

    names: Sequence[str] = ("local",)

    def __init__(self, commands: Commands) -> None:
        self._thread = LoopThread("sapwood-commands")
        loop = self._thread.loop

        def wrote(output: messages.CommandOutput, taken: Done) -> None:
            commands.wrote(1, output, partial(self._from_outside, taken))

        self._processes = CommandProcesses(loop, wrote, partial(commands.ended, 1))
        self._thread.start()

    def ask(self, number: int, request: str, message: msgspec.Struct) -> Future[Any]:
        """Have a request answered on the loop."""
        del number
        answer: Future[Any] = CallerFuture()
        answer.set_running_or_notify_cancel()

        def serve() -> None:
            with failing(f"request '{request}'", answer.set_exception):
                self._processes.requests[request](
                    messages.to_value(message), partial(answer.set_result, None)
                )

        self._thread.post(serve)
        return answer

    def close(self) -> None:
        """Kill what runs, and end the loop."""
        self._thread.call(self._processes.close)
        self._thread.stop()

    def _from_outside(self, taken: Done) -> None:
        with contextlib.suppress(ClosedError):  # the loop has ended
            self._thread.post(taken)


def _encoded(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def _nothing() -> None:
    pass
