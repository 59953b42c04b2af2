"""Data that are copied into shared memory when a call takes them."""

import gc
import os

import numpy as np
import pytest

from sapwood.comm.shared_memory import MappedBlocks
from sapwood.data.column import Column
from sapwood.data.dataset import Dataset
from sapwood.data.slice import MemoryPlace


def dataset(**arrays: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Dataset:
    columns = {name: Column(array) for name, array in arrays.items()}
    return Dataset(columns, items=range(4), origin="a test")


def test_later_changes_of_the_caller_change_nothing() -> None:
    x, y = np.arange(4.0), np.arange(8, dtype=">i2").reshape(4, 2)
    taken = dataset(x=x, y=y).taken()
    x[:] = y[:] = 0
    assert taken["x"].tolist() == [0, 1, 2, 3]
    assert taken["y"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert taken["y"].dtype.isnative


def test_only_wanted_fields_are_copied() -> None:
    x, y = np.arange(4.0), np.arange(4.0)
    taken = dataset(x=x, y=y).taken(["x"])
    assert not np.shares_memory(taken["x"], x)
    assert np.shares_memory(taken["y"], y)
    assert taken.taken(["x"])["x"].base is not None
    assert np.shares_memory(taken.taken()["x"], taken["x"])  # what is a copy is not copied again


@pytest.mark.parametrize("fields", [None, ["y"]])
def test_publishing_copies_nothing_more(fields: list[str] | None) -> None:
    taken = dataset(x=np.arange(4.0), y=np.arange(10.0, 14.0)).taken()
    blocks = MappedBlocks()
    with taken.publish(fields) as published:
        assert published.nbytes == 0
        ref = published.ref(1, 3).fields[-1]
        assert isinstance(ref.place, MemoryPlace)
        assert np.frombuffer(blocks.view(ref.place.memory)).tolist() == [11, 12]


@pytest.mark.slow
def test_the_memory_is_free_when_nothing_holds_the_data() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names suffice
    taken = dataset(x=np.arange(4.0)).taken()
    published = taken.publish()
    del taken
    gc.collect()
    assert published.ref(0, 4).fields
    published.close()
    del published
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
