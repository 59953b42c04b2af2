"""What ``sapwood lizard server`` and ``sapwood lizard client`` do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from sapwood import Cluster, SapwoodError, Settings, local, start
from sapwood.errors import NodeLostError
from sapwood.plugins.caches import BuildCache
from sapwood.plugins.commands import (
    background,
    command_line,
    configure_logging,
    die_with_parent,
    load_configuration,
    print_json,
    usable_cores,
)
from sapwood.plugins.peers import is_loopback
from sapwood.plugins.tools import data_folder, logger
from sapwood_lizard.block_size import recommended_block
from sapwood_lizard.client import LizardClient
from sapwood_lizard.gate import ApiGate, read_token
from sapwood_lizard.hardware import find_devices
from sapwood_lizard.patience import CALL_LIMIT, left_alone
from sapwood_lizard.programs import RegisteredPrograms
from sapwood_lizard.remote import RemoteServer
from sapwood_lizard.server import LizardServer
from sapwood_lizard.serving import Place, serve
from sapwood_lizard.store import ProgramStore

LEAVING: Final = 15.0
"""Seconds that agents of a client may take to leave."""

LOOK: Final = 0.25
"""Seconds between two looks at the agents of a client."""


class ServingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a server and a client are both asked for.

    Attributes:
        host: Where it listens.
        port: There; 0 for a free one.
        agents: Agents; 0 for as many as the settings say, or else one for each core or GPU.
        token: File with the token; None for none.
        certificate: For a server, its certificate; for a client, the one that it trusts.
        key: File with the key of the server's certificate.
        keep: Whether registered programs stay behind.
        quiet: Whether only errors are printed.
        flags: Settings.
        as_json: Whether what it says is JSON.
    """

    host: str = "127.0.0.1"
    port: int = 0
    agents: int = 0
    token: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    keep: bool = False
    quiet: bool = False
    flags: dict[str, Any] = {}
    as_json: bool = False


class ServerRequest(ServingRequest, frozen=True, kw_only=True):
    """What a server is asked for: machines, and a seed for first global states."""

    spec: str = "local"
    seed: int = 0


class ClientRequest(ServingRequest, frozen=True, kw_only=True):
    """What a client is asked for.

    Attributes:
        server: Address of the server.
        gpu: Whether GPUs are used.
        cuda_bin: Folder of the CUDA compiler; None to look for it.
        cuda_lib: Folder of the CUDA libraries.
        retry: Seconds in which the server may come back after its end.
    """

    server: str
    gpu: bool = True
    cuda_bin: Path | None = None
    cuda_lib: Path | None = None
    retry: float = 60.0


def run_server(request: ServerRequest) -> None:
    """Run a server until it is ended.

    Raises:
        SapwoodError: It cannot start.
    """
    settings = load_configuration(request.flags).settings
    token = read_token(request.token) if request.token is not None else ""
    place = Place(
        request.host,
        request.port,
        token=bool(token),
        certificate=request.certificate,
        key=request.key,
    )
    if is_loopback(request.host):
        here = msgspec.structs.replace(settings.nodes, listen="127.0.0.1:0")
        settings = msgspec.structs.replace(settings, nodes=here)
    with (
        contextlib.closing(place),
        _programs(settings, _kept_folder(request), keep=request.keep) as programs,
        _started(request, settings) as cluster,
    ):
        end = _Later()
        server = LizardServer(
            cluster,
            programs,
            ApiGate(token),
            seed=request.seed,
            on_end=end,
            call_limit=settings.limits.time or CALL_LIMIT,
        )
        try:
            serve(server.application, place, ready=partial(_serves, request, place, cluster, end))
        finally:
            server.close()


@contextmanager
def _started(request: ServerRequest, settings: Settings) -> Iterator[Cluster]:
    agents = request.agents or None
    if request.spec == "local":
        cluster = local(agents, settings=settings)
    else:
        cluster = start(request.spec, agents, settings=settings)
    try:
        yield cluster
    finally:
        if not left_alone():  # else it would wait for a run that never ends; all ends with this one
            cluster.close()


