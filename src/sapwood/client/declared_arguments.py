"""Arguments of a public method that follow from the struct which declares them."""

import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args

from sapwood.core.options import option_fields

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

ARGUMENTS = "Args:"
"""Line of a docstring below which the arguments are described."""


def with_fields(
    kind: Callable[P, Any],
) -> Callable[[Callable[[S, Any], R]], Callable[Concatenate[S, P], R]]:
    """Let the caller of a method give the fields of a struct as arguments, instead of the struct.

    The signature of the method and the description of its arguments follow from the declaration.

    Args:
        kind: The struct; its fields are declared by :func:`sapwood.core.options.option`.
    """

    def decorate(method: Callable[[S, Any], R]) -> Callable[Concatenate[S, P], R]:
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return method(self, kind(*args, **kwargs))

        functools.update_wrapper(call, method)
        own = inspect.signature(method)
        declared = inspect.signature(kind).parameters.values()
        fields = [one.replace(annotation=get_args(one.annotation)[0]) for one in declared]
        first = next(iter(own.parameters.values()))
        call.__signature__ = own.replace(parameters=[first, *fields])  # type: ignore[attr-defined]
        call.__doc__ = _documented(method.__doc__ or "", kind)
        return call

    return decorate


def _documented(text: str, kind: Any) -> str:
    """Return a docstring with the descriptions of arguments in place of the struct's."""
    before, line, rest = inspect.cleandoc(text).partition(ARGUMENTS)
    _, blank, after = rest.partition("\n\n")
    described = [
        textwrap.fill(
            f"{one.name}: {one.described()}", 96, initial_indent=" " * 4, subsequent_indent=" " * 8
        )
        for one in option_fields(kind)
    ]
    return "\n".join([before + line, *described]) + blank + after
