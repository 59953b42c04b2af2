"""Stores of a cluster's state: what a package registers as ``sapwood.stores``.

``sapwood.testing.stores`` has the checks that a store must pass.
"""

from sapwood.store.base import (
    Change,
    Delete,
    Page,
    Put,
    Store,
    StoreEntry,
    StoreEvent,
    StoreWatch,
    Unchanged,
)

__all__ = [
    "Change",
    "Delete",
    "Page",
    "Put",
    "Store",
    "StoreEntry",
    "StoreEvent",
    "StoreWatch",
    "Unchanged",
]
