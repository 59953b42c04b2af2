"""Settings written as TOML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.environment.schema import Key, find_setting
from sapwood.environment.settings import Settings
from sapwood.environment.toml_text import format_key, format_value
from sapwood.environment.units import format_duration, format_size


def render_toml(settings: Settings) -> str:
    """Return settings as TOML: a configuration file."""
    lines: list[str] = []
    _render(settings, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _render(section: msgspec.Struct, key: Key, lines: list[str]) -> None:
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    plain = {
        name: value
        for name, value in values.items()
        if not isinstance(value, msgspec.Struct | dict) and value is not None
    }
    if plain:
        lines += ["", f"[{format_key(key)}]"]
    lines += [f"{name} = {render_value((*key, name), value)}" for name, value in plain.items()]
    for name, value in values.items():
        if isinstance(value, msgspec.Struct):
            _render(value, (*key, name), lines)
        elif isinstance(value, dict):
            texts = {inner: item for inner, item in value.items() if isinstance(item, str)}
            if texts:
                lines += ["", f"[{format_key((*key, name))}]"]
                lines += [f"{format_key((one,))} = {format_value(texts[one])}" for one in texts]
            for inner, item in value.items():
                if inner not in texts:
                    _render(item, (*key, name, inner), lines)


def render_value(key: Key, value: Any) -> str:
    """Return the value of a setting as TOML, sizes and durations with units."""
    write = _WRITERS.get(find_setting(key, "").unit)
    return format_value(value if write is None or value is None else write(value))


_WRITERS: dict[str, Callable[[Any], str]] = {"bytes": format_size, "seconds": format_duration}
