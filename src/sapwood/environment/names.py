"""What somebody probably meant: the nearest known names to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LISTED = 12
"""Known names that a hint lists before it says how many more there are."""


def suggestion(name: str, known: Iterable[str], *, kind: str = "names") -> str:
    """Return a hint for a name that is not known.

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
    import difflib  # noqa: PLC0415 - only errors need it, and agents start faster without

    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"did you mean {' or '.join(repr(one) for one in close)}?"
    if not names:
        return f"there are no {kind}"
    listed = ", ".join(names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"the {kind} are {listed}" + (f" and {more} more" if more > 0 else "")
