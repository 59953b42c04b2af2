"""The components of a head: its store, its authority, the tree of nodes, the service."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from sapwood.comm.transport.base import Listener
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import ClosedError, ResourceError, StoreError
from sapwood.environment.component import ComponentAction, ComponentContext, ComponentEvent
from sapwood.environment.lifecycle import State
from sapwood.head.folder import HeadInfo, remove_left_sockets, write_info
from sapwood.head.leadership import Leadership, LeaderStore
from sapwood.head.service import ServiceServer
from sapwood.nodes.control import ControlTree
from sapwood.nodes.discovery import AnnouncedCluster, Announcement
from sapwood.security.authority import valid_until
from sapwood.session.folder import make_folder
from sapwood.session.loop_thread import LoopThread
from sapwood.store.base import Store
from sapwood.store.opening import open_store
from sapwood.store.sqlite import SqliteStore


class HeadStore:
    """What the head must not forget. It is open from the beginning, and opened anew by a restart.

    Args:
        folder: Of the head: the socket is there if it has no address.
        address: Where else it lies; empty for the folder.
        leadership: That of this head, where several heads share the store.

    Raises:
        StoreInUseError: Another head has it.
        StoreError: It cannot be used.
    """

    name = "store"

    def __init__(
        self, folder: Path, address: str = "", leadership: Leadership | None = None
    ) -> None:
        self._folder = folder
        self._address = address
        self._leadership = leadership
        self._open: Store | None = self._new()

    def _new(self) -> Store:
        if self._leadership is not None:
            return LeaderStore(open_store(self._leadership.address), self._leadership)
        return open_store(self._address) if self._address else SqliteStore(self._folder)

    @property
    def opened(self) -> Store:
        """The store; from any thread.

        Raises:
            StoreError: It is closed: it has failed, and is about to be opened again.
        """
        found = self._open
        if found is None:
            raise StoreError(
                "the store of the head is closed",
                where=str(self._folder),
                hint="`sapwood node status` says why; `sapwood node restart store --nodes head`",
            )
        return found

    def start(self, _context: ComponentContext) -> None:
        """Open it, if it is not open."""
        if self._open is None:
            self._open = self._new()

    def check(self) -> State:
        """Read an entry: whatever that raises is a failure.

        A store of several heads is asked all the time, by another thread.
        """
        found = self.opened
        if self._leadership is not None:
            return State.DEGRADED if self._leadership.is_late else State.READY
        found.get("generation")
        return State.READY

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Close it."""
        found, self._open = self._open, None
        if found is not None:
            found.close()


class HeadAuthority:
    """Signs certificates: while it is stopped, no machine joins and no certificate is renewed.

    Args:
        control: The control tree, which asks it.
    """

    name = "authority"

    def __init__(self, control: ControlTree) -> None:
        self._control = control

    def start(self, _context: ComponentContext) -> None:
        """Sign from now on."""
        self._control.issuer.enabled = True

    def check(self) -> State:
        """Return DEGRADED when what the head itself shows has ended."""
        left = valid_until(self._control.credentials.certificate) - time.time()
        return State.READY if left > 0 else State.DEGRADED

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Sign no more; those who ask try again."""
        self._control.issuer.enabled = False


class NodeTree:
    """The control tree: ready when each node is, with all of its components.

    Args:
        control: The control tree; its owner starts and closes it.
    """

    name = "tree"

    def __init__(self, control: ControlTree) -> None:
        self._control = control

    def start(self, _context: ComponentContext) -> None:
        """Refuse to watch a tree that has ended: that is for ever.

        Raises:
            ClosedError: It has.
        """
        if self._control.session.closed:
            raise ClosedError("the control tree has ended")

    def check(self) -> State:
        """Return DEGRADED while a node is missing, or a component of one."""
        if self._control.session.closed:
            raise ClosedError("the control tree has ended")
        complete = all(
            view.state == "ready" and view.components is not None and view.components.ready
            for view in self._control.nodes
        )
        return State.READY if complete else State.DEGRADED

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing: present nodes keep running."""


class ServiceSocket:
    """The socket at which clients reach the head. Those that are there stay when it restarts.

    A socket that was removed, for example by cleaning a temporary folder, is a failure: it is
    made anew, and clients find the new one.

    Args:
        folder: Where clients look for the head.
        cluster: Name of the cluster in certificates.
        server: Answers them.
        thread: Its loop watches the connections; all methods are called on it.
    """

    name = "service"

    def __init__(
        self, folder: Path, cluster: str, server: ServiceServer, thread: LoopThread
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._server = server
        self._thread = thread
        self._sockets: Path | None = None
        self._listener: Listener | None = None

    def listen(self) -> None:
        """Listen, and say where, if that is not done yet.

        Raises:
            CommunicationError: It cannot listen.
        """
        if self._sockets is not None:
            return
        remove_left_sockets(self._folder)
        self._sockets = make_folder()
        self._listener = UnixTransport().listen(str(self._path), self._server, self._thread.loop)
        info = HeadInfo(socket.gethostname(), os.getpid(), str(self._path), self._cluster)
        write_info(self._folder, info)

    @property
    def _path(self) -> Path:
        assert self._sockets is not None  # noqa: S101 - listen() comes first
        return self._sockets / "head.sock"

    def start(self, _context: ComponentContext) -> None:
        """Listen."""
        self.listen()

    def check(self) -> State:
        """Look whether clients can find the socket."""
        if not self._path.is_socket():
            raise ResourceError("the socket of the head was removed")
        return State.READY

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Listen no more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)


class HeadAnnouncer:
    """Announces the cluster on the local network, with no secret.

    Args:
        name: What the user calls the cluster.
        control: The control tree, which knows where the head is reached.
    """

    name = "announcer"

    def __init__(self, name: str, control: ControlTree) -> None:
        self._cluster = name
        self._control = control
        self._made: Announcement | None = None

    def prepare(self) -> None:
        """See whether it can be announced; the control tree listens by now.

        Raises:
            ConfigurationError: It cannot.
        """
        self._made = Announcement(
            AnnouncedCluster(
                name=self._cluster,
                cluster=self._control.authority.cluster,
                pin=self._control.authority.pin,
                addresses=list(self._control.addresses),
            )
        )

    def start(self, _context: ComponentContext) -> None:
        """Announce it."""
        if self._made is None:
            self.prepare()
        assert self._made is not None  # noqa: S101 - just made
        self._made.start()

    def check(self) -> State:
        """Return READY when the network knows of it; raise what went wrong."""
        made = self._made
        if made is not None and made.error is not None:
            raise made.error
        return State.READY if made is not None and made.made.is_set() else State.STARTING

    def receive(self, _event: ComponentEvent) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Take it back."""
        made, self._made = self._made, None
        if made is not None:
            made.close()


_DOWN = "`sapwood down` ends the head"

REFUSALS: Mapping[str, Mapping[ComponentAction, str]] = {
    HeadStore.name: {
        ComponentAction.STOP: f"the head does nothing without it: restart it, or {_DOWN}"
    },
    NodeTree.name: {
        ComponentAction.STOP: f"{_DOWN}; `sapwood node delete NODE` ends a node",
        ComponentAction.RESTART: f"restart components of its nodes; {_DOWN}",
    },
    ServiceSocket.name: {
        ComponentAction.STOP: f"it could not be started again: restart it, or {_DOWN}"
    },
}
"""What users may not do with components of a head, and what to do instead."""
