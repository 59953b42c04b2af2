"""Parts of a kernel between two cuts: a loop over the block's threads around each."""

from __future__ import annotations

from typing import Any, Final

from sapwood.gpu.cuda.ahead import asks_ahead
from sapwood.gpu.cuda.calls import CallGraph
from sapwood.gpu.cuda.control import LOOPS
from sapwood.gpu.cuda.dynamic import dynamic_pointer, is_dynamic
from sapwood.gpu.cuda.edits import Edits
from sapwood.gpu.cuda.expansion import find_expanded
from sapwood.gpu.cuda.guarding import guarded_shared
from sapwood.gpu.cuda.guards import (
    counts_with_thread,
    guard_words,
    guards_of,
    joined,
    limit_of,
)
from sapwood.gpu.cuda.parse import INDICES, Function, declared_names, plain
from sapwood.gpu.cuda.part import Part
from sapwood.gpu.cuda.stride import StrideLoop
from sapwood.gpu.cuda.variables import Variable, Variables, used_words
from sapwood.gpu.cuda.vectorising import independence, keep_sums_rolled

_LOOP: Final = (
    "for (int sapwood_z = 0; sapwood_z < sapwood_b.sz; sapwood_z++) "
    "for (int sapwood_y = 0; sapwood_y < sapwood_b.sy; sapwood_y++) {{ "
    "const int sapwood_row = (sapwood_z * sapwood_b.sy + sapwood_y) * sapwood_b.sx; "
    "(void)sapwood_row; {limit}{pragma}"
    "for (int sapwood_x = {first}; sapwood_x < {count}; sapwood_x++) {{ "
)
_EVERYWHERE: Final = (
    "::sapwood_cuda::everywhere(sapwood_b, [&](int sapwood_x, int sapwood_y, int sapwood_z) "
    "-> bool { (void)sapwood_x; (void)sapwood_y; (void)sapwood_z; "
)
_THREAD: Final = "const int sapwood_t = sapwood_row + sapwood_x; (void)sapwood_t; "


