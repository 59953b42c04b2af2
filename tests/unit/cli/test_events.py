"""What ``sapwood events`` makes of its options."""

from __future__ import annotations

import time

import pytest

from sapwood.cli.events import _since
from sapwood.core.errors import InputError


def test_since_is_so_long_ago_or_a_date() -> None:
    assert _since("10min") == pytest.approx(time.time() - 600, abs=5)
    assert _since("2026-01-31T12:00+00:00") == 1769860800.0
    for wrong in ("yesterday", "", "10 bananas"):
        with pytest.raises(InputError, match="--since cannot be"):
            _since(wrong)
