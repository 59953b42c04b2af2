"""The sizes of contributions that travel in pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.comm.streams.fetch import too_large
from sapwood.core.errors import ProtocolError

NEAR: Any = SimpleNamespace(timing=SimpleNamespace(max_payload=1000))
LINK: Any = SimpleNamespace(rank=7)


def _offered(size: int) -> str:
    offer: Any = SimpleNamespace(size=size)
    return too_large(NEAR, offer, LINK)


def test_arrays_of_the_largest_size_are_fetched_and_larger_ones_are_not() -> None:
    assert _offered(1000) == ""
    assert _offered(1001) == ("arrays of 1001 bytes are over the limit of 1000 (comm.max_message)")


@pytest.mark.parametrize("size", [0, -1])
def test_what_is_no_size_is_not_offered(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"rank 7 offers {size} bytes"):
        _offered(size)
