"""Parts of a kernel between two cuts: a loop over the block's threads around each."""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.ahead import asks_ahead, asks_for_rounds
from sapwood_cuda_cpu.calls import EXCHANGE_XOR, CallGraph
from sapwood_cuda_cpu.control import LABELS
from sapwood_cuda_cpu.cursors import Kind
from sapwood_cuda_cpu.dynamic import dynamic_pointer, is_dynamic
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.expansion import find_expanded, is_plain_number
from sapwood_cuda_cpu.guarding import guarded_shared
from sapwood_cuda_cpu.guards import (
    counts_with_thread,
    guard_words,
    guards_of,
    joined,
    may_trap,
    proof,
)
from sapwood_cuda_cpu.indices import index_name
from sapwood_cuda_cpu.limits import Limit, chain, comparisons, limit_of
from sapwood_cuda_cpu.parse import Function, declared_names, plain, walk
from sapwood_cuda_cpu.part import Part
from sapwood_cuda_cpu.semantics import CallEffect
from sapwood_cuda_cpu.stride import StrideLoop
from sapwood_cuda_cpu.variables import Variable, Variables, used_words
from sapwood_cuda_cpu.vectorising import can_be_vectors, keep_sums_rolled

_ROWS: Final = (
    "for (int sapwood_z = 0; sapwood_z < sapwood_b.sz; sapwood_z++) "
    "for (int sapwood_y = 0; sapwood_y < sapwood_b.sy; sapwood_y++) { "
)
_ROWS_OF_TURN: Final = (
    "for (int sapwood_z = sapwood_o.z; sapwood_z < sapwood_o.z_end; sapwood_z++) "
    "for (int sapwood_y = sapwood_o.y; sapwood_y < sapwood_o.y_end; sapwood_y++) { "
)
_ROW: Final = (
    "const int sapwood_row = (sapwood_z * sapwood_b.sy + sapwood_y) * sapwood_b.sx; "
    "(void)sapwood_row; "
)
_THREADS: Final = "for (int sapwood_x = {first}; sapwood_x < {end}; sapwood_x++) {{ "
_SPANS: Final = "".join(
    f"const auto sapwood_{axis} = ::sapwood_cuda::span_of(sapwood_b.s{axis}); "
    f"(void)sapwood_{axis}; "
    for axis in "xyz"
)
_FIRST: Final = "".join(f"const int sapwood_{axis} = 0; (void)sapwood_{axis}; " for axis in "xyz")
_TURN: Final = "".join(
    f"const int sapwood_{axis} = sapwood_o.{axis}; (void)sapwood_{axis}; " for axis in "xyz"
)
_NAMED: Final = frozenset(
    {"assert", "__assert_fail", "__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"}
)
"""Words of kernels that ask for the name of the function that they stand in."""
_HERE: Final = "__attribute__((always_inline))"
_THREAD: Final = "const int sapwood_t = sapwood_row + sapwood_x; (void)sapwood_t; "


class _Guard:
    """A condition that is decided for the block where that can be proved.

    Attributes:
        name: Whether it is decided, for what the threads ask.
        answer: Whether it is, for the whole block.
        decided: The declaration of that.
        kept: The condition for the threads of a row that run it; none if unknown.
        words: The names that it uses.
    """

    def __init__(self, number: int) -> None:
        self.name = f"sapwood_g{number}"
        self.answer = f"sapwood_a{number}"
        self.decided = ""
        self.kept: list[str] = []
        self.words: set[str] = set()


