"""The document of the protocol has every message with its tag, its fields and their types.

Whoever adds a message or a field adds a row: the failure says which.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from sapwood.comm.frames import MAX_GREETING, MAX_HEADER, MAX_REFERENCE
from sapwood.comm.link import CHANNEL_TRANSITIONS, MESSAGE_COST
from sapwood.comm.messages import PROTOCOL_VERSION, WINDOW, AnyMessage
from sapwood.comm.shared_memory import SharedRef
from sapwood.comm.values import ArrayMeta

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"
KINDS: list[type[Any]] = sorted(
    get_args(AnyMessage), key=lambda kind: int(kind.__struct_config__.tag)
)
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


def structures(kinds: list[type[Any]]) -> list[type[Any]]:
    """Return the structures inside messages, and what stands in their bodies."""
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

    for kind in kinds:
        visit(msgspec.inspect.type_info(kind))
    return [found[name] for name in sorted(found)]


def check_row(begin: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(begin)]
    assert len(rows) == 1, (
        f"docs/reference/protocol.md needs this row, and its meaning:\n{begin} … |"
    )
    meaning = rows[0].removeprefix(begin).strip(" |")
    assert len(meaning.split()) >= 4, f"the row says too little: {rows[0]}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_is_in_the_document(kind: type[Any]) -> None:
    check_row(f"| {kind.__struct_config__.tag} | `{kind.__name__}` | {fields_text(kind)} |")


@pytest.mark.parametrize("kind", structures(KINDS), ids=lambda kind: kind.__name__)
def test_every_structure_is_in_the_document(kind: type[Any]) -> None:
    form = "array" if kind.__struct_config__.array_like else "map"
    check_row(f"| `{kind.__name__}` | {form} | {fields_text(kind)} |")


def test_the_table_of_states_is_that_of_the_code() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    (begin,) = [number for number, line in enumerate(lines) if line.startswith("| state |")]
    events = [cell.strip() for cell in lines[begin].strip("|").split("|")][1:]
    written: dict[tuple[str, str], str] = {}
    for line in itertools.takewhile(lambda one: one.startswith("|"), lines[begin + 2 :]):
        state, *following = [cell.strip() for cell in line.strip("|").split("|")]
        written |= {
            (state, event): after for event, after in zip(events, following, strict=True) if after
        }
    assert written == {
        (state.value, event.value): after.value
        for (state, event), after in CHANNEL_TRANSITIONS.items()
    }


def test_no_message_is_in_the_document_that_does_not_exist() -> None:
    names = {kind.__name__ for kind in KINDS}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and cells[1].isdecimal() and cells[2].startswith("`"):
            assert cells[2].strip("`") in names, line


@pytest.mark.parametrize(
    "constant",
    [
        f"Version {PROTOCOL_VERSION}.",
        f"{MESSAGE_COST} bytes",
        f"{MAX_HEADER // 2**20} MiB",
        f"{MAX_GREETING // 2**10} KiB",
        f"{MAX_REFERENCE} bytes",
        f"{WINDOW // 2**20} MiB",
    ],
)
def test_the_numbers_are_in_the_document(constant: str) -> None:
    assert constant in DOCUMENT.read_text(encoding="utf-8")
