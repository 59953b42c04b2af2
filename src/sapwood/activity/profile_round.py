"""A profile of the agents of a session, gathered at its root by waves of a stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, Final

from sapwood.activity import agent_requests
from sapwood.activity.agent_profile import (
    FILE,
    FRAMES,
    IDLE,
    LEAST_RATE,
    LONGEST,
    MAX_STACKS,
    MOST_RATE,
    OTHERS,
    REDUCE,
)
from sapwood.code.profiles import ProfileResult, counts_of
from sapwood.comm.messages import PARTIAL, TIME_OUT, Synchronisation
from sapwood.comm.reductions.tally import Tally
from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.core.failures import new_thread
from sapwood.session.interface import SessionInterface, StreamInterface, StreamOptions, WaveResult

RATE: Final = 50.0
"""Samples per second and agent, unless another rate is given."""

INTERVAL: Final = 2.0
"""Seconds between two waves."""

PATIENCE: Final = 5.0
"""Seconds that agents have to answer a wave; late answers count in the next one."""


def check_rate(rate: float) -> float:
    """Return a rate if agents can sample so often.

    Raises:
        ConfigurationError: They cannot.
    """
    given: object = rate  # a user may give anything
    if not isinstance(given, (int, float)) or not LEAST_RATE <= given <= MOST_RATE:
        raise ConfigurationError(
            "agents cannot sample at this rate",
            hint=f"use {LEAST_RATE:g} to {MOST_RATE:g} samples per second",
        )
    return float(rate)


class ProfileRound:
    """Has agents sample the stacks of their runners from now on, until it is stopped.

    Args:
        session: Their session.
        ranks: The agents; None for all, also those that are added.
        rate: Samples per second.

    Raises:
        SapwoodError: The session has ended.
    """

    def __init__(
        self, session: SessionInterface, ranks: Sequence[int] | None = None, rate: float = RATE
    ) -> None:
        self._rate = rate
        sync = Synchronisation(TIME_OUT, PATIENCE, "next")
        options = StreamOptions(sync=sync, on_loss=PARTIAL, follows=ranks is None)
        self._stream: StreamInterface = session.open_stream(
            agent_requests.PROFILE, REDUCE, ranks, options=options
        )
        self._tally = Tally(str(MAX_STACKS))
        self._agents = 0
        self._over = threading.Event()
        self._began = time.monotonic()
        self._problem: SapwoodError | None = None
        self._thread = new_thread("sapwood-profile", self._poll)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait while agents sample."""
        self._over.wait(seconds)

    def stop(self) -> ProfileResult:
        """Have agents stop, and return what they saw.

        Raises:
            SapwoodError: No agent has answered.
        """
        self._over.set()
        self._thread.join()
        if self._problem is not None and not self._agents:
            raise self._problem
        stacks = dict(self._tally.total())
        idle, others = stacks.pop(IDLE, 0), stacks.pop(OTHERS, 0)
        return ProfileResult(
            agents=self._agents,
            seconds=time.monotonic() - self._began,
            rate=self._rate,
            idle=idle,
            others=others,
            stacks=tuple(counts_of(stacks, FRAMES, FILE)),
        )

    def _poll(self) -> None:
        try:
            while True:
                self._wave({"rate": self._rate, "seconds": LONGEST})
                if self._over.wait(INTERVAL):
                    break
            self._wave({"rate": 0.0, "seconds": 0.0})
        except SapwoodError as error:  # the session has ended, or no agent is left
            self._problem = error
            self._over.set()
        finally:
            self._stream.close()

    def _wave(self, order: dict[str, float]) -> None:
        done: Future[WaveResult] = self._stream.broadcast(order)
        try:
            total: Any = done.result(PATIENCE + INTERVAL).total
        except LateError:
            return
        if isinstance(total, Mapping):
            self._agents = max(self._agents, int(total["agents"]))
            self._tally.add(total["stacks"], 0, 1.0)


def profile_for(
    session: SessionInterface, ranks: Sequence[int], seconds: float, rate: float
) -> ProfileResult:
    """Have agents sample for some seconds, and return what they saw.

    Args:
        session: Their session.
        ranks: The agents.
        seconds: How long.
        rate: Samples per second.

    Raises:
        SapwoodError: No agent has answered.
    """
    sampling = ProfileRound(session, ranks, rate)
    sampling.wait(seconds)
    return sampling.stop()
