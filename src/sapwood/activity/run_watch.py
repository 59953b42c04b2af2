"""Asks the agents of a run now and then what they do, while the run itself waits for its waves.

What they say goes into the record of the run. It is a thread of its own, so that iterations take
no longer for it, and it asks seldom enough to cost next to nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from sapwood.activity import agent_requests
from sapwood.activity.run_record import AgentShare, Loss, RunRecorder
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.session.port import PlacesChanged, SessionPort

INTERVAL = 0.5
"""Seconds between two times that agents are asked."""

MAX_ASKED = 64
"""Agents that are asked in a second: where there are more, each is asked less often."""


class RunWatch:
    """Knows what the agents of one run do.

    Args:
        session: Where they live.
        run: Name of the run.
        recorder: Gets what they say.
        began: When the run began, by ``time.perf_counter``.
    """

    def __init__(self, session: SessionPort, run: str, recorder: RunRecorder, began: float) -> None:
        self._session = session
        self._run = run
        self._recorder = recorder
        self._began = began
        self._lock = threading.Lock()
        self._asked: set[int] = set()
        self._ranks: Sequence[int] = ()
        self._after = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._unsubscribe = _nothing

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def begin(self, ranks: Sequence[int], after: int) -> None:
        """Watch agents whose stream begins now.

        Args:
            ranks: The agents.
            after: The iteration before its first wave.
        """
        self._ranks, self._after = ranks, after
        self._asked.clear()
        self._ended = threading.Event()
        self._unsubscribe = self._session.subscribe(self._changed)
        self._thread = threading.Thread(target=self._watch, name="sapwood-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Watch them no more."""
        self._ended.set()
        self._unsubscribe()
        self._unsubscribe = _nothing
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def heard(self, rank: int, pulse: agent_requests.Pulse) -> None:
        """Take in what an agent says."""
        now = self.now
        for call in pulse.recent:
            share = AgentShare(
                agent=rank,
                started=now - call.age,
                seconds=call.seconds,
                waited=call.waited,
                items=call.items,
                bytes_up=call.bytes_up,
            )
            self._recorder.shares(self._after + call.wave, (share,))

    def _watch(self) -> None:
        interval = max(INTERVAL, len(self._ranks) / MAX_ASKED)
        while not self._ended.wait(interval):
            for rank in self._ranks:
                with self._lock:
                    if rank in self._asked:
                        continue
                    self._asked.add(rank)
                try:
                    future = self._session.ask(rank, agent_requests.PULSE, self._run)
                except SapwoodError:  # the session ends, and so does the run
                    return
                future.add_done_callback(partial(self._answered, rank))

    def _answered(self, rank: int, done: Future[Any]) -> None:
        with self._lock:
            self._asked.discard(rank)
        if self._ended.is_set() or done.cancelled() or done.exception() is not None:
            return  # an agent that is gone is told of otherwise
        self.heard(rank, typed.convert(done.result(), agent_requests.Pulse))

    def _changed(self, change: PlacesChanged) -> None:
        what = "lost"
        if change.removed:
            what = "removed"
        elif change.disconnected:
            what = "attached" if change.back else "cut off"
        elif change.back:
            what = "replaced"
        for rank in change.agents:
            if rank in self._ranks:
                self._recorder.loss(
                    Loss(
                        at=self.now,
                        iteration=self._recorder.done + 1,
                        agent=rank,
                        what=what,
                        reason=change.reason,
                    )
                )


def _nothing() -> None:
    pass
