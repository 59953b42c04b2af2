"""The schema of a configuration, derived from the settings: keys, types, units, meanings."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggestion
from sapwood.environment.settings import LARGEST, Settings
from sapwood.environment.units import parse_duration, parse_size

UNITS: dict[str, Callable[[str], float]] = {"bytes": parse_size, "seconds": parse_duration}
"""Readers of texts with units."""

ANY = "*"
"""Part of a key that may be any name, for example a component."""

Key = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class SettingField:
    """One setting.

    Attributes:
        key: Its dotted name in parts; :data:`ANY` where a name may be chosen.
        kind: Its type without annotations.
        minimum: Least value, or None.
        unit: ``"bytes"``, ``"seconds"``, ``"path"`` or empty.
        about: What it means.
        default: Its default value.
    """

    key: Key
    kind: Any
    minimum: float | None
    unit: str
    about: str
    default: Any

    def expected(self) -> str:
        """Return what the value must look like, for people."""
        kind = _without_none(self.kind)
        if self.unit == "bytes":
            return 'a size such as 1024 or "64 KiB"'
        if self.unit == "seconds":
            return 'a duration such as 2.5 or "500 ms"'
        if get_origin(kind) is Literal:
            return "one of " + ", ".join(map(str, get_args(kind)))
        text = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "a text",
            list[str]: "a list of texts",
        }[kind]
        return text if self.minimum is None else f"{text} from {self.minimum:g} on"

    def convert(self, value: Any, origin: str) -> Any:
        """Return the value that a file or variable means.

        Raises:
            ConfigurationError: It is of the wrong type or out of range.
        """
        try:
            if isinstance(value, str) and self.unit in UNITS:
                value = UNITS[self.unit](value)
            meta = msgspec.Meta(ge=self.minimum) if self.minimum is not None else msgspec.Meta()
            if isinstance(value, bool) and self.kind is not bool:
                raise ValueError("true and false are not numbers")
            if isinstance(value, int) and abs(value) > LARGEST:
                raise ValueError("more than 64 bits hold")
            return typed.convert(value, Annotated[self.kind, meta])
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigurationError(
                f"{'.'.join(self.key)} cannot be {shown(value)}",
                where=origin,
                hint=f"expected {self.expected()}",
            ) from error

    def parse(self, text: str, origin: str) -> Any:
        """Return the value that a text means: of a variable or a flag.

        Raises:
            ConfigurationError: The text does not have the right form.
        """
        kind = _without_none(self.kind)
        if self.unit in UNITS or kind is str or get_origin(kind) is Literal:
            return self.convert(text, origin)
        if kind == list[str] and not text.lstrip().startswith("["):
            return self.convert([part for part in text.split(":") if part], origin)
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        return self.convert(value, origin)


@functools.cache
def all_settings() -> tuple[SettingField, ...]:
    """Return every setting, in the order of the structures."""
    return tuple(_walk(Settings, ()))


def find_setting(key: Key, origin: str) -> SettingField:
    """Return the setting of a key, with the key's own names in it.

    Raises:
        ConfigurationError: There is no such key; the message has the nearest.
    """
    settings = all_settings()
    for setting in settings:
        if len(setting.key) == len(key) and all(
            want in {ANY, have} for want, have in zip(setting.key, key, strict=True)
        ):
            return dataclasses.replace(setting, key=key)
    raise ConfigurationError(
        f"unknown setting {shown('.'.join(key))}",
        where=origin,
        hint=_nearest(key, [setting.key for setting in settings]),
    )


def check_settings(settings: object) -> Settings:
    """Return settings that were made in Python as they are, if their values may be so.

    Raises:
        ConfigurationError: One may not, or these are not settings.
    """
    if not isinstance(settings, Settings):
        raise ConfigurationError(
            f"settings is a {type(settings).__name__}", hint="give an object of sapwood.Settings"
        )
    try:
        typed.convert(msgspec.to_builtins(settings), Settings)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        raise ConfigurationError(
            f"{path.rstrip('`')} is wrong: {what[0].lower()}{what[1:]}",
            where="settings",
            hint="`sapwood config show` lists all settings with their values",
        ) from error
    return settings


def is_section(key: Key) -> bool:
    """Whether a key names a group of settings and not one of them."""
    return any(
        len(setting.key) > len(key)
        and all(want in {ANY, have} for want, have in zip(setting.key, key, strict=False))
        for setting in all_settings()
    )


def _nearest(key: Key, known: Sequence[Key]) -> str:
    """Suggest keys for a misspelt one; what follows a right beginning is compared first."""
    for length in range(len(key) - 1, -1, -1):
        siblings = {
            other[length]
            for other in known
            if len(other) > length
            and all(want in {ANY, have} for want, have in zip(other, key[:length], strict=False))
        } - {ANY}
        if siblings and (length == 0 or is_section(key[:length])):
            prefix = ".".join(key[:length])
            kind = f"settings of {prefix}" if prefix else "sections"
            hint = suggestion(key[length], siblings, kind=kind)
            if not hint.startswith("did you mean"):
                return _same_name(key, known) or hint
            return f"{hint[:-1]} in {prefix}?" if prefix else hint
    return "see `sapwood config show`"


def _same_name(key: Key, known: Sequence[Key]) -> str:
    """Suggest the settings of the same last name in other sections."""
    found = [".".join(other) for other in known if other[-1] == key[-1]]
    return f"did you mean {' or '.join(found)}?" if found else ""


def _walk(kind: type[msgspec.Struct], prefix: Key) -> Iterator[SettingField]:
    for field in msgspec.structs.fields(kind):
        inner, minimum, unit, text = _unwrap(field.type)
        key = (*prefix, field.name)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from _walk(inner, key)
        elif get_origin(inner) is dict and get_args(inner)[1] is str:
            yield SettingField((*key, ANY), str, minimum, unit, text, "")
        elif get_origin(inner) is dict:
            yield from _walk(get_args(inner)[1], (*key, ANY))
        else:
            if get_origin(inner) is list:
                item, _least, unit, _text = _unwrap(get_args(inner)[0])
                inner = list[item]  # type: ignore[valid-type]  # built from the settings' types
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            yield SettingField(key, inner, minimum, unit, text, default)


def _unwrap(kind: Any) -> tuple[Any, float | None, str, str]:
    """Take annotations off a type: the type, the least value, the unit, the description."""
    minimum, unit, text = None, "", ""
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        for note in notes:
            minimum = note.ge if note.ge is not None else minimum
            unit = (note.extra or {}).get("unit", unit)
            text = note.description or text
    return kind, minimum, unit, text


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in {Union, types.UnionType}:
        return next(one for one in get_args(kind) if one is not type(None))
    return kind
