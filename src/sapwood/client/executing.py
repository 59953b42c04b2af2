"""``sapwood.execute``: a command of the system on every node of a set of machines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sapwood.client.hosts import new_control_tree
from sapwood.code.runner.packages import packages_variables
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.contexts.launchers.specs import machines
from sapwood.core.errors import ArgumentError, ClosedError, ConfigurationError
from sapwood.core.failures import new_thread
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging
from sapwood.environment.schema import check_settings
from sapwood.environment.settings import Settings
from sapwood.environment.tracing import look, seam, traced

if TYPE_CHECKING:
    from sapwood.head_client.access import HeadAccess
    from sapwood.nodes.commands import CommandCarrier, Commands, NodeChoice, RunningCommand

FIND_TIMEOUT = 30.0
"""Seconds in which a head says where a session is."""

PIECE = 64 * 1024
"""Bytes of standard input that are sent at once."""


class NodeResult(msgspec.Struct, frozen=True):
    """The outcome of a command on one node.

    Attributes:
        status: Its exit code; 128 + n if signal n ended it; 127 if there is no such command, 126 if
            it cannot be started; 6 if the node was lost.
        stdout: What it wrote to standard output; empty if a callback was given it.
        stderr: The same for standard error.
        reason: Why it could not be started, or how the node was lost; else empty.
    """

    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    reason: str = ""


class ExecResult(msgspec.Struct, frozen=True):
    """The outcome of a command.

    Attributes:
        nodes: Its outcome on each node, by name.
    """

    nodes: dict[str, NodeResult]

    @property
    def status(self) -> int:
        """The largest exit code of all nodes; 0 if the command succeeded everywhere."""
        return max(one.status for one in self.nodes.values())


def execute(  # noqa: PLR0913 - each is a thing that a command has
    arguments: Sequence[str],
    on: str | None = None,
    *,
    input: bytes | None = None,  # noqa: A002 - what subprocess calls it
    folder: str = "",
    environment: Mapping[str, str] | None = None,
    packages: str | None = None,
    on_output: Callable[[str, str, bytes], object] | None = None,
    settings: Settings | None = None,
    credential: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    nodes: str = "",
) -> ExecResult:
    r"""Run a command on every node of a set of machines, and wait for its end everywhere.

    Nothing of it is left when this returns, or when this process ends: what the command began and
    did not wait for is killed.

    Args:
        arguments: The command's words, the program first; no shell reads them.
        on: The machines, as for :func:`sapwood.start`; by default ``cluster.on``.
            ``session:NAME`` are the nodes of a session at the head of the user here.
        input: Standard input for all nodes; by default it is empty.
        folder: Where it starts; by default the home folder, on ``local`` the current one.
        environment: Environment variables, in addition to the node's own.
        packages: Name of a staged set of packages (``sapwood stage environment``); by default
            ``environment.packages``.
        on_output: Given output as it comes: the node, ``"stdout"`` or ``"stderr"``, and bytes.
            While it does not return, the commands wait. The result has no output then.
        settings: All settings; by default those of configuration files and variables.
        credential: For ``head:``, as for :func:`sapwood.connect`.
        key: Likewise.
        nodes: Those of the machines on which it runs, such as ``n[1-3,7]``; by default all.

    Raises:
        ArgumentError: The command is empty.
        ConfigurationError: The text names no machines, or ``nodes`` one that is not there.
        NodeLostError: Machines did not come; the error names each with its cause.

    Example:
        >>> found = execute(["sh", "-c", "echo $GREETING; exit 3"], environment={"GREETING": "hi"})
        >>> found.status, found.nodes["local"].stdout
        (3, b'hi\n')
    """
    chosen = load_configuration().settings if settings is None else check_settings(settings)
    kept: dict[str, dict[str, bytearray]] = {}
    ends: dict[str, NodeResult] = {}

    def keep(node: str, stream: str, data: bytes) -> None:
        kept.setdefault(node, {}).setdefault(stream, bytearray()).extend(data)

    take = on_output or keep
    with (
        commands_on(
            chosen.cluster.on if on is None else on,
            chosen,
            credential=credential,
            key=key,
            nodes=nodes,
        ) as commands,
        start_command(
            commands,
            arguments,
            folder,
            {
                **packages_variables(chosen.environment.packages if packages is None else packages),
                **(environment or {}),
            },
            commands.names if input is not None else (),
        ) as running,
        _feeding(running, input),
    ):
        from sapwood.nodes.commands import NodeOutput  # noqa: PLC0415 - as in commands_on

        while not running.is_over:
            event = running.next()
            if isinstance(event, NodeOutput):
                take(event.node, event.stream, event.data)
            elif event is not None:
                ends[event.node] = NodeResult(status=event.status, reason=event.reason)
    results = {}
    for node in commands.names:
        written = {stream: bytes(data) for stream, data in kept.get(node, {}).items()}
        results[node] = msgspec.structs.replace(ends[node], **written)
    return ExecResult(results)


@contextlib.contextmanager
def commands_on(
    spec: str,
    settings: Settings,
    on_wait: WaitCallback | None = None,
    open_head: Callable[[], HeadAccess] | None = None,
    *,
    credential: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    nodes: NodeChoice | str = "",
) -> Iterator[Commands]:
    """Start the nodes that a text names, and end them afterwards.

    Args:
        spec: As for :func:`sapwood.start`.
        settings: All settings.
        on_wait: As for :func:`sapwood.start`.
        open_head: Connects to the head of a session; by default to the user's head here.
        credential: As for :func:`sapwood.start`.
        key: Likewise.
        nodes: On which of them commands start; a text is a set of nodes.

    Raises:
        ConfigurationError: The text names no machines, or the set one that is not there.
        ClosedError: The session has ended.
        NodeLostError: Machines did not come; the error names each with its cause.
    """
    from sapwood.nodes.commands import (  # noqa: PLC0415 - cryptography is not needed on one machine
        Commands,
        LocalCarrier,
        NodeChoice,
        TreeCarrier,
    )

    with configure_logging(settings.log), contextlib.ExitStack() as stack:
        kind, name = machines(spec)
        ready = kind in {"local", "head", "session"}
        control = None if ready else new_control_tree(spec, settings, on_wait)
        if kind == "head":
            from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - as above
            from sapwood.head_client.commands import HeadCarrier  # noqa: PLC0415 - as above
            from sapwood.security.credential_file import (  # noqa: PLC0415 - as above
                find_credential,
                find_holder_key,
            )

            head = HeadAccess(
                name or "default",
                None if credential is None else find_credential(credential),
                None if key is None else find_holder_key(key),
            )
            try:
                if nodes in ("", NodeChoice()):
                    head.known.warn_of_missing()
                commands = Commands(lambda told: HeadCarrier(head, told), nodes)
            except BaseException:
                head.close()
                raise
        elif kind == "session":
            commands = Commands(partial(_carrier_of_session, name, open_head), nodes)
        elif control is None:
            commands = Commands(LocalCarrier, nodes)
        else:
            stack.callback(control.close)
            commands = Commands(lambda told: TreeCarrier(control, told), nodes)
            control.start()
        stack.callback(commands.close)
        yield commands


def _carrier_of_session(
    name: str, open_head: Callable[[], HeadAccess] | None, commands: Commands
) -> CommandCarrier:
    """Return the way to the nodes of a session.

    Raises:
        ConfigurationError: There is no such session, or it is on the head's machine alone, and
            that is not this one.
        ClosedError: It has ended.
    """
    from sapwood.comm.machine import machine_id  # noqa: PLC0415 - as in commands_on
    from sapwood.head.parts.sessions import Sessions  # noqa: PLC0415 - as in commands_on
    from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - as in commands_on
    from sapwood.head_client.commands import HeadCarrier  # noqa: PLC0415 - as in commands_on
    from sapwood.nodes.commands import LocalCarrier  # noqa: PLC0415 - as in commands_on
    from sapwood.session.interface import SessionState  # noqa: PLC0415 - as in commands_on

    head = HeadAccess() if open_head is None else open_head()
    try:
        record = head.client.call_within(FIND_TIMEOUT, Sessions.find, name)
        if SessionState(record.state).is_over:
            raise ClosedError(f"the session '{record.handle}' has ended", hint=record.reason)
        if record.on != "local":
            return HeadCarrier(head, commands, record)
        if head.connection.rights is not None or record.machine != machine_id():
            raise ConfigurationError(
                f"the session '{record.handle}' is on the machine of its head alone, whose user "
                "runs commands there",
                hint="make sessions on nodes: `sapwood session create --on head`",
            )
    except BaseException:
        head.close()
        raise
    head.close()
    return LocalCarrier(commands)


@contextlib.contextmanager
def start_command(
    commands: Commands,
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str] | None,
    input_to: Sequence[str],
) -> Iterator[RunningCommand]:
    """Start a command on all nodes; it is over, or ended, after the block.

    Where traces are wanted, it is a span, and the command finds that in ``TRACEPARENT``.

    Raises:
        ArgumentError: The command is empty.
    """
    if not arguments or not arguments[0]:
        raise ArgumentError("the command is empty", hint="name a program and its arguments")
    look()
    name = f"exec {os.path.basename(arguments[0])}"  # noqa: PTH119 - it need not be a path
    with traced(name, {"sapwood.nodes": len(commands.names)}) as span:
        trace = {} if span is None else span.carrier
        variables = {**(environment or {}), **{key.upper(): trace[key] for key in trace}}
        with commands.start(
            arguments, folder=folder, environment=variables, input_to=input_to
        ) as running:
            yield running
        if span is not None:
            failed = f"exit code {running.status}" if running.status else None
            span.end(failed, {"process.exit.code": running.status})
    if seam.tracer is not None:
        seam.tracer.flush()


@contextlib.contextmanager
def _feeding(running: RunningCommand, data: bytes | None) -> Iterator[None]:
    """Give a command its input meanwhile."""
    if data is None:
        yield
        return
    view = memoryview(data)

    def feed() -> None:
        for start in range(0, len(view), PIECE):
            if not running.give(bytes(view[start : start + PIECE])):
                return
        running.give(b"")

    thread = new_thread("sapwood-input", feed)
    thread.start()
    try:
        yield
    finally:
        running.close()  # it reads no more
        thread.join()
