"""The way that a launcher makes for a node which cannot connect to the head: a Unix socket.

The launcher's own connection carries what goes through the socket. TLS is spoken through it, from
end to end, as over any other way.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

from sapwood.comm.transport.tls_identity import socket_endpoint
from sapwood.core.errors import ResourceError
from sapwood.session.folder import make_folder

_REMOVE = 'trap "" HUP INT TERM; read -r _; rm -rf -- "$1"'
"""Waits until its standard input ends, which it does when the daemon does, however that happens."""

REMOVE_TIMEOUT = 5.0
"""Seconds that the removal of a folder may take."""


class HeadWay:
    """A place for the socket, in a folder that this user alone may enter.

    A small process removes the folder also when the daemon is killed.

    Attributes:
        path: Where the launcher is to make the socket.
        endpoint: The same, as an endpoint of an address.
        pid: The process that removes the folder.

    Raises:
        ResourceError: There is no room for the folder, or for the process.
    """

    def __init__(self) -> None:
        self._folder = make_folder()
        try:
            self._remover = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVE, "sh", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._folder.rmdir()
            raise ResourceError(f"cannot start a process: {error.strerror}") from error
        self.path = str(self._folder / "head.sock")
        self.endpoint = socket_endpoint(self.path)
        self.pid = self._remover.pid

    def added_to(self, addresses: Mapping[int, str]) -> dict[int, str]:
        """Return where places listen, with this as the last endpoint of each.

        All of them are reached by the head's port: no other machine listens.
        """
        return {rank: f"{address},{self.endpoint}" for rank, address in addresses.items()}

    def close(self) -> None:
        """Remove the socket and its folder."""
        try:
            self._remover.communicate(timeout=REMOVE_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._remover.kill()
            self._remover.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # if the process was killed
