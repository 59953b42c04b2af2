"""The store of several heads: etcd, through the JSON gateway of its members.

Keys lie below ``/NAME/``. A transaction is done once although it may be sent to several members: a
key of this writer below ``/NAME!writers/`` holds the number of its last transaction, each
transaction requires the number before and writes its own, so whichever copy comes second is
refused. The writer's key is bound to a lease, and goes with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import secrets
import threading
from collections.abc import Sequence
from typing import Any, Final

from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import (
    ClosedError,
    LeaseLostError,
    ResourceError,
    SapwoodError,
    StoreError,
    StoreUnavailableError,
)
from sapwood.store.base import (
    MAX_PAGE,
    MAX_PAGE_BYTES,
    MAX_WATCHES,
    Delete,
    Page,
    Put,
    Store,
    StoreEntry,
    StoreWatch,
    Unchanged,
    check_lease_time,
    check_limit,
    check_transaction,
    key_bytes,
    prefix_bytes,
    prefix_end,
)
from sapwood.store.etcd_calls import (
    MEMBER_TIME,
    EtcdAddress,
    EtcdAnswer,
    GrantAnswer,
    KeepAliveAnswer,
    KeyValue,
    Members,
    RangeAnswer,
    RevokeAnswer,
    TooLargeError,
    TransactionAnswer,
    already_there,
    text_of,
)
from sapwood.store.etcd_watch import EtcdWatch

WRITER_TIME: Final = 3600
"""Seconds that the key of a writer stays after its process has died."""

_RENEW: Final = WRITER_TIME / 3

_FEWER: Final = 8
"""By how much a page is cut when its answer is too long."""


@dataclasses.dataclass(slots=True)
class _Writer:
    """Who writes, and how far it is.

    Attributes:
        key: Its key.
        lease: Its lease.
        renewed: When that was kept alive last, seconds.
        number: Of the last transaction.
        mark: Value of its key after that.
        spoilt: Whether what was sent last may still be done.
    """

    key: bytes
    lease: int
    renewed: float
    number: int = 0
    mark: bytes = b"0"
    spoilt: bool = False


class EtcdStore(Store):
    """A store in etcd, 3.4 or newer, which several processes may use at once.

    Calls go to the next member when one does not answer in time, and fail after
    :data:`~sapwood.store.etcd_calls.CALL_TIME`. Transactions of one store object are done one
    after the other. Each watch has a thread.

    Args:
        address: Where it is.
        patience: Seconds that one member gets to answer.

    Raises:
        ConfigurationError: The files of TLS cannot be used.
        StoreUnavailableError: No member answers.
        StoreError: The server is not etcd, or too old.
    """

    def __init__(self, address: EtcdAddress, patience: float = MEMBER_TIME) -> None:
        self.url = str(address)
        self._members = Members(address, patience)
        self._base = f"/{address.name}/".encode()
        self._writers = f"/{address.name}!writers/".encode()
        self._writing = threading.Lock()
        self._writer: _Writer | None = None
        self._guard = threading.Lock()
        self._watches: set[EtcdWatch] = set()
        self._closed = False
        try:
            self._members.check_version()
        except BaseException:
            self._members.close()
            raise

    def _call(self, path: str, body: dict[str, Any]) -> EtcdAnswer:
        if self._closed:
            raise ClosedError("the store is closed", where=self.url)
        return self._members.call(path, body)

    # --- reading ---------------------------------------------------------------------------

    def get(self, key: str) -> StoreEntry | None:
        """Return the entry of a key; None if it is not there."""
        full = self._base + key_bytes(key)
        found = self._call("/v3/kv/range", {"key": text_of(full)}).read(RangeAnswer).kvs
        return self._entry(found[0]) if found else None

    def range(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        """Return the entries whose keys begin with ``prefix``, one page of them."""
        check_limit(limit)
        start = self._base + prefix_bytes(prefix)
        behind = self._base + prefix_bytes(after) + b"\0" if after else b""
        end = prefix_end(start)
        request: dict[str, Any] = {"key": text_of(max(start, behind)), "range_end": text_of(end)}
        if behind >= end:  # nothing; etcd takes no range that ends before it begins
            request = {"key": text_of(start), "count_only": True}
        while True:
            try:
                answer = self._call("/v3/kv/range", request | {"limit": limit}).read(RangeAnswer)
                break
            except TooLargeError:
                limit = max(limit // _FEWER, 1)
        entries: list[StoreEntry] = []
        size = 0
        for found in answer.kvs:
            size += len(found.key) + len(found.value)
            if entries and size > MAX_PAGE_BYTES:
                return Page(tuple(entries), answer.header.revision, more=True)
            entries.append(self._entry(found))
        return Page(tuple(entries), answer.header.revision, more=answer.more)

    def _entry(self, found: KeyValue) -> StoreEntry:
        key = found.key[len(self._base) :].decode(errors="replace")
        return StoreEntry(key, found.value, found.create_revision, found.mod_revision, found.lease)

    # --- writing ---------------------------------------------------------------------------

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        """Make all changes at once if all conditions hold, else none of them."""
        check_transaction(changes, when)
        compare = [
            {
                "key": text_of(self._base + key_bytes(condition.key)),
                "target": "MOD",
                "mod_revision": condition.revision,
            }
            for condition in when
        ]
        success = [self._step(change) for change in changes]
        with self._writing:
            while True:
                writer = self._ready_writer()
                try:
                    writer.number += 1
                    mark = b"%d" % writer.number
                    outcome = self._outcome(
                        writer, mark, self._send(writer, mark, compare, success)
                    )
                except LeaseLostError:
                    if self._alive(writer.lease):
                        raise  # it was the caller's
                    self._writer = None
                    continue
                except SapwoodError:
                    writer.spoilt = True
                    raise
                if outcome is not False:
                    return outcome
                self._writer = None

    def _step(self, change: Put | Delete) -> dict[str, Any]:
        key = text_of(self._base + key_bytes(change.key))
        if isinstance(change, Delete):
            return {"request_delete_range": {"key": key}}
        put = {"key": key, "value": text_of(change.value), "lease": change.lease}
        return {"request_put": put}

    def _send(
        self,
        writer: _Writer,
        mark: bytes,
        compare: Sequence[dict[str, Any]] = (),
        success: Sequence[dict[str, Any]] = (),
    ) -> EtcdAnswer:
        """Send a transaction that requires the writer's mark, and sets it to another."""
        key = text_of(writer.key)
        put = {"key": key, "value": text_of(mark), "ignore_lease": True}
        body = {
            "compare": [*compare, {"key": key, "target": "VALUE", "value": text_of(writer.mark)}],
            "success": [*success, {"request_put": put}],
            "failure": [{"request_range": {"key": key}}],
        }
        return self._call("/v3/kv/txn", body)

    def _outcome(self, writer: _Writer, mark: bytes, answer: EtcdAnswer) -> int | bool | None:
        """Return the revision of what was sent, None if a condition failed; False: send it again.

        Raises:
            StoreUnavailableError: It cannot be known.
        """
        told = answer.read(TransactionAnswer)
        if told.succeeded:
            writer.mark = mark
            return told.header.revision
        found = self._mark(told)
        if found is None:
            if not answer.repeated:
                return False
            raise StoreUnavailableError(
                "the store lost its writer's key while it wrote",
                where=self.url,
                hint="read whether the transaction was done",
            )
        if found.value == mark:  # a copy came first
            writer.mark = mark
            return found.mod_revision
        if not answer.repeated:
            return None
        # A copy may still be on its way, and its conditions may hold by then: take its place.
        unused = mark + b" unused"
        told = self._send(writer, unused).read(TransactionAnswer)
        found = self._mark(told)
        writer.mark = mark if found and found.value == mark else unused
        return found.mod_revision if found and found.value == mark else None

    @staticmethod
    def _mark(told: TransactionAnswer) -> KeyValue | None:
        for step in told.responses:
            if step.response_range and step.response_range.kvs:
                return step.response_range.kvs[0]
        return None

    def _ready_writer(self) -> _Writer:
        """Return a writer whose key is there."""
        now = MonotonicClock().now()
        writer = self._writer
        if writer and writer.spoilt:
            self.revoke(writer.lease)  # now nothing of it can be done any more
            writer = None
        if writer and now - writer.renewed > _RENEW:
            if self._alive(writer.lease):
                writer.renewed = now
            else:
                writer = None
        if writer is None:
            lease = self._grant(WRITER_TIME)
            writer = _Writer(self._writers + secrets.token_hex(8).encode(), lease, now)
            put = {"key": text_of(writer.key), "value": text_of(b"0"), "lease": lease}
            self._call("/v3/kv/put", put)
        self._writer = writer
        return writer

    # --- leases ----------------------------------------------------------------------------

    def grant(self, seconds: float) -> int:
        """Return a new lease, a positive number."""
        check_lease_time(seconds)
        return self._grant(math.ceil(seconds))

    def _grant(self, seconds: int) -> int:
        number = secrets.randbelow(2**63 - 1) + 1  # ours, so that asking twice grants one
        try:
            self._call("/v3/lease/grant", {"ID": number, "TTL": seconds}).read(GrantAnswer)
        except StoreError as error:
            if not already_there(error):
                raise
        return number

    def keep_alive(self, lease: int) -> None:
        """Renew a lease for its whole time."""
        if not self._alive(lease):
            raise LeaseLostError(
                f"the lease {lease} of the store is over",
                where=self.url,
                hint="grant another one and write its keys again",
            )

    def _alive(self, lease: int) -> bool:
        answer = self._call("/v3/lease/keepalive", {"ID": lease})
        return answer.read(KeepAliveAnswer).result.TTL > 0

    def revoke(self, lease: int) -> None:
        """End a lease now: its keys vanish in one revision. One that is gone stays so."""
        with contextlib.suppress(LeaseLostError):
            self._call("/v3/lease/revoke", {"ID": lease}).read(RevokeAnswer)

    # --- watches ---------------------------------------------------------------------------

    def watch(self, prefix: str, *, after: int | None = None) -> StoreWatch:
        """Return the changes of keys that begin with ``prefix``."""
        start = prefix_bytes(prefix)
        if after is None:
            after = self.range(prefix, limit=1).revision
        with self._guard:
            if self._closed:
                raise ClosedError("the store is closed", where=self.url)
            if len(self._watches) >= MAX_WATCHES:
                raise ResourceError(
                    f"{MAX_WATCHES} watches of the store are open",
                    where=self.url,
                    hint="close the watches that are not read",
                )
            watch = EtcdWatch(self._members, self._base, start, after, self._end_watch)
            self._watches.add(watch)
            return watch

    def _end_watch(self, watch: EtcdWatch) -> None:
        with self._guard:
            self._watches.discard(watch)

    def forget(self, revision: int) -> None:
        """Compact etcd's history up to a revision, including its other users' history."""
        self._call("/v3/kv/compaction", {"revision": revision})

    def close(self) -> None:
        """Let go of the store and end its watches; closing it twice does nothing."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._members.closing.set()
            watches = list(self._watches)
        for watch in watches:
            watch.close()
        with self._writing:
            if self._writer:  # without an answer, its lease expires
                self._members.once("/v3/lease/revoke", {"ID": self._writer.lease})
        self._members.close()
