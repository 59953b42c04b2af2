"""``sapwood exec``: a command on every node of a set of machines."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, BinaryIO, Protocol

import typer

from sapwood.cli import starting
from sapwood.cli.credential_variables import files_for
from sapwood.cli.failures import reporting
from sapwood.cli.folding import LineFolder, LineSplitter
from sapwood.cli.head_access import open_head
from sapwood.cli.interrupts import forwarded_interrupts, termination_interrupts
from sapwood.cli.old_names import warn_of
from sapwood.cli.options import (
    CLUSTER_VARIABLE,
    Debug,
    Set,
    assignments,
    chosen_cluster,
    given_variables,
    head_if_named,
    machines_of,
)
from sapwood.cli.present import answer_stream, json_bytes
from sapwood.client.executing import PIECE, commands_on, start_command
from sapwood.code.runner.packages import packages_variables
from sapwood.core.errors import ArgumentError
from sapwood.core.failures import new_thread
from sapwood.core.hostset import fold_hosts
from sapwood.core.terminal_text import TerminalFilter, printable
from sapwood.environment.configuration import load_configuration
from sapwood.nodes.commands import NodeExit, NodeOutput, RunningCommand


@reporting
def execute(  # noqa: PLR0913 - each is an option of the command
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...", help="The command and its arguments; write -- before it."
        ),
    ],
    *,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Machines: local, ssh:n1,n2, ssh:gpu[1-4], ssh:@FILE, slurm:4, ray:2, head, or "
            "nodes:2 for trying things.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Run on the nodes of this session; needs the right to run code there.",
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar=CLUSTER_VARIABLE,
            callback=chosen_cluster,
            show_default="the only one that is up here, or 'default'",
            help="Run on this cluster, or on what --session and --nodes name there: its name, or "
            "sapwood://HOST:PORT.",
        ),
    ] = "default",
    nodes: Annotated[
        str,
        typer.Option(
            metavar="SET",
            help="Run on these nodes only, such as n[1-3,7].",
        ),
    ] = "",
    label: Annotated[
        bool | None,
        typer.Option(
            "--label/--no-label",
            help="Label each line with its node, and print equal lines of several nodes once; "
            "default: if there are several nodes.",
        ),
    ] = None,
    stdin: Annotated[
        str | None,
        typer.Option(
            metavar="all|NODE",
            help="Send standard input to all nodes or to one; default: to none.",
        ),
    ] = None,
    folder: Annotated[
        str,
        typer.Option(
            "--cwd",
            metavar="DIR",
            help="Working directory of the command; default: the home folder, with local this one.",
        ),
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="Environment variable of the command; NAME alone takes its value from here; may "
            "be repeated.",
        ),
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Staged packages of the command (`sapwood stage environment`).",
        ),
    ] = None,
    old_packages: Annotated[str | None, typer.Option("--environment", hidden=True)] = None,
    settings: Set = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Write escape sequences to a terminal as they are; default: make them visible.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each event.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a command on every node of a set of machines.

    The exit code is the largest of all nodes; a signal counts as 128 + its number.

    Ctrl-C interrupts the command on all nodes, a second one kills it; nothing is left behind.
    """
    flags: dict[str, str | int] = dict(assignments(settings or (), "--set"))
    if on is not None and session is not None:
        raise ArgumentError("--on and --session are both given", hint="leave one out")
    if on is None and session is None:
        on = "head" if nodes else head_if_named()
    if on is not None:
        flags["cluster.on"] = machines_of(on, None, cluster) or on
    if session is not None:
        flags["cluster.on"] = f"session:{session}"
    if old_packages is not None:
        warn_of("--environment", "--packages")
        packages = old_packages if packages is None else packages
    if packages is not None:
        flags["environment.packages"] = packages
    starting.say("starting the nodes")
    known = load_configuration(flags).settings
    credential, key = files_for(known.cluster.on)
    with (
        termination_interrupts(),
        commands_on(
            known.cluster.on,
            known,
            starting.wait,
            partial(open_head, cluster),
            credential=credential,
            key=key,
            nodes=nodes,
        ) as commands,
    ):
        names = commands.names
        view: ExecView
        if as_json:
            view = JsonLines(answer_stream().buffer)
        else:
            view = Terminal(names, label=len(names) > 1 if label is None else label, raw=raw)
        wanting = names if stdin == "all" else [stdin] if stdin else []
        starting.clear()
        with (
            start_command(
                commands,
                command,
                folder,
                {**packages_variables(known.environment.packages), **given_variables(env or ())},
                wanting,
            ) as running,
            forwarded_interrupts(running.signal),
            _standard_input(running) if wanting else contextlib.nullcontext(),
        ):
            status = _follow(running, view)
    raise typer.Exit(status)


