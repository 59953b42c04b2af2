"""Grid-stride loops: run round by round over the block, so that neighbours stay neighbours."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood_cuda_cpu.guards import is_linear
from sapwood_cuda_cpu.parse import plain, walk
from sapwood_cuda_cpu.variables import Variables, used_words


class StrideLoop(msgspec.Struct, frozen=True):
    """A loop ``for (T i = start; i < end; i += step)``, each part a node."""

    type: str
    name: str
    start: Any
    condition: Any
    step: Any
    body: Any

    @property
    def end(self) -> Any:
        """What the index stays below."""
        return self.condition.child_by_field_name("right")


def find_stride_loop(node: Any, variables: Variables) -> StrideLoop | None:
    """Return the parts of a loop whose rounds may be run by all threads before the next.

    Threads are independent between barriers, so this is right for every loop that only its
    condition ends, with a step that all have in common, where the first thread starts lowest and
    no index wraps. That is asked when the loop begins; else each thread runs its rounds alone.
    """
    initial, condition = (
        node.child_by_field_name("initializer"),
        node.child_by_field_name("condition"),
    )
    update, body = node.child_by_field_name("update"), node.child_by_field_name("body")
    if initial is None or initial.type != "declaration" or condition is None or update is None:
        return None
    declarators = initial.children_by_field_name("declarator")
    if len(declarators) != 1 or declarators[0].type != "init_declarator":
        return None
    name = plain(declarators[0].child_by_field_name("declarator").text)
    start = declarators[0].child_by_field_name("value")
    step = _step(update, name)
    if step is None or not name.isidentifier() or variables.is_uniform(start):
        return None
    kind = plain(initial.text[: declarators[0].start_byte - initial.start_byte])
    kind = kind.replace("const ", "")
    fits = (
        is_linear(start, variables)
        and variables.is_uniform(step)
        and is_linear(step, variables)
        and _below(condition, name, variables)
        and not _ends_early(body)
        and _changes_only_here(name, node, variables)
        and "auto" not in kind
    )
    return StrideLoop(kind, name, start, condition, step, body) if fits else None


def _step(update: Any, name: str) -> Any:
    if update.type != "assignment_expression":
        return None
    left, right = update.child_by_field_name("left"), update.child_by_field_name("right")
    if plain(left.text) != name or update.children[1].type != "+=":
        return None
    return right


def _below(condition: Any, name: str, variables: Variables) -> bool:
    if condition.type != "binary_expression" or condition.children[1].type not in {"<", "<="}:
        return False
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    return (
        plain(left.text) == name
        and name not in used_words(right)
        and variables.is_uniform(right)
        and is_linear(right, variables)
    )


def _ends_early(body: Any) -> bool:
    for each in walk(body):
        if each.type == "return_statement":
            return True
        if each.type in {"break_statement", "continue_statement"}:
            above = each.parent
            loops = {"for_statement", "while_statement", "do_statement"}
            if each.type == "break_statement":
                loops.add("switch_statement")
            while above.id != body.id and above.type not in loops:
                above = above.parent
            if above.id == body.id:
                return True
    return False


def _changes_only_here(name: str, loop: Any, variables: Variables) -> bool:
    update = loop.child_by_field_name("update")
    return all(
        change.id == update.id
        for variable in variables.by_name[name]
        for change in variable.changes
        if loop.start_byte <= change.start_byte < loop.end_byte
    )
