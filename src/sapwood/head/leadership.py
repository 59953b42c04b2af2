"""Which of several heads over one store serves: the one whose lease is on the key ``leader``.

Every head over a store keeps one lease alive there, and has its own entry ``heads/ID`` on it. The
head that also wrote ``leader`` on its lease serves; the others stand by. When that lease ends, the
key vanishes, and the first head that writes it again serves.

Two heads never serve at once. A head counts its lease from before it asked for it, so by its own
clock the lease ends no later than in the store; from then on it answers no call. And each write of
a head has the condition that ``leader`` is as that head wrote it.
"""

from __future__ import annotations

import contextlib
import enum
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from sapwood.core import typed
from sapwood.core.errors import (
    ConfigurationError,
    LeaseLostError,
    SapwoodError,
    StoreError,
)
from sapwood.core.failures import as_error, new_thread
from sapwood.environment.logs import logger
from sapwood.store.base import (
    MAX_PAGE,
    Delete,
    Page,
    Put,
    Store,
    StoreEntry,
    StoreWatch,
    Unchanged,
)
from sapwood.store.opening import open_store

LEASE = 3.0
"""Seconds after which a head that is silent has lost its lease; etcd takes no less than 2."""

RENEWAL = 0.5
"""Seconds between two renewals of the lease."""

MEMBER_PATIENCE = 0.7
"""Seconds that one member of etcd gets to renew the lease, before the next one is asked: two of
them may be silent, and the lease lives still."""

LOOK = 0.2
"""Seconds between two looks of a head that stands by."""

LEADER = "leader"
"""The key of the head that serves."""

_HEADS = "heads/"
_NAME = "name"
_ENDED = "ended"

_log = logger("head")


class HeadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a head says of itself in the store.

    Attributes:
        host: The machine, as it calls itself.
        pid: Its process.
        addresses: Where it is reached when it serves, ``host:port`` each.
    """

    host: str
    pid: int
    addresses: list[str] = msgspec.field(name="places")

    @classmethod
    def here(cls, addresses: Sequence[str]) -> HeadEntry:
        """Return the identity of this process."""
        return cls(host=socket.gethostname(), pid=os.getpid(), addresses=list(addresses))


_read: Callable[[bytes], HeadEntry] = typed.unpacker(HeadEntry)


class Outcome(enum.Enum):
    """The outcome of standing by."""

    SERVES = "it serves from now on"
    ENDED = "the cluster was ended"
    STOPPED = "it was stopped"


def lease_time() -> float:
    """Return the clock of leases, seconds; it runs while a machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """One head among those over a store; for any thread.

    Args:
        address: Of the store.
        name: What the user calls the cluster.
        entry: What this head says of itself.
        clock: The time of leases, seconds.

    Raises:
        ConfigurationError: The address is none, or the store is another cluster's.
        StoreError: The store cannot be used, or holds something else.
    """

    def __init__(
        self,
        address: str,
        name: str,
        entry: HeadEntry,
        clock: Callable[[], float] = lease_time,
    ) -> None:
        self.address = address
        self.entry = entry
        self._clock = clock
        self._id = secrets.token_hex(8)
        self._lease = 0
        self._until = 0.0
        self._leads = 0  # the revision at which this head wrote the leader's key
        self._registered = 0
        self._others: list[str] = []
        self._closing = threading.Event()
        self._changed: Callable[[], None] = _nothing
        self._thread: threading.Thread | None = None
        self._store = open_store(address, MEMBER_PATIENCE)
        try:
            self._check_name(name)
            self._register()
        except BaseException:
            self._store.close()
            raise

    def _check_name(self, name: str) -> None:
        """See that the store is this cluster's."""
        entry = self._store.get(_NAME)
        if entry is None:
            if self._store.range("", limit=1).entries:
                raise StoreError(
                    "the store of the head holds something that is not a cluster's",
                    where=self._store.url,
                    hint="give the cluster a separate prefix: etcd://HOST:PORT/PREFIX",
                )
            self._store.compare_and_set(_NAME, name.encode(), 0)
            entry = self._store.get(_NAME)
        found = "" if entry is None else entry.value.decode(errors="replace")
        if found != name:
            raise ConfigurationError(
                f"this store belongs to the cluster '{found}', not to '{name}'",
                where=self._store.url,
                hint=f"use --cluster {found}, or give '{name}' a separate prefix: "
                "etcd://HOST:PORT/PREFIX",
            )

    def _register(self) -> None:
        """Get a lease, and have the own entry on it."""
        asked = self._clock()
        self._lease = self._store.grant(LEASE)
        value = msgspec.msgpack.encode(self.entry)
        self._registered = self._store.put(_HEADS + self._id, value, lease=self._lease)
        self._until = asked + LEASE

    # --- standing by ---------------------------------------------------------------------------

    def stand_by(self, waits: Callable[[str], None], stopped: Callable[[float], bool]) -> Outcome:
        """Wait until this head serves.

        Args:
            waits: Told once where another head serves, if one does.
            stopped: Waits so many seconds, and says whether to stop.

        Raises:
            StoreError: The store refuses; that it is away for now is no reason.
        """
        self._leads = 0
        begun, notified, renewed = self._registered, False, self._clock()
        has_lease = True
        while True:
            try:
                if not has_lease:
                    self._register()
                    has_lease = True
                if self._is_ended(begun):
                    return Outcome.ENDED
                if self._clock() - renewed >= RENEWAL:
                    self._renew()
                    renewed = self._clock()
                leader = self._store.get(LEADER)
                if self._wins(leader):
                    self._begin_renewals()
                    return Outcome.SERVES
                if leader is not None and not notified:
                    notified = True
                    waits(_described(leader))
            except LeaseLostError:
                has_lease = False
            except StoreError as error:
                _log.warning("store away", reason=str(error))
            if stopped(LOOK):
                return Outcome.STOPPED

    def _wins(self, leader: StoreEntry | None) -> bool:
        """Try to become the head that serves, if no other head is.

        A key that is on this head's own lease is written again: this head served before, and its
        lease outlived the time that it counted, because the store lost most of its members, or
        the answer to its write was lost. No other head can take that key, because this head keeps
        the lease alive. The new revision invalidates writes of the former time that are on their
        way.

        Args:
            leader: The key as it was found.
        """
        if leader is not None and leader.lease != self._lease:
            return False
        former = 0 if leader is None else leader.modified
        value = msgspec.msgpack.encode(self.entry)
        self._renew()  # the whole time is left
        with contextlib.suppress(StoreError):  # whether it was done is seen below
            self._store.compare_and_set(LEADER, value, former, lease=self._lease)
        found = self._store.get(LEADER)
        if found is None or found.lease != self._lease or found.modified == former:
            return False
        self._leads = found.modified
        return True

    def _is_ended(self, begun: int) -> bool:
        found = self._store.get(_ENDED)
        return found is not None and found.modified > begun

    # --- serving -------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether this head may answer: its lease lives for certain."""
        return bool(self._leads) and self._clock() < self._until

    @property
    def seconds_left(self) -> float:
        """Seconds for which this head may serve without another renewal."""
        return self._until - self._clock() if self._leads else 0.0

    @property
    def is_late(self) -> bool:
        """Whether the last renewal is due for long."""
        return self.seconds_left < LEASE - 3 * RENEWAL

    @property
    def others(self) -> list[str]:
        """Where the heads are reached that stand by, ``host:port`` each."""
        return self._others

    @property
    def mark(self) -> Unchanged:
        """The condition that this head serves."""
        return Unchanged(LEADER, self._leads or -1)

    def when_heads_change(self, function: Callable[[], None]) -> None:
        """Have a function called when another head comes or goes; on a thread of this."""
        self._changed = function

    def lose(self) -> None:
        """Serve no more: another head may."""
        self._leads = 0

    def _lose(self, leads: int) -> None:
        if self._leads == leads:
            self.lose()

    def end_cluster(self) -> None:
        """End the heads that stand by."""
        self._store.transact([Put(_ENDED, b"")], when=[self.mark])

    def _begin_renewals(self) -> None:
        self._look_at_others()
        self._thread = new_thread("sapwood-lease", self._keep, self._leads)
        self._thread.start()

    def _keep(self, leads: int) -> None:
        """Renew the lease as long as this head serves; on a separate thread.

        Args:
            leads: The revision since which it does; it may lose its lease and serve again later.
        """
        while not self._closing.wait(RENEWAL) and self._leads == leads:
            try:
                self._renew()
                leader = self._store.get(LEADER)
                if leader is None or leader.modified != leads:  # it was deleted
                    self._lose(leads)
                self._look_at_others()
            except LeaseLostError:
                self._lose(leads)
            except Exception as error:  # noqa: BLE001 - it is tried again while the lease lasts
                reason = as_error(error).what
                _log.warning("lease not renewed", left=self.seconds_left, reason=reason)

    def _renew(self) -> None:
        asked = self._clock()
        self._store.keep_alive(self._lease)
        self._until = asked + LEASE

    def _look_at_others(self) -> None:
        found: list[str] = []
        for entry in self._store.range(_HEADS).entries:
            if entry.key != _HEADS + self._id:
                with contextlib.suppress(msgspec.MsgspecError):
                    found += _read(entry.value).addresses
        if found != self._others:
            self._others = found
            self._changed()

    def close(self) -> None:
        """Give the lease back: a head that stands by serves at once."""
        self._closing.set()
        self.lose()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(SapwoodError):
            self._store.revoke(self._lease)
        self._store.close()


