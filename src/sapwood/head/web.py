"""The HTTP server of a head: a separate process, started at the first request for it.

It may die, hang or be overwhelmed, and neither the head nor a run notices. Connections that speak
HTTP reach it through the head's port, which hands them over before a byte is read, and, where the
user says so, over a separate listener on this machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sapwood.comm.transport.client_hello import WITHOUT_ALPN
from sapwood.core.errors import ClosedError, ConfigurationError, ResourceError, SecurityError
from sapwood.core.extras import check_installed
from sapwood.core.futures import CallerFuture
from sapwood.environment.component import ComponentContext, ComponentEvent
from sapwood.environment.folders import SOCKET_FOLDER, make_private
from sapwood.environment.interpreter import python_command
from sapwood.environment.lifecycle import State
from sapwood.environment.logs import logger
from sapwood.environment.tracing import wanted
from sapwood.head import session_records
from sapwood.session.loop_thread import LoopThread

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree

HTTP: Final = "http/1.1"
"""The protocol that browsers and scripts name (ALPN). Many proxies and libraries name none."""

ENTRY: Final = "sapwood.server.process"
"""The module that is the process of the server."""

MAX_WAITING: Final = 64
"""Connections that wait while the process begins; of more, the oldest are closed."""

END_PATIENCE: Final = 2.0
"""Seconds that the process may take to end before it is killed."""

BEGIN_PATIENCE: Final = 60.0
"""Seconds until a process that has begun must serve."""

SHOWN_REASON: Final = 300
"""Characters of the last words of a process that are shown."""

MAX_TICKETS: Final = 32
"""The most unused tickets for browsers; older ones expire."""

TICKET_LIFE: Final = 300.0
"""Seconds for which a ticket is good."""

_log = logger("http")


def check_server() -> None:
    """Check that the packages of the HTTP server are installed.

    Raises:
        ConfigurationError: One is not installed.
    """
    check_installed("server", "starlette", "uvicorn", "h11")


class HttpListen(msgspec.Struct, frozen=True, kw_only=True):
    """Where an HTTP server listens without TLS.

    Attributes:
        address: ``HOST:PORT`` of this machine only, or the path of a Unix socket; empty for
            nowhere: then it is reached by the head's port, with TLS.
        no_token: Whether whoever reaches it there may do all that the head's user may.
    """

    address: str = ""
    no_token: bool = False

    def check(self) -> None:
        """Refuse what others could reach.

        Raises:
            ConfigurationError: It is not an address of this machine only, or no server is
                installed.
        """
        if self.address:
            check_server()
        if not self.address:
            if self.no_token:
                raise ConfigurationError(
                    "--http-no-token needs --http", hint="for example --http 127.0.0.1:8787"
                )
            return
        if self.address.startswith("/"):
            return
        host, _, port = self.address.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(
                "--http wants HOST:PORT", where=self.address, hint="for example 127.0.0.1:8787"
            )
        if host not in {"127.0.0.1", "[::1]", "localhost"}:
            raise ConfigurationError(
                "HTTP without TLS is for this machine only",
                where=self.address,
                hint="use --http 127.0.0.1:8787 here; from elsewhere, https:// and the head's own "
                "port (--listen)",
            )


class HttpPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a server is given.

    Attributes:
        cluster: What the user calls the cluster.
        listen: Where it listens besides.
    """

    cluster: str
    listen: HttpListen = HttpListen()


