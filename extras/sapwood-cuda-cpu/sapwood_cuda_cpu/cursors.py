"""Questions about libclang's cursors: kinds of types and uses of variables."""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_ASSIGN: Final = 22
"""The number of ``=`` among libclang's binary operators."""
_CONTINUE, _RECURSE = 1, 2
"""What a visitor of libclang answers: whether it visits what is below a node."""
_CHANGING: Final = frozenset({1, 2, 3, 4, 5})
"""The numbers of ``++``, ``--`` and ``&`` among its unary ones."""
_NUMBERS: Final = frozenset({"ENUM", "POINTER", "NULLPTR", "MEMBERPOINTER"})
_REFERENCES: Final = frozenset({"LVALUEREFERENCE", "RVALUEREFERENCE"})
_ARRAYS: Final = frozenset(
    {"CONSTANTARRAY", "INCOMPLETEARRAY", "VARIABLEARRAY", "DEPENDENTSIZEDARRAY"}
)
FUNCTIONS: Final = frozenset(
    {
        *("FUNCTION_DECL", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "CONVERSION_FUNCTION"),
        "FUNCTION_TEMPLATE",
    }
)

MEMBERS: Final = frozenset({"FIELD_DECL", "CXX_BASE_SPECIFIER"})
"""What objects of a class consist of."""


class Kind(enum.Enum):
    """What a variable is, as far as copies of it go."""

    NUMBER = "a number or pointer"
    RECORD = "a class whose objects are copied byte by byte"
    ARRAY = "an array of those"
    REFERENCE = "a reference"
    OTHER = "something else"


def key_of(cursor: Any) -> str:
    """Return what tells a function or class from all others, instantiations too."""
    definition = cursor.get_definition() or cursor
    return f"{definition.get_usr()} {definition.hash}"


def children(cursor: Any) -> list[Any]:
    """Return what stands in a node."""
    return _visit(cursor, _CONTINUE)


def below(cursor: Any) -> list[Any]:
    """Return a node and everything below it."""
    return [cursor, *_visit(cursor, _RECURSE)]


def body_of(function: Any) -> Any:
    """Return the compound statement of a function; None if it is only declared."""
    return next((each for each in children(function) if each.kind.name == "COMPOUND_STMT"), None)


