"""A front end's way to the nodes of a head: what a control tree is in one's own process."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm.shared_memory import OUT_OF_DESCRIPTORS
from sapwood.comm.transport.tls import ACCEPT_PAUSE, TakeSocket
from sapwood.core import typed
from sapwood.core.errors import CommunicationError, ProtocolError, SapwoodError
from sapwood.environment.logs import logger
from sapwood.head import calls
from sapwood.head.folder import DEFAULT, find_head
from sapwood.head.service import ServiceClient
from sapwood.nodes import messages
from sapwood.nodes.daemon import RENEW_AFTER, RENEW_PAUSE
from sapwood.nodes.port import SessionRootPort
from sapwood.nodes.processes import SessionNodes, SessionOnNode
from sapwood.security.authority import make_request, valid_until
from sapwood.security.credentials import Credentials
from sapwood.session.folder import make_folder
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeSource

CALL_TIMEOUT = 30.0
"""Seconds that a head may take for what it does at once."""

_PEER_CREDENTIALS = struct.Struct("3i")

_log = logger("head")


class HeadAccess:
    """A connection to the head of a cluster, through which sessions use its nodes.

    Args:
        name: What the user calls the cluster.

    Raises:
        NodeLostError: No head runs on this machine.
        CommunicationError: It does not answer.
    """

    def __init__(self, name: str = DEFAULT) -> None:
        info = find_head(name)
        self._lock = threading.Lock()
        self._records: dict[int, calls.NodeRecord] = {}
        self._given_up: dict[int, str] = {}
        self._sessions: dict[tuple[str, int], SessionOnNode] = {}
        self._listeners: list[Callable[[str, Any], None]] = []
        self._takers: dict[str, tuple[socket.socket, Path]] = {}
        self._credentials: Credentials | None = None
        self._over = ""
        try:
            self.client = ServiceClient(info.socket, self._noticed, self._head_gone)
        except CommunicationError as error:
            raise CommunicationError(
                f"the head of the cluster '{name}' does not answer",
                where=f"process {info.pid}",
                hint="it may have been killed: `sapwood up` starts it again",
            ) from error
        try:
            self.facts = self._call(calls.HELLO, None, calls.HeadFacts)
            self._take_nodes(self._call(calls.NODES, None, list[calls.NodeRecord]))
        except BaseException:
            self.client.close()
            raise

    # --- the cluster ---------------------------------------------------------------------------

    @property
    def nodes(self) -> list[calls.NodeRecord]:
        """The nodes that processes can begin on now."""
        with self._lock:
            records = list(self._records.values())
        return sorted((one for one in records if one.is_ready), key=lambda one: one.host)

    def close(self) -> None:
        """Leave: the head ends what is left of this front end's sessions."""
        for tree in list(self._takers):
            self._end_delegation(tree)
        self.client.close()

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes.

        Args:
            owned: Whether this connection ends with that session.
        """
        return SessionNodes(self, owned=owned)

    def subscribe(self, listener: Callable[[str, Any], None]) -> Callable[[], None]:
        """Have a function told of notices, on a thread of this connection.

        Returns:
            A function that ends that.
        """
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def open_port(self, loop: SharedReactor) -> SessionRootPort:
        """Return where the nodes reach the root of a session, on that session's loop."""
        return SessionRootPort(tuple(self.facts.places), self._delegate, loop, self.credentials)

    def credentials(self) -> Credentials:
        """Return what this front end shows to nodes; it is renewed before it ends.

        It waits for the head the first time only.

        Raises:
            CommunicationError: The head is gone.
        """
        with self._lock:
            known = self._credentials
        if known is None:
            key, request = make_request()
            made = self.client.call(calls.CERTIFY, request, CALL_TIMEOUT)
            known = self._take_certificate(key, made)
        return known

    def _take_certificate(self, key: bytes, value: Any) -> Credentials:
        """Show another certificate from now on, and have it renewed in time."""
        made = typed.convert(value, calls.FrontEndCertificate)
        taken = Credentials(
            node=made.node, certificate=made.certificate, key=key, authority=made.authority
        )
        with self._lock:
            self._credentials = taken
        left = max(valid_until(taken.certificate) - time.time(), 0.0)
        self.client.later(left * RENEW_AFTER, self._renew)
        return taken

    def _renew(self) -> None:
        """Ask for another certificate; on the connection's thread, which does not wait for it."""
        key, request = make_request()

        def answered(answer: Future[Any]) -> None:
            try:
                self._take_certificate(key, answer.result())
            except SapwoodError as error:
                _log.warning("certificate not renewed", reason=error.what)
                if not self._over:
                    self.client.later(RENEW_PAUSE, self._renew)

        self.client.ask(calls.CERTIFY, request).add_done_callback(answered)

    # --- the way to the nodes --------------------------------------------------------------------

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send a request to the daemon of a node."""
        order = calls.NodeOrder(host, handler, value)
        return self.client.ask(calls.ORDER, _plain(order))

    def is_ready(self, host: int) -> bool:
        """Whether a node is there."""
        with self._lock:
            record = self._records.get(host)
        return record is not None and record.state in {"ready", "draining"}

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        with self._lock:
            record = self._records.get(host)
        return f"node {host}" if record is None else record.name

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        with self._lock:
            return self._over or self._given_up.get(host, "")

    def join(self, session: SessionOnNode) -> None:
        """Have reports about a session on one node handed to it."""
        with self._lock:
            self._sessions[session.name, session.host] = session

    def part(self, session: SessionOnNode) -> None:
        """Hand no more reports to it."""
        with self._lock:
            if self._sessions.get((session.name, session.host)) is session:
                del self._sessions[session.name, session.host]

    # --- connections that the head hands over ----------------------------------------------------

    def _delegate(self, tree: str, take: TakeSocket) -> Callable[[], None]:
        folder = make_folder()
        path = folder / "links.sock"
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path))
            listening.listen(1024)
        except OSError:
            listening.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._takers[tree] = (listening, folder)
        threading.Thread(
            target=take_sockets, args=(listening, take), name="sapwood-links", daemon=True
        ).start()
        self._call(calls.DELEGATE, _plain(calls.DelegateLinks(tree, str(path))), None)
        return lambda: self._end_delegation(tree)

    def _end_delegation(self, tree: str) -> None:
        with self._lock:
            listening, folder = self._takers.pop(tree, (None, None))
        if listening is None or folder is None:
            return
        self.client.ask(calls.UNDELEGATE, tree)
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        shutil.rmtree(folder, ignore_errors=True)

    # --- what the head tells, on the connection's thread ------------------------------------------

    def _noticed(self, name: str, value: Any) -> None:
        try:
            if name == calls.PROCESSES_REPORTED:
                told = typed.convert(value, calls.OfNode)
                report = messages.from_value(told.value, messages.ProcessesReported)
                with self._lock:
                    session = self._sessions.get((report.session, told.host))
                if session is not None:
                    session.heard(report)
            elif name == calls.NODES_CHANGED:
                self._nodes_changed(typed.convert(value, calls.NodesChanged))
        except (msgspec.ValidationError, ProtocolError) as error:
            _log.warning("malformed notice", name=name, reason=str(error))
            return
        for listener in list(self._listeners):
            listener(name, value)

    def _nodes_changed(self, change: calls.NodesChanged) -> None:
        self._take_nodes(change.nodes)
        hosts = {one.host for one in change.nodes}
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host in hosts]
            if change.for_good:
                self._given_up |= dict.fromkeys(hosts, change.reason)
        for session in affected:
            if change.for_good:
                session.node_removed(change.reason)
            elif change.back or change.gone:
                session.node_changed(there=change.back, reason=change.reason)

    def _take_nodes(self, nodes: list[calls.NodeRecord]) -> None:
        with self._lock:
            self._records |= {one.host: one for one in nodes}

    def _head_gone(self, reason: str) -> None:
        """What runs goes on; nothing can begin any more."""
        with self._lock:
            self._over = f"the head is gone: {reason}"
        _log.warning("head gone", reason=reason)

    def _call(self, name: str, value: Any, kind: Any) -> Any:
        return typed.convert(self.client.call(name, value, CALL_TIMEOUT), kind)


def take_sockets(listening: socket.socket, take: TakeSocket) -> None:
    """Take the connections that the head hands over, until the socket is closed."""
    while True:
        try:
            way, _ = listening.accept()
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                time.sleep(ACCEPT_PAUSE)
                continue
            return
        with way:
            way.settimeout(1.0)
            raw = way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
            if _PEER_CREDENTIALS.unpack(raw)[1] != os.geteuid():
                continue
            try:
                peer, descriptors, _, _ = socket.recv_fds(way, 1024, 4)
            except OSError:
                continue
            for descriptor in descriptors:
                take(socket.socket(fileno=descriptor), peer.decode("ascii", "replace"))


def _plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))
