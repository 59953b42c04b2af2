"""Slices of persistent datasets, which a runner holds from one run to the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sapwood.content.refs import ContentFolder
from sapwood.core.errors import DataValueError
from sapwood.data.opening import SliceOpener
from sapwood.data.slice import SliceRef
from sapwood.data.stored_sources import load_stored

ITEMS = 10
BAD = 7

MakeRef = Callable[..., SliceRef]


@pytest.fixture
def ref(tmp_path: Path) -> MakeRef:
    """Return a reference to items of a persistent dataset, one of which is NaN."""
    values = np.arange(float(ITEMS))
    values[BAD] = np.nan
    np.save(tmp_path / "values.npy", values)
    stored = load_stored(str(tmp_path / "*.npy"), ("data",)).stored

    def make(start: int, stop: int, *, finite: bool) -> SliceRef:
        rows = msgspec.structs.replace(stored, handle="kept", finite=finite).cut(start, stop)
        return SliceRef(start, stop, (), rows)

    return make


def test_what_is_held_is_not_read_again(ref: MakeRef) -> None:
    opener = SliceOpener(ContentFolder())
    assert opener.open(ref(0, BAD, finite=True)).read_bytes
    for finite in (True, False):
        part = opener.open(ref(2, 5, finite=finite))
        assert part.read_bytes == 0
        assert part["data"].tolist() == [2.0, 3.0, 4.0]


def test_who_wants_finite_values_gets_no_others_that_somebody_allowed_before(ref: MakeRef) -> None:
    opener = SliceOpener(ContentFolder())
    assert np.isnan(opener.open(ref(0, ITEMS, finite=False))["data"][BAD])
    with pytest.raises(DataValueError, match="not finite"):
        opener.open(ref(0, ITEMS, finite=True))
    assert np.isnan(opener.open(ref(0, ITEMS, finite=False))["data"][BAD])


def test_what_is_released_is_checked_anew(ref: MakeRef) -> None:
    opener = SliceOpener(ContentFolder())
    opener.open(ref(0, BAD, finite=True))
    opener.release("kept")
    assert opener.open(ref(0, ITEMS, finite=False)).read_bytes
    with pytest.raises(DataValueError, match="not finite"):
        opener.open(ref(0, ITEMS, finite=True))
