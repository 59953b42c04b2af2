"""Reads and writes of memory that threads share, in the order in which a thread makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sapwood_cuda_cpu.calls import CallGraph
from sapwood_cuda_cpu.parse import Function, identifiers, plain, walk

_LOOPS: Final = frozenset({"for_statement", "while_statement", "do_statement"})
_ENDS: Final = frozenset({"break_statement", "continue_statement", "return_statement"})
_FIXED: Final = frozenset({"blockIdx", "blockDim", "gridDim", "x", "y", "z"})
_CASE: Final = re.compile(r"\d+$")
_OFFSETS: Final = frozenset({"+", "-", "^"})
_LANES: Final = re.compile(
    r"\s*(?:&\s*(?:31|\(?WARP_?SIZE\s*-\s*1\)?|0x1[fF])|%\s*(?:32|warpSize|WARP_?SIZE))$"
)
_RANK: Final = re.compile(r"(?:\w+(?:\.|::))*thread_rank\(\w*\)$")
_NUMBER: Final = re.compile(r"(\d+)[uUlL]*$")
_MOST_TURNS: Final = 64
"""Turns of loops in loops that are looked at."""
_MOST_STEPS: Final = 8
"""How often the value of a variable is looked up."""


class Arm(msgspec.Struct, frozen=True):
    """An arm of a branch that all threads of a block take alike, and always the same way.

    Attributes:
        condition: What decides.
        branch: Which branch, by its place in the source.
        number: Which of its arms.
        values: Those of the condition with which it is taken; empty if they are not known.
    """

    condition: str
    branch: int
    number: int
    values: frozenset[str]

    def excludes(self, other: Arm) -> bool:
        """Return whether a block that takes one of two arms never takes the other."""
        if self.branch == other.branch:
            return self.number != other.number
        known = self.condition == other.condition and self.values and other.values
        return bool(known) and self.values.isdisjoint(other.values)


class Access(msgspec.Struct, frozen=True):
    """A read or write of ``array[base operator offset]``, where ``base`` counts with the thread.

    Attributes:
        array: The array, with the indices before the last one.
        base: The part of the index that counts with the thread; nothing where none does.
        operator: ``+``, ``-``, ``^`` or nothing.
        offset: Operator and offset; empty for none. Without a base, the whole index.
        is_write: Whether it writes.
        is_volatile: Whether the array is ``volatile``.
        statement: The statement that holds it.
        turn: Which turn of the loops around it.
        conditions: Those under which the statement is.
        arms: Those in which the statement is.
    """

    array: str
    base: str
    operator: str
    offset: str
    is_write: bool
    is_volatile: bool
    statement: Any
    turn: int
    conditions: tuple[str, ...]
    arms: tuple[Arm, ...] = ()

    def excludes(self, other: Access) -> bool:
        """Return whether a block that does one of two accesses never does the other."""
        return any(one.excludes(another) for one in self.arms for another in other.arms)

    def distance(self, other: Access) -> int | None:
        """Return how many elements lie between two accesses; None if that is not known."""
        if "^" in {self.operator, other.operator}:
            return None
        numbers = []
        for each in (self, other):
            match = _NUMBER.match(each.offset[1:].strip("() ")) if each.offset else None
            if each.offset and match is None:
                return None
            number = int(match[1]) if match is not None else 0
            numbers.append(-number if each.operator == "-" else number)
        return numbers[1] - numbers[0]


class _Path(msgspec.Struct, frozen=True):
    """How a statement is come to: under which conditions, by which arms, in which turn."""

    conditions: tuple[str, ...] = ()
    arms: tuple[Arm, ...] = ()
    turn: int = 0

    def into(self, condition: str, arm: Arm | None) -> _Path:
        """Return the way into a branch, by an arm that is known for all threads or by another."""
        arms = self.arms if arm is None else (*self.arms, arm)
        return _Path((*self.conditions, condition), arms, self.turn)


class Accesses:
    """The memory that a kernel or device function shares with other threads."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._values: dict[str, Any] = {}
        self._shared: dict[str, str] = {}
        self._volatile: set[str] = set()
        self._changed: set[str] = set()
        self._parameters = {parameter.name for parameter in function.parameters}
        for parameter in function.parameters:
            words = parameter.type.split()
            if re.search(r"[*\[]", parameter.type) and "const" not in words:
                if "volatile" in words:
                    self._volatile.add(parameter.name)
                if "volatile" in words or not function.is_kernel:
                    self._shared[parameter.name] = _element(parameter.type)
        for node in walk(function.body):
            if node.type == "declaration":
                self._declare(node)
            elif node.type in {"assignment_expression", "update_expression", "pointer_expression"}:
                self._changed |= set(identifiers(node.child_by_field_name("left") or node))

    def _declare(self, node: Any) -> None:
        declarators = node.children_by_field_name("declarator")
        if not declarators:
            return
        head = plain(node.text[: declarators[0].start_byte - node.start_byte])
        for declarator in declarators:
            names = re.findall(r"[A-Za-z_]\w*", plain(declarator.text).split("=")[0].split("[")[0])
            if not names:
                continue
            name = names[-1]
            if "__shared__" in head or ("volatile" in head and "*" in plain(declarator.text)):
                self._shared[name] = _element(head)
            if "volatile" in head:
                self._volatile.add(name)
            self._values[name] = declarator.child_by_field_name("value")

    def in_order(self, graph: CallGraph) -> Iterator[Access | None]:
        """Yield the accesses as a thread makes them, loops twice, and None for each barrier."""
        yield from self._of(self._function.body, graph, _Path())

    def is_given(self, array: str) -> bool:
        """Whether an array is a parameter, which may be memory of one thread."""
        return array.split("[", maxsplit=1)[0] in self._parameters

    def array_of(self, node: Any) -> str:
        """Return the shared array of which a node is an element; nothing if it is none."""
        while node is not None and node.type in {"parenthesized_expression", "field_expression"}:
            node = node.child_by_field_name("argument") or next(iter(node.named_children), None)
        if node is None or node.type != "subscript_expression":
            return ""
        rows = node.child_by_field_name("argument")
        array = plain(rows.text)
        if array.split("[")[0] not in self._shared or self._mentions_lane(rows):
            return ""
        return array

    def _mentions_lane(self, node: Any) -> bool:
        """Whether lanes have different values of an expression."""
        return any(plain(each.text) == "threadIdx.x" for each in self._origins(node))

    def _origins(self, node: Any) -> Iterator[Any]:
        """Yield what is in an expression, and in the first values of its variables, each once."""
        pending, seen = [node], set()
        while pending:
            for each in walk(pending.pop()):
                yield each
                name = plain(each.text) if each.type == "identifier" else ""
                if name in self._values and name not in seen:
                    seen.add(name)
                    if self._values[name] is not None:
                        pending.append(self._values[name])

    def element_of(self, array: str) -> str:
        """Return the type of an array's elements as written."""
        return self._shared[array.split("[", maxsplit=1)[0]]

    def _of(self, node: Any, graph: CallGraph, path: _Path) -> Iterator[Access | None]:
        if node.type == "compound_statement":
            for child in node.named_children:
                yield from self._of(child, graph, path)
        elif node.type == "if_statement":
            condition = node.child_by_field_name("condition")
            yield from self._plain(condition, node, graph, path)
            text = plain(condition.text)
            for number, field in enumerate(("consequence", "alternative")):
                arm = node.child_by_field_name(field)
                if arm is not None and arm.type == "else_clause":
                    arm = arm.named_children[-1]
                if arm is not None:
                    taken = self._arm(node, number, [str(number)])
                    yield from self._of(arm, graph, path.into(text, taken))
        elif node.type == "switch_statement":
            yield from self._switch(node, graph, path)
        elif node.type in _LOOPS:
            for number in (0, 1) if path.turn < _MOST_TURNS else (0,):
                for field in ("condition", "body"):
                    child = node.child_by_field_name(field)
                    if child is not None:
                        turned = msgspec.structs.replace(path, turn=2 * path.turn + number)
                        yield from self._of(child, graph, turned)
        else:
            yield from self._plain(node, node, graph, path)

    def _switch(self, node: Any, graph: CallGraph, path: _Path) -> Iterator[Access | None]:
        """Yield what the cases do, in order; a case without an end continues in the next."""
        condition = node.child_by_field_name("condition")
        yield from self._plain(condition, node, graph, path)
        for number, cases in enumerate(_joined(node.child_by_field_name("body").named_children)):
            labels = [each.child_by_field_name("value") for each in cases]
            values = ["default" if each is None else plain(each.text) for each in labels]
            arm = self._arm(node, number, values)
            for child in (each for case in cases for each in case.named_children):
                if child not in labels:
                    yield from self._of(child, graph, path.into(plain(condition.text), arm))

    def _arm(self, branch: Any, number: int, values: list[str]) -> Arm | None:
        condition = branch.child_by_field_name("condition")
        if not self._is_fixed(condition):
            return None
        known = frozenset(values) if all(map(_CASE.match, values)) else frozenset()
        decides = f"{branch.type} {plain(condition.text)}"
        return Arm(decides, int(branch.start_byte), number, known)

    def _is_fixed(self, condition: Any) -> bool:
        """Whether a condition has one value for all threads of a block, as long as they run."""
        if not self._function.is_kernel:
            return False
        for each in walk(condition):
            if each.type in {"call_expression", "subscript_expression", "assignment_expression"}:
                return False
            if each.type in {"identifier", "field_identifier"}:
                name = plain(each.text)
                if name in self._changed or name not in self._parameters | _FIXED:
                    return False
        return True

    def _plain(
        self, node: Any, statement: Any, graph: CallGraph, path: _Path
    ) -> Iterator[Access | None]:
        """Yield what one statement does: it reads, meets other threads, and writes."""
        reads: list[Access] = []
        writes: list[Access] = []
        meets = False
        for each in walk(node):
            if each.type == "call_expression":
                meets = meets or _meets(each, graph)
            found = self._access(each, statement, path)
            if found is not None:
                (writes if found.is_write else reads).append(found)
                if found.is_write and _reads_too(each):
                    reads.append(msgspec.structs.replace(found, is_write=False))
        yield from reads
        if meets:
            yield None
        yield from writes

    def _access(self, node: Any, statement: Any, path: _Path) -> Access | None:
        if node.type != "subscript_expression" or node.parent.type == "subscript_expression":
            return None  # of several indices the last one counts
        array = self.array_of(node)
        index = index_of(node)
        if not array or index is None:
            return None
        base, operator, offset = self._split(index)
        if not base:
            if not self._is_computed(index):
                return None
            offset = plain(index.text)
        return Access(
            array=array,
            base=base,
            operator=operator,
            offset=operator + offset,
            is_write=_is_written(node),
            is_volatile=array.split("[")[0] in self._volatile,
            statement=statement,
            turn=path.turn,
            conditions=path.conditions,
            arms=path.arms,
        )

    def _is_computed(self, index: Any) -> bool:
        """Whether an index follows from which lane it is, or from memory."""
        return any(
            each.type == "subscript_expression" or plain(each.text) == "threadIdx.x"
            for each in self._origins(index)
        )

    def _split(self, index: Any) -> tuple[str, str, str]:
        """Return the part of an index that counts with the thread, and the rest."""
        while index.type == "parenthesized_expression":
            index = index.named_children[0]
        if index.type == "binary_expression" and plain(index.children[1].text) in _OFFSETS:
            operator = plain(index.children[1].text)
            left, right = index.child_by_field_name("left"), index.child_by_field_name("right")
            if self._counts(left) and not self._counts(right):
                return plain(left.text), operator, plain(right.text)
            if operator != "-" and self._counts(right) and not self._counts(left):
                return plain(right.text), operator, plain(left.text)
        return (plain(index.text), "", "") if self._counts(index) else ("", "", "")

    def _counts(self, node: Any) -> bool:
        """Whether an expression is one more for each next lane of a warp."""
        return self._slope(node) == 1

    def _slope(self, node: Any, depth: int = 0) -> int | None:
        """Return how much more an expression is for each next lane; None if that is not known."""
        text = plain(node.text)
        if text == "threadIdx.x" or _RANK.match(text):
            return 1
        if depth > _MOST_STEPS:
            return None
        if node.type == "parenthesized_expression":
            return self._slope(node.named_children[0], depth + 1)
        if node.type == "identifier":
            value = self._values.get(text)
            given = text in self._parameters and not self._function.is_kernel
            return int(given) if value is None else self._slope(value, depth + 1)
        if node.type == "binary_expression":
            return self._slope_of_two(node, depth + 1)
        return None if self._mentions_lane(node) else 0

    def _slope_of_two(self, node: Any, depth: int) -> int | None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator, behind = plain(node.children[1].text), plain(right.text)
        first = self._slope(left, depth)
        if operator in {"&", "%"} and _LANES.match(operator + behind):
            return first
        second = self._slope(right, depth)
        if first is None or second is None:
            return None
        if operator == "+":
            return first + second
        if operator == "-":
            return first - second
        if operator == "*":
            for number, slope in ((plain(left.text), second), (behind, first)):
                match = _NUMBER.match(number)
                if match is not None:
                    return int(match[1]) * slope
        return 0 if first == second == 0 else None


