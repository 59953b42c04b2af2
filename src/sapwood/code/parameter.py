"""Parameters of programs: typed, validated values with a default."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar, cast, overload

import numpy as np

from sapwood.core.errors import ParameterError, ProgramError
from sapwood.core.shown import shown

ParameterValue = int | float | str | bool

PARAMETER_TYPES: dict[str, type[ParameterValue]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
}
"""The types a parameter can have, by the name that ``program.toml`` and annotations use."""

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}

_T = TypeVar("_T", int, float, str, bool)


class Parameter:
    """One parameter of a program: a class attribute that validates what it is given.

    Attributes:
        name: Name of the attribute.
        type: One of int, float, str, bool.
        default: The value when none is given.
        minimum: Lowest value, or None.
        maximum: Highest value, or None.
        choices: The allowed values, or None when all are.
        help: One sentence for ``sapwood program show``.
    """

    def __init__(
        self,
        default: ParameterValue,
        *,
        kind: type[ParameterValue] | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        choices: Sequence[ParameterValue] | None = None,
        help: str = "",  # noqa: A002 - the word that argparse, click and typer use
    ) -> None:
        self.name = ""
        self.type: type[ParameterValue] = kind or type(default)
        self.default = default
        self.minimum = minimum
        self.maximum = maximum
        self.choices = tuple(choices) if choices is not None else None
        self.help = help

    def __set_name__(self, owner: type, name: str) -> None:
        annotation = inspect.get_annotations(owner).get(name)
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if annotation is not None:
            self.type = PARAMETER_TYPES.get(text, type(self.default))
        self.name = name

    def check_definition(self, where: str) -> None:
        """Check what the parameter says of itself; not in ``__set_name__``, which hides errors.

        Raises:
            ProgramError: The default does not fit the type or the limits.
        """
        name = self.name
        if self.type not in PARAMETER_TYPES.values():
            raise ProgramError(
                f"parameter {name} cannot be of type {self.type.__name__}",
                where=where,
                hint=f"use one of {', '.join(PARAMETER_TYPES)}",
            )
        numeric = self.type in {int, float}
        if not numeric and (self.minimum is not None or self.maximum is not None):
            raise ProgramError(
                f"parameter {name} is not a number and cannot have limits", where=where
            )
        for limit in (self.minimum, self.maximum):
            if limit is not None and not isinstance(limit, int | float):
                raise ProgramError(
                    f"parameter {name} cannot have the limit {shown(limit)}",
                    where=where,
                    hint="give a number",
                )
        try:
            self.default = self.check(self.default)
        except ParameterError as error:
            raise ProgramError(
                f"the default of a parameter is wrong: {error.what}", where=where, hint=error.hint
            ) from error

    def check(self, value: object) -> ParameterValue:
        """Return the value as the parameter's type; a string is read as a command line gives it.

        Raises:
            ParameterError: It is of another type, or outside the limits or choices.

        Example:
            >>> colours = Parameter(16, minimum=2)
            >>> colours.check("8")
            8
        """
        converted = self._convert(value)
        if self.choices is not None and converted not in self.choices:
            raise self._error(
                f"cannot be {shown(converted)}", f"choose one of {self._choices_text()}"
            )
        # Written so that NaN, which compares false with everything, is refused by any limit.
        if self.minimum is not None and not cast("float", converted) >= self.minimum:
            raise self._error(
                f"is {shown(converted)}, below its minimum", f"give {self.range_text()}"
            )
        if self.maximum is not None and not cast("float", converted) <= self.maximum:
            raise self._error(
                f"is {shown(converted)}, above its maximum", f"give {self.range_text()}"
            )
        return converted

    def range_text(self) -> str:
        """Return the allowed values as text, empty when all are allowed."""
        if self.choices is not None:
            return self._choices_text()
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"at least {self.minimum}"
        return f"at most {self.maximum}" if self.maximum is not None else ""

    def _choices_text(self) -> str:
        return ", ".join(str(choice) for choice in self.choices or ())

    def _convert(self, value: object) -> ParameterValue:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str) and self.type is not str:
            return self._parse(value)
        fits = type(value) is self.type or (self.type is float and type(value) is int)
        if not fits:
            raise self._error(
                f"wants {self.type.__name__}, got {type(value).__name__} {shown(value)}",
                f"give {self._example()}",
            )
        return self.type(cast("Any", value))

    def _parse(self, text: str) -> ParameterValue:
        word = text.strip()
        if self.type is bool:
            if word.lower() in _TRUE | _FALSE:
                return word.lower() in _TRUE
        else:
            try:
                return cast("type[int | float]", self.type)(word)
            except ValueError:
                pass  # the error below says more
        raise self._error(f"cannot be read from {shown(text)}", f"give {self._example()}")

    def _example(self) -> str:
        limits = self.range_text()
        words = {
            int: "a whole number",
            float: "a number",
            bool: "true or false",
            str: "text",
        }[self.type]
        return f"{words} ({limits})" if limits else words

    def _error(self, what: str, hint: str) -> ParameterError:
        return ParameterError(f"parameter {self.name} {what}", where=self.name, hint=hint)

    def __repr__(self) -> str:
        return f"Parameter({self.name}: {self.type.__name__} = {self.default!r})"


@overload
def parameter(
    default: bool,  # noqa: FBT001 - the default of a boolean parameter is a boolean
    *,
    help: str = "",
) -> bool: ...
@overload
def parameter(
    default: _T,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[_T] | None = None,
    help: str = "",
) -> _T: ...
def parameter(
    default: Any,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[Any] | None = None,
    help: str = "",  # noqa: A002 - the word that argparse, click and typer use
) -> Any:
    """Declare a parameter in the body of a program class.

    The annotation says the type (int, float, str or bool); without one it is the default's.

    Args:
        default: The value when none is given.
        minimum: Lowest value allowed.
        maximum: Highest value allowed.
        choices: The only values allowed.
        help: One sentence for people.

    Example:
        >>> from sapwood.code.program import Program
        >>> class KMeans(Program):
        ...     colours: int = parameter(16, minimum=2, maximum=256, help="colours to keep")
        >>> KMeans(colours=8).colours
        8
    """
    return Parameter(default, minimum=minimum, maximum=maximum, choices=choices, help=help)
