"""Readers of the layers of configuration: a file, the variables, the flags."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown
from sapwood.environment.folders import expand_user
from sapwood.environment.schema import Key, find_setting, is_section
from sapwood.environment.toml_text import key_lines, line_of

PREFIX = "SAPWOOD_"
NESTING = "__"

_DECODE_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The value of one setting.

    Attributes:
        value: The value, converted to its type.
        layer: Name of the layer.
        origin: File and line, name of the variable, or name of the layer.
    """

    value: Any
    layer: str
    origin: str


def read_file(path: Path, layer: str, hostname: str, table: Key = ()) -> dict[Key, Entry]:
    """Return the entries of a file; none if it does not exist.

    Args:
        path: The file.
        layer: Name of its layer.
        hostname: Which overlays ``[host."pattern"]`` apply.
        table: The table of the file that is meant, for ``pyproject.toml``.

    Raises:
        ConfigurationError: It is not readable TOML, or holds what is not a setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigurationError(
            f"a configuration file cannot be read: {error.strerror}",
            where=str(path),
            hint="check its permissions",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _not_toml(path, error) from error
    source = _Source(path, layer, table, key_lines(text))
    for part in table:
        document = source.table_of(document, (), "").get(part, {})
    document = dict(source.table_of(document, (), ".".join(table)))
    overlays = source.table_of(document.pop("host", {}), ("host",), "host")
    entries = dict(source.entries(document, (), ()))
    for pattern, overlay in overlays.items():
        base = ("host", pattern)
        found = dict(source.entries(source.table_of(overlay, base, f"host.{pattern}"), (), base))
        if _matches(hostname, pattern):
            entries.update(found)
    return entries


def read_variables(variables: Mapping[str, str]) -> dict[Key, Entry]:
    """Return the entries of environment variables; empty ones count as unset.

    Raises:
        ConfigurationError: A variable with the prefix and a section names no setting.
    """
    entries: dict[Key, Entry] = {}
    for name in sorted(variables):
        # Every setting is in a section, so a name without nesting is not a setting.
        if not name.startswith(PREFIX) or NESTING not in name or not variables[name]:
            continue
        key = tuple(name.removeprefix(PREFIX).lower().split(NESTING))
        value = find_setting(key, name).parse(variables[name], name)
        entries[key] = Entry(value, "variable", name)
    return entries


def read_flags(flags: Mapping[str, Any]) -> dict[Key, Entry]:
    """Return the entries of flags, given by dotted key.

    Raises:
        ConfigurationError: A key is unknown or a value is wrong.
    """
    entries: dict[Key, Entry] = {}
    for name, value in flags.items():
        key = tuple(name.split("."))
        setting = find_setting(key, "flag")
        read = setting.parse if isinstance(value, str) else setting.convert
        entries[key] = Entry(read(value, "flag"), "flag", "flag")
    return entries


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """A file being read: its layer, the table that is meant, the lines of its keys."""

    path: Path
    layer: str
    table: Key
    lines: Mapping[Key, int]

    def origin(self, key: Key) -> str:
        line = line_of((*self.table, *key), self.lines)
        return f"{self.path}:{line}" if line else str(self.path)

    def table_of(self, value: Any, key: Key, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"{name} cannot be {shown(value)}",
                where=self.origin(key),
                hint=f"it is a table: write [{name}]",
            )
        return value

    def entries(self, node: dict[str, Any], key: Key, base: Key) -> Iterator[tuple[Key, Entry]]:
        for name, value in node.items():
            inner = (*key, name)
            place = (*base, *inner)
            if is_section(inner):
                section = self.table_of(value, place, ".".join(inner))
                yield from self.entries(section, inner, base)
                continue
            origin = self.origin(place)
            setting = find_setting(inner, origin)
            converted = setting.convert(value, origin)
            if setting.unit == "path":
                converted = self.beside(converted)
            yield inner, Entry(converted, self.layer, origin)

    def beside(self, value: Any) -> Any:
        """Make the paths of a setting absolute: they are relative to the file they stand in."""
        if isinstance(value, list):
            return [self.beside(one) for one in value]
        return str(self.path.absolute().parent / expand_user(value)) if value else value


def _matches(hostname: str, pattern: str) -> bool:
    """Whether a pattern fits the full name of a host or its first part."""
    return fnmatchcase(hostname, pattern) or fnmatchcase(hostname.partition(".")[0], pattern)


def _not_toml(path: Path, error: Exception) -> ConfigurationError:
    text = str(error)
    match = _DECODE_LINE.search(text)
    return ConfigurationError(
        f"a configuration file is not valid TOML: {_DECODE_LINE.sub('', text)}",
        where=f"{path}:{match[1]}" if match else str(path),
        hint="texts need quotes, tables square brackets",
    )
