"""Draws the tables of states of the code as SVG: nothing but Python is needed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from html import escape
from typing import Any

TABLES: dict[str, str] = {
    "link": "sapwood.comm.link",
    "channel": "sapwood.comm.link:CHANNEL_TRANSITIONS",
    "attachment": "sapwood.comm.attachment",
    "transfer": "sapwood.comm.messaging.rendezvous",
    "stream": "sapwood.comm.streams.stream",
    "process": "sapwood.lifecycle.processes",
    "machine": "sapwood.lifecycle.machines:MACHINE_TRANSITIONS",
    "hold": "sapwood.lifecycle.holds:HOLD_TRANSITIONS",
    "session": "sapwood.session.session_life",
    "run": "sapwood.activity.run_life",
    "allocation": "sapwood.contexts.launchers.allocation",
    "component": "sapwood.environment.lifecycle",
    "event": "sapwood_lizard.events",
}
"""Module of each table that is drawn, and its name where that is not ``TRANSITIONS``."""

RADIUS, WIDTH, HEIGHT, MARGIN = 190, 112, 34, 110
"""Of the circle, of a box, and around all, in pixels."""

BEND = 34
"""By how much an arrow bends to its left, pixels, so that two between the same boxes part."""

Arrow = tuple[str, str, str]  # from, to, event


def arrows(name: str) -> list[Arrow]:
    """Return the transitions of a table, as (state, next state, event)."""
    module, _, attribute = TABLES[name].partition(":")
    table: Mapping[Any, Any] = getattr(importlib.import_module(module), attribute or "TRANSITIONS")
    found: list[Arrow] = []
    for key, value in table.items():
        if isinstance(key, tuple):
            state, event = key
            found.append((state.value, value.value, event.value))
        else:
            found += [(key.value, other.value, str(word)) for other, word in value.items()]
    return found


def states(found: list[Arrow]) -> list[str]:
    """Return the states in the order in which they come up."""
    return list(dict.fromkeys(state for arrow in found for state in arrow[:2]))


def draw(name: str) -> str:
    """Return a table as SVG."""
    found = arrows(name)
    order = states(found)
    size = 2 * (RADIUS + MARGIN)
    centre = size / 2
    at: dict[str, tuple[float, float]] = {}
    for number, state in enumerate(order):
        angle = 2 * math.pi * number / len(order) - math.pi / 2
        at[state] = (centre + RADIUS * math.cos(angle), centre + RADIUS * math.sin(angle))
    together: dict[tuple[str, str], list[str]] = {}
    for state, following, event in found:
        together.setdefault((state, following), []).append(event)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" role="img" '
            f'aria-label="States of a {escape(name)}" style="max-width:{size}px" '
            'font-family="sans-serif" font-size="13" fill="currentColor" stroke="none">'
        ),
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
        ),
    ]
    for (state, following), events in together.items():
        parts.append(_arrow(at[state], at[following], ", ".join(events)))
    for state, (x, y) in at.items():
        parts.append(
            f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" '
            f'height="{HEIGHT}" rx="8" fill="#e8f0e8" stroke="#4a6b4a"/>'
            f'<text x="{x:.0f}" y="{y + 4.5:.0f}" text-anchor="middle" fill="#1b2b1b">'
            f"{escape(state)}</text>"
        )
    return "".join([*parts, "</svg>"])


def _arrow(begin: tuple[float, float], end: tuple[float, float], label: str) -> str:
    if begin == end:
        x, y = begin[0], begin[1] - HEIGHT / 2
        path = f"M{x - 18:.0f} {y:.0f}C{x - 40:.0f} {y - 46:.0f} {x + 40:.0f} {y - 46:.0f} "
        path += f"{x + 18:.0f} {y:.0f}"
        where = (x, y - 38)
    else:
        away = math.dist(begin, end)
        across = ((end[1] - begin[1]) / away, (begin[0] - end[0]) / away)
        middle = tuple(
            (a + b) / 2 + BEND * 2 * c for a, b, c in zip(begin, end, across, strict=True)
        )
        start, stop = _border(begin, middle), _border(end, middle)
        path = f"M{start[0]:.0f} {start[1]:.0f}Q{middle[0]:.0f} {middle[1]:.0f} "
        path += f"{stop[0]:.0f} {stop[1]:.0f}"
        where = tuple((a + b) / 4 + m / 2 for a, b, m in zip(begin, end, middle, strict=True))
    return (
        f'<path d="{path}" fill="none" stroke="currentColor" marker-end="url(#tip)"/>'
        f'<text x="{where[0]:.0f}" y="{where[1]:.0f}" text-anchor="middle">{escape(label)}</text>'
    )


def _border(box: tuple[float, float], towards: tuple[float, ...]) -> tuple[float, float]:
    """Return where a line from the middle of a box leaves it."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min(WIDTH / 2 / abs(dx) if dx else math.inf, HEIGHT / 2 / abs(dy) if dy else math.inf)
    return box[0] + dx * scale, box[1] + dy * scale


def table(name: str) -> str:
    """Return a table as Markdown: each state with what can happen in it."""
    lines = ["| state | what happens | next |", "|---|---|---|"]
    lines += [f"| {state} | {event} | {following} |" for state, following, event in arrows(name)]
    return "\n".join(lines)