class HttpService:
    """The HTTP server of a head, as a component. All methods are called on the service's thread.

    Args:
        cluster: What the user calls the cluster.
        folder: Folder of its log.
        control: Its port hands connections over.
        thread: That of the service.
        listen: Where it listens besides.
        clock: The time in seconds.
    """

    name = "http"

    def __init__(
        self,
        cluster: str,
        folder: Path,
        control: ControlTree,
        thread: LoopThread,
        listen: HttpListen,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = HttpPlan(cluster=cluster, listen=listen)
        self._folder = folder
        self._control = control
        self._thread = thread
        self._clock = clock
        self._wanted = bool(listen.address)
        self._installed = True
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0.0
        self._path = ""
        self._left = ""  # the path of a process that serves no more
        self._server = -1  # number of its client
        self._waiting: deque[tuple[socket.socket, str]] = deque()
        self._serving: Future[None] = CallerFuture()
        self._lock = threading.Lock()  # of the tickets
        self._tickets: dict[str, tuple[str, float]] = {}
        self._ends: list[Callable[[], None]] = []
        self.listens: list[str] = []

    # --- its life --------------------------------------------------------------------------------

    def start(self, _context: ComponentContext) -> None:
        """Have connections handed over; begin the process if it is wanted already.

        Without the extra that brings the server, no connection is handed over.
        """
        begins = self._wanted or wanted("METRICS", os.environ)  # its process exports them
        try:
            check_server()
        except ConfigurationError as error:
            self._installed = False
            if begins:
                _log.warning("no HTTP server", reason=error.what, hint=error.hint)
            return
        for protocol in (HTTP, WITHOUT_ALPN):
            self._ends.append(self._control.hand_over(protocol, self._take))
        if begins:
            self._begin()

    def check(self) -> State:
        """Look whether the process is there, if there is to be one.

        Raises:
            ResourceError: It has ended, or hangs.
        """
        if self._process is None:
            return State.READY  # no request has come yet
        status = self._process.poll()
        if status is not None:
            raise self._failed(status)
        if self._path or not self._plan.listen.address:
            if not self._path and time.monotonic() - self._begun > BEGIN_PATIENCE:
                raise ResourceError(f"its process did not serve within {BEGIN_PATIENCE:g} s")
            return State.READY
        return State.STARTING

    def _failed(self, status: int) -> ResourceError:
        """Tell those who wait for the server that its process has ended."""
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        said = self._log_file.read_text(errors="replace").splitlines()
        why = f": {said[-1].strip()[-SHOWN_REASON:]}" if said else ""
        error = ResourceError(f"its process ended {how}{why}", where=str(self._log_file))
        waiting, self._serving = self._serving, CallerFuture()
        if not waiting.done():
            waiting.set_exception(error)
        return error

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Have no connections handed over, and end the process."""
        while self._ends:
            self._ends.pop()()
        self._close_waiting()
        left = self._path
        self._path, self._server, self.listens = "", -1, []
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._remove(left)

    def _remove(self, path: str) -> None:
        """Remove the folder of a process that has ended, if it has not done so."""
        folder = Path(path or self._left).parent
        self._left = ""
        if folder.name.startswith(SOCKET_FOLDER):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _log_file(self) -> Path:
        return self._folder / "logs" / "http.log"

    def _begin(self) -> None:
        self._wanted = True
        if self._process is not None:
            return
        log = self._log_file
        make_private(log.parent)
        log.touch(mode=0o600)
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                python_command("-m", ENTRY),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                cwd="/",
                start_new_session=True,
            )
        self._begun = time.monotonic()
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(msgspec.json.encode(self._plan))

    # --- connections -----------------------------------------------------------------------------

    def serve(
        self, number: int, path: str, request: bytes, listens: Sequence[str]
    ) -> session_records.ClientCertificate:
        """Hand connections over to the process from now on; return what it shows to browsers.

        Args:
            number: Of its client.
            path: The socket at which it takes them.
            request: Its request for a certificate, PEM.
            listens: Where it listens itself, without TLS, ``host:port`` each.

        Raises:
            SecurityError: Its request is malformed.
        """
        hosts = [address.rpartition(":")[0].strip("[]") for address in self._control.addresses]
        if any(host.startswith("127.") or host == "::1" for host in hosts):
            hosts.append("localhost")
        hosts.append(socket.gethostname())
        made = self._control.issuer.certify_server(request, self.name, hosts)
        self._path, self._server, self.listens = path, number, list(listens)
        while self._waiting:
            send_socket(self._path, *self._waiting.popleft())
        serving, self._serving = self._serving, CallerFuture()
        serving.set_result(None)
        return session_records.ClientCertificate(made.node, made.certificate, made.authority)

    def gone(self, number: int) -> None:
        """The connection of a process that served is gone, and so is the process, or will be."""
        if number == self._server:
            self._left = self._path
            self._path, self._server, self.listens = "", -1, []
            if self._process is not None:
                self._process.terminate()

    def serving(self) -> Future[None]:
        """Begin the process; return what is done when it serves, or cannot begin.

        Raises:
            ClosedError: The component is stopped.
            ConfigurationError: The packages of the server are not installed.
        """
        check_server()
        if not self._ends:
            raise ClosedError(
                "the HTTP server is stopped", hint="`sapwood node start http --nodes head`"
            )
        self._begin()
        if not self._path:
            return self._serving
        done: Future[None] = CallerFuture()
        done.set_result(None)
        return done

    def _take(self, sock: socket.socket, peer: str) -> None:
        """Have a connection served; on the thread of the head's port."""
        try:
            self._thread.post(self._give, sock, peer)
        except ClosedError:
            sock.close()

    def _give(self, sock: socket.socket, peer: str) -> None:
        if not self._ends:
            sock.close()
        elif self._path:
            send_socket(self._path, sock, peer)
        else:
            self._waiting.append((sock, peer))
            while len(self._waiting) > MAX_WAITING:
                self._waiting.popleft()[0].close()
            if self._process is None:
                self._begin()

    def _close_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft()[0].close()

    # --- browsers --------------------------------------------------------------------------------

    def urls(self) -> list[str]:
        """Return where browsers reach it, on this machine without TLS first; nothing without it."""
        if not self._installed:
            return []
        here = [f"http://{one}" for one in self.listens if not one.startswith("/")]
        return [*here, *(f"https://{address}" for address in self._control.addresses)]

    def new_ticket(self, credential: str) -> tuple[str, float]:
        """Return a ticket for a credential, and until when it is good."""
        ticket, expires = secrets.token_urlsafe(24), self._clock() + TICKET_LIFE
        with self._lock:
            self._tickets[ticket] = (credential, expires)
            while len(self._tickets) > MAX_TICKETS:
                del self._tickets[next(iter(self._tickets))]
        return ticket, expires

    def redeem(self, ticket: str) -> str:
        """Return the credential behind a ticket, which is good no more then.

        Raises:
            SecurityError: There is none, or no more.
        """
        with self._lock:
            credential, expires = self._tickets.pop(ticket, ("", 0.0))
        if expires < self._clock():
            raise SecurityError(
                "this link was used before, or is too old",
                hint="`sapwood dashboard` shows a new one",
            )
        return credential


def send_socket(path: str, sock: socket.socket, peer: str) -> None:
    """Give a connection to the process that listens at a path; this process lets go of it."""
    with sock, socket.socket(socket.AF_UNIX) as way:
        way.settimeout(0)
        try:
            way.connect(path)
            socket.send_fds(way, [peer.encode() or b"?"], [sock.fileno()])
        except OSError as error:
            _log.warning("connection not handed over", peer=peer, reason=str(error))
