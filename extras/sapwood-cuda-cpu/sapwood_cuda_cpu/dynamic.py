"""Dynamic shared memory: ``extern __shared__`` declarations."""

from __future__ import annotations

import re
from typing import Any

from sapwood_cuda_cpu.parse import Function, declared_names, plain, walk


def is_dynamic(node: Any) -> bool:
    """Whether the size of a shared array comes with the launch."""
    return is_extern(node)


def is_extern(node: Any) -> bool:
    """Whether a declaration is ``extern``."""
    return any(c.type == "storage_class_specifier" and c.text == b"extern" for c in node.children)


def dynamic_declaration(node: Any) -> tuple[str, str, str]:
    """Return element type, name and inner extents of ``extern __shared__ T name[][n];``."""
    declarator = node.child_by_field_name("declarator")
    head = plain(node.text[: declarator.start_byte - node.start_byte])
    head = re.sub(r"__align__\s*\([^()]*\)|alignas\s*\([^()]*(\([^()]*\))?[^()]*\)", "", head)
    head = re.sub(r"__attribute__\s*\(\([^()]*(\([^()]*\))?\)\)", "", head)
    head = " ".join(w for w in head.split() if w not in {"extern", "__shared__"})
    spelled = re.sub(r"__align__\s*\([^()]*\)", "", plain(declarator.text))
    match = re.match(r"(\w+)\s*\[\s*\](.*)$", spelled)
    if match is None:
        return head, spelled.split("[")[0].strip(), ""
    return head, match[1], match[2].strip()


def dynamic_pointer(node: Any) -> str:
    """Return a pointer to the dynamic shared memory, without a first value: jumps may pass it."""
    element, name, extents = dynamic_declaration(node)
    value = f"::sapwood_cuda::dynamic_shared<{element}{extents}>()"
    kind = f"decltype({value}) " if extents else f"{element} *"
    return f"{kind}{name}; {name} = {value};"


def outer_dynamic(function: Function) -> str:
    """Return pointers to the dynamic shared memory of its file that a function uses."""
    own = {each.name for each in function.parameters}
    for node in walk(function.body):
        if node.type in {"declaration", "parameter_declaration", "for_range_loop"}:
            own |= set(declared_names(node))
    used = function.words - own
    return "".join(
        " " + dynamic_pointer(node)
        for node in function.source.shared
        if is_dynamic(node) and not is_inside(node) and set(declared_names(node)) & used
    )


def is_inside(node: Any) -> bool:
    """Whether a declaration stands in a function."""
    while node is not None and node.type != "compound_statement":
        node = node.parent
    return node is not None
