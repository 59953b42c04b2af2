"""A dataset that stays split on the agents from one run to the next."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import Self

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.offered_content import OfferedContent
from sapwood.core.errors import ClosedError
from sapwood.core.failures import start_thread
from sapwood.data.column import Array
from sapwood.data.dataset import Dataset
from sapwood.data.publish import Published
from sapwood.data.slice import SliceRef
from sapwood.data.stored_dataset import StoredDataset
from sapwood.session.interface import SessionInterface


class PersistentDataset(Dataset):
    """Data that agents keep until :meth:`release`; made by :meth:`sapwood.Cluster.persist`.

    It is a dataset: give it to ``cluster.run`` as ``data``. As a context manager it is released at
    the end of the block, and when nothing refers to it any more.

    Args:
        session: Whose agents keep it.
        data: What they keep.
        copy: Whether the caller may change its arrays once this is made.
    """

    __slots__ = ("__weakref__", "_data", "_data_of_caller", "_finalizer", "_kept")

    def __init__(
        self,
        session: SessionInterface,
        data: Dataset,
        kept: _Kept | None = None,
        *,
        copy: bool = False,
    ) -> None:
        self._kept = _Kept(session) if kept is None else kept
        if isinstance(data, StoredDataset):
            stored = msgspec.structs.replace(data.stored, handle=self._kept.handle)
            data = StoredDataset(stored, origin=data.origin, meta=data.meta, named=data.named)
        super().__init__({}, items=data.items, origin=data.origin, meta=data.meta, named=data.named)
        self._data_of_caller = data
        self._data = data.taken() if copy else data
        if kept is None:
            self._finalizer = weakref.finalize(self, self._kept.release_later)
            self._finalizer.atexit = False

    def release(self) -> None:
        """Make the agents drop the data; an active run over them keeps them to its end."""
        self._kept.release()
        self._data = self._data_of_caller  # the copy is not needed any more

    @property
    def released(self) -> bool:
        """Whether it was released."""
        return self._kept.released

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    # --- what a dataset is ---------------------------------------------------------------------

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return self._data.fields

    @property
    def nbytes(self) -> int:
        """Size of all arrays, bytes."""
        return self._data.nbytes

    @property
    def hashed_bytes(self) -> int:
        """Bytes that :meth:`fingerprint` reads."""
        return self._data.hashed_bytes

    def array(self, name: str) -> Array:
        """Return a field; of files it is read here."""
        return self._data.array(name)

    def prototype(self, name: str) -> Array:
        """Return an array that has the type and shape of a field, if not its values."""
        return self._data.prototype(name)

    def rows(self, start: int, stop: int, fields: Sequence[str] | None = None) -> dict[str, Array]:
        """Return some rows of fields; of files they are read here."""
        return self._data.rows(start, stop, fields)

    def sample(self, count: int, seed: int) -> dict[str, Array]:
        """Draw different items at random; the same seed draws the same items."""
        return self._data.sample(count, seed)

    def split(self, parts: int, chunk: int | None = None) -> list[range]:
        """Return which items each agent gets."""
        return self._data.split(parts, chunk)

    def fingerprint(self) -> str:
        """Return a text that other data do not have."""
        return self._data.fingerprint()

    def require_finite(self, fields: Sequence[str] | None = None) -> None:
        """Check that no value is NaN or infinite."""
        self._data.require_finite(fields)

    def renamed(self, name: str) -> Dataset:
        """Return the same data with their one field renamed; they are released together."""
        renamed = self._data.renamed(name)
        if renamed is self._data:
            return self
        found = PersistentDataset(self._kept.session, renamed, self._kept)
        self._kept.keep_alive(found, self)
        return found

    def taken(self, fields: Sequence[str] | None = None) -> Dataset:
        """Return this dataset: its arrays were copied when it was made."""
        _ = fields
        return self

    def published_for(self, fields: Sequence[str] | None, *, finite: bool) -> Published:
        """Make the data visible to agents until they are released."""
        return self._kept.published(self._data, fields, finite=finite)

    def publish(self, fields: Sequence[str] | None = None) -> Published:
        """Make the data visible to agents until they are released."""
        return self.published_for(fields, finite=False)

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def _describe(self) -> list[tuple[str, str, str]]:
        return self._data._describe()  # noqa: SLF001 - it is one of the same family

    def __repr__(self) -> str:
        state = "released" if self.released else "kept by agents"
        return f"<PersistentDataset {self.length} items, {state}, from {self.origin}>"


class _Kept:
    """The retained parts of a persistent dataset, in the client and in agents."""

    def __init__(self, session: SessionInterface) -> None:
        self.session = session
        self.handle = secrets.token_hex(8)
        self.released = False
        self._lock = threading.Lock()
        self._published: dict[tuple[tuple[str, ...], bool], Published] = {}
        self._finite: set[tuple[str, ...]] = set()
        self._offered = OfferedContent(session)
        self._offers: set[tuple[int, int, tuple[str, ...]]] = set()
        self._owners: weakref.WeakKeyDictionary[PersistentDataset, PersistentDataset] = (
            weakref.WeakKeyDictionary()
        )

    def keep_alive(self, user: PersistentDataset, owner: PersistentDataset) -> None:
        """Have a dataset live as long as another one that shares what is kept."""
        self._owners[user] = owner

    def published(self, data: Dataset, fields: Sequence[str] | None, *, finite: bool) -> Published:
        """Publish fields, or return how they were published before.

        Raises:
            ClosedError: The data were released.
        """
        later = finite and isinstance(data, StoredDataset)  # agents look as they read
        key = (data._names(fields), later)  # noqa: SLF001 - it is one of the same family
        with self._lock:
            if self.released:
                raise _released()
            if finite and not later and key[0] not in self._finite:
                data.require_finite(fields)
                self._finite.add(key[0])
            found = self._published.get(key)
            if found is None:
                found = self._published[key] = data.published_for(fields, finite=later)
            return _Shared(data.items, found, self)

    def offer(self, ref: SliceRef) -> None:
        """Keep on offer what far agents need of files, so that it is not hashed again."""
        far = [r for r in self.session.tree.agent_ranks if not self.session.shares_machine(r)]
        if ref.rows is None or not far:
            return
        key = (ref.start, ref.stop, tuple(field.name for field in ref.rows.fields))
        with self._lock:
            if not self.released and key not in self._offers:
                self._offers.add(key)
                self._offered.slice(ref, far[0])

    def release(self) -> None:
        """Forget all, here and at the agents."""
        with self._lock:
            if self.released:
                return
            self.released = True
            published = list(self._published.values())
            self._published.clear()
        for one in published:
            one.close()
        self._offered.close()
        if self.session.closed:
            return
        for rank in self.session.tree.agent_ranks:
            self.session.ask(rank, agent_requests.RELEASE_DATA, self.handle)

    def release_later(self) -> None:
        """Forget all on another thread, because garbage collection may happen at any point."""
        if not self.released:
            start_thread("sapwood-release", self.release)


class _Shared(Published):
    """Published data that stay when a run is done with them."""

    def __init__(self, items: range, published: Published, kept: _Kept) -> None:
        super().__init__(items, {})
        self._published = published
        self._kept = kept

    def ref(self, start: int, stop: int) -> SliceRef:
        """Return what an agent needs to open the items ``start`` to ``stop``.

        Raises:
            ClosedError: The data were released.
        """
        if self._kept.released:
            raise _released()
        found = self._published.ref(start, stop)
        self._kept.offer(found)
        return found


def _released() -> ClosedError:
    return ClosedError(
        "the dataset was released", hint="keep its handle until the last run has begun"
    )