class ExecView(Protocol):
    """Shows what a command does."""

    def wrote(self, output: NodeOutput) -> None:
        """Show what it wrote."""

    def ended(self, end: NodeExit) -> None:
        """Show that it ended on a node."""

    @property
    def patience(self) -> float | None:
        """Seconds after which something is to be shown; None if nothing waits."""

    def show_due(self) -> None:
        """Show what has waited long enough."""

    def close(self, status: int) -> None:
        """Show the rest; the exit code is known."""


def _follow(running: RunningCommand, view: ExecView) -> int:
    status = 0
    while not running.is_over:
        event = running.next(view.patience)
        if isinstance(event, NodeOutput):
            view.wrote(event)
        elif event is not None:
            status = max(status, event.status)
            view.ended(event)
        view.show_due()
    view.close(status)
    return status


@contextlib.contextmanager
def _standard_input(running: RunningCommand) -> Iterator[None]:
    """Give a command what comes by standard input."""
    bell = os.eventfd(0, os.EFD_CLOEXEC)
    thread = new_thread("sapwood-input", _feed, running, bell)
    thread.start()
    try:
        yield
    finally:
        os.eventfd_write(bell, 1)
        running.close()  # it reads no more
        thread.join()
        os.close(bell)


def _feed(running: RunningCommand, bell: int) -> None:
    waiting = select.poll()
    waiting.register(bell, select.POLLIN)
    waiting.register(0, select.POLLIN)
    more = True
    while more:
        ready = dict(waiting.poll())
        if bell in ready:
            return
        try:
            data = os.read(0, PIECE)
        except OSError:  # there is none
            data = b""
        more = running.give(data) and bool(data)


