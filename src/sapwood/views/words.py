"""Texts about nodes, the same on the command line, in dashboards and in programs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final

from sapwood.core.hostset import fold_hosts
from sapwood.nodes.refusals import RefusedMachine

RECENT: Final = 3600.0
"""Seconds for which problems are shown; events and ``--json`` have all."""


def moment_shown(moment: float, now: float) -> str:
    """Return a time of day, with its date if that is another than today."""
    then = dt.datetime.fromtimestamp(moment, dt.UTC).astimezone()
    today = dt.datetime.fromtimestamp(now, dt.UTC).astimezone().date()
    return f"{then:%H:%M:%S}" if then.date() == today else f"{then:%Y-%m-%d %H:%M:%S}"


def of_node(names: Iterable[str], state: str, since: float, reason: str, now: float) -> str:
    """Return in one sentence how nodes are, since when and why.

    Args:
        names: Of the nodes.
        state: How they are.
        since: Since when, seconds since 1970; 0 if that is not known.
        reason: Why; may be empty.
        now: Seconds since 1970.

    Example:
        >>> of_node(["n3", "n4"], "lost", 0.0, "nothing heard for 4.2 s", 0.0)
        'n[3-4] are lost: nothing heard for 4.2 s'
    """
    found = list(names)
    when = f" since {moment_shown(since, now)}" if since else ""
    verb = "is" if len(found) == 1 else "are"
    return f"{fold_hosts(found)} {verb} {state}{when}" + (f": {reason}" if reason else "")


def of_refusal(refusal: RefusedMachine, now: float) -> str:
    """Return in one sentence who was not let in, when and why."""
    who = f"'{refusal.name}'" if refusal.name else refusal.address
    often = f"{refusal.times} times, last " if refusal.times > 1 else ""
    return f"{who} was not let in {often}at {moment_shown(refusal.time, now)}: {refusal.reason}"
