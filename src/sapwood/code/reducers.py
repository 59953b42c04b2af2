"""How the fields of a program's result are reduced: by name, or by code of the program itself.

A field that is not reduced by a name has a *reducer*: an associative function of two values, a
:class:`~sapwood.code.filter.Filter`, or a native function that adds one array to another. As soon
as one field has one, all fields of the program are reduced by :class:`FieldReducers`, in a process
beside each place of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sapwood.code.filter import Filter, FoldFilter, has_own, positional
from sapwood.code.native_marker import Native
from sapwood.comm.reductions import REDUCTIONS, Reduction, make_reduction
from sapwood.core.errors import ExecutionError, ProgramError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest

Reducer = str | Callable[[Any, Any], Any] | Filter | type[Filter] | Native
"""How one field is reduced."""

NATIVE_PREFIX = "native:"
"""Begins the name of a native function where only text can be written, in ``program.toml``."""


def built_in(reduce: Mapping[str, Reducer]) -> dict[str, str]:
    """Return the named reduction of each field; ``gather`` stands for code of the program.

    Example:
        >>> built_in({"total": "sum", "best": max})
        {'total': 'sum', 'best': 'gather'}
    """
    return {field: how if isinstance(how, str) else "gather" for field, how in reduce.items()}


def has_reducers(reduce: Mapping[str, Reducer]) -> bool:
    """Whether any field is reduced by code of the program."""
    return any(not isinstance(how, str) for how in reduce.values())


def reducer_name(how: Reducer) -> str:
    """Return what people call the reduction of a field.

    Example:
        >>> reducer_name("top:3"), reducer_name(max), reducer_name(Native("combine"))
        ('top:3', 'max', 'native:combine')
    """
    if isinstance(how, str):
        return how
    if isinstance(how, Native):
        return NATIVE_PREFIX + how.function
    return str(getattr(how, "__name__", type(how).__name__))


def check_reducers(reduce: Any, *, where: str) -> None:
    """Check how a program says that its fields are reduced.

    Raises:
        ProgramError: It is not a dictionary, a reduction is unknown, or a reducer cannot be one.
    """
    if not isinstance(reduce, Mapping):
        raise ProgramError(
            f"reduce must be a dictionary, not {_described(reduce)}",
            where=where,
            hint='name each field of the map\'s result, as in reduce = {"total": "sum"}',
        )
    for field, how in reduce.items():
        if isinstance(how, str):
            _check_name(field, how, where)
        else:
            _check_code(field, how, where)


def _check_name(field: str, how: str, where: str) -> None:
    name = how.partition(":")[0]
    if name not in REDUCTIONS:
        raise ProgramError(
            f"unknown reduction {shown(how)} for field {field}",
            where=where,
            hint=f"{suggest(name, REDUCTIONS)}; or give a function of two values",
        )
    try:
        make_reduction(how)
    except ProgramError as error:
        raise error.located(f"{where}, field {field}") from None


def _check_code(field: str, how: Any, where: str) -> None:
    kind = how if isinstance(how, type) else type(how)
    if issubclass(kind, Filter):
        if not has_own(kind, "up"):
            raise ProgramError(
                f"{kind.__name__}, which reduces field {field}, has no way up",
                where=where,
                hint="define up(self, values) in the class",
            )
    elif isinstance(how, Native):
        return
    elif isinstance(how, type) or not callable(how) or positional(how) not in {None, 2}:
        raise ProgramError(
            f"field {field} cannot be reduced by {_described(how)}",
            where=where,
            hint="name a reduction, or give an associative function of two values, a "
            'sapwood.Filter, or native("NAME")',
        )


def _described(what: Any) -> str:
    return str(getattr(what, "__qualname__", None) or shown(what))


class FieldReducers(Filter):
    """Reduces the fields of a program's results, each in its own way.

    Args:
        reduce: How each field is reduced.
        native: Returns a native function of the program that is loaded in this process.
    """

    def __init__(
        self, reduce: Mapping[str, Reducer], native: Callable[[str], Callable[..., Any]]
    ) -> None:
        self._named = {field: how for field, how in reduce.items() if isinstance(how, str)}
        self._own = {
            field: _as_filter(how, native)
            for field, how in reduce.items()
            if not isinstance(how, str)
        }
        self._fields = tuple(reduce)

    def up(self, values: list[Any]) -> Any:
        """Return the reduced fields; at the root the totals."""
        reduced = {field: self._by_name(field, how, values) for field, how in self._named.items()}
        for field, own in self._own.items():
            own.rank, own.depth, own.wave = self.rank, self.depth, self.wave
            own.ranks, own.weights = self.ranks, self.weights
            reduced[field] = own.up([value[field] for value in values])
        return {field: reduced[field] for field in self._fields}

    def _by_name(self, field: str, how: str, values: list[Any]) -> Any:
        reduction: Reduction = make_reduction(how)
        try:
            for value, rank, weight in zip(values, self.ranks, self.weights, strict=True):
                reduction.add(value[field], rank, weight)
            return reduction.partial() if self.depth else reduction.total()
        except (ExecutionError, KeyError, TypeError, ValueError) as error:
            raise ExecutionError(
                f"cannot reduce field {shown(field)}: {getattr(error, 'what', error)}"
            ) from error


def _as_filter(how: Any, native: Callable[[str], Callable[..., Any]]) -> Filter:
    if isinstance(how, Native):
        from sapwood.code.native_filter import NativeFilter  # noqa: PLC0415 - only native ones

        return NativeFilter(native(how.function))  # type: ignore[arg-type]  # it checks that itself
    if isinstance(how, type):
        made: Filter = how()
        return made
    return how if isinstance(how, Filter) else FoldFilter(how)