class PartWriter:
    """Writes the loops of one kernel.

    Attributes:
        prologue: The text for the beginning of the kernel's body.
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
        own = {node.start_byte for node in variables.nodes if index_name(node)}
        start, end = kernel.node.start_byte, kernel.node.end_byte
        meaning = variables.meaning
        self._placed = not own.issuperset(meaning.places(CallEffect.PLACED, start, end))
        self._own = meaning.places(CallEffect.OWN, start, end)
        self._asks = not own.issuperset(meaning.places(CallEffect.BLOCK, start, end))
        self._guards = 0
        self.prologue = self._write_prologue()

    def write(self) -> None:
        """Make the edits."""
        for number, part in enumerate(self._parts):
            self._write_part(number, part)

    @property
    def keeps_threads(self) -> bool:
        """Whether anything is kept or asked for each thread of the block."""
        return bool(self._alive or self._expanded or self._placed or self._asks)

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
        own, others = self._written_back(part)
        close = f"{own}}} sapwood_next_{number}:; {others}}} "
        self._edit_returns(number, part)
        if part.stride is not None:
            before += self._open_stride(number, part, part.stride, inside)
            close += "} } }"
        else:
            head, tail = self._open_rows(part, inside)
            before += head
            close += tail
        if self._alive and _returns(part):  # what follows may need a thread, such as a load
            close += " if (sapwood_dead && ::sapwood_cuda::all_are(sapwood_gone)) return;"
        single = part.compound.id == first.id
        if part.stride is not None:
            self._edits.override(start, part.stride.body.start_byte, before)
        else:
            self._edits.insert(start, ("{ " if single else "") + before)
        self._edits.insert(end, close + (" }" if single else ""))

    def _open_rows(self, part: Part, inside: str) -> tuple[str, str]:
        """Return what stands before and behind what each thread of each row does.

        Where guards are left, that is compiled twice: as it is, and for threads for which they
        are proved. One loop for both is not enough: compilers make masks of ``proved || i < n``.
        """
        jumps = any(node.type in LABELS for node in part.nodes)  # perhaps behind a condition
        limit = None
        if not jumps:
            limit = limit_of(
                part.statements, self._variables, self._hidden(part), returns=not self._alive
            )
        runs = self._write_limit(limit) if limit is not None else ""
        guards = self._write_guards(part, limit) if not jumps else []
        self._edit_declarations(part)
        head = "".join(each.decided for each in guards)
        if self._is_cut and part.compound.id == self._kernel.body.id:
            head += asks_ahead(
                *(part, self._kernel, self._variables, self._hidden(part)),
                recomputed=lambda words: self._recomputed(words, set()),
                text=self._text,
            )
        head += _ROWS + _ROW
        if not guards or not _NAMED.isdisjoint(self._kernel.words):
            first, end = ("sapwood_u.first", "sapwood_u.end") if runs else ("0", "sapwood_b.sx")
            known = "".join(f"const bool {g.name} = {g.answer}; " for g in guards)
            head += known + runs + self._pragma(part) + _THREADS.format(first=first, end=end)
            return head + inside + "{ ", "} }" if runs else "}"
        known = "".join(
            f"const bool {g.name} = decltype(sapwood_s)::value || {g.answer}; " for g in guards
        )
        head += f"const auto sapwood_p = [&](int sapwood_f, int sapwood_e, auto sapwood_s) {_HERE} "
        head += f"{{ (void)sapwood_s; {known}{self._pragma(part)}"
        head += _THREADS.format(first="sapwood_f", end="sapwood_e")
        tail = "}; " + (runs or "{ const ::sapwood_cuda::Run sapwood_u{0, sapwood_b.sx, true}; ")
        tail += self._inner(guards) + "::sapwood_cuda::do_part(sapwood_u, sapwood_i, sapwood_p); "
        return head + inside + "{ ", tail + "} }"

    def _inner(self, guards: list[_Guard]) -> str:
        """Return a declaration of the threads of a run for which all guards are proved."""
        all_proved = " && ".join(each.answer for each in guards)
        conditions = [each.answer for each in guards if not each.kept]
        conditions += [kept for each in guards for kept in each.kept]
        words = set().union(*(each.words for each in guards if each.kept))
        return (
            "const auto sapwood_i = [&](auto sapwood_x, auto sapwood_y, auto sapwood_z) "
            f"{_HERE} {{ (void)sapwood_x; (void)sapwood_y; (void)sapwood_z; "
            "::sapwood_cuda::Run sapwood_k{sapwood_u.first, sapwood_u.end, true}; "
            f"if ({all_proved}) return sapwood_k; "
            f"{self._recomputed(words, set(), spans=True)}"
            f"sapwood_k.sure = {' && '.join(conditions)}; return sapwood_k; }}"
            "(::sapwood_cuda::span_of(sapwood_b.sx), ::sapwood_cuda::point(sapwood_y), "
            "::sapwood_cuda::point(sapwood_z)); "
        )

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
        copied = self._copied(part)
        for name in sorted(part.words & self._expanded.keys() - part.declared):
            sign = "" if name in copied else "&"
            text += f"auto {sign}{name} = sapwood_v_{name}[sapwood_t]; "
        return text + self._recomputed(part.words, part.declared)

    def _copied(self, part: Part) -> set[str]:
        """Return the kept variables that a part changes, where it can change a copy instead.

        Compilers write an element under a condition by masked stores, which are slow; a copy that
        is written back at the end of the part has a value for each thread.
        """
        return {
            name
            for name in part.words & self._expanded.keys()
            if is_plain_number(self._variables.by_name[name])
            and any(
                node.start_byte <= change.start_byte < node.end_byte
                for change in self._variables.by_name[name][0].changes
                for node in part.statements
            )
        }

    def _written_back(self, part: Part) -> tuple[str, str]:
        """Return what writes copies back: of what the part declares, and of all others."""
        copied = self._copied(part)
        texts = (
            "".join(f"sapwood_v_{name}[sapwood_t] = {name}; " for name in sorted(names))
            for names in (copied & part.declared, copied - part.declared)
        )
        own, others = texts
        return own, others

    def _recomputed(self, words: set[str], known: set[str], *, spans: bool = False) -> str:
        """Return declarations of the variables that can be computed again, in their order.

        Args:
            words: Names that are needed.
            known: Names that are declared already.
            spans: Whether indices are spans there, and with them what is computed from them.
        """
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
        return "".join(self._again(each, spans=spans) for each in ordered)

    def _again(self, variable: Variable, *, spans: bool) -> str:
        kind, name, value = variable.type, variable.name, self._text(variable.value)
        if "auto" in kind:
            kind = "auto"
        elif spans and name not in self._variables.uniform:
            kind, value = "auto", f"::sapwood_cuda::as<{kind}>({value})"
        return f"{kind} const {name} = {value}; (void){name}; "

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
        copied = self._copied(part)
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
                text += self._declared(variable, copied=name in copied)
            self._edits.override(node.start_byte, node.end_byte, text)

    def _declared(self, variable: Variable, *, copied: bool) -> str:
        name, value = variable.name, variable.value
        if name not in self._expanded or copied:
            given = f" = {self._text(value)}" if value is not None else ""
            return f"{variable.type} {name}{variable.extents}{given}; "
        text = f"auto &{name} = sapwood_v_{name}[sapwood_t]; "
        if value is None and variable.kind is Kind.RECORD:  # made by this thread
            return text + f"{name} = {variable.type}(); "
        if value is None:
            return text
        if variable.is_array:
            first = f"{variable.type} sapwood_l{variable.extents} = {self._text(value)}; "
            return text + f"{{ {first}memcpy(&{name}, &sapwood_l, sizeof {name}); }} "
        if value.type == "initializer_list":
            return text + f"{name} = {variable.type}{self._text(value)}; "
        return text + f"{name} = {self._text(value)}; "

    def _pragma(self, part: Part) -> str:
        if not self._placed and can_be_vectors(part.nodes, self._graph, self._own):
            return "SAPWOOD_VECTORS "
        inside = part.nodes if part.stride is None else list(walk(part.stride.body))
        keep_sums_rolled(inside, self._graph, self._edits)
        return ""

    def _hidden(self, part: Part) -> set[str]:
        """Return the names whose values are not known before the part."""
        return (part.declared - self._variables.floating) | self._variables.inner

    def _write_limit(self, limit: Limit) -> str:
        """Leave out the threads for which nothing is done."""
        text = limit.runs(self._recomputed(limit.words, set(), spans=True), self._text)
        for each in limit.comparisons:
            # In brackets: operators before or after may bind less, and are still evaluated.
            decided = "(true || (" if each.wanted else "(false && ("
            self._edits.insert(each.node.start_byte, decided)
            self._edits.insert(each.node.end_byte, "))")
        return text

    def _write_guards(self, part: Part, limit: Limit | None) -> list[_Guard]:
        """Decide conditions once for the block where all of its threads agree."""
        found = []
        hidden = self._hidden(part)
        for statement in part.statements:
            for condition, wanted in guards_of(statement, self._variables, hidden):
                if limit is not None and condition.id == limit.condition.id:
                    continue
                self._guards += 1
                guard = _Guard(self._guards)
                guard.decided = self._everywhere(guard.answer, condition, wanted=wanted)
                links = list(chain(condition, "&&" if wanted else "||"))
                known = list(comparisons(condition, self._variables, hidden, wanted=wanted))
                if len(known) == len(links):
                    guard.kept = [each.kept(self._text) for each in known]
                    guard.words = used_words(condition)
                found.append(guard)
                before, after = joined(condition, guard.name, wanted=wanted, text=self._text)
                self._edits.insert(condition.start_byte, before)
                self._edits.insert(condition.end_byte, after)
        return found + self._write_masks(part, hidden)

    def _write_masks(self, part: Part, hidden: set[str]) -> list[_Guard]:
        """Decide for the block whether lanes exchange with one neighbour each, above or below."""
        found = []
        for node in part.nodes:
            if node.type != "call_expression" or not node.text.startswith(EXCHANGE_XOR.encode()):
                continue
            array, _, mask, *_ = node.child_by_field_name("arguments").named_children
            known = self._variables.is_uniform(mask) and self._variables.is_arithmetic(mask)
            if not known or may_trap(mask, self._variables) or used_words(mask) & hidden:
                continue
            self._guards += 1
            guard = _Guard(self._guards)
            asked = f"::sapwood_cuda::is_one_lane({self._text(mask)})"
            guard.decided = f"const bool {guard.answer} = {asked}; "
            self._edits.insert(array.start_byte, f"{guard.name}, ")
            found.append(guard)
        return found

    def _everywhere(self, name: str, condition: Any, *, wanted: bool) -> str:
        recomputed = self._recomputed(guard_words(condition), set(), spans=True)
        answer = proof(condition, wanted=wanted, text=self._text)
        return f"const bool {name} = [&]() {_HERE} {{ {_SPANS}{recomputed}return {answer}; }}(); "

    def _open_stride(self, number: int, part: Part, loop: StrideLoop, inside: str) -> str:
        """Return the beginning of rounds that the threads run together, or each of them alone."""
        start, end = self._text(loop.start), self._text(loop.end)
        step, condition = self._text(loop.step), self._text(loop.condition)
        names = used_words(loop.start) | used_words(loop.condition) | used_words(loop.step)
        needed = self._recomputed(names, set())
        spans = self._recomputed(names, set(), spans=True)
        each = (
            f"const {loop.type} {loop.name} = "
            f"::sapwood_cuda::in_round<sapwood_e, {loop.type}>({start}, sapwood_r); "
        )
        ahead = ""
        if self._is_cut:  # else blocks may be merged, and rounds are close to each other
            ahead = asks_for_rounds(part, loop, self._kernel, self._variables, step)
        text = (
            "{ constexpr bool sapwood_e = "
            f"::sapwood_cuda::is_exact<{loop.type}, decltype({step})>; "
            f"const bool sapwood_p = [&]() {_HERE} {{ "
            f"const {loop.type} sapwood_0 = [&]() {_HERE} {{ {_FIRST}{needed}"
            f"return ({loop.type})({start}); }}(); {_SPANS}{spans}"
            f"return ::sapwood_cuda::in_rounds<{loop.type}>({start}, sapwood_0, {end}, {step}); "
            "}(); "
            "for (auto sapwood_o = ::sapwood_cuda::first_turn(sapwood_b, sapwood_p); "
            "sapwood_o.z < sapwood_b.sz; "
            "sapwood_o = ::sapwood_cuda::next_turn(sapwood_b, sapwood_o)) "
            f"for ({loop.type} sapwood_r = [&]() {_HERE} {{ {_TURN}{needed}"
            f"return ::sapwood_cuda::round_from<sapwood_e, {loop.type}>({start}); }}();; "
            f"sapwood_r = ::sapwood_cuda::next_round(sapwood_r, {step})) {{ {{ "
            f"{_TURN}{needed}{each}if (!({condition})) break; {ahead}}} "
        )
        counts = self._counts_up(loop)
        limit, check, count = "", "", "sapwood_o.x_end"
        if counts:
            limit = (
                "const int sapwood_n = !sapwood_o.together ? sapwood_o.x_end : "
                f"[&]() {_HERE} {{ "
                f"const int sapwood_x = 0; (void)sapwood_x; {needed}{each}"
                f"return ::sapwood_cuda::limit(sapwood_b.sx, {loop.name}, {end}); }}(); "
            )
            count = "sapwood_n"
        else:
            self._guards += 1
            name = f"sapwood_g{self._guards}"
            text += (
                f"const bool {name} = [&]() {_HERE} {{ {_SPANS}{spans}const auto {loop.name} = "
                f"::sapwood_cuda::in_round<sapwood_e, {loop.type}>({start}, sapwood_r); "
                f"return ::sapwood_cuda::always({condition}); }}(); "
            )
            check = f"if (!{name} && !({condition})) goto sapwood_next_{number}; "
        return (
            text
            + _ROWS_OF_TURN
            + _ROW
            + limit
            + self._pragma(part)
            + _THREADS.format(first="sapwood_o.x", end=count)
            + inside
            + self._recomputed(names - part.words, set())
            + f"{{ {each}{check}"
        )

    def _counts_up(self, loop: StrideLoop) -> bool:
        """Whether neighbouring threads have neighbouring items, so that a row ends at one place."""
        return loop.condition.children[1].type == "<" and counts_with_thread(
            loop.start, self._variables
        )


def _returns(part: Part) -> bool:
    return any(node.type == "return_statement" for node in part.nodes)
