"""Whether the map of a program keeps something from one call to the next.

Items that move to another agent leave behind any state that was kept of them. A cache is
rebuilt; where results depend on the state, they would change. Sapwood cannot distinguish these, so
the items of maps with state do not move, unless the program says that they may.
"""

from __future__ import annotations

import dis
from types import FunctionType
from typing import Any

from sapwood.code.program import Program

_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"})
_CONTAINERS = (dict, list, set, bytearray)

MAX_METHODS = 256
"""Methods of a program that are looked at."""


def kept_state(program: Program) -> str:
    """Return the sign that a program's map keeps something; empty where it seems not to.

    The signs are its own ``close``, a method of the program that ``map`` uses and that stores
    an attribute or a global variable, an attribute of the program that is a list, a dictionary or
    a set. What native code keeps in static variables is not seen.

    Example:
        >>> class Cached(Program):
        ...     reduce = {"n": "sum"}
        ...     def map(self, slice, state):
        ...         self.seen = len(slice)
        ...         return {"n": self.seen}
        >>> kept_state(Cached())
        'map stores seen'
    """
    kind = type(program)
    if kind.close is not Program.close:
        return "the program has a close"
    for name, value in vars(program).items():
        if isinstance(value, _CONTAINERS) and name not in {"parameters", "_bundle"}:
            return f"{name} is a {type(value).__name__}"
    function = _function(kind, "map")
    if function is None or function is Program.map:
        return ""
    known, waiting = {"map"}, [("map", function)]
    while waiting and len(known) < MAX_METHODS:
        method, function = waiting.pop()
        for instruction in dis.get_instructions(function):
            if instruction.opname in _STORES:
                return f"{method} stores {instruction.argval}"
            used = instruction.argval
            if isinstance(used, str) and used not in known:
                further = _function(kind, used)
                if further is not None and not hasattr(Program, used):
                    known.add(used)
                    waiting.append((used, further))
    return ""


def _function(kind: type, name: str) -> FunctionType | None:
    found: Any = getattr(kind, name, None)
    return found if isinstance(found, FunctionType) else None