def _serves(
    request: ServingRequest, place: Place, cluster: Cluster, end: _Later, stop: Callable[[], None]
) -> None:
    end.set(stop)
    agents = len(cluster.agents)
    if request.as_json:
        print_json({"url": place.url, "agents": agents, "pid": os.getpid()}, one_line=True)
    if request.as_json or request.quiet:
        return
    many = f"{agents} agent{'' if agents == 1 else 's'}"
    typer.echo(f"Server at {place.url}, with {many}. Ctrl-C stops it.")
    words = ["-p", str(place.port), "-a", "HOST" if place.context is not None else "localhost"]
    words += ["--token", "FILE"] if request.token is not None else []
    words += ["--certificate", "FILE"] if place.context is not None else []
    typer.echo(f"More agents: {command_line('lizard', 'client', *words)}")
    typer.echo(f"A program:   load_program.py DIR {place.url}")


class _Later:
    """Calls a function that is set later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._called = False
        self._function: Callable[[], None] | None = None

    def set(self, function: Callable[[], None]) -> None:
        """Call this when the time has come, or now if it has."""
        with self._lock:
            self._function = function
            called = self._called
        if called:
            function()

    def __call__(self) -> None:
        with self._lock:
            self._called = True
            function = self._function
        if function is not None:
            function()


def _kept_folder(request: ServerRequest) -> Path | None:
    """Return where a server keeps its programs for the next one; None for a free port."""
    return data_folder() / "lizard-servers" / str(request.port) if request.port else None


@contextmanager
def _programs(
    settings: Settings, kept: Path | None = None, *, keep: bool
) -> Iterator[RegisteredPrograms]:
    """Return a place for programs; without ``kept`` or ``keep`` it is gone afterwards."""
    cache = BuildCache(settings.cache.path(), size_limit=settings.cache.size)
    folder = kept or Path(tempfile.mkdtemp(prefix="sapwood-lizard-"))
    try:
        yield RegisteredPrograms(ProgramStore(folder), cache)
    finally:
        if kept is not None:
            pass
        elif keep:
            typer.echo(f"sapwood: the registered programs are kept in {folder}", err=True)
        else:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()


# --- the client ----------------------------------------------------------------------------------


def run_client(request: ClientRequest) -> None:
    """Run a client until it is ended, or the server ends and does not come back.

    Raises:
        SapwoodError: It cannot start, or the server does not take it.
    """
    _use_cuda(request)
    registered: list[str] = []
    while True:
        lost: NodeLostError | None = None
        try:
            server_ended = _run_registered(request, registered)
        except NodeLostError as error:
            if not registered:  # a server that was never there does not come back
                raise
            server_ended, lost = True, error
        if server_ended and _comes_back(request):
            continue
        if lost is not None:
            raise lost
        return


def _run_registered(request: ClientRequest, registered: list[str]) -> bool:
    """Register with the server, and run until one of them ends.

    Args:
        request: What the client is asked for.
        registered: Receives the client's new identifier.

    Returns:
        Whether the server ended.
    """
    settings = load_configuration(request.flags).settings
    remote = _remote(request)
    place = Place(request.host, request.port, token=False, certificate=None, key=None)
    with (
        contextlib.closing(place),
        contextlib.closing(configure_logging(settings.log)),
        _programs(settings, keep=request.keep) as programs,
    ):
        devices = find_devices() if request.gpu else []
        agents = request.agents or settings.cluster.agents or len(devices) or usable_cores()
        hardware = {
            "gpus": [msgspec.to_builtins(each) for each in devices],
            "block_size": recommended_block(devices[0] if devices else None),
            "cores": usable_cores(),
        }
        asked = {"hardware": hardware, "client_port": place.port, "agents": agents}
        answer = remote.ask("POST", "/clients", asked)
        registered.append(answer["uuid"])
        begun = _JoinedAgents(answer.get("invitations", ()))
        client = None
        try:
            # Agents begin before any thread does: they end with this one.
            begun.start()
            end = _Later()
            client = LizardClient(
                lambda: local(1, settings=settings),
                programs,
                ApiGate(""),
                server=remote,
                on_end=end,
            )
            client.uuid = answer["uuid"]
            serve(
                client.application,
                place,
                ready=partial(_client_serves, request, place, client.uuid, begun, end),
                beside=begun.watch if begun.invited else None,
            )
        finally:
            begun.end()
            with contextlib.suppress(SapwoodError):  # it may have ended
                remote.ask("DELETE", f"/clients/{answer['uuid']}")
            if client is not None:
                client.close()
    return begun.are_over


def _remote(request: ClientRequest) -> RemoteServer:
    token = read_token(request.token) if request.token is not None else ""
    trusted = "" if request.certificate is None else str(request.certificate)
    return RemoteServer(request.server, token=token, certificate=trusted)


def _client_serves(
    request: ClientRequest,
    place: Place,
    uuid: str,
    begun: _JoinedAgents,
    end: _Later,
    stop: Callable[[], None],
) -> None:
    end.set(stop)
    facts = {"uuid": uuid, "url": place.url, "server": request.server, "agents": begun.invited}
    if request.as_json:
        print_json({**facts, "pid": os.getpid()}, one_line=True)
    if request.as_json or request.quiet:
        return
    many = f"{begun.invited} agent{'' if begun.invited == 1 else 's'}"
    typer.echo(f"Client {uuid} of {request.server}, with {many}. Ctrl-C ends it.")
    if not begun.invited:
        typer.echo("The server is not Sapwood's: it tells this client what to do.")


class _JoinedAgents:
    """Processes that join the server's cluster as agents.

    Args:
        lines: Their invitations.
    """

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._processes: list[subprocess.Popen[bytes]] = []
        self.invited = len(lines)
        self.are_over = False

    def start(self) -> None:
        """Begin them."""
        parent = os.getpid()
        for line in self._lines:
            process = subprocess.Popen(
                background.own_command("agent", "join", "-"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                preexec_fn=partial(die_with_parent, parent),  # noqa: PLW1509 - there is one thread yet
                start_new_session=True,  # Ctrl-C is for the client, which tells them
            )
            self._processes.append(process)
            assert process.stdin is not None  # noqa: S101 - made with a pipe
            with contextlib.suppress(BrokenPipeError), process.stdin as stream:
                stream.write(line.encode())

    async def watch(self) -> None:
        """Wait until all of them are over.

        Raises:
            NodeLostError: None of them ended as it should.
        """
        while any(process.poll() is None for process in self._processes):  # noqa: ASYNC110 - processes send no event
            await asyncio.sleep(LOOK)
        self.are_over = True
        codes = {process.returncode for process in self._processes}
        if 0 not in codes:
            raise NodeLostError(
                "the agents of this client have ended",
                where=f"exit codes {', '.join(map(str, sorted(codes)))}",
                hint="see what they say above; start the client again when the server is there",
            )

    def end(self) -> None:
        """Have them leave, and wait for that."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                if process.poll() is None:
                    process.send_signal(number)
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LEAVING)


def _comes_back(request: ClientRequest) -> bool:
    """Wait until the server answers again, for a limited time; return whether it does."""
    if not request.quiet and not request.as_json:
        wait = f" Looking for it again for {request.retry:g} s." if request.retry else ""
        typer.echo(f"The server has ended.{wait}")
    remote = _remote(request)
    end = time.monotonic() + request.retry
    while time.monotonic() < end:
        with contextlib.suppress(NodeLostError):
            return bool(remote.ask("GET", "/ruok") == "imok")
        time.sleep(LOOK)
    return False


def _use_cuda(request: ClientRequest) -> None:
    """Let builds and agents of this process find CUDA where it is said to be, or not at all."""
    if not request.gpu:
        os.environ["SAPWOOD_CUDA"] = "cpu"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name, folder in (
        ("PATH", request.cuda_bin),
        ("LD_LIBRARY_PATH", request.cuda_lib),
        ("LIBRARY_PATH", request.cuda_lib),
    ):
        if folder is not None:
            before = os.environ.get(name, "")
            os.environ[name] = f"{folder.resolve()}{os.pathsep if before else ''}{before}"


_log = logger("lizard")
