"""Tables for notebooks: small, escaped, without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

MAX_ROWS: Final = 50
"""Rows that are shown; of more, a last line says how many there are."""


def html_table(
    rows: Sequence[Sequence[object]],
    heading: Iterable[object] = (),
    caption: str = "",
    *,
    named: bool = False,
) -> str:
    """Return rows as a table of HTML.

    Args:
        rows: Their cells; all is escaped.
        heading: Of the columns; none for a table without.
        caption: Above it, escaped.
        named: Whether the first cell of each row names it.

    Example:
        >>> html_table([("a<b", 1)], heading=("what", "number"))
        '<table><tr><th>what</th><th>number</th></tr><tr><td>a&lt;b</td><td>1</td></tr></table>'
        >>> html_table([("state", "done")], named=True)
        '<table><tr><th>state</th><td>done</td></tr></table>'
    """
    first = "th" if named else "td"
    shown = [_row(row, first) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        shown.append(f'<tr><td colspan="{len(rows[0])}">… {len(rows) - MAX_ROWS} more</td></tr>')
    titles = [_cell("th", one) for one in heading]
    head = f"<tr>{''.join(titles)}</tr>" if titles else ""
    above = f"<caption>{escaped(caption)}</caption>" if caption else ""
    return f"<table>{above}{head}{''.join(shown)}</table>"


def escaped(text: object) -> str:
    """Return something as text of HTML.

    Example:
        >>> escaped("<b>")
        '&lt;b&gt;'
    """
    from html import escape  # noqa: PLC0415 - its tables cost 10 ms, and only notebooks need them

    return escape(str(text))


def _row(row: Sequence[object], first: str) -> str:
    tags = chain([first], ["td"] * (len(row) - 1))
    return f"<tr>{''.join(map(_cell, tags, row))}</tr>"


def _cell(tag: str, content: object) -> str:
    return f"<{tag}>{escaped(content)}</{tag}>"
