"""Macros, expanded: in kernels those that hold barriers or the head of a loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from sapwood_cuda_cpu.edits import Edits

_DEFINE = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^()\n]*\))?((?:\\\r?\n|[^\n])*)", re.MULTILINE
)
_SKIPPED = re.compile(
    rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:\\\r?\n|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
_NOT_BREAK: Final = re.compile(rb"[^\r\n]+")
_WANTED = re.compile(r"__syncthreads\s*\(\s*\)|__syncwarp|_sync\b|^for\s*\(|^if\s*\(.*\)\s*return")
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|\s*##\s*|#\s*\w+|\w+|\s+|.')
_REST: Final = "__VA_ARGS__"
_MOST_ROUNDS: Final = 4


class Macro(msgspec.Struct, frozen=True):
    """A macro: the names of its arguments, or none, its text on one line, and where it stands."""

    arguments: tuple[str, ...] | None
    text: str
    start: int = 0


def expand_in_kernels(data: bytes) -> bytes:
    r"""Return a source in which kernels have no macros with barriers or heads of loops.

    Example:
        >>> code = b"#define SYNC __syncthreads()\n__global__ void k() { SYNC; }"
        >>> expand_in_kernels(code).splitlines()[1]
        b'__global__ void k() { __syncthreads(); }'
    """
    macros = _worthwhile(data)
    for _ in range(_MOST_ROUNDS if macros else 0):
        edits = Edits(data)
        found = False
        for start, end in kernel_bodies(data):
            found |= expand(data, start, end, lambda name, _: macros.get(name), edits)
        if not found:
            break
        data = edits.apply()
    return data


def _worthwhile(data: bytes) -> dict[str, Macro]:
    """Return the macros that hold barriers or heads of loops, through other macros too."""
    known = {name: macro for name, macro in defined_macros(data) if "#" not in macro.text}
    found = {name: macro for name, macro in known.items() if _WANTED.search(macro.text)}
    while True:
        more = {
            name: macro
            for name, macro in known.items()
            if name not in found and found.keys() & set(re.findall(r"\w+", macro.text))
        }
        if not more:
            return found
        found |= more


def defined_macros(data: bytes) -> Iterator[tuple[str, Macro]]:
    r"""Yield the macros that a text defines, by name, in order.

    Example:
        >>> dict(defined_macros(b"#define ADD(a, b) a + \\\n b\n"))["ADD"].text
        'a + b'
    """
    for match in _DEFINE.finditer(data):
        text = re.sub(rb"//[^\n]*|/\*.*?\*/", b" ", match[3].replace(b"\\\r\n", b" "))
        line = " ".join(text.replace(b"\\\n", b" ").decode("utf-8", "replace").split())
        arguments = None
        if match[2] is not None:
            listed = match[2].decode()[1:-1].split(",")
            arguments = tuple(name.strip() for name in listed if name.strip())
        yield match[1].decode(), Macro(arguments, line, match.start())


def directives(data: bytes) -> bytes:
    r"""Return the preprocessor's lines of a text; others are empty.

    Example:
        >>> directives(b"int a;\n#define B 1\n")
        b'\n#define B 1\n'
    """
    pieces, position = [], 0
    for match in _SKIPPED.finditer(data):
        if match[0].lstrip().startswith(b"#"):
            pieces += [_NOT_BREAK.sub(b"", data[position : match.start()]), match[0]]
            position = match.end()
    return b"".join([*pieces, _NOT_BREAK.sub(b"", data[position:])])


def kernel_bodies(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the bodies of kernels begin and end, braces included."""
    hidden = _without_text(data)
    ends = _matching(hidden)
    for match in re.finditer(rb"\b__global__\b", hidden):
        at, depth = match.end(), 0
        while at < len(hidden) and not (depth == 0 and hidden[at : at + 1] in {b"{", b";"}):
            depth += (hidden[at] == ord("(")) - (hidden[at] == ord(")"))
            at += 1
        if at in ends:
            yield at, ends[at]


def matching_braces(data: bytes) -> dict[int, int]:
    """Return the braces that open, and where each is closed, the closing one included.

    Example:
        >>> matching_braces(b"{ '{' }")
        {0: 7}
    """
    return _matching(_without_text(data))


