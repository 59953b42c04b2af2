"""What a store is: keys with values and revisions, leases that clear them, and watches.

A store has one *revision*, a number that grows with each transaction that changes something. Each
key knows the revision that created it and the one that wrote it last. So a writer can say "only
if it is unchanged since", and a reader can ask for later changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

import msgspec

from sapwood.core.errors import ClosedError, InputError, StoreError

T = TypeVar("T")

MAX_KEY = 512
"""Bytes of a key in UTF-8."""

MAX_VALUE = 2**20
"""Bytes of a value."""

MAX_CHANGES = 100
"""Keys that one transaction writes or deletes, and conditions that it has."""

MAX_TRANSACTION = MAX_VALUE + 2**18
"""Bytes of all keys and values of one transaction; etcd takes 1.5 MiB with all that is around."""

MAX_PAGE = 512
"""Entries of a page."""

MAX_PAGE_BYTES = 8 * 2**20
"""Bytes of keys and values of a page, unless its first entry alone has more."""

MAX_WATCHES = 256
"""Watches that are open at once."""

MAX_LEASES = 65_536
"""Leases that live at once."""

MIN_LEASE = 1.0
"""Seconds of the shortest lease; a store may make it longer."""

MAX_LEASE = 7 * 86_400.0
"""Seconds of the longest lease."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoreEntry:
    """A key and what is known of it.

    Attributes:
        key: The key.
        value: Its value.
        created: Revision that made the key.
        modified: Revision that wrote it last.
        lease: The lease that it vanishes with; 0 for none.
    """

    key: str
    value: bytes
    created: int
    modified: int
    lease: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A part of the entries below a prefix, in the order of their keys' bytes.

    Attributes:
        entries: The entries.
        revision: Revision of the store when they were read.
        more: Whether there are keys after the last of these.
    """

    entries: tuple[StoreEntry, ...]
    revision: int
    more: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StoreEvent:
    """What became of one key.

    Attributes:
        key: The key.
        entry: The entry as written; None where the key was deleted or its lease ended.
    """

    key: str
    entry: StoreEntry | None


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """All that one revision did to the keys of a watch.

    Attributes:
        revision: The revision. A watch after it continues behind this change.
        events: What became of keys, each key once, in the order of the keys' bytes.
    """

    revision: int
    events: tuple[StoreEvent, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Put:
    """Write a key.

    Attributes:
        key: The key.
        value: Its new value.
        lease: The lease that it vanishes with; 0 takes it off any lease.
    """

    key: str
    value: bytes
    lease: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key; one that is not there stays so.

    Attributes:
        key: The key.
    """

    key: str


@dataclasses.dataclass(frozen=True, slots=True)
class Unchanged:
    """The condition that a key was last written by a given revision.

    Attributes:
        key: The key.
        revision: The revision; 0 for a key that is not there.
    """

    key: str
    revision: int


class StoreWatch(Protocol):
    """The changes below a prefix, one after the other, none left out and none twice.

    Watches derive from this class and write :meth:`next` and :meth:`close`.

    One thread takes changes; any thread may close. A watch that is not read keeps a bounded
    number of changes, or none; if the store drops them meanwhile, the reader gets an error.
    Iterating over a watch waits for each change, and ends when the watch or its store is closed.
    """

    def next(self, timeout: float | None = None) -> Change | None:
        """Return the next change, or None if none came within ``timeout`` seconds.

        Raises:
            ClosedError: The watch or its store is closed.
            HistoryGoneError: The store keeps the next change no more.
            StoreError: The store cannot be read.
        """

    def __iter__(self) -> Iterator[Change]:
        """Return the changes until the watch is closed."""
        with contextlib.suppress(ClosedError):
            while True:
                change = self.next()
                if change is not None:
                    yield change

    def close(self) -> None:
        """End the watch; closing it twice does nothing."""

    def __enter__(self) -> Self:
        """Return the watch, which the block's end closes."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the watch."""
        self.close()


