"""BLOCK mode: a kernel cut at its barriers into loops over the threads of the block.

Between two barriers the threads of a block are independent, so a loop may run them one after
the other. What all threads have in common (the *skeleton*: loops and conditions around
barriers) is run once. Variables that live across a cut are computed again where that is
arithmetic, and become arrays with one element per thread where it is not.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sapwood_cuda_cpu.additions import edit_atomics
from sapwood_cuda_cpu.calls import BARRIERS, CLEAR, GRID_SYNC, CallGraph
from sapwood_cuda_cpu.control import (
    LABELS,
    LOOPS,
    arms,
    branches,
    condition,
    jumps_out,
    target_loop,
)
from sapwood_cuda_cpu.dynamic import dynamic_pointer, is_dynamic, outer_dynamic
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.guarding import guarded_shared
from sapwood_cuda_cpu.guards import may_trap
from sapwood_cuda_cpu.indices import edit_indices
from sapwood_cuda_cpu.merging import BlockMerging
from sapwood_cuda_cpu.parse import Function, declared_names, plain, walk
from sapwood_cuda_cpu.part import Part
from sapwood_cuda_cpu.parts import PartWriter
from sapwood_cuda_cpu.semantics import Meaning
from sapwood_cuda_cpu.shifting import edit_shifts
from sapwood_cuda_cpu.stride import StrideLoop, find_stride_loop
from sapwood_cuda_cpu.variables import NotPossibleError, Variables, changed_whole, used_words

_REFUSED: Final = {
    "try_statement": "try",
    "lambda_expression": "a lambda",
    "preproc_if": "#if",
    "preproc_ifdef": "#ifdef",
    "preproc_def": "#define",
    "preproc_function_def": "#define",
    "preproc_include": "#include",
    "ERROR": "text that cannot be parsed",
}


class CutKernel:
    """A kernel in BLOCK mode: its edits, and where shared declarations were taken care of."""

    def __init__(self, edits: Edits, shared: set[int]) -> None:
        self.edits = edits
        self.shared = shared


def cut_kernel(kernel: Function, graph: CallGraph, meaning: Meaning) -> CutKernel:
    """Return the edits that make one function for a whole block out of a kernel.

    Raises:
        NotPossibleError: It has to run with a stack per thread.
    """
    _refuse(kernel, graph, meaning)
    return _Cutter(kernel, graph, meaning).cut()


def _refuse(kernel: Function, graph: CallGraph, meaning: Meaning) -> None:
    for node in walk(kernel.body):
        if node.type in _REFUSED or node.is_missing:
            what = _REFUSED.get(node.type, "text that cannot be parsed")
            raise NotPossibleError(f"line {node.start_point[0] + 1}: {what}")
    for word in sorted(kernel.words):
        if word in graph.meeting and word != kernel.name:
            raise NotPossibleError(f"{word} waits for other threads ({graph.meeting[word]})")
    own = {word for word in kernel.words if word not in BARRIERS}
    meeting = graph.meets(own)
    if meeting:
        raise NotPossibleError(f"{meeting} brings threads together")
    if meaning.problem:
        raise NotPossibleError(meaning.problem)
    for start, end in meaning.meeting():
        text = plain(kernel.source.data[start:end])
        if re.split(r"\W", text, maxsplit=1)[0] not in BARRIERS:
            raise NotPossibleError(f"{text} waits for other threads")


class _Cutter:
    """Cuts one kernel."""

    def __init__(self, kernel: Function, graph: CallGraph, meaning: Meaning) -> None:
        self._kernel = kernel
        self._graph = graph
        self._data = kernel.source.data
        self._skeleton: set[int] = set()
        self._cuts = self._find_cuts(kernel.body)
        self._mark(kernel.body)
        self._refuse_jumps()
        self._variables = Variables(kernel, graph, self._skeleton, meaning, self._cuts)
        self._common_words = self._find_common_words()
        self._strides: dict[int, StrideLoop] = {}
        self._shared: set[int] = set()
        self._prologue = ""

    def cut(self) -> CutKernel:
        """Return the edits."""
        edits = Edits(self._data)
        edit_indices(self._variables.nodes, edits)
        edit_shifts(self._kernel.body, edits)
        self._prologue = edit_atomics(self._kernel, self._variables, edits)
        self._find_strides()
        self._parts: list[Part] = []
        self._block_edits = Edits(self._data)
        self._run(self._kernel.body)
        writer = PartWriter(self._kernel, self._graph, self._variables, edits, self._parts)
        for part in self._parts:
            lost = part.declared & self._common_words
            if lost and (self._cuts or self._strides):
                raise NotPossibleError(
                    f"line {_line(part.statements[0])}: {min(lost)} decides about a barrier"
                )
        writer.write()
        edits.extend(self._block_edits)
        dynamic = outer_dynamic(self._kernel)
        self._prologue += dynamic
        view = self._view(can_merge=not (writer.keeps_threads or dynamic))
        edits.prepend(  # the first statement may begin here, too
            self._kernel.body.start_byte + 1,
            f" const ::sapwood_cuda::BlockView sapwood_b = ::sapwood_cuda::{view}; (void)sapwood_b;"
            + self._prologue
            + writer.prologue,
        )
        return CutKernel(edits, self._shared)

    def _view(self, *, can_merge: bool) -> str:
        """Return what gives the kernel its block, or several as one."""
        merging = BlockMerging(self._variables.nodes, self._kernel.words)
        shared = any(v.is_shared for known in self._variables.by_name.values() for v in known)
        if not can_merge or shared or self._cuts or not merging.possible:
            return "view()"
        return f"merged_view({'true' if merging.whole_rows else 'false'})"

    # Finding the skeleton: what contains a barrier.

    def _find_cuts(self, body: Any) -> set[int]:
        found: set[int] = set()
        for node in walk(body):
            if _is_barrier(node):
                above = node
                while above is not None and above.id != body.id:
                    found.add(above.id)
                    above = above.parent
        return found

    def _mark(self, compound: Any) -> None:
        for child in compound.named_children:
            self._skeleton.add(child.id)
            if child.id in self._cuts and not _is_barrier_statement(child):
                self._mark_inside(child)

    def _mark_inside(self, node: Any) -> None:
        if node.type == "compound_statement":
            self._mark(node)
            return
        if node.type == "for_statement":
            initial = node.child_by_field_name("initializer")
            if initial is not None:
                self._skeleton.add(initial.id)
        for child in node.named_children:
            if child.type == "compound_statement":
                self._mark(child)
            elif child.id in self._cuts or child.type == "else_clause":
                self._skeleton.add(child.id)
                if not _is_barrier_statement(child):
                    self._mark_inside(child)

    def _refuse_jumps(self) -> None:
        """Refuse gotos that leave a statement of the skeleton, if there is a barrier to skip."""
        for node in walk(self._kernel.body) if self._cuts else ():
            if node.type != "goto_statement":
                continue
            around = node
            while around.id not in self._skeleton:
                around = around.parent
            label = node.child_by_field_name("label").text
            if not any(
                each.type == "labeled_statement" and each.child_by_field_name("label").text == label
                for each in walk(around)
            ):
                raise NotPossibleError(f"line {_line(node)}: goto")

    def _find_strides(self) -> None:
        if any(node.type in LABELS for node in self._variables.nodes):
            return  # a loop may be left, or come to again
        for node in self._variables.nodes:
            if node.type != "for_statement" or node.id in self._cuts:
                continue
            if node.parent.type == "compound_statement" and node.id in self._skeleton:
                loop = find_stride_loop(node, self._variables)
                if loop is not None:
                    self._strides[node.id] = loop

    def _find_common_words(self) -> set[str]:
        """Return the names that the skeleton uses, for itself or for what it uses."""
        found: set[str] = set()
        for node in self._variables.nodes:
            if node.id in self._cuts and node.type in LOOPS | {"if_statement"}:
                for field in ("condition", "initializer", "update"):
                    part = node.child_by_field_name(field)
                    found |= used_words(part) if part is not None else set()
            if node.type == "if_statement" and node.id in self._skeleton and jumps_out(node):
                found |= used_words(condition(node))
            if node.type == "expression_statement" and node.id in self._skeleton:
                changed = changed_whole(next(iter(node.named_children), None))
                found |= used_words(node) if changed in self._variables.uniform else set()
        while True:
            more = set(found)
            for name in found & self._variables.by_name.keys():
                own = [v for v in self._variables.by_name[name] if not v.is_shared]
                for variable in own:
                    for node in [variable.value, *variable.changes]:
                        more |= used_words(node) if node is not None else set()
            if more == found:
                return found
            found = more

    # Running through the skeleton.

    def _run(self, compound: Any) -> None:
        part: list[Any] = []
        before: list[Any] = []
        for child in compound.named_children:
            if child.type == "comment":
                continue
            if child.type == "preproc_call":  # #pragma unroll: what follows may start a new loop
                self._block_edits.replace(child.start_byte, child.end_byte, "")
            elif _is_barrier_statement(child):
                part, before = self._flush(compound, part, before)
                self._block_edits.replace(child.start_byte, child.end_byte, _once(child))
            elif child.id in self._cuts:
                part, before = self._flush(compound, part, before)
                self._structured(child)
            elif child.id in self._strides:
                part, before = self._flush(compound, part, before)
                self._parts.append(Part(compound, [child], [], self._strides[child.id]))
            elif self._moves_before(child):
                if part:
                    before.append(child)
                else:
                    self._leave(child, compound)
            elif self._is_common(child):
                part, before = self._flush(compound, part, before)
                self._leave(child, compound)
            else:
                part.append(child)
        self._flush(compound, part, before)

    def _flush(
        self, compound: Any, part: list[Any], before: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        if part:
            for node in before:
                if self._is_shared(node):
                    self._shared.add(node.start_byte)
            self._parts.append(Part(compound, part, before, None))
        return [], []

    def _leave(self, node: Any, compound: Any) -> None:
        """Leave a statement where it is, outside of the loops over threads."""
        if self._is_shared(node):
            self._shared.add(node.start_byte)
            if is_dynamic(node):
                self._block_edits.replace(node.start_byte, node.end_byte, dynamic_pointer(node))
            elif text := guarded_shared(node, on_stack=compound.id == self._kernel.body.id):
                self._block_edits.replace(node.start_byte, node.end_byte, text)
            elif compound.id == self._kernel.body.id:
                for each in walk(node):
                    if each.type == "__shared__":
                        self._block_edits.replace(each.start_byte, each.end_byte, "")

    def _is_shared(self, node: Any) -> bool:
        return node.type == "declaration" and "__shared__" in plain(node.text)

    def _moves_before(self, node: Any) -> bool:
        """Whether a declaration can stand before the loop that its statement would be in."""
        if node.type != "declaration":
            return node.type in {"type_definition", "alias_declaration", "using_declaration"}
        if self._is_shared(node):
            return node.parent.id == self._kernel.body.id or is_dynamic(node)
        names = list(declared_names(node))
        return bool(self._cuts or self._strides) and all(
            name in self._variables.floating
            and name in self._variables.uniform
            and not may_trap(node, self._variables)
            for name in names
        )

    def _is_common(self, node: Any) -> bool:
        """Whether a statement is done once for the block."""
        if self._is_shared(node):
            return True
        if not (self._cuts or self._strides):
            return False
        uniform = self._variables.uniform
        if node.type == "declaration":
            names = set(declared_names(node))
            common = {
                n
                for n in names & uniform
                if n in self._common_words or any(v.changes for v in self._variables.by_name[n])
            }
            if common and common != names:
                raise NotPossibleError(f"line {_line(node)}: declare {min(common)} on its own")
            return bool(common)
        if node.type == "expression_statement":
            change = next(iter(node.named_children), None)
            target = changed_whole(change)
            if change is not None and plain(change.text).startswith(CLEAR):
                return True
            return target in uniform and target in self._variables.by_name
        return self._is_jump(node)

    def _is_jump(self, node: Any) -> bool:
        """Whether it is a break or continue of a loop of the skeleton, for all threads."""
        jumps = [j for j in walk(node) if j.type in {"break_statement", "continue_statement"}]
        jumps = [j for j in jumps if target_loop(j, node) is None]
        if not jumps:
            return False
        if node.type in {"break_statement", "continue_statement"}:
            return True
        if node.type == "if_statement" and self._variables.is_uniform(condition(node)):
            inside = [n for n in branches(node) if n.type != "comment"]
            if all(n.type in {"break_statement", "continue_statement"} for n in inside):
                return True
        raise NotPossibleError(f"line {_line(jumps[0])}: some threads leave a loop with a barrier")

    def _structured(self, node: Any) -> None:
        if node.type == "compound_statement":
            self._run(node)
            return
        if node.type not in LOOPS | {"if_statement"}:
            raise NotPossibleError(f"line {_line(node)}: a barrier inside {node.type}")
        self._require_uniform(node)
        bodies = [node.child_by_field_name("body")] if node.type in LOOPS else list(arms(node))
        for body in bodies:
            if body.type == "compound_statement":
                self._run(body)
            elif _is_barrier_statement(body):
                self._block_edits.replace(body.start_byte, body.end_byte, _once(body))
            elif body.id in self._cuts:
                self._structured(body)
            else:
                self._parts.append(Part(body, [body], [], None))

    def _require_uniform(self, node: Any) -> None:
        parts = [condition(node)]
        if node.type == "for_statement":
            parts += [node.child_by_field_name(name) for name in ("initializer", "update")]
        for part in parts:
            if part is None:
                continue
            names = set(declared_names(part)) if part.type == "declaration" else set()
            for each in walk(part):
                target = changed_whole(each)
                if target:
                    names.add(target)
            bad = names - self._variables.uniform
            if bad or not (_is_plain(part) or self._variables.is_uniform(part)):
                raise NotPossibleError(
                    f"line {_line(node)}: a barrier where not all threads may come"
                )


def _is_plain(part: Any) -> bool:
    """Whether a part of a loop's head declares or changes variables, and does nothing else."""
    if part.type == "comma_expression":
        return all(_is_plain(each) for each in part.named_children)
    return part.type in {"declaration", "assignment_expression", "update_expression"}


def _is_barrier(node: Any) -> bool:
    return node.type == "call_expression" and node.child_by_field_name("function").text in {
        word.encode() for word in BARRIERS
    }


def _once(statement: Any) -> str:
    """Return what the block does at a barrier: nothing, or meet the other blocks."""
    return "::sapwood_cuda::meet_blocks();" if GRID_SYNC in plain(statement.text) else ";"


def _is_barrier_statement(node: Any) -> bool:
    inner = next(iter(node.named_children), None) if node.type == "expression_statement" else None
    return inner is not None and _is_barrier(inner)


def _line(node: Any) -> int:
    return int(node.start_point[0]) + 1
