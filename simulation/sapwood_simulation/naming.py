"""Which places an error names: what people read, read back."""

from __future__ import annotations

import re

from sapwood.core.rankset import parse_ranks


def ranks_named(kind: str, text: str) -> set[int]:
    """Return the ranks that a text names as :func:`~sapwood.core.rankset.fold` writes them.

    Example:
        >>> sorted(ranks_named("agent", "agent[1-3,12] ended: killed")), ranks_named("rank", "a 12")
        ([1, 2, 3, 12], set())
        >>> ranks_named("agent", "agent 12 is gone"), ranks_named("agent", "agents 12")
        ({12}, set())
    """
    found: set[int] = set()
    for several, one in re.findall(rf"\b{kind}(?:\[([0-9,-]+)\]| ([0-9]+)\b)", text):
        found |= parse_ranks(several or one)
    return found
