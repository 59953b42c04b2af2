"""Guards around arrays that a kernel declares: shared ones, and those of device memory.

``__shared__ float s[n];`` becomes an object that holds the array between bytes of a pattern, and
a reference ``s`` to the array; what looks at the pattern is in ``sapwood/guarded.h``. Where a
declaration is not understood, it stays as it is, and its array is not guarded. So it is too where a
reference would mean another thing: lambdas would copy the array, and no jump may pass it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import (
    CudaSource,
    declared_names,
    is_function,
    plain,
    qualifiers,
    walk,
)

_ALIGNMENT: Final = re.compile(
    r"\b(?:__align__|alignas|__builtin_align__|__attribute__\s*\(\(\s*aligned)"
    r"\s*\(\s*(\d+)\s*\)(?:\s*\)\s*\))?"
)
_ALIGNED: Final = re.compile(r"align")
_ARRAY: Final = re.compile(r"([A-Za-z_]\w*)\s*((?:\[[^\[\]{}]+\]\s*)+)$")
_QUALIFIERS: Final = frozenset({"__shared__", "__device__", "__constant__", "__managed__"})
_MOST_ALIGNED: Final = 64
"""Bytes: as guarded arrays are aligned anyway."""
_SPACES: Final = frozenset(
    {"translation_unit", "declaration_list", "preproc_if", "preproc_ifdef", "preproc_else"}
)
_NO_REFERENCE: Final = frozenset({"lambda_expression", "goto_statement"})
_CLASSES: Final = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
_GUARDED: Final = "::sapwood_cuda::Guarded"


def guarded_shared(node: Any, *, on_stack: bool) -> str:
    """Return declarations of shared arrays between guards; nothing where that cannot be done.

    Args:
        node: The declaration.
        on_stack: Whether it stands in a function that runs the whole block.
    """
    head = _head(node)
    if head is None or "__shared__" not in head.split() or not _may_be_reference(node):
        return ""
    text = ""
    for declarator in node.children_by_field_name("declarator"):
        match = _ARRAY.match(plain(declarator.text)) if _is_array(declarator) else None
        if match is None or match[1].startswith("sapwood_"):
            return ""
        name = match[1]
        text += f"typedef {_type(head)} sapwood_a_{name}{match[2]}; "
        if on_stack:
            text += f"{_GUARDED}<sapwood_a_{name}> sapwood_g_{name}; "
            text += f"const ::sapwood_cuda::Watch<sapwood_a_{name}> "
            text += f'sapwood_w_{name}(sapwood_g_{name}, "{name}"); '
        else:
            text += f"static thread_local {_GUARDED}<sapwood_a_{name}> sapwood_g_{name}; "
            text += f'::sapwood_cuda::watch_shared(sapwood_g_{name}, "{name}"); '
        text += f"auto &{name} = sapwood_g_{name}.array;"
    return text


def edit_device_variables(source: CudaSource, elsewhere: set[str], edits: Edits) -> None:
    """Give a source its own device variables, as CUDA does, and put guards around arrays of them.

    Args:
        source: The source.
        elsewhere: Names that some source declares as ``extern``: all sources share these.
        edits: Where the edits go.
    """
    for node in source.device_declarations:
        shared = elsewhere.intersection(declared_names(node))
        if shared or node.parent.type not in _SPACES or is_function(node):
            continue
        words = set(plain(node.text).split("=")[0].split())
        if _guard(node, edits) or words & {"static", "extern", "inline", "const", "constexpr"}:
            continue
        edits.insert(qualifiers(node, *_QUALIFIERS)[0].start_byte, "static ")


def _guard(node: Any, edits: Edits) -> bool:
    """Put guards around an array; say whether that could be done."""
    head = _head(node)
    declarators = node.children_by_field_name("declarator")
    if head is None or len(declarators) != 1:
        return False
    if {"extern", "const", "constexpr", "inline"} & set(head.split()):
        return False
    declarator, value = declarators[0], None
    if declarator.type == "init_declarator":
        value = declarator.child_by_field_name("value")
        declarator = declarator.child_by_field_name("declarator")
    match = _ARRAY.match(plain(declarator.text)) if _is_array(declarator) else None
    if match is None or (value is not None and value.type != "initializer_list"):
        return False
    _guard_device_array(node, _type(head), (match[1], match[2]), value, edits)
    return True


def _guard_device_array(
    node: Any, kind: str, array: tuple[str, str], value: Any, edits: Edits
) -> None:
    name, extents = array
    begin = f"typedef {kind} sapwood_a_{name}{extents}; "
    begin += f"static {_GUARDED}<sapwood_a_{name}> sapwood_g_{name}"
    end = f"; static const ::sapwood_cuda::Known sapwood_k_{name}(sapwood_g_{name}, "
    end += f'"{name}"); static constexpr auto &{name} = sapwood_g_{name}.array;'
    if value is None:
        edits.replace(node.start_byte, node.end_byte, begin + end)
        return
    edits.replace(node.start_byte, value.start_byte, begin + " = {{}, ")
    edits.replace(value.end_byte, node.end_byte, ", {}}" + end)


def _may_be_reference(node: Any) -> bool:
    """Whether a reference in a function can stand for a variable that lasts, as shared ones do."""
    if node.parent.type == "case_statement":
        return False
    while node.type != "function_definition" and node.parent is not None:
        node = node.parent
    return not any(
        each.type in _NO_REFERENCE
        or (each.type in _CLASSES and each.child_by_field_name("body") is not None)
        for each in walk(node.child_by_field_name("body") or node)
    )


def _head(node: Any) -> str | None:
    """Return what stands before the first declarator; None where it cannot be moved."""
    first = node.child_by_field_name("declarator")
    if node.type != "declaration" or first is None or node.has_error:
        return None
    head = plain(node.text[: first.start_byte - node.start_byte])
    sizes = [int(size) for size in _ALIGNMENT.findall(head)]
    head = _ALIGNMENT.sub(" ", head)
    if _ALIGNED.search(head) or "{" in head or any(size > _MOST_ALIGNED for size in sizes):
        return None
    return head


def _type(head: str) -> str:
    return " ".join(word for word in head.split() if word not in {*_QUALIFIERS, "static"})


def _is_array(declarator: Any) -> bool:
    return bool(declarator.type == "array_declarator")
