"""The machines of a session that other machines are below: where they listen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, wait

from sapwood.comm.routing import Router
from sapwood.core.errors import ClosedError
from sapwood.core.futures import when_done
from sapwood.core.topology import ROOT, gateways
from sapwood.environment.logs import logger
from sapwood.lifecycle.core import ProcessLifecycle
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeNetwork

_log = logger("session")

LISTEN_TIMEOUT = 10.0
"""Seconds that machines get to report where they listen; others are skipped."""


class Gateways:
    """The junctions that have places of other machines below them; on the loop's thread.

    Args:
        nodes: The machines; None where all places are on one, or belong to another tree.
        life: Says which ranks are on which machine.
        loop: The loop that drives the session.
        where: Where machines listen, ``host:port``.
        root: Where the root listens for other machines; empty if it does not.
    """

    def __init__(
        self,
        nodes: NodeNetwork | None,
        life: ProcessLifecycle,
        loop: SharedReactor,
        where: str,
        root: str,
    ) -> None:
        self._nodes = nodes
        self._life = life
        self._loop = loop
        self._where = where
        self._root = root
        self._addresses: dict[int, str] = {}
        self._detours: set[int] = set()

    @property
    def _ranks(self) -> list[int]:
        return sorted(gateways(self._life.tree, self._life.hosts))

    def open(self) -> None:
        """Have machines listen that others are below, before anything begins on those."""
        if self._nodes is None:
            return
        hosts = {self._life.hosts[rank] for rank in self._ranks} - {0}
        asked = {host: self._nodes.listen(host, self._where) for host in sorted(hosts)}
        wait(asked.values(), LISTEN_TIMEOUT)
        for host, answer in asked.items():
            self._take_address(host, answer)

    def addresses(self) -> dict[int, str]:
        """Return where places listen for other machines, by rank."""
        found = {ROOT: self._root} if self._root else {}
        for rank in self._ranks:
            if self._life.hosts[rank] in self._addresses:
                found[rank] = self._addresses[self._life.hosts[rank]]
        return found

    def look(self, host: int, on_change: Callable[[dict[int, str]], None]) -> None:
        """Ask a machine on which processes can begin where it listens, if others are below it.

        Args:
            host: Its number.
            on_change: Called with the addresses of its ranks, if they are not known already.
        """
        mine = any(self._life.hosts[rank] == host for rank in self._ranks)
        if self._nodes is None or not mine:
            return

        def answered(answer: Future[str]) -> None:
            with contextlib.suppress(ClosedError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._listens, host, answer, on_change)

        with contextlib.suppress(ClosedError):
            when_done(self._nodes.listen(host, self._where), answered)

    def _listens(
        self, host: int, answer: Future[str], on_change: Callable[[dict[int, str]], None]
    ) -> None:
        known = self._addresses.get(host)
        self._take_address(host, answer)
        if self._addresses.get(host) != known:
            ranks = [rank for rank in self._ranks if self._life.hosts[rank] == host]
            on_change(dict.fromkeys(ranks, self._addresses[host]))

    def _take_address(self, host: int, answer: Future[str]) -> None:
        """Record where a machine listens."""
        if answer.done() and answer.exception() is None:
            self._addresses[host] = answer.result()
        else:
            reason = answer.exception() if answer.done() else "it does not say"
            _log.warning("a machine does not listen for others", host=host, reason=str(reason))

    def joined(self, rank: int, router: Router, session: str) -> None:
        """Report a place that is not below the machine that it should be below.

        Args:
            rank: The place, which has joined.
            router: Says where it is.
            session: Name of the session.
        """
        tree, hosts = self._life.tree, self._life.hosts
        placed = router.placed(rank)
        if self._nodes is None or not hosts or placed is None or rank not in tree:
            return
        mine, home, at = hosts[rank], hosts[tree.parents[rank]], hosts[placed.parent]
        if mine == home or (home != at) == (rank in self._detours):
            return
        self._detours.symmetric_difference_update([rank])
        name_of = self._nodes.name_of
        names = {host: name_of(host) if host else "the root" for host in (mine, home, at)}
        (_log.warning if home != at else _log.info)(
            "attached elsewhere" if home != at else "attached at home",
            rank=rank,
            machine=names[mine],
            home=names[home],
            at=names[at],
        )
        self._nodes.note_detour(session, mine, rank, home, at)