def walk_inside(root: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield everything below a node, with what it stands in, innermost last."""
    pending: list[tuple[Any, tuple[Any, ...]]] = [(each, (root,)) for each in children(root)[::-1]]
    while pending:
        node, above = pending.pop()
        yield node, above
        inner = (*above, node)
        pending += [(each, inner) for each in children(node)[::-1]]


def _visit(root: Any, answer: int) -> list[Any]:
    """Return the nodes that libclang visits.

    The Python package visits one level at a time, and asks of each node whether it is one.
    """
    found: list[Any] = []
    unit = root._tu  # noqa: SLF001 - a tree lives as long as its nodes refer to it

    def visit(node: Any, _outer: Any, _data: Any) -> int:
        node._tu = unit  # noqa: SLF001
        found.append(node)
        return answer

    libclang().clang_visitChildren(root, _callback()(visit), None)
    return found


@functools.cache
def _callback() -> Any:
    """Return what makes a function callable for libclang."""
    from clang import cindex  # noqa: PLC0415 - it is optional

    return ctypes.CFUNCTYPE(ctypes.c_int, cindex.Cursor, cindex.Cursor, ctypes.py_object)


def is_function(cursor: Any) -> bool:
    """Whether a cursor is a function, a method or the like."""
    return cursor is not None and cursor.kind.name in FUNCTIONS - {"FUNCTION_TEMPLATE"}


def is_shared(variable: Any) -> bool:
    """Whether a variable is ``__shared__``."""
    return any(each.kind.name == "ANNOTATE_ATTR" for each in children(variable))


def is_implicit(function: Any) -> bool:
    """Whether a compiler made a special function of a class without being asked."""
    return bool(function.location == function.semantic_parent.location)


def is_pure(function: Any) -> bool:
    """Whether a function that cannot be looked into gives a value for its arguments and no more."""
    if function.kind.name in {"CONSTRUCTOR", "DESTRUCTOR"}:  # what members do is asked elsewhere
        return is_implicit(function) or bool(function.is_default_method())
    arguments = list(function.get_arguments())
    if not arguments or function.type.is_function_variadic():
        return False
    return all(
        each.type.get_canonical().kind.name not in {"POINTER", *_REFERENCES} for each in arguments
    )


def record_of(type_: Any) -> Any:
    """Return the class of a type or of the elements of an array; None if that is not a class."""
    canonical = type_.get_canonical()
    while canonical.kind.name in _ARRAYS:
        canonical = canonical.element_type.get_canonical()
    if canonical.kind.name != "RECORD":
        return None
    declaration = canonical.get_declaration()
    return declaration.get_definition() or declaration


def holds_arrays(type_: Any) -> bool:
    """Whether objects of a type are, or have, arrays, as far as it is known."""
    canonical = type_.get_canonical()
    if canonical.kind.name in _ARRAYS:
        return True
    record = record_of(canonical)
    if record is None:
        return canonical.kind.name == "UNEXPOSED" or "dependent" in canonical.spelling
    return any(holds_arrays(each.type) for each in children(record) if each.kind.name in MEMBERS)


def kind_of(type_: Any) -> Kind:
    """Return what variables of a type are."""
    canonical = type_.get_canonical()
    name = canonical.kind.name
    if name in _REFERENCES:
        return Kind.REFERENCE
    if name in _ARRAYS:
        inner = kind_of(canonical.element_type)
        return Kind.ARRAY if inner is not Kind.OTHER else Kind.OTHER
    if name in _NUMBERS or _is_arithmetic(name):
        return Kind.NUMBER
    record = record_of(canonical)
    return Kind.RECORD if record is not None and _is_copied_by_bytes(record) else Kind.OTHER


def _is_arithmetic(name: str) -> bool:
    return name in {
        *("BOOL", "CHAR_U", "UCHAR", "CHAR16", "CHAR32", "USHORT", "UINT", "ULONG", "ULONGLONG"),
        *("UINT128", "CHAR_S", "SCHAR", "WCHAR", "SHORT", "INT", "LONG", "LONGLONG", "INT128"),
        *("FLOAT", "DOUBLE", "LONGDOUBLE", "HALF", "FLOAT128"),
    }


def _is_copied_by_bytes(record: Any) -> bool:
    """Whether a class has no user-defined copies or destructor, nor virtual functions."""
    for each in children(record):
        kind = each.kind.name
        if kind == "DESTRUCTOR" or (
            kind == "CXX_METHOD" and (each.is_virtual_method() or _is_assignment(each))
        ):
            return False
        copies = each.is_copy_constructor() or each.is_move_constructor()
        if kind == "CONSTRUCTOR" and copies and not each.is_default_method():
            return False
        if kind in MEMBERS and kind_of(each.type) in {
            Kind.OTHER,
            Kind.REFERENCE,
        }:
            return False
    return True


def _is_assignment(method: Any) -> bool:
    """Whether a method is an assignment of the class's own objects."""
    if method.spelling != "operator=" or method.is_default_method():
        return False
    own = method.semantic_parent.type.get_canonical().spelling
    return any(
        each.type.get_canonical().spelling.removeprefix("const ").rstrip(" &") == own
        for each in method.get_arguments()
    )


def is_read(node: Any, above: Sequence[Any]) -> bool:
    """Whether a use of a variable takes its value and no more.

    Args:
        node: The use.
        above: What it stands in, innermost last.
    """
    inner = node
    for outer in reversed(above):
        answer = _READERS.get(outer.kind.name, _is_other)(inner, outer)
        if answer is not None:
            return answer
        inner = outer
    return False


def _is_other(_inner: Any, _outer: Any) -> bool | None:
    return False


def _is_chosen(inner: Any, outer: Any) -> bool | None:
    return True if children(outer)[0] == inner else None


def _is_passed_on(_inner: Any, _outer: Any) -> bool | None:
    return None


def _is_converted(inner: Any, outer: Any) -> bool | None:
    source, target = inner.type.get_canonical(), outer.type.get_canonical()
    if source.kind.name in _ARRAYS and target.kind.name == "POINTER":
        return None  # the address of its first element; where an index follows, the element
    if target.is_const_qualified() or kind_of(target) is Kind.NUMBER:
        return not is_address(inner)
    return None


def _is_index(inner: Any, outer: Any) -> bool | None:
    return None if children(outer)[0] == inner else True


def _is_object(_inner: Any, outer: Any) -> bool | None:
    method = outer.referenced
    if not is_function(method):
        return None
    return bool(method.is_const_method() or method.is_static_method())


def _is_value(inner: Any, outer: Any) -> bool | None:
    return bool(children(outer)[0] != inner or not _assigns(outer))


def _is_operand(_inner: Any, outer: Any) -> bool | None:
    return not _changes_operand(outer)


def _is_first_value(inner: Any, outer: Any) -> bool | None:
    return outer.type.get_canonical().kind.name not in _REFERENCES and not is_address(inner)


def _is_cast(_inner: Any, outer: Any) -> bool | None:
    return bool(outer.type.kind.name == "VOID")


def _is_statement(inner: Any, _outer: Any) -> bool | None:
    return not is_address(inner)


_READERS: Final[dict[str, Callable[[Any, Any], bool | None]]] = {
    "PAREN_EXPR": _is_passed_on,
    "CONDITIONAL_OPERATOR": _is_chosen,
    "UNEXPOSED_EXPR": _is_converted,
    "ARRAY_SUBSCRIPT_EXPR": _is_index,
    "MEMBER_REF_EXPR": _is_object,
    "BINARY_OPERATOR": _is_value,
    "COMPOUND_ASSIGNMENT_OPERATOR": _is_value,
    "UNARY_OPERATOR": _is_operand,
    "VAR_DECL": _is_first_value,
    **dict.fromkeys(
        ("CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR"), _is_cast
    ),
    **dict.fromkeys(
        ("CXX_UNARY_EXPR", "COMPOUND_STMT", "RETURN_STMT", "IF_STMT", "FOR_STMT"), _is_statement
    ),
}
"""What each kind of node makes of what is in it: read, changed, or passed on to what it is in."""


def is_address(node: Any) -> bool:
    """Whether an expression is the address of an array's first element."""
    return (
        node.kind.name == "UNEXPOSED_EXPR"
        and node.type.get_canonical().kind.name == "POINTER"
        and any(each.type.get_canonical().kind.name in _ARRAYS for each in children(node))
    )


def _assigns(node: Any) -> bool:
    """Whether an operation of two operands changes the first."""
    if node.kind.name == "COMPOUND_ASSIGNMENT_OPERATOR":
        return True
    is_binary = node.kind.name == "BINARY_OPERATOR"
    return is_binary and int(libclang().clang_getCursorBinaryOperatorKind(node)) == _ASSIGN


def _changes_operand(node: Any) -> bool:
    """Whether a unary operator changes its operand, or takes its address."""
    return int(libclang().clang_getCursorUnaryOperatorKind(node)) in _CHANGING


@functools.cache
def libclang() -> Any:
    """Return libclang, with declarations of functions that its Python package lacks."""
    from clang import cindex  # noqa: PLC0415 - it is optional

    library = cindex.conf.lib
    for name in ("clang_getCursorBinaryOperatorKind", "clang_getCursorUnaryOperatorKind"):
        getattr(library, name).argtypes = [cindex.Cursor]
    return library


def is_written(node: Any, function: Any) -> bool:
    """Whether a node of a function changes what is not its own variable."""
    kind = node.kind.name
    if not _assigns(node) and not (kind == "UNARY_OPERATOR" and _changes_operand(node)):
        return False
    target = children(node)[0]
    while target.kind.name in {"PAREN_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR"}:
        inner = children(target)
        if not inner or (
            target.kind.name == "MEMBER_REF_EXPR"
            and inner[0].type.get_canonical().kind.name == "POINTER"
        ):
            return True
        target = inner[0]
        if is_address(target):
            target = children(target)[0]
    declared = target.referenced if target.kind.name == "DECL_REF_EXPR" else None
    if declared is None or declared.kind.name not in {"VAR_DECL", "PARM_DECL"}:
        return True
    extent = function.extent
    own = extent.start.offset <= declared.location.offset < extent.end.offset
    reference = declared.type.get_canonical().kind.name in _REFERENCES
    static = declared.kind.name == "VAR_DECL" and declared.storage_class.name in {
        "STATIC",
        "EXTERN",
    }
    return not own or reference or static
