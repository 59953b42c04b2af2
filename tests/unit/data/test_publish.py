import gc
import os
from pathlib import Path

import numpy as np
import pytest

from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.errors import ClosedError, DataShapeError, ResourceError
from sapwood.data import load, open_slice
from sapwood.data import publish as publish_module
from sapwood.data.slice import FilePlace


def test_arrays_of_any_layout_arrive_contiguous_and_in_native_order() -> None:
    base = np.arange(60.0).reshape(10, 6)
    for array in (base, base[:, ::-1], base[::2], np.asfortranarray(base), base.astype(">f4")):
        data = load(array)
        with data.publish() as published:
            part = open_slice(published.ref(1, 4), MappedBlocks())
        assert (part.data == array[1:4]).all()
        assert part.data.flags.c_contiguous
        assert part.data.flags.aligned
        assert part.data.dtype.isnative


def test_every_kind_of_number_and_text_survives() -> None:
    source = {
        "b": np.array([True, False]),
        "i": np.array([-1, 2], np.int8),
        "u": np.array([1, 2**63], np.uint64),
        "c": np.array([1 + 2j, 3]),
        "s": np.array(["ab", "ü"]),
        "r": np.zeros(2, np.dtype([("id", "i2"), ("e", "f8"), ("at", "f4", 3)], align=True)),
        "t": np.array(["2024-01-01", "2025-06-01"], "datetime64[s]"),
    }
    with load(source).publish() as published:
        part = open_slice(published.ref(0, 2), MappedBlocks())
    for name, array in source.items():
        assert part[name].dtype == array.dtype
        assert (part[name] == array).all()


def test_only_the_fields_that_are_asked_for_are_copied() -> None:
    data = load({"small": np.ones(10), "large": np.ones((10, 1000))})
    with data.publish(["small"]) as published:
        assert published.nbytes < 1000
        assert set(open_slice(published.ref(0, 10), MappedBlocks()).arrays) == {"small"}
    with pytest.raises(DataShapeError, match="did you mean 'small'"):
        data.publish(["smal"])


def test_a_file_in_the_right_layout_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1000.0))
    with load(tmp_path / "a.npy").publish() as published:
        assert published.nbytes == 0
        assert isinstance(published.ref(0, 10).fields[0].place, FilePlace)


@pytest.mark.parametrize("layout", ["fortran", "big-endian"])
def test_a_file_in_another_layout_is_copied(tmp_path: Path, layout: str) -> None:
    array = np.arange(12.0).reshape(4, 3)
    np.save(
        tmp_path / "a.npy", np.asfortranarray(array) if layout == "fortran" else array.astype(">f8")
    )
    with load(tmp_path / "a.npy").publish() as published:
        assert published.nbytes > 0
        assert (open_slice(published.ref(1, 3), MappedBlocks()).data == array[1:3]).all()


def test_a_range_needs_no_memory() -> None:
    with load(range(5, 10**12)).publish() as published:
        part = open_slice(published.ref(7, 10**9), MappedBlocks())
    assert (published.nbytes, part.start, part.stop, dict(part.arrays)) == (0, 7, 10**9, {})


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 11), (5, 4)])
def test_items_outside_the_dataset_are_refused(start: int, stop: int) -> None:
    with load(np.ones(10)).publish() as published, pytest.raises(DataShapeError, match="0:10"):
        published.ref(start, stop)


@pytest.mark.slow
def test_a_closed_dataset_gives_no_references_and_holds_no_descriptor() -> None:
    gc.collect()  # what other tests have left may have files open
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    published = load(np.ones(10)).publish()
    published.close()
    published.close()
    assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - names only
    with pytest.raises(ClosedError):
        published.ref(0, 1)


def test_data_larger_than_memory_are_refused_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish_module, "available_memory", lambda: 2**20)
    with pytest.raises(ResourceError, match=r"8\.0 MiB.*1\.0 MiB are free.*\.npy"):
        load(np.ones(2**20)).publish()