def _joined(cases: list[Any]) -> Iterator[list[Any]]:
    """Yield the cases of a ``switch``, together with the cases that fall through into them."""
    found: list[Any] = []
    for case in cases:
        if case.type == "case_statement":
            found.append(case)
            if _has_end(case):
                yield found
                found = []
    if found:
        yield found


def _has_end(node: Any) -> bool:
    """Whether control never continues behind a statement or case."""
    last = next((each for each in reversed(node.named_children) if each.type != "comment"), None)
    if node.type in {"case_statement", "compound_statement"} and last is not None:
        return _has_end(last)
    return bool(node.type in _ENDS)


def _element(text: str) -> str:
    dropped = {"const", "volatile", "extern", "static", "__shared__", "__restrict__"}
    return " ".join(w for w in re.sub(r"[*&]|\[.*", " ", text).split() if w not in dropped)


def index_of(node: Any) -> Any:
    """Return the index of ``array[index]``."""
    listed = node.child_by_field_name("indices") or node.child_by_field_name("index")
    if listed is not None and listed.type == "subscript_argument_list":
        return next(iter(listed.named_children), None)
    return listed


def _is_written(node: Any) -> bool:
    child, above = node, node.parent
    while above is not None and above.type in {"parenthesized_expression", "field_expression"}:
        child, above = above, above.parent
    if above is None:
        return False
    if above.type == "assignment_expression":
        return bool(above.child_by_field_name("left") == child)
    return bool(above.type == "update_expression")


def _reads_too(node: Any) -> bool:
    above = node.parent
    return above.type == "update_expression" or plain(above.children[1].text) != "="


def _meets(call: Any, graph: CallGraph) -> bool:
    name = plain(call.child_by_field_name("function").text).split("<")[0]
    last = re.split(r"\.|->|::", name)[-1].strip()
    return last == "sync" or last in graph.meeting or bool(graph.meets({last}))
