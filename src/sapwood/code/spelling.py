"""Names nearest to a misspelt one, for hints."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint that names what ``name`` may have been meant to be.

    Example:
        >>> suggest("colors", ["colours", "seed"])
        'did you mean colours? Known: colours, seed'
        >>> suggest("x", [])
        'none is known'
    """
    import difflib  # noqa: PLC0415 - only a mistake needs it, and agents start faster without

    names = sorted(known)
    if not names:
        return "none is known"
    listed = ", ".join(names)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if not near:
        return f"known: {listed}"
    return f"did you mean {' or '.join(near)}? Known: {listed}"
