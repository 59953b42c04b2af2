"""Options of commands that follow from the structs which declare them.

A command takes such a struct as a parameter, and has an option for each of its fields: see
:func:`sapwood.core.options.option`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
import typer

from sapwood.cli import completion
from sapwood.cli.failures import reporting
from sapwood.cli.options import assignments
from sapwood.core.errors import InputError
from sapwood.core.options import PATH, SECONDS, OptionField, option_fields
from sapwood.core.shown import shown
from sapwood.environment.units import parse_duration

COMPLETIONS: Final[dict[str, Callable[..., Any]]] = {
    "program": completion.programs,
    "parameters": completion.parameter_names,
}
"""What the shell offers for the values of options, by the name of the field."""


def declared(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of the structs among its parameters.

    Errors of the command are reported to its user.
    """
    signature = inspect.signature(function, eval_str=True)
    structs: dict[str, type[msgspec.Struct]] = {}
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        kind = one.annotation
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            structs[one.name] = kind
            parameters += [_parameter(field) for field in fields_on_command_line(kind)]
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @reporting
    @functools.wraps(function)
    def command(**given: Any) -> None:
        made = {name: _made(kind, given) for name, kind in structs.items()}
        rest = {name: given[name] for name in signature.parameters if name not in structs}
        function(**made, **rest)

    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def fields_on_command_line(kind: type[msgspec.Struct]) -> list[OptionField]:
    """Return the fields of a struct that are options of a command."""
    return [one for one in option_fields(kind) if not one.only_python]


def given_words(*specs: msgspec.Struct) -> dict[str, Any]:
    """Return the values of options, by what they are called on the command line."""
    return {
        one.words[0]: getattr(spec, one.name)
        for spec in specs
        for one in fields_on_command_line(type(spec))
    }


def words_of(spec: msgspec.Struct) -> list[str]:
    """Return the words on a command line that give the options of a struct.

    Options with their default value are left out.
    """
    words: list[str] = []
    for one in fields_on_command_line(type(spec)):
        value = getattr(spec, one.name)
        if value == one.default:
            continue
        if one.kind is bool:
            yes, _, no = one.words[0].partition("/")
            words.append(yes if value else no)
        else:
            words += [one.words[0], str(value)]
    return words


def as_flags(spec: msgspec.Struct) -> dict[str, Any]:
    """Return the settings that options stand for, by dotted key, where they were given."""
    return {
        one.setting: getattr(spec, one.name)
        for one in option_fields(type(spec))
        if one.setting and getattr(spec, one.name) not in {None, False}
    }


def _parameter(field: OptionField) -> inspect.Parameter:
    """Return the parameter of a command from which typer makes the option."""
    kind = _kind(field)
    offers = COMPLETIONS.get(field.name)
    if field.default is msgspec.NODEFAULT:
        note: Any = typer.Argument(
            metavar=field.name.upper(), help=field.about, autocompletion=offers
        )
        return inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, note]
        )
    setting = f" Default: the setting {field.setting}." if field.setting else ""
    note = typer.Option(
        *field.words,
        help=field.about + (setting if field.default is None and kind is not bool else ""),
        metavar=field.metavar or _metavar(field),
        min=field.least,
        autocompletion=offers,
    )
    if kind is not bool and field.default is None:
        kind = kind | None
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[kind, note],
    )


def _kind(field: OptionField) -> Any:
    """Return the type by which the command line reads the value of an option."""
    if field.unit == PATH:
        return Path
    if field.kind in {int, bool} or get_origin(field.kind) is Literal:
        return field.kind
    if get_origin(field.kind) is Mapping:
        return list[str]
    return str


def _metavar(field: OptionField) -> str | None:
    words = get_args(field.kind) if get_origin(field.kind) is Literal else ()
    return "|".join(words) or None


def _made(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> msgspec.Struct:
    """Return a struct with the values of its options.

    Raises:
        InputError: One of them cannot be read.
    """
    return kind(**{one.name: _value(one, given[one.name]) for one in fields_on_command_line(kind)})


def _value(field: OptionField, text: Any) -> Any:
    """Return what the value of an option stands for."""
    if get_origin(field.kind) is Mapping:
        return assignments(text or (), field.words[-1])
    if text is None:
        return None
    if field.unit == SECONDS:
        return _seconds(text, field.words[0])
    if field.unit == PATH and field.kind is str:
        return str(text)
    if get_origin(field.kind) is Sequence:
        return tuple(text.split(","))
    return text


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(
            f"{option} cannot be {shown(text)}",
            where=option,
            hint='expected a duration such as 2.5 or "500 ms"',
        ) from error