class Terminal:
    """Shows output as people read it.

    Where a stream is a terminal, escape sequences of nodes do not reach it. Other streams get what
    the nodes wrote.

    Args:
        names: The nodes.
        label: Whether the node stands before each line.
        raw: Whether terminals get what the nodes wrote, too.
    """

    def __init__(self, names: Sequence[str], *, label: bool, raw: bool = False) -> None:
        self._streams: dict[str, BinaryIO] = {
            "stdout": sys.stdout.buffer,
            "stderr": sys.stderr.buffer,
        }
        self._folders = {
            name: LineFolder(names, partial(_write, stream))
            for name, stream in self._streams.items()
            if label
        }
        self._whole_lines = len(names) > 1
        self._filters = {
            (node, name): TerminalFilter(colours=not self._whole_lines, returns=not label)
            for name, stream in self._streams.items()
            for node in names
            if stream.isatty() and not raw
        }
        self._splitters: dict[tuple[str, str], LineSplitter] = {}
        self._ends: dict[str, list[str]] = {}

    def wrote(self, output: NodeOutput) -> None:
        """Show what it wrote: as it came, by lines, or labelled."""
        cleaned = self._filters.get((output.node, output.stream))
        data = output.data if cleaned is None else cleaned.take(output.data)
        self._show(output.node, output.stream, data)

    def _show(self, node: str, name: str, data: bytes) -> None:
        stream = self._streams[name]
        if self._folders:
            self._folders[name].take(node, data)
        elif self._whole_lines:
            splitter = self._splitters.setdefault((node, name), LineSplitter())
            _write(stream, _text(splitter.lines(data)))
        else:
            _write(stream, data)

    def ended(self, end: NodeExit) -> None:
        """Show its last words, and note why it failed."""
        for name in self._streams:
            cleaned = self._filters.get((end.node, name))
            if cleaned is not None and (rest := cleaned.rest()):
                self._show(end.node, name, rest)
        for folder in self._folders.values():
            folder.end(end.node)
        for name, stream in self._streams.items():
            splitter = self._splitters.pop((end.node, name), None)
            if splitter is not None:
                _write(stream, _text(splitter.rest()))
        if end.reason:
            self._ends.setdefault(printable(end.reason), []).append(end.node)
        elif end.status and self._whole_lines:
            self._ends.setdefault(f"exit code {end.status}", []).append(end.node)

    @property
    def patience(self) -> float | None:
        """Seconds until a line has waited long enough."""
        found = [folder.patience for folder in self._folders.values()]
        return min((one for one in found if one is not None), default=None)

    def show_due(self) -> None:
        """Show lines that have waited long enough for the same line of other nodes."""
        for folder in self._folders.values():
            folder.show_due()

    def close(self, status: int) -> None:
        """Show the rest, and who failed."""
        del status
        for folder in self._folders.values():
            folder.close()
        for reason, nodes in self._ends.items():
            _write(self._streams["stderr"], f"sapwood: {fold_hosts(nodes)}: {reason}\n".encode())


class JsonLines:
    """Shows events as lines of JSON.

    Args:
        stream: Where to.
    """

    patience: float | None = None

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._tails: dict[tuple[str, str], bytes] = {}

    def wrote(self, output: NodeOutput) -> None:
        """Show output: as text if it is UTF-8, else in base 64."""
        key = output.node, output.stream
        data = self._tails.pop(key, b"") + output.data
        tail = incomplete(data)
        if tail:
            self._tails[key] = data[-tail:]
            data = data[:-tail]
        self._show(output.node, output.stream, data)

    def ended(self, end: NodeExit) -> None:
        """Show the end on a node."""
        for stream in ("stdout", "stderr"):
            self._show(end.node, stream, self._tails.pop((end.node, stream), b""))
        event: dict[str, Any] = {"event": "ended", "node": end.node, "status": end.status}
        self._line(event | ({"reason": end.reason} if end.reason else {}))

    def show_due(self) -> None:
        """Do nothing: nothing waits."""

    def close(self, status: int) -> None:
        """Show the exit code."""
        self._line({"event": "exit", "status": status})

    def _show(self, node: str, stream: str, data: bytes) -> None:
        if not data:
            return
        event: dict[str, Any] = {"event": "output", "node": node, "stream": stream}
        try:
            event["data"] = data.decode()
        except UnicodeDecodeError:
            event["base64"] = base64.b64encode(data).decode()
        self._line(event)

    def _line(self, event: Mapping[str, Any]) -> None:
        _write(self._stream, json_bytes(event) + b"\n")


def incomplete(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character in UTF-8.

    Example:
        >>> incomplete("µ".encode()), incomplete("µ".encode()[:1]), incomplete(b"a")
        (0, 1, 0)
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < length else 0
        if byte < 0x80:
            return 0
    return 0


def _text(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write(stream: BinaryIO, data: bytes) -> None:
    """Write all bytes and keep none: what an interrupt leaves unwritten must not delay the end."""
    raw = getattr(stream, "raw", None)
    if raw is None:
        stream.write(data)
        stream.flush()
        return
    rest = memoryview(data)
    while rest:
        written = raw.write(rest)
        if written is None:  # another process has made it non-blocking
            select.select([], [raw], [])
        else:
            rest = rest[written:]
