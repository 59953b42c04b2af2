"""Connections that a head on this machine hands over to a client, instead of passing on bytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sapwood.comm.transport.tls_port import ACCEPT_PAUSE, TakeSocket
from sapwood.core.failures import OUT_OF_DESCRIPTORS, log_failure, start_thread
from sapwood.head.parts.links import Links
from sapwood.head_client.connection import CALL_TIMEOUT, ServiceClient
from sapwood.session.folder import make_folder

_PEER_CREDENTIALS = struct.Struct("3i")


class HandedConnections:
    """The sockets at which a client takes connections of its trees.

    Args:
        client: Returns the connection to the head.
    """

    def __init__(self, client: Callable[[], ServiceClient]) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._takers: dict[str, tuple[socket.socket, Path]] = {}

    @property
    def folders(self) -> list[str]:
        """The folders of the sockets."""
        return [str(folder) for _, folder in list(self._takers.values())]

    def take(self, tree: str, take: TakeSocket) -> Callable[[], None]:
        """Have the head hand over the connections of a tree; return what ends that.

        Args:
            tree: The tree.
            take: Receives each connection, on a separate thread.
        """
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
        start_thread("sapwood-links", take_sockets, listening, take)
        self._ask(self._client(), tree)
        return lambda: self._end(tree)

    def ask_again(self, client: ServiceClient) -> None:
        """Ask another head for the connections of all trees.

        Raises:
            SapwoodError: It does not hand them over.
        """
        for tree in list(self._takers):
            self._ask(client, tree)

    def close(self) -> None:
        """Take no more connections."""
        for tree in list(self._takers):
            self._end(tree)

    def _ask(self, client: ServiceClient, tree: str) -> None:
        path = str(self._takers[tree][0].getsockname())
        client.call_within(CALL_TIMEOUT, Links.delegate, tree, path)

    def _end(self, tree: str) -> None:
        with self._lock:
            listening, folder = self._takers.pop(tree, (None, None))
        if listening is None or folder is None:
            return
        self._client().ask(Links.undelegate, tree)
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        shutil.rmtree(folder, ignore_errors=True)


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
                try:
                    take(socket.socket(fileno=descriptor), peer.decode("ascii", "replace"))
                except Exception as error:  # noqa: BLE001 - it is about this connection only
                    log_failure("taking a connection that the head hands over", error)