class Store(Protocol):
    """What a head keeps. Stores derive from this class and write what is abstract.

    Every call blocks until it is done, may come from any thread, and fails after a bounded time.
    What a call has acknowledged is on stable storage. Reads see every write that was acknowledged
    before they began.

    All methods raise :class:`~sapwood.core.errors.ClosedError` once the store is closed,
    :class:`~sapwood.core.errors.InputError` for what is longer than the constants of this module
    allow, and :class:`~sapwood.core.errors.StoreError` or one of its kinds if the store fails.

    Attributes:
        url: URL of the store, without secrets.
    """

    url: str

    @abstractmethod
    def get(self, key: str) -> StoreEntry | None:
        """Return the entry of a key; None if it is not there."""

    @abstractmethod
    def range(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        """Return the entries whose keys begin with ``prefix``, one page of them.

        Args:
            prefix: How the keys begin; an empty one means all keys.
            after: Only keys behind this one: the last key of the page before.
            limit: At most so many. A page may have fewer and still say that there are more.
        """

    @abstractmethod
    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        """Make all changes at once if all conditions hold, else none of them.

        Args:
            changes: What to write and delete, each key once.
            when: The conditions.

        Returns:
            The revision of the store afterwards, which all keys written here have; None if a
            condition does not hold.

        Raises:
            LeaseLostError: A lease that a key was to be bound to is gone; nothing was done.
            StoreFullError: There is no room; nothing was done.
        """

    @abstractmethod
    def watch(self, prefix: str, *, after: int | None = None) -> StoreWatch:
        """Return the changes of keys that begin with ``prefix``.

        To resume, give the revision of the last change that was dealt with. To begin with what is
        there, read it by :meth:`range` and watch after the revision of the first page.

        Args:
            prefix: How the keys begin; an empty one means all keys.
            after: Changes behind this revision; None for those that come from now on.

        Raises:
            HistoryGoneError: Changes behind ``after`` are kept no more. Stores may tell this here
                or at the first change.
        """

    @abstractmethod
    def grant(self, seconds: float) -> int:
        """Return a new lease, a positive number.

        Unless it is kept alive it expires after ``seconds``, rounded up to what the store can do.
        Then its keys vanish in one revision. A store that is opened again, or that lost its
        leader, gives each lease its whole time again.
        """

    @abstractmethod
    def keep_alive(self, lease: int) -> None:
        """Renew a lease for its whole time.

        Raises:
            LeaseLostError: It has expired or was revoked.
        """

    @abstractmethod
    def revoke(self, lease: int) -> None:
        """End a lease now: its keys vanish in one revision. One that is gone stays so."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store and end its watches; closing it twice does nothing.

        Keys, and leases that live, remain.
        """

    def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Write a key, and return the revision that did it.

        Raises:
            LeaseLostError: The lease is gone; nothing was done.
            StoreFullError: There is no room; nothing was done.
        """
        return _surely(self.transact([Put(key, value, lease)]))

    def compare_and_set(
        self, key: str, value: bytes, revision: int, *, lease: int = 0
    ) -> int | None:
        """Write a key if ``revision`` was the last to write it; 0 if the key is not there.

        Returns:
            The revision that wrote it; None if another had written it before.

        Raises:
            LeaseLostError: The lease is gone; nothing was done.
            StoreFullError: There is no room; nothing was done.
        """
        return self.transact([Put(key, value, lease)], when=[Unchanged(key, revision)])

    def delete(self, key: str, *, revision: int | None = None) -> bool:
        """Delete a key, and return whether this call did it.

        Args:
            key: The key.
            revision: Only if this revision was the last to write it.
        """
        while True:
            known = revision
            if known is None:
                entry = self.get(key)
                known = entry.modified if entry else 0
            if known == 0:
                return False
            if self.transact([Delete(key)], when=[Unchanged(key, known)]) is not None:
                return True
            if revision is not None:
                return False

    def entries(self, prefix: str) -> Iterator[StoreEntry]:
        """Return all entries whose keys begin with ``prefix``, page after page.

        Each page is of one moment, several pages are not.
        """
        after = ""
        while True:
            page = self.range(prefix, after=after)
            yield from page.entries
            if not page.more:
                return
            after = page.entries[-1].key

    def decoded(self, prefix: str, read: Callable[[bytes], T]) -> Iterator[T]:
        """Return the values of all entries whose keys begin with ``prefix``.

        Args:
            prefix: How the keys begin.
            read: Decodes a value.

        Raises:
            StoreError: A value is not what ``read`` expects.
        """
        for entry in list(self.entries(prefix)):
            try:
                value = read(entry.value)
            except msgspec.MsgspecError as error:
                raise StoreError(
                    f"the cluster's entry '{entry.key}' cannot be read: {error}", where=self.url
                ) from error
            yield value

    def __enter__(self) -> Self:
        """Return the store, which the block's end closes."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()


def _surely(revision: int | None) -> int:
    if revision is None:
        raise AssertionError("a transaction without conditions was refused by one")
    return revision


def key_bytes(key: str) -> bytes:
    """Return a key as the bytes that are stored and compared.

    Raises:
        InputError: The key is empty, too long, no text or has control characters.

    Example:
        >>> key_bytes("nodes/n1")
        b'nodes/n1'
    """
    if not key:
        raise InputError("a key of a store is empty", hint="give it a name, such as nodes/n1")
    return prefix_bytes(key)


def prefix_bytes(prefix: str) -> bytes:
    """Return how keys begin, as bytes; it may be empty.

    Raises:
        InputError: It is too long, no text or has control characters.
    """
    try:
        encoded = prefix.encode()
    except UnicodeEncodeError:
        raise InputError(f"the key {prefix[:MAX_KEY]!a} of a store is not text") from None
    if len(encoded) > MAX_KEY:
        raise InputError(
            f"a key of a store has {len(encoded)} bytes",
            where=f"{prefix[:40]}…",
            hint=f"keys have at most {MAX_KEY} bytes",
        )
    if any(byte < 0x20 or byte == 0x7F for byte in encoded):
        raise InputError(f"the key {prefix!a} of a store has control characters")
    return encoded


def prefix_end(prefix: bytes) -> bytes:
    r"""Return the first bytes behind all that begin with a prefix of UTF-8.

    Example:
        >>> prefix_end(b"nodes/"), prefix_end(b"")
        (b'nodes0', b'\xff')
    """
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"


def check_transaction(changes: Sequence[Put | Delete], when: Sequence[Unchanged]) -> None:
    """Refuse a transaction that no store takes.

    Raises:
        InputError: A key is written twice, or something is too long or too many.
    """
    if not changes:
        raise InputError("a transaction of a store changes nothing", hint="use get to read")
    if len(changes) > MAX_CHANGES or len(when) > MAX_CHANGES:
        raise InputError(
            f"a transaction of a store has {len(changes)} changes and {len(when)} conditions",
            hint=f"it has at most {MAX_CHANGES} of each",
        )
    seen: set[str] = set()
    total = sum(len(key_bytes(condition.key)) for condition in when)
    for change in changes:
        if change.key in seen:
            raise InputError("a transaction of a store changes one key twice", where=change.key)
        seen.add(change.key)
        total += len(key_bytes(change.key))
        if isinstance(change, Put):
            if len(change.value) > MAX_VALUE:
                raise InputError(
                    f"a value of a store has {len(change.value)} bytes",
                    where=change.key,
                    hint=f"values have at most {MAX_VALUE} bytes",
                )
            total += len(change.value)
    if total > MAX_TRANSACTION:
        raise InputError(
            f"a transaction of a store has {total} bytes of keys and values",
            hint=f"it has at most {MAX_TRANSACTION}",
        )


def check_limit(limit: int) -> None:
    """Refuse a page of no entries or of too many.

    Raises:
        InputError: The number is none of 1 to :data:`MAX_PAGE`.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InputError(f"a page cannot have {limit} entries", hint=f"a page has 1 to {MAX_PAGE}")


def check_lease_time(seconds: float) -> None:
    """Refuse a lease that is too short or too long.

    Raises:
        InputError: The time is not between :data:`MIN_LEASE` and :data:`MAX_LEASE`.
    """
    if not MIN_LEASE <= seconds <= MAX_LEASE:
        raise InputError(
            f"a lease of {seconds} s", hint=f"a lease has {MIN_LEASE:.0f} to {MAX_LEASE:.0f} s"
        )
