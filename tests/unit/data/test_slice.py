import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sapwood.comm.shared_memory import MappedBlocks, SharedRef
from sapwood.core.errors import DataMissingError, DataShapeError, ProtocolError
from sapwood.data import Slice, load, open_slice
from sapwood.data.slice import FieldRef, FilePlace, MemoryPlace, SliceRef


@given(
    npst.arrays(
        npst.floating_dtypes() | npst.integer_dtypes() | npst.boolean_dtypes(),
        npst.array_shapes(max_dims=3, max_side=12),
    ),
    st.integers(1, 6),
    st.none() | st.integers(1, 5),
)
@pytest.mark.slow
def test_the_slices_together_are_the_array(
    array: np.ndarray[Any, Any], parts: int, chunk: int | None
) -> None:
    data = load(array)
    blocks = MappedBlocks()
    with data.publish() as published:
        slices = [
            open_slice(published.ref(piece.start, piece.stop), blocks)
            for piece in data.split(parts, chunk)
        ]
    together = np.concatenate([part.data for part in slices])
    np.testing.assert_array_equal(together, array)
    assert all(len(part) == len(part.data) for part in slices)


def test_a_reference_travels_as_msgpack() -> None:
    with load({"x": np.arange(4), "y": np.ones((4, 2))}).publish() as published:
        ref = published.ref(1, 3)
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(ref), type=SliceRef)
        assert again == ref
        assert open_slice(again, MappedBlocks()).x.tolist() == [1, 2]


@pytest.mark.row("A-DATA-2")
@pytest.mark.parametrize("dtype", [">f8", ">i2", ">u4", ">c8"])
def test_a_slice_of_a_client_with_the_other_byte_order_is_native(
    dtype: str, tmp_path: Path
) -> None:
    held = np.arange(6).reshape(3, 2).astype(dtype)
    (tmp_path / "held").write_bytes(bytes(3) + held.tobytes())
    status = (tmp_path / "held").stat()
    place = FilePlace(
        path=str(tmp_path / "held"),
        offset=3,
        nbytes=held.nbytes,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )
    found = open_slice(SliceRef(0, 3, (FieldRef("x", dtype, (2,), place),)), MappedBlocks()).x
    assert found.dtype.isnative
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, held)


def test_fields_are_attributes_and_items() -> None:
    part = Slice(3, 5, {"points": np.ones((2, 2))})
    assert part.points is part["points"] is part.arrays["points"]
    assert (part.start, part.stop, len(part), list(part)) == (3, 5, 2, [3, 4])
    assert "points" in dir(part)
    assert repr(part) == "<Slice 3:5 points: float64[2, 2]>"


def test_a_misspelt_field_suggests_the_right_one() -> None:
    part = Slice(0, 1, {"points": np.ones(1)})
    with pytest.raises(AttributeError, match="did you mean 'points'"):
        _ = part.pionts
    with pytest.raises(DataShapeError, match="did you mean 'points'"):
        _ = part["pionts"]


def test_arrays_cannot_be_written() -> None:
    with load(np.ones(4)).publish() as published:
        part = open_slice(published.ref(0, 4), MappedBlocks())
    with pytest.raises(ValueError, match="read-only"):
        part.data[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        part.data.flags.writeable = True


def test_a_block_is_mapped_once() -> None:
    blocks = MappedBlocks()
    with load({"x": np.ones(100), "y": np.ones(100)}).publish() as published:
        kept = [open_slice(published.ref(i, i + 1), blocks) for i in range(10)]
    assert len(kept) == 10
    assert len(blocks._maps) == 1


@pytest.mark.slow
def test_a_slice_of_a_file_gives_its_descriptor_back(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5000.0))
    with load(tmp_path / "a.npy").publish() as published:
        gc.collect()  # what other tests have left may have files open
        before = len(list(Path("/proc/self/fd").iterdir()))
        part = open_slice(published.ref(3000, 5000), MappedBlocks())
        assert part.data[0] == 3000
        assert not part.data.flags.writeable
        del part
        assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_file_that_changed_or_went_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(10.0))
    with load(path).publish() as published:
        ref = published.ref(0, 10)
        os.utime(path, ns=(0, 0))
        with pytest.raises(DataMissingError, match="changed since"):
            open_slice(ref, MappedBlocks())
        path.unlink()
        with pytest.raises(DataMissingError, match="No such file"):
            open_slice(ref, MappedBlocks())


def test_malformed_references_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(64))
    status = path.stat()
    blocks = MappedBlocks()

    def field(dtype: str, shape: tuple[int, ...], nbytes: int, offset: int = 0) -> FieldRef:
        place = FilePlace(str(path), offset, nbytes, status.st_size, status.st_mtime_ns)
        return FieldRef("x", dtype, shape, place)

    cases = [
        SliceRef(5, 4),
        SliceRef(0, 1, (field("O", (), 8),)),
        SliceRef(0, 1, (field("nonsense", (), 8),)),
        SliceRef(0, 1, (field("f8", (-1,), 8),)),
        SliceRef(0, 2, (field("f8", (), 8),)),
        SliceRef(0, 8, (field("f8", (), 64, offset=8),)),
        SliceRef(0, 8, (field("f8", (), 64, offset=-8),)),
        SliceRef(0, 1, (FieldRef("x", "f8", (), MemoryPlace(SharedRef(1, 0, 0, 0, 0, 8))),)),
    ]
    for ref in cases:
        with pytest.raises(ProtocolError):
            open_slice(ref, blocks)


@pytest.mark.slow
def test_the_module_that_agents_load_is_light() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"  # a .pth file may have brought some in
        "import sapwood.data.slice\n"
        "print([m for m in set(sys.modules) - before if m.startswith('sapwood.') "
        "and not m.startswith(('sapwood.comm', 'sapwood.core', 'sapwood.data'))"
        " and m not in ('sapwood.content', 'sapwood.content.refs')"
        " or m in ('sapwood.data.dataset', 'structlog', 'difflib', 'csv', 'PIL')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
