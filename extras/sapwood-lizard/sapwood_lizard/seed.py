"""Random numbers of programs: the same in every run, whatever the number of agents."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed ``random`` and ``numpy.random`` for a while; then restore their states.

    Example:
        >>> with seeded(1):
        ...     first = random.random()
        >>> with seeded(1):
        ...     first == random.random()
        True
    """
    before = random.getstate()
    numbers = sys.modules.get("numpy.random")
    numpy_before = numbers.get_state() if numbers is not None else None
    random.seed(seed)
    if numbers is not None:
        numbers.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)
        if numbers is not None:
            numbers.set_state(numpy_before)
