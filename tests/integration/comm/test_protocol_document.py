"""The document of the protocol has a table for every message and structure, and right numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from protocol_text import KINDS, meaning, message_table, structures, tags_of

from sapwood.comm.frames import MAX_GREETING, MAX_HEADER, MAX_REFERENCE
from sapwood.comm.link import MESSAGE_COST
from sapwood.comm.messages import PROTOCOL_VERSION, WINDOW

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")


def named(directive: str) -> list[str]:
    """Return the arguments of the uses of a directive."""
    return re.findall(rf"^```\{{{directive}\}} (.*)$", DOCUMENT, re.MULTILINE)


def test_every_message_is_in_one_table() -> None:
    written = [tag for text in named("protocol-messages") for tag in sorted(tags_of(text))]
    assert sorted(written) == [int(kind.__struct_config__.tag) for kind in KINDS]


def test_every_structure_is_in_one_table() -> None:
    written = " ".join(named("protocol-structures")).split()
    assert sorted(written) == list(structures())


@pytest.mark.parametrize(
    "kind", [*KINDS, *structures().values()], ids=lambda kind: str(kind.__name__)
)
def test_each_says_what_it_means(kind: type[Any]) -> None:
    text = meaning(kind)
    assert len(text.split()) >= 4, f"the docstring of {kind.__name__} says too little: {text}"
    assert "|" not in text, "a bar ends the cell of a table"


def test_a_table_has_fields_with_types_and_defaults() -> None:
    (row,) = (line for line in message_table({6, 30}).splitlines() if "`Sweep`" in line)
    fields = "`stream` int, `number` int, `action` str, `filters` array of FilterAt = []"
    assert row.startswith(f"| 30 | `Sweep` | {fields} | Downwards")


def test_every_clause_has_its_own_number() -> None:
    clauses = re.findall(r"^- \*\*([A-Z]\d+)\*\* ", DOCUMENT, re.MULTILINE)
    assert len(clauses) > 60
    assert len(set(clauses)) == len(clauses)
    for series in {clause[0] for clause in clauses}:
        numbers = [int(clause[1:]) for clause in clauses if clause[0] == series]
        assert numbers == list(range(1, len(numbers) + 1)), series


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
    assert constant in DOCUMENT
