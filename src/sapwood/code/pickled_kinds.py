"""How kinds of functions and types travel by value that pickle and cloudpickle only take by name.

Those of a script or notebook have no name that an agent could import: functions with a cache,
generic functions, cached properties, and the types that :mod:`typing` makes.
"""

from __future__ import annotations

import functools
import sys
import typing
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, Final

import cloudpickle

from sapwood.code.user_modules import is_made_at_run_time

_CACHED: Final = type(functools.lru_cache(abs))
_singledispatch: Any = functools.singledispatch
_NewType: Any = typing.NewType
_TypedDict: Any = typing.TypedDict
# Made here of what is known at run time only, which type checkers do not know.

_DISPATCHING: Final = _singledispatch(abs).__code__
"""The code of each generic function."""


def by_value(value: Any) -> tuple[Any, ...] | None:
    """Return how one of these kinds is made anew, as pickle takes it.

    Returns:
        What to call, and its arguments; None for what is of another kind or has a name that can be
        imported.

    Example:
        >>> make, arguments = by_value(functools.lru_cache(maxsize=3)(lambda x: 2 * x))
        >>> make(*arguments)(4)
        8
    """
    reduce = _reducer(value)
    if reduce is None or (reduce is not _reduce_property and _has_name(value)):
        return None
    return reduce(value)


def _reducer(value: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    kind = type(value)
    if kind is FunctionType:
        return _reduce_generic if value.__code__ is _DISPATCHING else None
    if isinstance(value, type):
        return _reduce_typed_dict if kind.__name__ == "_TypedDictMeta" else None
    return _REDUCERS.get(kind)


def _has_name(value: Any) -> bool:
    """Whether another process can import it."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or is_made_at_run_time(module):
        return False
    package = module.__name__
    named = cloudpickle.list_registry_pickle_by_value()
    if any(package == one or package.startswith(f"{one}.") for one in named):
        return False
    found: Any = module
    for part in str(getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, part, None)
    return found is value


def _reduce_cached(value: Any) -> tuple[Any, ...]:
    return _cached, (value.__wrapped__, value.cache_parameters())


def _cached(function: Any, parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_generic(value: Any) -> tuple[Any, ...]:
    kinds = {kind: one for kind, one in value.registry.items() if kind is not object}
    return _generic, (value.__wrapped__, value.registry[object], kinds)


def _generic(wrapped: Any, default: Any, kinds: Mapping[type, Any]) -> Any:
    made = _singledispatch(wrapped)
    for kind, function in {object: default, **kinds}.items():
        made.register(kind, function)
    return made


def _reduce_property(value: functools.cached_property[Any]) -> tuple[Any, ...]:
    return _property, (value.func, value.attrname)


def _property(function: Any, name: str | None) -> functools.cached_property[Any]:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _reduce_new_type(value: Any) -> tuple[Any, ...]:
    return _new_type, (value.__name__, value.__qualname__, value.__module__, value.__supertype__)


def _new_type(name: str, qualname: str, module: str, supertype: Any) -> Any:
    made = _NewType(name, supertype)
    made.__qualname__, made.__module__ = qualname, module
    return made


def _reduce_typed_dict(value: Any) -> tuple[Any, ...]:
    fields = {
        name: kind
        if typing.get_origin(kind) in {typing.Required, typing.NotRequired}
        else (typing.Required if name in value.__required_keys__ else typing.NotRequired)[kind]
        for name, kind in value.__annotations__.items()
    }
    names = (value.__name__, value.__qualname__, value.__module__, value.__doc__)
    return _typed_dict, (*names, fields)


def _typed_dict(name: str, qualname: str, module: str, doc: str | None, fields: Any) -> Any:
    made = _TypedDict(name, fields)
    made.__qualname__, made.__module__, made.__doc__ = qualname, module, doc
    return made


_REDUCERS: Final[Mapping[type, Callable[[Any], tuple[Any, ...]]]] = MappingProxyType(
    {
        _CACHED: _reduce_cached,
        functools.cached_property: _reduce_property,
        typing.NewType: _reduce_new_type,
    }
)
