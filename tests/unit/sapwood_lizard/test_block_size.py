import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood_lizard.block_size import WARP, block_for, recommended_block
from sapwood_lizard.hardware import DeviceAttributes


@pytest.mark.row("B-HW-1")
@pytest.mark.parametrize(
    ("capability", "threads", "expected"),
    [
        ((3, 7), 2048, 640),
        ((5, 2), 2048, 576),
        ((6, 0), 2048, 544),
        ((7, 0), 2048, 544),
        ((7, 5), 1024, 512),
        ((8, 0), 2048, 544),
        ((8, 6), 1536, 512),
        ((9, 0), 2048, 544),
    ],
)
def test_the_size_for_a_device(capability: tuple[int, int], threads: int, expected: int) -> None:
    assert recommended_block(DeviceAttributes("a GPU", 1024, threads, *capability)) == expected


@pytest.mark.row("B-HW-1")
def test_a_node_without_a_gpu_has_a_size_too() -> None:
    assert recommended_block(None) == 512


@given(st.integers(1, 100_000), st.sampled_from([512, 544, 1024]))
def test_the_last_block_is_full_or_has_a_warp(items: int, recommended: int) -> None:
    size = block_for(items, recommended)
    assert size % WARP == 0
    assert 0 < size <= recommended
    if items > recommended:
        assert items % size == 0 or items % size >= WARP
