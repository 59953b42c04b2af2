"""Warp operations of whole blocks as exchanges through arrays, so that kernels can be cut there.

A shuffle that all threads of the block come to is: each thread writes its value, then a cut,
then each reads the value of its source. That is weaker than what fibers do for single warps,
so it is only tried; the cutter refuses what not all threads come to.
"""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.calls import (
    CLEAR,
    EXCHANGE_XOR,
    FOLD,
    IN_STEP,
    VOTING_BARRIERS,
    CallGraph,
    is_warp_operation,
)
from sapwood_cuda_cpu.distribution import CONDITION, distribute_conditions
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.groups import without_groups
from sapwood_cuda_cpu.inlining import holder, inline_calls, insert_before, variable_types
from sapwood_cuda_cpu.naming import with_own_names
from sapwood_cuda_cpu.parse import CudaSource, Function, plain, walk

_SHUFFLES: Final = {
    "__shfl_sync": "exchange_idx",
    "__shfl_up_sync": "exchange_up",
    "__shfl_down_sync": "exchange_down",
    "__shfl_xor_sync": EXCHANGE_XOR.removeprefix("::sapwood_cuda::"),
}
_VOTES: Final = {
    "__ballot_sync": "exchange_ballot",
    "__any_sync": "exchange_any",
    "__all_sync": "exchange_none",
}
_FOLDS: Final = {
    "__reduce_add_sync": "::sapwood_cuda::Add()",
    "__reduce_min_sync": "::sapwood_cuda::Min()",
    "__reduce_max_sync": "::sapwood_cuda::Max()",
    "__reduce_and_sync": "::sapwood_cuda::And()",
    "__reduce_or_sync": "::sapwood_cuda::Or()",
    "__reduce_xor_sync": "::sapwood_cuda::Xor()",
    FOLD: "",  # says its operation itself
}
_MATCHES: Final = {
    "__match_any_sync": "exchange_match",
    "__match_all_sync": "exchange_match_all",
}
_EXCHANGES: Final = frozenset({*_SHUFFLES, *_VOTES, *_FOLDS, *_MATCHES})
_RANK: Final = (
    " const int sapwood_rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);"
)
_NUMBERS: Final = frozenset(
    {
        *("float", "double", "int", "unsigned", "unsigned int", "long", "unsigned long", "uint"),
        *(
            "long long",
            "unsigned long long",
            "uint32_t",
            "int32_t",
            "uint64_t",
            "int64_t",
            "size_t",
        ),
    }
)
_THREADS: Final = "int(blockDim.x * blockDim.y * blockDim.z)"
_MOST_ROUNDS: Final = 8


def without_warp_operations(
    source: CudaSource, name: str, graph: CallGraph
) -> tuple[CudaSource, Function] | None:
    """Return a source in which a kernel has barriers and exchanges only; None if that cannot be.

    Args:
        source: Holds the kernel.
        name: The kernel; it is the only one of its name in the source.
        graph: Of all sources.
    """
    for _ in range(_MOST_ROUNDS):
        kernel = _kernel(source, name)
        edits = inline_calls(source, kernel, graph)
        if edits is None:
            break
        source = source.changed(edits)
    source = source.changed(without_groups(source, _kernel(source, name)))
    renamed = with_own_names(source, _kernel(source, name), graph.macro_words)
    source = source if renamed is None else source.changed(renamed)
    source = source.changed(distribute_conditions(source, _kernel(source, name)))
    kernel = _kernel(source, name)
    if kernel.words & (graph.meeting.keys() - {name}):
        return None
    edits = _exchanges(source, kernel)
    if edits is None:
        return None
    source = source.changed(edits)
    return source, _kernel(source, name)


def _kernel(source: CudaSource, name: str) -> Function:
    return next(kernel for kernel in source.kernels if kernel.name == name)


