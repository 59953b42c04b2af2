"""Options that are declared once, as annotated fields of structs.

What follows from such a declaration: arguments of calls, options of commands, their checks and
their help texts. Annotations are types there and not text, so that they can be read.
"""

import dataclasses
import functools
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from sapwood.core.arguments import choice, duration, path_text, whole
from sapwood.core.errors import ConfigurationError, InputError

S = TypeVar("S", bound=msgspec.Struct)

SECONDS, PATH = "seconds", "path"
"""Units of options: durations, and paths, which are made absolute."""


def option(
    about: str,
    metavar: str = "",
    *,
    least: int | None = None,
    unit: str = "",
    setting: str = "",
    words: Sequence[str] = (),
    python: str = "",
    only_python: bool = False,
) -> Any:
    """Return the description of an option, for use inside ``Annotated``.

    Args:
        about: The help text.
        metavar: What its value is called in the help text.
        least: The least number.
        unit: :data:`SECONDS` or :data:`PATH`.
        setting: The setting that counts where the option is not given.
        words: What it is called on the command line; by default ``--name``.
        python: The description of the argument in Python, where it differs.
        only_python: Whether the command line has no such option.
    """
    extra = {
        "metavar": metavar,
        "least": least,
        "unit": unit,
        "setting": setting,
        "words": tuple(words),
        "python": python or about,
        "only_python": only_python,
    }
    return Meta(description=about, extra=extra)


@dataclasses.dataclass(frozen=True, slots=True)
class OptionField:
    """The declaration of one option.

    Attributes:
        name: Its name in Python.
        kind: Its type, without None.
        default: Its default value; :data:`msgspec.NODEFAULT` for none.
        about: Its help text.
        metavar: What its value is called in the help text.
        least: The least number, or None.
        unit: :data:`SECONDS`, :data:`PATH` or empty.
        setting: The setting that counts where the option is not given; empty for none.
        words: What it is called on the command line.
        python: Its description in Python.
        only_python: Whether the command line has no such option.
    """

    name: str
    kind: Any
    default: Any
    about: str
    metavar: str
    least: int | None
    unit: str
    setting: str
    words: tuple[str, ...]
    python: str
    only_python: bool

    def checked(self, value: Any) -> Any:
        """Return a value as the run works with it.

        Raises:
            InputError: The value is of the wrong type, or out of range.
        """
        if value is None:
            return None
        if self.unit == SECONDS:
            return duration(value, self.name)
        if self.unit == PATH:
            return str(Path(path_text(value, self.name, ConfigurationError)).absolute())
        if get_origin(self.kind) is Literal:
            return choice(value, self.name, get_args(self.kind))
        if self.kind is not int:
            return value
        number = whole(value, self.name)
        if self.least is not None and number < self.least:
            raise InputError(
                f"{self.name} is {number}", hint=f"give a whole number from {self.least} on"
            )
        return number

    def described(self) -> str:
        """Return the description of its argument in Python."""
        setting = f" By default ``{self.setting}``." if self.setting else ""
        seconds = " In seconds." if self.unit == SECONDS else ""
        return f"{self.python}{seconds}{setting}"


@functools.cache
def option_fields(kind: type[msgspec.Struct]) -> tuple[OptionField, ...]:
    """Return the options that a struct declares, in the order of their declaration."""
    return tuple(_fields(kind))


def _fields(kind: type[msgspec.Struct]) -> Iterator[OptionField]:
    for field in msgspec.structs.fields(kind):
        if get_origin(field.type) is not Annotated:
            continue
        inner, note = get_args(field.type)
        if get_origin(inner) in {Union, types.UnionType}:
            inner = next(one for one in get_args(inner) if one is not type(None))
        name = field.name
        extra = dict(note.extra)
        extra["words"] = extra["words"] or (f"--{name.replace('_', '-')}",)
        yield OptionField(name, inner, field.default, about=note.description, **extra)


def checked(spec: S) -> S:
    """Return a spec whose options are checked and have the types that the run works with.

    Raises:
        InputError: An option is of the wrong type, or out of range.
    """
    values = {one.name: one.checked(getattr(spec, one.name)) for one in option_fields(type(spec))}
    return msgspec.structs.replace(spec, **values)


def completed(spec: S, settings: object) -> S:
    """Return a spec with the settings in place of options that were not given."""
    found = {
        one.name: functools.reduce(getattr, one.setting.split("."), settings)
        for one in option_fields(type(spec))
        if one.setting and getattr(spec, one.name) is None
    }
    return msgspec.structs.replace(spec, **found)
