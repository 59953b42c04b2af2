"""What a C or C++ source says of its functions in comments: documentation and array shapes.

::

    // Adds each point to the centre that is nearest to it.
    // @array points[n][d], centres[k][d]
    // @array sums[k][d]
    // @inout seen[n]
    void assign(const double *points, const double *centres, int64_t n, …)

``@array`` gives the extents of arrays, ``@inout`` says that a non-const array is read as well
as written (extents may follow). The comment stands before the function or among its
parameters; text may stand before an annotation.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import tree_sitter
import tree_sitter_c
import tree_sitter_cpp

from sapwood.code.extent import Extent
from sapwood.core.errors import BuildError, ProgramError

ANNOTATIONS: Final = ("array", "inout")

_ANNOTATION = re.compile(r"^\s*@(\w+)\b(.*)$")
_MIDDLE = re.compile(rf"(?<=\S)\s+(?=@(?:{'|'.join(ANNOTATIONS)})\b)")
"""Where an annotation begins behind other text of its line."""

_ITEM = re.compile(r"\s*(\w+)\s*((?:\[[^\]\[]*\]\s*)*)\s*,?")
_EXTENT = re.compile(r"\[([^\]\[]*)\]")
_DECORATION = re.compile(r"^\s*(?:/\*+!?<?|//+!?<?|\*(?!/))?[ \t]?|\s*\*+/\s*$")


class FunctionNotes(msgspec.Struct, frozen=True):
    """What the comments of one function say.

    Attributes:
        file: The source.
        line: Line of its definition.
        doc: The comment without annotations.
        shapes: Extents by parameter.
        inout: Parameters that are read and written.
        lines: Line of the last annotation of each parameter.
        annotated: Lines of all annotations.
    """

    file: str
    line: int
    doc: str
    shapes: dict[str, tuple[str, ...]]
    inout: frozenset[str]
    lines: dict[str, int]
    annotated: frozenset[int]


def read_annotations(source: str, data: bytes, *, cpp: bool) -> dict[str, FunctionNotes]:
    """Return the notes of every function that a source or header has, by name.

    Args:
        source: Its name, for messages.
        data: Its text.
        cpp: Whether it is C++.

    Raises:
        BuildError: An annotation is misspelt, cannot be read, or belongs to no function.
    """
    grammar = tree_sitter_cpp.language() if cpp else tree_sitter_c.language()
    tree = tree_sitter.Parser(tree_sitter.Language(grammar)).parse(data)
    found: dict[str, FunctionNotes] = {}
    used: set[int] = set()
    for node in _functions(tree.root_node):
        name = _function_name(node)
        if name:
            notes = _notes(source, node)
            used |= notes.annotated
            # A definition says more than a declaration of the same function.
            if name not in found or notes.shapes or notes.inout or notes.doc:
                found[name] = notes
    _refuse_unused(source, tree.root_node, used)
    return found


def _functions(node: Any) -> Iterator[Any]:
    for child in node.named_children:
        if child.type == "function_definition" or _declares_function(child):
            yield child
        elif child.type in _SCOPES:
            yield from _functions(child)


_SCOPES: Final = {
    "linkage_specification",
    "declaration_list",
    "namespace_definition",
    "preproc_if",
    "preproc_ifdef",
    "preproc_else",
    "preproc_elif",
}


def _declares_function(node: Any) -> bool:
    declarator = node.child_by_field_name("declarator") if node.type == "declaration" else None
    while declarator is not None and declarator.type == "pointer_declarator":
        declarator = declarator.child_by_field_name("declarator")
    return declarator is not None and declarator.type == "function_declarator"


def _refuse_unused(source: str, root: Any, used: set[int]) -> None:
    """An annotation that no function takes would be missed silently, and arrays overrun."""
    for comment in _comments_within(root):
        for line, text in _comment_lines(comment):
            match = _ANNOTATION.match(text)
            if match is not None and match[1] in ANNOTATIONS and line not in used:
                raise BuildError(
                    f"the annotation @{match[1]} belongs to no function",
                    where=f"{source}:{line}",
                    hint="write it directly above the function, or among its parameters",
                )


def _function_name(node: Any) -> str:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "identifier":
        declarator = declarator.child_by_field_name("declarator")
    return _text(declarator) if declarator is not None else ""


def _notes(source: str, node: Any) -> FunctionNotes:
    shapes: dict[str, tuple[str, ...]] = {}
    inout: set[str] = set()
    lines: dict[str, int] = {}
    annotated: set[int] = set()
    doc: list[str] = []
    before = _comments_before(node)
    for comment in [*before, *_comments_within(node.child_by_field_name("declarator"))]:
        for line, text in _comment_lines(comment):
            where = f"{source}:{line}"
            match = _ANNOTATION.match(text)
            if match is None or not _is_ours(match[1], where):
                if comment in before:
                    doc.append(text)
                continue
            annotated.add(line)
            for name, extents in _items(match[2], where):
                lines[name] = line
                if match[1] == "inout":
                    inout.add(name)
                if extents or match[1] == "array":
                    shapes[name] = extents
    return FunctionNotes(
        source,
        node.start_point[0] + 1,
        "\n".join(doc).strip(),
        shapes,
        frozenset(inout),
        lines,
        frozenset(annotated),
    )


def _is_ours(word: str, where: str) -> bool:
    if word in ANNOTATIONS:
        return True
    near = difflib.get_close_matches(word, ANNOTATIONS, n=1, cutoff=0.75)
    if near:
        raise BuildError(
            f"unknown annotation @{word}", where=where, hint=f"did you mean @{near[0]}?"
        )
    return False  # of Doxygen or another tool


def _items(text: str, where: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    rest = text.strip()
    if not rest:
        raise BuildError("an annotation names no parameter", where=where, hint="@array NAME[n]")
    while rest:
        match = _ITEM.match(rest)
        if match is None:
            raise BuildError(
                f"an annotation cannot be read: {rest}",
                where=where,
                hint="write @array points[n][d], or @inout NAME",
            )
        extents = tuple(_EXTENT.findall(match[2]))
        for extent in extents:
            try:
                Extent(extent)
            except ProgramError as error:
                raise BuildError(error.what, where=where, hint=error.hint) from None
        yield match[1], tuple(extent.strip() for extent in extents)
        rest = rest[match.end() :].strip()


def _comments_before(node: Any) -> list[Any]:
    """Return the comments that end on the line before the function, or before its block."""
    anchor = node
    if anchor.parent is not None and anchor.parent.type == "linkage_specification":
        anchor = anchor.parent
    found: list[Any] = []
    line = anchor.start_point[0]
    sibling = anchor.prev_sibling
    while sibling is not None and sibling.type == "comment" and sibling.end_point[0] == line - 1:
        if _behind_code(sibling):
            break
        found.insert(0, sibling)
        line = sibling.start_point[0]
        sibling = sibling.prev_sibling
    return found


def _behind_code(comment: Any) -> bool:
    """Say whether a comment stands behind other code of its line, to which it belongs."""
    before = comment.prev_sibling
    if before is None or before.type == "{":
        return False
    row, column = before.end_point
    return bool(row == comment.start_point[0] and column)  # a directive ends on the next line's 0


def _comments_within(node: Any) -> Iterator[Any]:
    for child in node.children if node is not None else ():
        if child.type == "comment":
            yield child
        else:
            yield from _comments_within(child)


def _comment_lines(comment: Any) -> Iterator[tuple[int, str]]:
    first = comment.start_point[0] + 1
    for offset, line in enumerate(_text(comment).splitlines()):
        # Twice: once for the marks before the text, once for those behind it.
        text = _DECORATION.sub("", _DECORATION.sub("", line, count=1))
        for part in _MIDDLE.split(text):
            yield first + offset, part.rstrip()


def _text(node: Any) -> str:
    return node.text.decode("utf-8", "replace")  # type: ignore[no-any-return]  # untyped node
