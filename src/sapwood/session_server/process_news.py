"""What a session server tells its clients of its processes: their states, and what they print."""

from __future__ import annotations

from collections.abc import Callable

from sapwood.activity import agent_requests
from sapwood.session.interface import ProcessView
from sapwood.session.options import PlacesChanged
from sapwood.session_server import wire
from sapwood.session_server.client import ServedClient
from sapwood.session_server.keeping import KeptOutput
from sapwood.session_server.rights import WORKING, ClientRole
from sapwood.session_server.served_session import ServedSession


class ProcessNews:
    """Tells clients of processes; all on the loop's thread.

    Args:
        session: The session with the places.
        kept: Keeps output while no client is attached.
        admitted: Returns the clients that were let in.
    """

    def __init__(
        self,
        session: ServedSession,
        kept: KeptOutput,
        admitted: Callable[[], list[ServedClient]],
    ) -> None:
        self._session = session
        self._kept = kept
        self._admitted = admitted
        self._epoch = session.tree.epoch
        session.answer(agent_requests.OUTPUT, self.wrote)
        session.subscribe(self._changed)
        session.tree_changed = self._leave

    def wrote(self, rank: int, data: bytes) -> None:
        """Pass on what a place has printed, or keep it."""
        clients = self._admitted()
        if not any(one.role in WORKING for one in clients):
            self._kept.add(rank, data)
        for client in clients:
            if client.role is not ClientRole.MERGER:
                client.outbox.tell(wire.PlaceWrote(rank, data))

    def processes(self) -> list[ProcessView]:
        """Return the processes of all places as they are now."""
        return self._session.processes(range(1, self._session.tree.size))

    def _leave(self) -> None:
        """Tell clients of a tree without places that have work to do still."""
        self._changed(PlacesChanged((), (), back=False, epoch=self._session.tree.epoch))

    def _changed(self, change: PlacesChanged) -> None:
        tree, failure = self._session.tree, self._session.failure
        news = wire.TreeNews(
            change,
            tree if tree.epoch != self._epoch else None,
            tuple(self.processes()),
            None if failure is None else failure.to_record(),
        )
        self._epoch = tree.epoch
        for client in self._admitted():
            client.outbox.tell(news)