def _exchanges(source: CudaSource, kernel: Function) -> Edits | None:
    """Return the edits that make exchanges of all warp operations; None if one cannot be."""
    edits = Edits(source.data)
    types = variable_types(kernel)
    returns = any(node.type == "return_statement" for node in walk(kernel.body))
    declared = _RANK
    before: dict[int, tuple[Any, str]] = {}
    done = set()
    for node in walk(kernel.body):
        if node.type != "call_expression":
            continue
        word = plain(node.child_by_field_name("function").text)
        if word in {"__syncwarp", IN_STEP}:
            watched = _meet(node, word, kernel, edits)
            if watched and returns:  # threads that are gone do not say that they came
                return None
            declared += watched
        elif word in VOTING_BARRIERS:
            count = _count(node, word, kernel, edits)
            if count is None:
                return None
            declared += count[0]
            if count[1] is not None:
                known = before.get(count[1].id, (None, ""))[1]
                before[count[1].id] = (count[1], known + count[2])
        elif word in _EXCHANGES:
            made = _Exchange(node, word, kernel, types, returns=returns)
            # Threads that are gone write nothing: only votes know that from a vote against.
            alone = word in _FOLDS or word in _MATCHES
            if not made.possible or (returns and (made.condition or alone)):
                return None
            declared = made.declared + declared
            known = before.get(made.statement.id, (None, ""))[1]
            before[made.statement.id] = (made.statement, known + made.put)
            edits.replace(node.start_byte, node.end_byte, made.get)
        else:
            continue
        done.add(node.id)
    for statement, puts in before.values():
        text = puts if puts.endswith("; ") else f"{puts} __syncthreads();"
        insert_before(edits, statement, text)
    edits.insert(kernel.body.start_byte + 1, declared)
    left = any(
        node.type == "identifier"
        and (is_warp_operation(plain(node.text)) or plain(node.text) in VOTING_BARRIERS)
        and node.parent.id not in done
        for node in walk(kernel.body)
    )
    return None if left else edits


def _meet(call: Any, word: str, kernel: Function, edits: Edits) -> str:
    """Make a barrier of the block of one of a warp; return what is declared for it.

    Under a condition that was handed on, threads that do not come to it wait there too. Where
    the lanes of its mask do not all come, no lane would continue, and that is detected.
    """
    statement = _under_condition(holder(call, kernel) or call.parent)
    if not _is_handed_on(statement):
        edits.replace(call.start_byte, call.end_byte, "__syncthreads()")
        return ""
    text, declared = "__syncthreads();", ""
    if word != IN_STEP and _meets_behind(statement, kernel):
        condition = plain(statement.child_by_field_name("condition").text)
        given = [plain(each.text) for each in call.child_by_field_name("arguments").named_children]
        mask, lanes = given[0] if given else "0xffffffffu", f"sapwood_l{call.start_byte}"
        declared = f" __shared__ unsigned char {lanes}[::sapwood_cuda::exchange_size] = {{}};"
        there = f"({lanes}, sapwood_rank, {mask}, {_THREADS})"
        text = f"{lanes}[sapwood_rank] = {condition}; __syncthreads(); "
        text += f"if {condition} ::sapwood_cuda::require_lanes{there};"
    edits.replace(statement.start_byte, statement.end_byte, text)
    return declared


def _count(call: Any, word: str, kernel: Function, edits: Edits) -> tuple[str, Any, str] | None:
    """Make a barrier that counts one that does not, and a count that is taken once.

    Returns:
        The declaration, the statement before which threads exchange values, and how.
        No statement where that is done already: at the end of a loop whose condition it is.
    """
    arguments = call.child_by_field_name("arguments").named_children
    if len(arguments) != 1 or _calls(arguments[0]):
        return None
    said, count = f"sapwood_e{call.start_byte}", f"sapwood_k{call.start_byte}"
    declared = f" __shared__ unsigned char {said}[::sapwood_cuda::exchange_size];"
    declared += f" __shared__ int {count};"
    taken = f"::sapwood_cuda::block_count({said}, {_THREADS})"
    if word != "__syncthreads_count":
        taken += " != 0" if word == "__syncthreads_or" else " == 0"
    sign = "==" if word == "__syncthreads_and" else "!="  # threads that are gone say nothing
    put = f"{CLEAR}({said}); "
    put += f"{said}[sapwood_rank] = (({plain(arguments[0].text)}) {sign} 0); __syncthreads(); "
    put += f"{count} = {taken};"
    edits.replace(call.start_byte, call.end_byte, count)
    loop = _loop_that_asks(call)
    if loop is not None:
        body = loop.child_by_field_name("body")
        if body.type != "compound_statement" or b"continue" in body.text:
            return None
        edits.insert(body.end_byte - 1, f" {put} ")
        return declared, None, ""
    statement = holder(call, kernel)
    return None if statement is None else (declared, statement, put + " ")


def _loop_that_asks(call: Any) -> Any:
    """Return the ``do`` loop in whose condition a call is."""
    node = call
    while node.parent is not None and node.parent.type in {
        "parenthesized_expression",
        "binary_expression",
        "unary_expression",
    }:
        node = node.parent
    above = node.parent
    inside = above is not None and above.type == "do_statement"
    return above if inside and above.child_by_field_name("condition") == node else None