class LeaderStore(Store):
    """A store that writes only while its head serves.

    Args:
        store: The store.
        leadership: Says whether it does.
    """

    def __init__(self, store: Store, leadership: Leadership) -> None:
        self._store = store
        self._leadership = leadership
        self.url = store.url

    def get(self, key: str) -> StoreEntry | None:
        """Return the entry of a key; None if it is not there."""
        return self._store.get(key)

    def range(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        """Return the entries whose keys begin with ``prefix``, one page of them."""
        return self._store.range(prefix, after=after, limit=limit)

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        """Make all changes at once if all conditions hold and the head serves, else none."""
        mark = self._leadership.mark
        if self._leadership.serves:
            done = self._store.transact(changes, when=[*when, mark])
            if done is not None:
                return done
            found = self._store.get(LEADER)
            if found is not None and found.modified == mark.revision:
                return None  # another condition does not hold
            self._leadership.lose()
        raise LeaseLostError(
            "this head has lost its lease: another one may serve, and nothing was written",
            where=self.url,
            hint="try again: you are led to the head that serves",
        )

    def watch(self, prefix: str, *, after: int | None = None) -> StoreWatch:
        """Return the changes of keys that begin with ``prefix``."""
        return self._store.watch(prefix, after=after)

    def grant(self, seconds: float) -> int:
        """Return a new lease."""
        return self._store.grant(seconds)

    def keep_alive(self, lease: int) -> None:
        """Renew a lease for its whole time."""
        self._store.keep_alive(lease)

    def revoke(self, lease: int) -> None:
        """End a lease now."""
        self._store.revoke(lease)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def _described(leader: StoreEntry) -> str:
    """Return where the head is that serves."""
    try:
        found = _read(leader.value)
    except msgspec.MsgspecError:
        return "another head"
    return f"process {found.pid} on {found.host}, {', '.join(found.addresses)}"


def _nothing() -> None:
    pass