class PartWriter:
    """Writes the loops of one kernel.

    Attributes:
        prologue: What has to stand at the beginning of the kernel's body.
    """

    def __init__(
        self,
        kernel: Function,
        graph: CallGraph,
        variables: Variables,
        edits: Edits,
        parts: list[Part],
    ) -> None:
        self._graph = graph
        self._variables = variables
        self._edits = edits
        self._parts = parts
        self._kernel = kernel
        later = len(parts) > 1 or any(p.compound.id != kernel.body.id for p in parts)
        self._is_cut = later
        self._alive = later and any(_returns(part) for part in parts)
        self._expanded = find_expanded(variables, parts)
        self._placed = bool(
            kernel.words & graph.placed - {kernel.name}
            or any(_bare_index(node) for node in variables.nodes)
        )
        self._guards = 0
        self.prologue = self._write_prologue()

    def write(self) -> None:
        """Make the edits."""
        for number, part in enumerate(self._parts):
            self._write_part(number, part)

    @property
    def keeps_threads(self) -> bool:
        """Whether anything is kept or asked for each thread of the block."""
        return bool(self._alive or self._expanded or self._placed)

    def _write_prologue(self) -> str:
        text = ""
        for variable in self._variables.parameters:
            if variable.name in self._expanded:
                text += (
                    f" std::decay_t<decltype({variable.name})> sapwood_v_{variable.name}"
                    "[::sapwood_cuda::max_threads];"
                    " for (int sapwood_i = 0; sapwood_i < sapwood_b.threads; sapwood_i++)"
                    f" sapwood_v_{variable.name}[sapwood_i] = {variable.name};"
                )
        if self._alive:
            text += " bool sapwood_dead = false; (void)sapwood_dead;"
            text += " bool sapwood_gone[::sapwood_cuda::max_threads]; (void)sapwood_gone;"
            text += " for (int sapwood_i = 0; sapwood_i < sapwood_b.threads; sapwood_i++)"
            text += " sapwood_gone[sapwood_i] = false;"
        return text

    # One part.

    def _write_part(self, number: int, part: Part) -> None:
        first, last = part.statements[0], part.statements[-1]
        start, end = first.start_byte, last.end_byte
        before = self._moved(part)
        inside = self._inside(part)
        close = f"}} sapwood_next_{number}:; }} }}"
        self._edit_returns(number, part)
        if part.stride is not None:
            before += self._open_stride(number, part, part.stride, inside)
            close += " }"
        else:
            limit = self._write_limit(part)
            if not limit:
                before += self._write_guards(part)
            self._edit_declarations(part)
            if self._is_cut and part.compound.id == self._kernel.body.id:
                before += asks_ahead(
                    *(part, self._kernel, self._variables, self._hidden(part)),
                    recomputed=lambda words: self._recomputed(words, set()),
                    text=self._text,
                )
            first_thread, count = ("sapwood_f", "sapwood_n") if limit else ("0", "sapwood_b.sx")
            before += _LOOP.format(
                pragma=self._pragma(part), limit=limit, first=first_thread, count=count
            )
            before += inside + "{ "
        if self._may_end(part):
            close += " if (sapwood_dead && ::sapwood_cuda::all_are(sapwood_gone)) return;"
        single = part.compound.id == first.id
        if part.stride is not None:
            self._edits.override(start, part.stride.body.start_byte, before)
        else:
            self._edits.insert(start, ("{ " if single else "") + before)
        self._edits.insert(end, close + (" }" if single else ""))

    def _may_end(self, part: Part) -> bool:
        """Whether threads return in a part that comes again: nobody else may end its loop."""
        above = part.compound
        while above.id != self._kernel.body.id and above.type not in LOOPS:
            above = above.parent
        return self._alive and _returns(part) and above.id != self._kernel.body.id

    def _moved(self, part: Part) -> str:
        text = ""
        for node in part.before:
            if "__shared__" in plain(node.text) and is_dynamic(node):
                text += dynamic_pointer(node) + " "
            elif guarded := guarded_shared(node, on_stack=True):
                text += guarded + " "
            else:
                text += self._text(node).replace("__shared__", "") + " "
            self._edits.override(node.start_byte, node.end_byte, "")
        for name in sorted(part.declared & self._expanded.keys()):
            variable = self._expanded[name]
            text += (
                f"{variable.type} sapwood_v_{name}[::sapwood_cuda::max_threads]{variable.extents}; "
            )
        return text

    def _inside(self, part: Part) -> str:
        """Return what each thread starts the part with."""
        text = _THREAD
        if self._placed:
            text += "::sapwood_cuda::enter_thread(sapwood_x, sapwood_y, sapwood_z, sapwood_t); "
        if self._alive:
            text += "if (sapwood_dead && sapwood_gone[sapwood_t]) continue; "
        for name in sorted(part.words & self._expanded.keys() - part.declared):
            text += f"auto &{name} = sapwood_v_{name}[sapwood_t]; "
        return text + self._recomputed(part.words, part.declared)

    def _recomputed(self, words: set[str], known: set[str]) -> str:
        """Return declarations of the variables that can be computed again, in their order."""
        wanted: dict[str, Variable] = {}
        pending = list(words)
        while pending:
            word = pending.pop()
            if word in wanted or word not in self._variables.floating or word in known:
                continue
            variable = self._variables.by_name[word][0]
            if word in self._variables.uniform and self._is_hoisted(variable):
                continue
            wanted[word] = variable
            pending += used_words(variable.value)
        ordered = sorted(wanted.values(), key=lambda each: int(each.declarator.start_byte))
        return "".join(
            f"{each.type if 'auto' not in each.type else 'auto'} const {each.name} = "
            f"{self._text(each.value)}; (void){each.name}; "
            for each in ordered
        )

    def _is_hoisted(self, variable: Variable) -> bool:
        return not any(
            variable.declaration.id == node.id for part in self._parts for node in part.statements
        )

    def _text(self, node: Any) -> str:
        return plain(self._edits.apply(node.start_byte, node.end_byte))

    def _edit_returns(self, number: int, part: Part) -> None:
        for node in part.nodes:
            if node.type == "return_statement":
                mark = "sapwood_dead = sapwood_gone[sapwood_t] = true; " if self._alive else ""
                self._edits.replace(
                    node.start_byte, node.end_byte, f"{{ {mark}goto sapwood_next_{number}; }}"
                )

    def _edit_declarations(self, part: Part) -> None:
        """Make the variables that live across a cut elements of their arrays."""
        for node in part.statements:
            if node.type != "declaration":
                continue
            names = set(declared_names(node))
            if not names & self._expanded.keys():
                continue
            text = ""
            for name in declared_names(node):
                variable = next(
                    v for v in self._variables.by_name[name] if v.declaration.id == node.id
                )
                text += self._declared(variable)
            self._edits.override(node.start_byte, node.end_byte, text)

    def _declared(self, variable: Variable) -> str:
        name, value = variable.name, variable.value
        if name not in self._expanded:
            given = f" = {self._text(value)}" if value is not None else ""
            return f"{variable.type} {name}{variable.extents}{given}; "
        text = f"auto &{name} = sapwood_v_{name}[sapwood_t]; "
        if value is None:
            return text
        if variable.is_array:
            return text + f"memset(&{name}, 0, sizeof {name}); "
        if value.type == "initializer_list":
            return text + f"{name} = {variable.type}{self._text(value)}; "
        return text + f"{name} = {self._text(value)}; "

    def _pragma(self, part: Part) -> str:
        pragma = "" if self._placed else independence(part.nodes, self._graph)
        if not pragma:
            keep_sums_rolled(part.nodes, self._graph, self._edits)
        return pragma

    def _hidden(self, part: Part) -> set[str]:
        """Return the names whose values are not known before the part."""
        return (part.declared - self._variables.floating) | self._variables.inner

    def _write_limit(self, part: Part) -> str:
        """Leave out the threads that a part's only condition leaves out."""
        found = limit_of(part.statements, self._variables, self._hidden(part))
        if found is None:
            return ""
        left, right, condition = found
        words = used_words(left) | used_words(right)
        one = condition.children[1].type == "=="
        text = (
            f"const int {'sapwood_f' if one else 'sapwood_n'} = [&] {{ "
            "const int sapwood_x = 0; (void)sapwood_x; "
            f"{self._recomputed(words, set())}"
            f"return ::sapwood_cuda::{'only' if one else 'limit'}(sapwood_b.sx, "
            f"{self._text(left)}, {self._text(right)}); }}(); "
        )
        if one:
            text += "const int sapwood_n = sapwood_f < sapwood_b.sx ? sapwood_f + 1 : sapwood_f; "
        else:
            text += "const int sapwood_f = 0; "
        self._edits.insert(condition.start_byte, "true || (")
        self._edits.insert(condition.end_byte, ")")
        return text

    def _write_guards(self, part: Part) -> str:
        """Decide conditions once for the block where all of its threads agree."""
        text = ""
        for statement in part.statements:
            for condition, wanted in guards_of(statement, self._variables, self._hidden(part)):
                self._guards += 1
                name = f"sapwood_g{self._guards}"
                text += self._everywhere(name, condition, wanted=wanted)
                before, after = joined(condition, name, wanted=wanted, text=self._text)
                self._edits.insert(condition.start_byte, before)
                self._edits.insert(condition.end_byte, after)
        return text

    def _everywhere(self, name: str, condition: Any, *, wanted: bool) -> str:
        words = guard_words(condition)
        sign = "" if wanted else "!"
        return (
            f"const bool {name} = {_EVERYWHERE}"
            f"{self._recomputed(words, set())}return {sign}({self._text(condition)}); }}); "
        )

    def _open_stride(self, number: int, part: Part, loop: StrideLoop, inside: str) -> str:
        start = self._text(loop.start)
        step, condition = self._text(loop.step), self._text(loop.condition)
        each = f"const {loop.type} {loop.name} = ({loop.type})({start}) + sapwood_r; "
        names = used_words(loop.start) | used_words(loop.condition) | used_words(loop.step)
        needed = self._recomputed(names, set())
        if self._counts_up(loop):
            return self._open_counted(loop, inside, needed, each)
        self._guards += 1
        name = f"sapwood_g{self._guards}"
        return (
            f"for ({loop.type} sapwood_r = 0;; sapwood_r += ({step})) {{ {{ "
            "const int sapwood_x = 0, sapwood_y = 0, sapwood_z = 0; "
            f"(void)sapwood_x; (void)sapwood_y; (void)sapwood_z; {needed}{each}"
            f"if (!({condition})) break; }} "
            f"const bool {name} = {_EVERYWHERE}"
            f"{needed}{each}return {condition}; }}); "
            + _LOOP.format(pragma=self._pragma(part), limit="", first="0", count="sapwood_b.sx")
            + inside
            + self._recomputed(names - part.words, set())
            + f"{{ {each}if (!{name} && !({condition})) goto sapwood_next_{number}; "
        )

    def _counts_up(self, loop: StrideLoop) -> bool:
        """Whether neighbouring threads have neighbouring items, so that a row ends at one place."""
        return loop.condition.children[1].type == "<" and counts_with_thread(
            loop.start, self._variables
        )

    def _open_counted(self, loop: StrideLoop, inside: str, needed: str, each: str) -> str:
        """Return the beginning of rounds of which each row says how many threads it has."""
        step, condition = self._text(loop.step), self._text(loop.condition)
        end = self._text(loop.condition.child_by_field_name("right"))
        limit = (
            "const int sapwood_n = [&] { const int sapwood_x = 0; (void)sapwood_x; "
            f"{needed}{each}"
            f"return ::sapwood_cuda::limit(sapwood_b.sx, {loop.name}, {end}); }}(); "
        )
        names = used_words(loop.start) | used_words(loop.condition) | used_words(loop.step)
        part = next(p for p in self._parts if p.stride is loop)
        return (
            f"for ({loop.type} sapwood_r = 0;; sapwood_r += ({step})) {{ {{ "
            "const int sapwood_x = 0, sapwood_y = 0, sapwood_z = 0; "
            f"(void)sapwood_x; (void)sapwood_y; (void)sapwood_z; {needed}{each}"
            f"if (!({condition})) break; }} "
            + _LOOP.format(pragma=self._pragma(part), limit=limit, first="0", count="sapwood_n")
            + inside
            + self._recomputed(names - part.words, set())
            + f"{{ {each}"
        )


def _returns(part: Part) -> bool:
    return any(node.type == "return_statement" for node in part.nodes)


def _bare_index(node: Any) -> bool:
    if node.type != "identifier" or plain(node.text) not in INDICES:
        return False
    return str(node.parent.type) != "field_expression"
