"""What ``sapwood up`` and ``sapwood down`` do."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sapwood.cli.declared import words_of
from sapwood.cli.head_access import connected
from sapwood.cli.present import print_json
from sapwood.contexts import background
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.core import typed
from sapwood.core.errors import (
    CommunicationError,
    ConfigurationError,
    NodeLostError,
    SapwoodError,
    StoreInUseError,
    StoreUnavailableError,
)
from sapwood.core.hints import DEFAULT_CLUSTER, command, command_line
from sapwood.core.options import option
from sapwood.environment.configuration import load_configuration
from sapwood.environment.core_dumps import leave_no_core_dump
from sapwood.environment.folders import make_private
from sapwood.environment.logs import configure_logging, logger
from sapwood.head.folder import (
    STANDBY,
    HeadInfo,
    find_head,
    head_folder,
    read_info,
    remove_info,
    remove_left_sockets,
    write_info,
)
from sapwood.head.head import Head
from sapwood.head.leadership import LOOK, HeadEntry, Leadership, Outcome
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.parts.web import WebServer
from sapwood.head.web import HttpListen
from sapwood.nodes.node_facts import NodeFacts
from sapwood.nodes.port import ANY, addresses_of_port, listen_address
from sapwood.session_server.making import session_options, site_variables
from sapwood.store.opening import is_shared

START_TIMEOUT = 120.0
"""Seconds until a head that starts in the background must be ready."""

END_TIMEOUT = 120.0
"""Seconds until a head that ends must be gone: more than its runs, sessions and nodes may take."""

HTTP_TIMEOUT = 20.0
"""Seconds until the HTTP server that `--http` wants must serve, for its address to be shown."""

JOIN_USES = 1000
"""How many machines may use the line that ``sapwood up`` shows."""


_log = logger("head")


class UpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``sapwood up``, each declared here only.

    Attributes:
        name: Name of the cluster.
        flags: Settings by dotted key.
    """

    name: str = DEFAULT_CLUSTER
    flags: Mapping[str, str] = {}
    listen: Annotated[
        str,
        option(
            "Address at which other machines reach the head, for example 0.0.0.0:7700; default: "
            "this machine only.",
            "HOST:PORT",
        ),
    ] = "127.0.0.1:0"
    own_node: Annotated[
        bool,
        option("Make this machine a node of the cluster, or not.", words=("--node/--no-node",)),
    ] = True
    announce: Annotated[
        bool, option("Announce the cluster on this network, for `sapwood node find`.")
    ] = False
    store: Annotated[
        str,
        option(
            "Store of the head: etcd://HOST:PORT,HOST:PORT/PREFIX. A second `sapwood up` with "
            "the same store stands by and takes over. "
            "Default: SQLite on this machine.",
            "ADDRESS",
        ),
    ] = ""
    http: Annotated[
        str,
        option(
            "Serve HTTP (API, dashboard, metrics) at this address, too, without TLS; it must be of "
            "this machine only, such as 127.0.0.1:8787. Default: with TLS, at --listen.",
            "HOST:PORT",
        ),
    ] = ""
    http_no_token: Annotated[
        bool,
        option("Let all users of this machine do everything at --http without a credential."),
    ] = False

    @property
    def http_listen(self) -> HttpListen:
        """The same for the head.

        Raises:
            ConfigurationError: Others could reach that.
        """
        made = HttpListen(address=self.http, no_token=self.http_no_token)
        made.check()
        return made


class UpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A head is ready, or stands by.

    Attributes:
        name: Of the cluster.
        pid: Of its head.
        addresses: Where nodes reach it.
        nodes: Its nodes.
        join: What ``sapwood node join`` takes on other machines.
        expires: Until when, seconds since 1970.
        stands_by_for: Which head serves, if that is another one; then there is nothing to join.
        http: Where browsers and scripts reach its HTTP server, those on this machine without TLS
            first.
        http_trouble: Why it does not serve where ``--http`` wants it; empty if it does.
    """

    name: str
    pid: int
    addresses: list[str] = msgspec.field(name="places")
    nodes: list[str]
    join: str
    expires: float
    stands_by_for: str = ""
    http: list[str] = []
    http_trouble: str = ""


_read_answer: Callable[[bytes], UpAnswer] = typed.json_reader(UpAnswer)


def run_here(request: UpRequest, ready_descriptor: int, *, as_json: bool) -> None:
    """Run the head until it is ended.

    Args:
        request: What the user wants.
        ready_descriptor: Where to say that it is ready, or why not; -1 for standard output.
        as_json: Whether to say so in JSON.

    Raises:
        SapwoodError: It cannot start.
    """
    leave_no_core_dump()
    try:
        _HeadProcess(request, ready_descriptor, as_json=as_json).run()
    except SapwoodError as error:
        background.tell(ready_descriptor, background.Failure(error.to_record()))
        raise


class _HeadProcess:
    """The process of a head: it serves, or stands by until it does, until it is ended."""

    def __init__(self, request: UpRequest, ready_descriptor: int, *, as_json: bool) -> None:
        self._request = request
        self._ready_descriptor = ready_descriptor
        self._as_json = as_json
        self._said = False
        self._stopped = threading.Event()
        self._head: Head | None = None
        self._configuration = load_configuration(request.flags)
        self._settings = self._configuration.settings
        configure_logging(self._settings.log)
        self._store = request.store or self._settings.head.store
        self._listen = request.listen

    def run(self) -> None:
        """Do it, and return when it is over."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        if not is_shared(self._store):
            self._serve(None)
            return
        forget_killed(head_folder(self._request.name))
        self._listen = with_port(self._request.listen)
        host, _, port = self._listen.rpartition(":")
        addresses = addresses_of_port(f"{host}:{port}", int(port))
        leadership = Leadership(self._store, self._request.name, HeadEntry.here(addresses))
        try:
            while self._stand_by(leadership):
                self._serve(leadership)
        finally:
            leadership.close()

    def _signalled(self, _number: int, _frame: object) -> None:
        self._stopped.set()
        if self._head is not None:
            self._head.ended.set()

    def _stand_by(self, leadership: Leadership) -> bool:
        """Wait until this head serves; return whether it does."""
        if self._stopped.is_set():
            return False
        folder = head_folder(self._request.name)

        def waits(leader: str) -> None:
            _log.info("head stands by", serves=leader)
            write_info(folder, HeadInfo(socket.gethostname(), os.getpid(), ""), STANDBY)
            self._say(
                UpAnswer(
                    name=self._request.name,
                    pid=os.getpid(),
                    addresses=leadership.entry.addresses,
                    nodes=[],
                    join="",
                    expires=0.0,
                    stands_by_for=leader,
                )
            )

        try:
            outcome = leadership.stand_by(waits, self._stopped.wait)
        finally:
            remove_info(folder, STANDBY)
        _log.info("standing by is over", reason=outcome.value)
        return outcome is Outcome.SERVES

    def _serve(self, leadership: Leadership | None) -> None:
        """Run the head until it is ended, or another one may serve."""
        head: Head | None = None
        try:
            head = self._head = self._new_head(leadership)
            if self._stopped.is_set():
                head.ended.set()
            head.start()
            if not self._said:
                self._say(_answer_of(self._request))
            while not head.ended.wait(3600.0 if leadership is None else LOOK):
                if leadership is not None and not leadership.serves:
                    break
        except SapwoodError as error:
            away = isinstance(error, StoreUnavailableError)
            if leadership is None or (leadership.serves and not away):
                raise
            leadership.lose()
            _log.warning("head failed", reason=str(error))
        finally:
            self._head = None
            if head is not None:
                self._end(head, leadership)

    def _end(self, head: Head, leadership: Leadership | None) -> None:
        """End a head, with the nodes or without them."""
        if leadership is None:
            head.close()
        elif not leadership.serves:
            _log.warning("lease lost", then="this head stands by")
            head.step_down("its lease is over")
        elif self._stopped.is_set() and leadership.others:
            head.step_down("it was ended, and another one stands by")
        else:
            head.close()
            self._stopped.set()

    def _say(self, answer: UpAnswer) -> None:
        """Say once that it is ready."""
        if self._said:
            return
        self._said = True
        if self._ready_descriptor >= 0:
            background.tell(self._ready_descriptor, answer)
        else:
            _show(answer, self._request.listen, as_json=self._as_json)
            sys.stdout.flush()

    def _new_head(self, leadership: Leadership | None) -> Head:
        request, settings = self._request, self._settings
        nodes = msgspec.structs.replace(settings.nodes, listen=self._listen)
        launcher = LocalLauncher(1, [NodeFacts.here().name]) if request.own_node else None
        try:
            return Head(
                request.name,
                head_folder(request.name),
                session_options(settings, site_variables(settings)),
                nodes,
                launcher,
                self._configuration,
                leadership,
                self._store,
                announce=request.announce,
                http=request.http_listen,
            )
        except StoreInUseError as error:  # it began a moment ago, or ends
            raise _second(request.name, error.what) from error


def forget_killed(folder: Path) -> None:
    """Remove what a head of this folder has left that was killed; one that is there stays."""
    info = read_info(folder)
    if info is not None and info.host == socket.gethostname():
        try:
            os.kill(info.pid, 0)
        except ProcessLookupError:
            remove_left_sockets(folder)
        except PermissionError:
            pass  # another user's: the number was given again


def with_port(listen: str) -> str:
    """Return where to listen, with a free port in place of 0, because others learn it first.

    Raises:
        CommunicationError: The address is none of this machine.
    """
    listen = listen_address(listen)
    host, _, port = listen.rpartition(":")
    if port != "0":
        return listen
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    with socket.socket(family) as found:
        try:
            found.bind((bare, 0))
        except OSError as error:
            raise CommunicationError(
                f"cannot listen: {error.strerror}", where=listen, hint="write HOST:PORT"
            ) from error
        return f"{host}:{found.getsockname()[1]}"


