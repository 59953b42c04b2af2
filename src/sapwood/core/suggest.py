"""Suggestions for a misspelt name: the nearest names that are known, for the hint of an error."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LISTED = 12
"""Known names that :func:`suggestion` lists before it says how many more there are."""

MAX_NAME = 200
"""A longer name is not a misspelt one."""


def suggest(name: object, known: Iterable[str]) -> str:
    """Return a hint that names what ``name`` may have been meant to be, and all that is known.

    Example:
        >>> suggest("colors", ["colours", "seed"])
        'did you mean colours? Known: colours, seed'
        >>> suggest("x", [])
        'none is known'
    """
    names = sorted(known)
    if not names:
        return "none is known"
    listed = ", ".join(names)
    near = _nearest(name, names)
    if not near:
        return f"known: {listed}"
    return f"did you mean {' or '.join(near)}? Known: {listed}"


def suggestion(name: object, known: Iterable[str], *, kind: str = "names") -> str:
    """Return a hint that names the nearest names; where there are none, some that are known.

    Args:
        name: The name that was asked for.
        known: The names that would have been right.
        kind: What these names are, in the plural.

    Example:
        >>> suggestion("pionts", ["points", "weights"])
        "did you mean 'points'?"
        >>> suggestion("x", ["points", "weights"], kind="fields")
        'the fields are points, weights'
    """
    names = sorted(set(known))
    near = _nearest(name, names)
    if near:
        return f"did you mean {' or '.join(repr(one) for one in near)}?"
    if not names:
        return f"no {kind} exist"
    listed = ", ".join(names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"the {kind} are {listed}" + (f" and {more} more" if more > 0 else "")


def _nearest(name: object, names: list[str]) -> list[str]:
    if not isinstance(name, str) or len(name) > MAX_NAME:
        return []
    import difflib  # noqa: PLC0415 - only a mistake needs it, and agents start faster without

    return difflib.get_close_matches(name, names, n=3)
