"""Built-in reductions: how contributions to a wave are put together, one field at a time.

All are associative, so any tree gives the same result (floating-point sums up to rounding, as
the order is that of arrival; ``sum:reproducible`` to the last bit).

``sum min max``
    Numbers or arrays, element by element; shapes and types must agree, and stay. A sum of
    booleans counts. Where one number is NaN, the least and the greatest are NaN.
``sum:reproducible``
    A sum in an order that follows from the ranks: always the same bits.
``mean``
    Mean over the *items* behind the contributions: each counts with its weight.
``variance``
    Count, mean and variance of samples along the first axis.
``concat``
    Along the first axis, in the order of the ranks; numbers become arrays of one element.
``count``
    Number of contributions in which the field is not None.
``union``
    The set of all members of sets, lists or arrays.
``classes``
    Equal values with the agents that have them, as list and as text:
    ``[{"value": "ok", "agents": [1, 2, 3, 5], "places": "agent[1-3,5]"}, …]``.
``gather``
    The values themselves, as a list in the order of the ranks.
``histogram:LOW:HIGH:BINS``
    Counts of numbers by equal bins.
``top:K``
    The largest numbers with their agents.
``tally:K``
    Numbers added up by key, of dictionaries; the keys with the largest sums.
``quantiles:K``, ``distinct:LG_K``
    Sketches of bounded size: the distribution of numbers, how many different values there are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from sapwood.comm.reductions.collecting import Classes, Concat, Count, Gather, Union
from sapwood.comm.reductions.elementwise import Maximum, Minimum, Sum
from sapwood.comm.reductions.histogram import Histogram
from sapwood.comm.reductions.moments import Mean, Variance
from sapwood.comm.reductions.reproducible import ReproducibleSum
from sapwood.comm.reductions.sketches import Distinct, Quantiles
from sapwood.comm.reductions.tally import Tally
from sapwood.comm.reductions.top import Top
from sapwood.core.errors import ProgramError
from sapwood.core.shown import shown


class Reduction(Protocol):
    """Puts the contributions of one field together."""

    def add(self, value: Any, rank: int, weight: float, /) -> None:
        """Take one more contribution, or the partial result of a subtree."""

    def partial(self) -> Any:
        """Return what a junction sends on; what :meth:`add` takes."""

    def total(self) -> Any:
        """Return the result at the root."""


REDUCTIONS: dict[str, Callable[..., Reduction]] = {
    "sum": Sum,
    "sum:reproducible": ReproducibleSum,
    "min": Minimum,
    "max": Maximum,
    "mean": Mean,
    "variance": Variance,
    "concat": Concat,
    "gather": Gather,
    "count": Count,
    "union": Union,
    "classes": Classes,
    "histogram": Histogram,
    "top": Top,
    "tally": Tally,
    "quantiles": Quantiles,
    "distinct": Distinct,
}
"""The built-in reductions by name."""


def make_reduction(text: str) -> Reduction:
    """Return a new reduction; arguments follow the name after colons.

    Raises:
        ProgramError: There is no such reduction, or its arguments are wrong.

    Example:
        >>> import numpy as np
        >>> top = make_reduction("top:2")
        >>> top.add(np.array([3, 9, 5]), 1, 1.0)
        >>> top.add(np.array([7]), 2, 1.0)
        >>> top.total()
        {'values': array([9, 7]), 'agents': array([1, 2])}
    """
    if not isinstance(text, str):
        raise ProgramError(
            f"{shown(text)} is not a reduction", hint=f"use one of {', '.join(REDUCTIONS)}"
        )
    kind, arguments = _parsed(text)
    return kind(*arguments)


@functools.cache
def _parsed(text: str) -> tuple[Callable[..., Reduction], tuple[str, ...]]:
    name, *arguments = [text] if text in REDUCTIONS else text.split(":")
    kind = REDUCTIONS.get(name)
    if kind is None:
        raise ProgramError(
            f"{shown(text)} is not a reduction", hint=f"use one of {', '.join(REDUCTIONS)}"
        )
    wanted = list(inspect.signature(kind).parameters)
    if len(arguments) != len(wanted):
        form = ":".join([name, *(word.upper() for word in wanted)])
        raise ProgramError(f"{shown(text)} is not a reduction", hint=f"write {form}")
    return kind, tuple(arguments)
