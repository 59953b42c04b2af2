"""Settings written as TOML; with comments for the file of all defaults.

``python -m sapwood.environment.defaults`` prints what ``defaults.toml`` must hold.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import msgspec

from sapwood.environment.schema import Key, find_setting
from sapwood.environment.settings import Settings
from sapwood.environment.toml_text import format_key, format_value
from sapwood.environment.units import format_size


def render_toml(settings: Settings, *, comments: bool = False) -> str:
    """Return settings as TOML.

    Args:
        settings: The settings.
        comments: Whether each is explained.
    """
    lines: list[str] = []
    _render(settings, (), lines, _abouts() if comments else {})
    return "\n".join(lines).lstrip("\n") + "\n"


def default_toml() -> str:
    """Return the commented defaults: what ``defaults.toml`` in this folder holds."""
    return (
        "# Every setting of Sapwood with its default. Copy what you want to change into\n"
        "# sapwood.toml (this project) or ~/.config/sapwood/config.toml (you).\n"
        '# Sizes may be written with units ("64 KiB", "2 GB"), durations too ("500 ms", "10 s").\n'
        '# Tables [host."gpu*".log] overlay [log] on hosts whose name matches.\n\n'
        + render_toml(Settings(), comments=True)
    )


def _render(section: msgspec.Struct, key: Key, lines: list[str], abouts: Mapping[Key, str]) -> None:
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    plain = {
        name: value
        for name, value in values.items()
        if not isinstance(value, msgspec.Struct | dict) and value is not None
    }
    if plain:
        lines += ["", *_comment(abouts.get(key, "")), f"[{format_key(key)}]"]
    for name, value in plain.items():
        if abouts:
            lines += _comment(abouts[*key, name], find_setting((*key, name), "").unit)
        lines.append(f"{name} = {render_value((*key, name), value)}")
    for name, value in values.items():
        if isinstance(value, msgspec.Struct):
            _render(value, (*key, name), lines, abouts)
        elif isinstance(value, dict):
            lines += _comment(abouts.get((*key, name), ""))
            texts = {inner: item for inner, item in value.items() if isinstance(item, str)}
            if texts:
                lines += ["", f"[{format_key((*key, name))}]"]
                lines += [f"{format_key((one,))} = {format_value(texts[one])}" for one in texts]
            for inner, item in value.items():
                if inner not in texts:
                    _render(item, (*key, name, inner), lines, abouts)


def _abouts() -> dict[Key, str]:
    """Return the description of every setting and section."""
    found: dict[Key, str] = {}
    pending: list[tuple[Key, Any]] = [((), msgspec.inspect.type_info(Settings))]
    while pending:
        key, info = pending.pop()
        while isinstance(info, msgspec.inspect.Metadata):
            found.setdefault(key, (info.extra_json_schema or {}).get("description", ""))
            info = info.type
        if isinstance(info, msgspec.inspect.StructType):
            pending += [((*key, field.name), field.type) for field in info.fields]
    return found


def _comment(text: str, unit: str = "") -> list[str]:
    note = f"{text} Unit: {unit}." if unit == "seconds" else text
    return textwrap.wrap(note, 96, initial_indent="# ", subsequent_indent="# ")


def render_value(key: Key, value: Any) -> str:
    """Return the value of a setting as TOML, sizes with units."""
    setting = find_setting(key, "")
    return format_value(format_size(value) if setting.unit == "bytes" else value)


if __name__ == "__main__":
    sys.stdout.write(default_toml())
