"""Native code does not change how numbers are computed elsewhere in its process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sapwood.code import floating_point

SOURCE = r"""
#include <fenv.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
__attribute__((constructor)) static void set(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
__attribute__((constructor)) static void set(void) { fesetround(FE_UPWARD); }
#endif
int upwards(int x) { fesetround(FE_UPWARD); return x; }
double divided(double x, double y) { return x / y; }
"""

ROUNDS_DOWN = 1 / 3
"""A third is rounded down to the nearest number."""


@pytest.fixture
def kept_modes() -> Iterator[None]:
    with floating_point.preserved():
        yield


def smallest() -> list[float]:
    """Return subnormal numbers that are computed now, not when this was compiled."""
    tiny = [5e-324, 1e-308]
    return [each * factor for each, factor in zip(tiny, [1.0, 0.125], strict=True)]


@pytest.mark.usefixtures("kept_modes")
def test_loading_and_calling_a_library_leaves_rounding_and_subnormals(opened: Any) -> None:
    native = opened(SOURCE)
    assert smallest() == [5e-324, 1.25e-309]
    divided = native.function("divided")
    assert native.function("upwards")(4) == 4
    one, three = [1.0], [3.0]
    assert one[0] / three[0] == divided(1.0, 3.0) == ROUNDS_DOWN