def _without_text(data: bytes) -> bytes:
    """Return a source of the same length without comments, texts, and lines of the preprocessor."""
    return _SKIPPED.sub(lambda match: re.sub(rb"[^\n]", b" ", match[0]), data)


def _matching(hidden: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    opened: list[int] = []
    for match in re.finditer(rb"[{}]", hidden):
        if match[0] == b"{":
            opened.append(match.start())
        elif opened:
            found[opened.pop()] = match.end()
    return found


def closing(data: bytes, start: int) -> int | None:
    """Return where the bracket that opens at a position is closed, that one included."""
    opening = data[start : start + 1]
    other = {b"(": b")", b"{": b"}"}[opening]
    depth = 0
    for at in range(start, len(data)):
        depth += (data[at : at + 1] == opening) - (data[at : at + 1] == other)
        if depth == 0:
            return at + 1
    return None


def expand(
    data: bytes,
    start: int,
    end: int,
    macro_at: Callable[[str, int], Macro | None],
    edits: Edits,
) -> bool:
    """Expand macros in a part of a text, once, and say whether there were any.

    Args:
        data: The text.
        start: Where the part begins.
        end: Where it ends.
        macro_at: Gives the macro that is to be expanded, for its name and a position.
        edits: Where the edits go.
    """
    hidden = _SKIPPED.sub(lambda m: re.sub(rb"[^\n]", b" ", m[0]), data[start:end])
    behind = 0
    found = False
    for match in re.finditer(rb"\b[A-Za-z_]\w*\b", hidden):
        macro = macro_at(match[0].decode(), start + match.start())
        if macro is None or match.start() < behind:
            continue
        text, stop = macro.text, match.end()
        if macro.arguments is not None:
            given = _arguments(hidden, data[start:end], match.end())
            values = _values(macro.arguments, given[0]) if given is not None else None
            if given is None or values is None:
                continue
            text, stop = _with_arguments(text, values), given[1]
        edits.replace(start + match.start(), start + stop, text)
        behind, found = stop, True
    return found


def _values(names: tuple[str, ...], given: list[str]) -> dict[str, str] | None:
    """Return the arguments of a macro by name; none if their number is wrong."""
    if names and names[-1] == "...":
        first = len(names) - 1
        rest = ", ".join(given[first:])
        names, given = (*names[:-1], _REST), [*given[:first], rest]
    if not names and given == [""]:
        given = []
    return dict(zip(names, given, strict=True)) if len(names) == len(given) else None


def _with_arguments(text: str, values: dict[str, str]) -> str:
    """Return a macro's text with its arguments in it, ``#`` and ``##`` carried out."""
    found: list[str] = []
    for piece in _PIECE.findall(text):
        word = piece.lstrip("# ")
        if piece.strip() == "##":
            while found and found[-1].isspace():
                found.pop()
            found.append("##")
        elif piece.startswith("#") and word in values:
            escaped = values[word].replace("\\", "\\\\").replace('"', '\\"')
            found.append(f'"{escaped}"')
        elif found[-2:] == [",", "##"] and piece == _REST:
            found[-2:] = [", ", values[piece]] if values.get(piece) else []
        elif found and found[-1] == "##":
            found[-1] = values.get(piece, piece)
        else:
            found.append(values.get(piece, piece))
    return "".join(found)


def _arguments(hidden: bytes, data: bytes, at: int) -> tuple[list[str], int] | None:
    """Return the arguments behind a macro's name, and where they end."""
    while hidden[at : at + 1].isspace():
        at += 1
    if hidden[at : at + 1] != b"(":
        return None
    end = closing(hidden, at)
    if end is None:
        return None
    pieces, depth, first = [], 0, at + 1
    for i in range(at + 1, end - 1):
        depth += (hidden[i] in b"([{") - (hidden[i] in b")]}")
        if hidden[i : i + 1] == b"," and depth == 0:
            pieces.append(data[first:i])
            first = i + 1
    pieces.append(data[first : end - 1])
    return [" ".join(piece.decode("utf-8", "replace").split()) for piece in pieces], end
