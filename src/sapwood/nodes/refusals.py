"""Rate-limited logging of refusals, so that unauthenticated peers cannot fill the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator

import msgspec

from sapwood.environment.logs import logger

LOGGED_REFUSALS = 20
"""Refusals of a kind that are logged each minute."""

MAX_KINDS = 256
"""Kinds of refusals that are counted separately; further kinds are counted together."""

MAX_REFUSALS = 100
"""Machines that were not let in, the last ones, that the head remembers."""

_MINUTE = 60.0

_log = logger("nodes")


class RefusalCount:
    """Counts refusals of one kind, and says which of them to tell of.

    Args:
        clock: The time in seconds.
        most: How many to tell of each minute.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most: int = LOGGED_REFUSALS
    ) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._begun = clock()
        self._recorded = self._left_out = 0

    def count(self) -> int | None:
        """Count one; return how many were left out before it, or None if it is to be left out."""
        with self._lock:
            now = self._clock()
            if now - self._begun >= _MINUTE:
                self._begun, self._recorded = now, 0
            if self._recorded >= self._most:
                self._left_out += 1
                return None
            self._recorded += 1
            left_out, self._left_out = self._left_out, 0
        return left_out

    @property
    def is_quiet(self) -> bool:
        """Whether none was logged for a minute."""
        return self._clock() - self._begun >= _MINUTE

    def take_over(self, other: RefusalCount) -> None:
        """Count what another one has left out."""
        with self._lock:
            self._left_out += other._left_out


class Refusals(RefusalCount):
    """Tells the log of peers that were not let in, not more often than is of use.

    Args:
        log: Told of one: its address and why, and how many were left out before.
        clock: The time in seconds.
    """

    def __init__(
        self,
        log: Callable[[str, str, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        self._log = log

    def __call__(self, address: str, reason: str) -> None:
        """Note one; from any thread."""
        left_out = self.count()
        if left_out is not None:
            self._log(address, reason, left_out)


class RefusalsByKind:
    """Counts refusals of several kinds, so that many of one do not hide another one.

    Args:
        clock: The time in seconds.
        most: How many of a kind to tell of each minute.

    Example:
        >>> refused = RefusalsByKind(lambda: 0.0)
        >>> [refused.count("a") for _ in range(LOGGED_REFUSALS + 1)][-2:], refused.count("b")
        ([0, None], 0)
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most: int = LOGGED_REFUSALS
    ) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, RefusalCount] = {}
        self._others = RefusalCount(clock, most)

    def count(self, kind: Hashable) -> int | None:
        """Count one; return how many of it were left out before, or None if it is to be left out.

        For a kind that shares a counter, all kinds of that counter are counted.
        """
        with self._lock:
            known = self._kinds.get(kind)
            if known is None and len(self._kinds) >= MAX_KINDS:
                self._forget_quiet()
            if known is None and len(self._kinds) < MAX_KINDS:
                known = self._kinds[kind] = RefusalCount(self._clock, self._most)
        return (known or self._others).count()

    def _forget_quiet(self) -> None:
        """Forget kinds without a log line for a minute; suppressed ones stay counted."""
        for kind, known in list(self._kinds.items()):
            if known.is_quiet:
                del self._kinds[kind]
                self._others.take_over(known)


class RefusedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A refused peer.

    Attributes:
        time: When, seconds since 1970.
        name: What it calls itself; empty if it did not come so far.
        address: Where it is; empty if that is not known.
        reason: Why.
        times: How often this machine was refused for this reason.
    """

    time: float
    name: str = ""
    address: str = ""
    reason: str
    times: int = 1


class RefusedMachines:
    """Those that were not let in: one entry for each machine and reason, the last ones.

    A machine that retries does not displace the reason of another machine.

    Args:
        limit: Entries that are kept.
    """

    def __init__(self, limit: int = MAX_REFUSALS) -> None:
        self._limit = limit
        self._found: dict[tuple[str, str, str], RefusedMachine] = {}

    def add(self, one: RefusedMachine) -> None:
        """Note one more."""
        key = (one.name, one.address.rpartition(":")[0], one.reason)
        before = self._found.pop(key, None)
        times = one.times if before is None else before.times + one.times
        self._found[key] = msgspec.structs.replace(one, times=times)
        while len(self._found) > self._limit:
            del self._found[next(iter(self._found))]

    def __iter__(self) -> Iterator[RefusedMachine]:
        return iter(list(self._found.values()))


def _log_refusal(address: str, reason: str, left_out: int) -> None:
    more = {"others": left_out} if left_out else {}
    _log.warning("peer refused", address=address, reason=reason, **more)


log_refusals = Refusals(_log_refusal)