class _Exchange:
    """One warp operation as an exchange.

    Attributes:
        possible: Whether it can be one.
        statement: Before what the values are written.
        condition: Under what condition a lane takes part; empty for always.
        declared: The array, and what clears it.
        put: Statements that write a thread's value.
        get: The expression that reads.
    """

    def __init__(
        self, call: Any, word: str, kernel: Function, types: dict[str, str], *, returns: bool
    ) -> None:
        given = list(call.child_by_field_name("arguments").named_children)
        self.statement = _under_condition(holder(call, kernel))
        self.possible = False
        self.condition = ""
        asked = given[1:2] if word == FOLD else given[1:]  # an operation is made, not called
        if self.statement is None or len(given) < 2 or any(_calls(each) for each in asked):
            return
        if _is_handed_on(self.statement):
            self.condition = plain(self.statement.child_by_field_name("condition").text)
        vote = word in _VOTES
        kind = "unsigned char" if vote else _type_of(given[1], types)
        self.possible = bool(kind)
        array, lanes = f"sapwood_e{call.start_byte}", f"sapwood_l{call.start_byte}"
        mask, *rest = map(plain, (each.text for each in given))
        sign = "==" if word == "__all_sync" else "!="
        value = f"(({rest[0]}) {sign} 0)" if vote else rest[0]
        size = "[::sapwood_cuda::exchange_size] = {};"
        self.declared = f" __shared__ {kind} {array}{size}"
        if word in _SHUFFLES and not returns:  # all threads write to it: the rest is 0
            self.declared = f" __shared__ {kind} {array}{size.replace(' = {}', '')}"
            self.declared += f" {CLEAR}_end({array}, {_THREADS});"
        place = (
            "[sapwood_rank + ::sapwood_cuda::exchange_first]"
            if word in _SHUFFLES
            else "[sapwood_rank]"
        )
        self.put = f"{array}{place} = {value};"
        self.get = _read(word, array, mask, rest[1:])
        if vote:
            self.put = f"{CLEAR}({array}); {self.put}"
        if self.condition:  # lanes that do not take part give nothing
            empty = f"{CLEAR}({array}); " if vote else ""
            self.put = f"{empty}{array}{place} = {self.condition} ? {value} : ({kind})0;"
        if self.condition and _meets_behind(self.statement, kernel):
            self.declared += f" __shared__ unsigned char {lanes}{size}"
            self.put += f" {lanes}[sapwood_rank] = {self.condition};"
            there = f"({lanes}, sapwood_rank, {mask}, {_THREADS})"
            self.get = f"(::sapwood_cuda::require_lanes{there}, {self.get})"


def _read(word: str, array: str, mask: str, rest: list[str]) -> str:
    """Return the expression that reads what all threads have written."""
    if word in _SHUFFLES:
        return f"::sapwood_cuda::{_SHUFFLES[word]}({array}, sapwood_rank, {', '.join(rest)})"
    given = [array, "sapwood_rank", mask, _THREADS]
    if word in _FOLDS:
        name = "exchange_fold"
        given += rest or [_FOLDS[word]]
    else:
        name = (_VOTES | _MATCHES)[word]
        given += rest
    return f"::sapwood_cuda::{name}({', '.join(given)})"


def _meets_behind(statement: Any, kernel: Function) -> bool:
    """Whether lanes that do not come wait elsewhere, so that no lane continues."""
    data = kernel.source.data
    return b"__syncthreads" in data[statement.end_byte : kernel.body.end_byte]


def _calls(node: Any) -> bool:
    return any(each.type == "call_expression" for each in walk(node))


def _under_condition(statement: Any) -> Any:
    """Return the statement before which values are written: a condition handed on is around it."""
    above = statement.parent if statement is not None else None
    return above if above is not None and _is_handed_on(above) else statement


def _is_handed_on(statement: Any) -> bool:
    if statement.type != "if_statement":
        return False
    return plain(statement.child_by_field_name("condition").text).startswith(f"({CONDITION}")


def _type_of(value: Any, types: dict[str, str]) -> str:
    """Return the type of a value made of variables of one type; empty when it is not known."""
    if any(
        n.type in {"subscript_expression", "field_expression", "cast_expression"}
        for n in walk(value)
    ):
        return ""
    names = {plain(node.text) for node in walk(value) if node.type == "identifier"}
    kinds = {types.get(name, "") for name in names}
    if len(kinds) != 1:
        return ""
    kind = min(kinds)
    return kind if value.type == "identifier" or kind in _NUMBERS else ""
