"""What runs have measured of agents, kept by the head of a cluster: all its clients share it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from sapwood.activity.rate_history import RateHistory
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import when_done
from sapwood.environment.logs import logger

if TYPE_CHECKING:
    from sapwood.head_client.access import HeadAccess

READ_TIME: Final = 2.0
"""Seconds that a run waits for it at most before it begins without."""

_log = logger("client")


class HeadHistory:
    """Histories in the store of a head, and on this machine where the head keeps none for it.

    Args:
        head: The head.
        other: Where histories are kept that the head does not take.
    """

    def __init__(self, head: HeadAccess, other: RateHistory) -> None:
        self._head = head
        self._other = other
        self._place = "the store of the head"

    @property
    def place(self) -> str:
        """Where they are."""
        return self._place

    def read(self, key: str) -> bytes | None:
        """As the method of all histories."""
        try:
            return self._head.kept_rates(key, READ_TIME)
        except SapwoodError as error:
            self._refused(error)
            return self._other.read(key)

    def write(self, key: str, history: bytes) -> None:
        """As the method of all histories; this waits for nothing."""

        def kept(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None:
                self._refused(error)
                self._other.write(key, history)

        try:
            when_done(self._head.keep_rates(key, history), kept)
        except SapwoodError as error:
            self._refused(error)
            self._other.write(key, history)

    def _refused(self, error: BaseException) -> None:
        _log.debug("the head keeps no rates for this client", reason=str(error))
        self._place = self._other.place
