"""The messages and structures of the protocol as tables in Markdown."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from sapwood.comm.messages import AnyMessage
from sapwood.comm.shared_memory import SharedRef
from sapwood.comm.values import ArrayMeta

KINDS: list[type[Any]] = sorted(
    get_args(AnyMessage), key=lambda kind: int(kind.__struct_config__.tag)
)
"""All messages, by their tags."""

PLAIN = {
    msgspec.inspect.IntType: "int",
    msgspec.inspect.FloatType: "float",
    msgspec.inspect.StrType: "str",
    msgspec.inspect.BytesType: "bytes",
    msgspec.inspect.BoolType: "bool",
    msgspec.inspect.NoneType: "nil",
}
PAIRS = "array of [int, int]"


def type_text(kind: msgspec.inspect.Type) -> str:
    """Return how the document writes a type."""
    info = msgspec.inspect
    plain = PLAIN.get(type(kind))
    if plain is not None:
        return plain
    if isinstance(kind, info.StructType):
        return kind.cls.__name__
    if isinstance(kind, info.VarTupleType):
        return f"array of {type_text(kind.item_type)}".replace(PAIRS, "pairs")
    if isinstance(kind, info.TupleType):
        return f"[{', '.join(map(type_text, kind.item_types))}]"
    if isinstance(kind, info.DictType):
        return f"map of {type_text(kind.key_type)} to {type_text(kind.value_type)}"
    if isinstance(kind, info.UnionType):
        return " or ".join(map(type_text, kind.types))
    raise AssertionError(f"no text for {kind}")


def fields_text(kind: type[Any]) -> str:
    """Return how the document writes the fields of a structure, in order."""
    written = []
    for field in msgspec.structs.fields(kind):
        text = f"`{field.name}` {type_text(msgspec.inspect.type_info(field.type))}"
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if default is not msgspec.NODEFAULT and isinstance(default, int | float | str | bytes):
            text += f" = {default!r}"
        elif default is None:
            text += " = nil"
        elif default is not msgspec.NODEFAULT:
            text += " = []" if default == () else " = {}" if default == {} else " = its defaults"
        written.append(text)
    return ", ".join(written) or "none"


def meaning(kind: type[Any]) -> str:
    """Return what a structure means: its docstring without the list of attributes."""
    text = (kind.__doc__ or "").partition("Attributes:")[0]
    return " ".join(text.replace("``", "`").split())


def structures() -> dict[str, type[Any]]:
    """Return the structures inside messages, and in their bodies and payloads, by name."""
    found: dict[str, type[Any]] = {one.__name__: one for one in (SharedRef, ArrayMeta)}

    def visit(kind: msgspec.inspect.Type) -> None:
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls not in KINDS:
                found.setdefault(kind.cls.__name__, kind.cls)
            for field in kind.fields:
                visit(field.type)
        for name in ("item_type", "key_type", "value_type"):
            inner = getattr(kind, name, None)
            if inner is not None:
                visit(inner)
        for inner in (*getattr(kind, "item_types", ()), *getattr(kind, "types", ())):
            visit(inner)

    for kind in KINDS:
        visit(msgspec.inspect.type_info(kind))
    return {name: found[name] for name in sorted(found)}


def message_table(tags: set[int]) -> str:
    """Return the table of the messages with these tags."""
    lines = ["| tag | message | fields in order | meaning |", "|---|---|---|---|"]
    lines += [
        f"| {kind.__struct_config__.tag} | `{kind.__name__}` | {fields_text(kind)} "
        f"| {meaning(kind)} |"
        for kind in KINDS
        if int(kind.__struct_config__.tag) in tags
    ]
    return "\n".join(lines)


def structure_table(names: list[str]) -> str:
    """Return the table of the structures with these names."""
    lines = ["| structure | form | fields in order | meaning |", "|---|---|---|---|"]
    known = structures()
    for name in names:
        kind = known[name]
        form = "array" if kind.__struct_config__.array_like else "map"
        lines.append(f"| `{name}` | {form} | {fields_text(kind)} | {meaning(kind)} |")
    return "\n".join(lines)


def tags_of(text: str) -> set[int]:
    """Return the numbers of a list such as ``10-15 44``."""
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
