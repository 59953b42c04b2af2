"""The machines that a session brings along: asked for by its server, waited for, given back.

The session server asks for them, so they are there as long as the session is, whatever becomes
of the client and of the head. The nodes belong to a separate control tree of the session.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

from sapwood.contexts.launchers.base import AllocatingLauncher, LimitedLauncher
from sapwood.contexts.launchers.choice import new_launcher
from sapwood.contexts.launchers.held import HeldLauncher
from sapwood.contexts.launchers.specs import machines
from sapwood.core.errors import CancelledError, ResourceError, SapwoodError
from sapwood.core.failures import new_thread, start_thread
from sapwood.core.shown import shown
from sapwood.environment.logs import logger
from sapwood.environment.settings import Settings
from sapwood.head import session_records
from sapwood.nodes.control import ControlTree
from sapwood.session.options import PlacesChanged
from sapwood.session_server.making import on_loopback, session_options, site_variables

GONE_PATIENCE = 10.0
"""Seconds in which a launcher hears that its machines are gone, after their nodes are."""

GONE_LOOK = 0.5
"""Seconds between two looks whether they are."""

CLOSE_TIMEOUT = 5.0
"""Seconds in which the thread that asks for machines notices that they are not wanted any more."""

_log = logger("session")

Waits = Callable[[str], None]
"""Told what is waited for; nothing once the machines are there and become nodes."""


class SessionMachines:
    """Asks for the machines of a session, and has its nodes when they are there.

    Args:
        wanted: What the session is to be.
        settings: All settings.

    Attributes:
        launcher: What gets the machines.
        settings: The settings that count on these machines.
        reason: Why they are not wanted any more; empty while they are.

    Raises:
        ConfigurationError: There can be no such machines.
    """

    def __init__(self, wanted: session_records.CreateSession, settings: Settings) -> None:
        kind, _ = machines(wanted.on)
        self.settings = on_loopback(settings) if kind == "nodes" else settings
        self.launcher = new_launcher(
            wanted.on,
            settings.nodes,
            agents=wanted.agents or settings.cluster.agents,
            agents_per_node=wanted.agents_per_node,
        )
        self.reason = ""
        self._waits = ""
        self._heard: SimpleQueue[str | ControlTree | BaseException | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._control: ControlTree | None = None
        self._asking = new_thread("sapwood-machines", self._ask)
        self._lost = threading.Event()
        self._closed = False

    def completed(self, wanted: session_records.CreateSession) -> session_records.CreateSession:
        """Return the plan of the session, by default with an agent for each CPU.

        That is for clusters that give CPUs instead of machines; else the nodes know how many cores
        they have.
        """
        said = wanted.agents or wanted.agents_per_node or self.settings.cluster.agents
        if said or not isinstance(self.launcher, HeldLauncher):
            return wanted
        return msgspec.structs.replace(wanted, agents_per_node=self.launcher.cpus)

    def obtain(self, on_wait: Waits) -> ControlTree:
        """Get the machines and make them nodes; all is given back if that fails.

        Args:
            on_wait: Told, on this thread, what is waited for.

        Raises:
            CancelledError: :meth:`end` was called meanwhile.
            SapwoodError: There are no such machines, or they do not become nodes.
        """
        self._asking.start()
        try:
            while True:
                word = self._heard.get()
                if isinstance(word, str):
                    on_wait(word)
                elif isinstance(word, ControlTree):
                    return word
                elif word is not None and not self.reason:
                    raise word
                else:
                    raise CancelledError(self.reason)
        except BaseException:
            self.close()
            raise

    def end(self, reason: str) -> None:
        """End all waits; from any thread, and from a signal handler."""
        self.reason = self.reason or reason
        self._heard.put(None)

    def close(self) -> None:
        """Give the machines back, and wait for that."""
        with self._lock:
            self._closed = True
            control = self._control
        self._lost.set()
        if control is None:
            self.launcher.close()
        else:
            control.close()
        if self._asking.is_alive():
            self._asking.join(CLOSE_TIMEOUT)

    # --- the thread that asks ------------------------------------------------------------------

    def _ask(self) -> None:
        try:
            if isinstance(self.launcher, AllocatingLauncher):
                self.launcher.request(self._waiting)
            self._heard.put("")
            control = ControlTree(
                self.launcher,
                session_options(self.settings, site_variables(self.settings)),
                self.settings.nodes,
            )
            self._must_be_wanted(control)
            control.start()
        except Exception as error:  # noqa: BLE001 - handed to who waits
            if not isinstance(error, SapwoodError):
                _log.exception("machines not asked for")
                error = ResourceError(f"the machines cannot be had: {shown(error)}")
            self._heard.put(error)
        else:
            self._heard.put(control)

    def _waiting(self, what: str, seconds: float) -> None:
        """Pass on what is waited for, if it is something else than before."""
        del seconds
        self._must_be_wanted()
        if what != self._waits:
            self._waits = what
            self._heard.put(what)

    def _must_be_wanted(self, control: ControlTree | None = None) -> None:
        """Fail if all is given back already; else record what is to be closed.

        Raises:
            CancelledError: The machines are not wanted any more.
        """
        with self._lock:
            if not self._closed:
                self._control = control
                return
        if control is not None:
            control.close()
        raise CancelledError("the machines are no longer wanted")

    # --- the end of the machines ---------------------------------------------------------------

    def watch(self, control: ControlTree, gone: Callable[[str], None]) -> None:
        """Call a function with the reason when all machines are gone; on a separate thread."""
        control.session.subscribe(self._places_changed)
        start_thread("sapwood-machines", self._watch, control, gone)

    def _places_changed(self, change: PlacesChanged) -> None:
        if not change.back and not change.added:
            self._lost.set()

    def _watch(self, control: ControlTree, gone: Callable[[str], None]) -> None:
        while True:
            self._lost.wait()
            self._lost.clear()
            if self._closed:
                return
            reason = self._fate(control)
            if reason:
                gone(reason)
                return

    def _fate(self, control: ControlTree) -> str:
        """Return why the machines are gone, after a node was lost; empty if they are available."""
        hosts = range(1, len(control.hosts) + 1)
        reasons = [control.given_up(host) for host in hosts]
        if all(reasons):
            return reasons[0]
        if not isinstance(self.launcher, LimitedLauncher):
            return ""
        end = time.monotonic() + GONE_PATIENCE
        pause = threading.Event()
        while not self.launcher.is_gone():
            if self._closed or time.monotonic() > end:
                return ""
            pause.wait(GONE_LOOK)
        return self.launcher.fate()
