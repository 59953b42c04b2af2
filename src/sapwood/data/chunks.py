"""The splitting law: which agent gets which items.

Items come in chunks of a fixed size (the last may be short); every part is a run of whole
chunks, and the parts hold as equal numbers of chunks as possible, the larger ones first.
"""

from __future__ import annotations

from sapwood.core.arguments import whole
from sapwood.core.errors import InputError


def split_range(items: range, parts: int, chunk: int | None = None) -> list[range]:
    """Cut a run of items into consecutive parts that together are exactly the run.

    Args:
        items: The items, step 1.
        parts: How many parts, at least 1.
        chunk: Items per chunk, at least 1; None makes the parts as even as possible.

    Returns:
        ``parts`` ranges in order. Where there are fewer chunks than parts the last ones are
        empty (start == stop).

    Raises:
        InputError: ``parts`` or ``chunk`` is less than 1, or no whole number.

    Example:
        >>> split_range(range(10), 3)
        [range(0, 4), range(4, 7), range(7, 10)]
        >>> split_range(range(10), 3, chunk=4)
        [range(0, 4), range(4, 8), range(8, 10)]
        >>> split_range(range(2), 3)
        [range(0, 1), range(1, 2), range(2, 2)]
    """
    if whole(parts, "parts") < 1:
        raise InputError(f"data cannot be split into {parts} parts", hint="use at least 1 agent")
    size = 1 if chunk is None else whole(chunk, "chunk")
    if size < 1:
        raise InputError(
            f"a chunk cannot hold {size} items", where="chunk", hint="use at least 1, or leave it"
        )
    each, larger = divmod(-(-len(items) // size), parts)
    pieces: list[range] = []
    start = items.start
    for part in range(parts):
        stop = min(items.stop, start + size * (each + (part < larger)))
        pieces.append(range(start, stop))
        start = stop
    return pieces
