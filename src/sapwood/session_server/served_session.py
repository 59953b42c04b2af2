"""A session whose users are other processes: what a session server has of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from sapwood.comm import events as ev
from sapwood.core.errors import ClosedError
from sapwood.session.embedded import EmbeddedSession, MakeFilters, take_released
from sapwood.session.options import SessionOptions
from sapwood.session.supervisor import NodeSource
from sapwood.session_server.open_work import OpenWork
from sapwood.session_server.routes import EffectRoutes


class ServedSession(EffectRoutes, EmbeddedSession):
    """A session whose users are other processes.

    Args:
        options: How it is made.
        nodes: What begins the processes of places on other machines.

    Attributes:
        tree_changed: Told on the loop's thread that places are to leave and have work to do still.
    """

    def __init__(self, options: SessionOptions, nodes: NodeSource | None = None) -> None:
        EffectRoutes.__init__(self)
        self._leaving: list[OpenWork] = []
        self.tree_changed: Callable[[], None] = _nothing
        EmbeddedSession.__init__(self, options, None, nodes)

    def post_to_core(self, event: Any) -> None:
        """Give the core of this root an event."""
        self.host.post(event)

    def freed(self, effect: ev.Released) -> None:
        """Have memory of this root used again."""
        take_released(self.streams, effect)

    def host_filters(self, make: MakeFilters) -> None:
        """Have own filters of the root called, also those over several sessions."""
        self.streams.filters = make(
            self.loop, self.supervisor.new_runner_factory, self.post_of_stream
        )

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        """Take places out of the tree; return what is open of them, also for clients."""
        open_work = super().begin_contract(ranks)
        self._leaving = [one for one in self._leaving if not one.done.done()]
        self._leaving.append(OpenWork(self, ranks, self.loop.call_later))
        self.tree_changed()
        return [*open_work, self._leaving[-1].done]

    def close(self) -> None:
        """End it, and whoever waits until agents have done what they were asked for."""
        with contextlib.suppress(ClosedError):
            self.call(self._wait_no_more)
        super().close()

    def _wait_no_more(self) -> None:
        for one in self._leaving:
            one.give_up()

    def _handlers(self) -> dict[type[ev.Effect], Callable[[Any], None]]:
        return self.routed(super()._handlers())


def _nothing() -> None:
    pass