def _answer_of(request: UpRequest) -> UpAnswer:
    with connected(request.name) as head:
        urls, trouble = head.connection.facts.urls, ""
        if request.http:
            try:
                urls = head.client.call_within(HTTP_TIMEOUT, WebServer.urls)
            except (SapwoodError, TimeoutError) as error:
                trouble = str(error)
        line = head.client.call(JoinTokens.create, uses=JOIN_USES)
        return UpAnswer(
            name=request.name,
            pid=head.connection.facts.pid,
            addresses=head.connection.facts.addresses,
            nodes=[one.name for one in head.nodes],
            join=line.text,
            expires=line.expires,
            http=urls,
            http_trouble=trouble,
        )


def start_behind(request: UpRequest, *, as_json: bool) -> None:
    """Start a head in the background and show how to join it.

    Raises:
        ConfigurationError: The cluster is up already.
        SapwoodError: The head cannot start.
    """
    if not is_shared(request.store or load_configuration(request.flags).settings.head.store):
        _refuse_second(request.name)
    _ = request.http_listen
    folder = head_folder(request.name)
    make_private(folder)
    words = ["up", "--foreground", "--cluster", request.name, *words_of(request)]
    words += [word for key, value in request.flags.items() for word in ("--set", f"{key}={value}")]
    line = background.start(background.own_command(*words), folder / "head.log", b"", START_TIMEOUT)
    _show(_read_answer(line), request.listen, as_json=as_json)


def _refuse_second(name: str) -> None:
    try:
        with connected(name) as head:
            pid = head.connection.facts.pid
    except (NodeLostError, CommunicationError):
        return  # there is none
    raise _second(name, f"process {pid}")


def _second(name: str, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"the cluster '{name}' is up already",
        where=where,
        hint=f"{command('token', 'create', cluster=name)} shows how to join it, "
        f"{command('down', cluster=name)} ends it",
    )


def _show(answer: UpAnswer, listen: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    if answer.stands_by_for:
        typer.echo(
            f"The cluster '{answer.name}' is up: {answer.stands_by_for}.\n"
            f"This head stands by, process {answer.pid}: it serves when that one does no more."
        )
        return
    nodes = f"{len(answer.nodes)} node{'s' * (len(answer.nodes) != 1)}"
    typer.echo(f"The cluster '{answer.name}' is up: {nodes}, process {answer.pid}.")
    if all(address.startswith(("127.", "[::1]")) for address in answer.addresses):
        if listen.rpartition(":")[0].strip("[]") in ANY:
            typer.echo(
                "No other machine can join: this machine has only its loopback interface. Connect "
                "it to a network, then restart the head."
            )
        else:
            typer.echo("It listens on this machine only; --listen 0.0.0.0:7700 lets others join.")
    else:
        typer.echo("Within an hour, other machines can join it with:\n")
        typer.echo(command_line("node", "join", answer.join) + "\n")
    _show_http(answer)
    run = command("run", "PROGRAM", "--cluster", answer.name)
    typer.echo(f"Run a program on it by {run}. {command('down', cluster=answer.name)} ends it.")


def _show_http(answer: UpAnswer) -> None:
    if answer.http_trouble:
        typer.echo(f"HTTP is not served where --http wants it: {answer.http_trouble}", err=True)
    elif answer.http:
        typer.echo(
            f"HTTP is at {answer.http[0]}; {command('dashboard', cluster=answer.name)} opens it "
            "in a browser."
        )


def end(name: str, *, as_json: bool) -> None:
    """End a cluster.

    Raises:
        NodeLostError: It is not up, or does not end.
    """
    standby = read_info(head_folder(name), STANDBY)
    try:
        info = find_head(name)
    except NodeLostError:
        if standby is None or standby.host != socket.gethostname():
            raise
        _end_standby(name, standby, as_json=as_json)
        return
    watch = _watch(info)
    nodes = 0
    try:
        with connected(name) as head:
            nodes = len(head.nodes)
            head.client.call_within(END_TIMEOUT, WholeCluster.down)
        ended = watch is None or bool(select.select([watch], [], [], END_TIMEOUT)[0])
    finally:
        if watch is not None:
            os.close(watch)
    if not ended:
        raise NodeLostError(
            f"the head did not end within {END_TIMEOUT:g} s",
            where=f"process {info.pid}",
            hint=f"end it by `kill -9 {info.pid}`",
        )
    if as_json:
        print_json({"name": name, "nodes": nodes})
    else:
        typer.echo(f"The cluster '{name}' is down.")


def _end_standby(name: str, info: HeadInfo, *, as_json: bool) -> None:
    """End a head that stands by; the one that serves elsewhere continues."""
    watch = _watch(info)
    if watch is not None:
        try:
            os.kill(info.pid, signal.SIGTERM)
            select.select([watch], [], [], END_TIMEOUT)
        finally:
            os.close(watch)
    if as_json:
        print_json({"name": name, "nodes": 0})
    else:
        typer.echo(f"The head of '{name}' that stood by here has ended; the other one serves.")


def _watch(info: HeadInfo) -> int | None:
    try:
        return os.pidfd_open(info.pid)
    except OSError:
        return None
