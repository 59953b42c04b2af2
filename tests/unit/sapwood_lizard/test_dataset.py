from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.errors import DataShapeError
from sapwood.data.slice import open_slice
from sapwood_lizard.dataset import FEWEST_POINTS, LizardDataset, points_of


class Points:
    """Coordinates points that are numbers."""

    def __init__(self, items: int) -> None:
        self.items = items
        self.cuts = 0

    def cut(self, start: int, stop: int) -> Any:
        self.cuts += 1
        return {"points": ("array", np.arange(float(start), float(stop))), "size": stop - start}


def dataset(items: int) -> LizardDataset:
    coordinator: Any = Points(items)
    return LizardDataset(coordinator, origin="a test")


@given(st.integers(1, 5000), st.integers(1, 40))
def test_every_point_is_in_exactly_one_slice(items: int, agents: int) -> None:
    pieces = dataset(items).split(agents)
    assert len(pieces) == agents
    assert [i for piece in pieces for i in piece] == list(range(items))
    filled = [len(piece) for piece in pieces if piece]
    assert min(filled) >= min(items, FEWEST_POINTS)
    assert max(filled) - min(filled) <= 1


def test_slices_travel_by_shared_memory_and_are_cut_once() -> None:
    data = dataset(1000)
    blocks = MappedBlocks()
    with data.publish() as published:
        for start, stop in ((0, 333), (333, 1000), (0, 333)):
            part = open_slice(published.ref(start, stop), blocks)
            assert len(part) == stop - start
            found = points_of(part)
            assert found["size"] == stop - start
            np.testing.assert_array_equal(found["points"][1], np.arange(start, stop))
        cuts: Any = data.coordinator
        assert cuts.cuts == 2
    blocks.forget()


def test_no_points_are_an_error() -> None:
    with pytest.raises(DataShapeError, match="no points"):
        dataset(0)
