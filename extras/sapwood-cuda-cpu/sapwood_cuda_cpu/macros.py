"""Macros of a file, expanded in its device code."""

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
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|\s*##\s*|#\s*\w+|\w+|\s+|.')
_DEFINITION: Final = re.compile(
    rb"^[ \t]*#[ \t]*(?:(if)(?:n?def)?|(endif)|undef[ \t]+(\w+)|define[ \t]+(\w+))\b", re.MULTILINE
)
_KERNEL: Final = re.compile(rb"\b__global__\b")
_ON_DEVICE: Final = re.compile(rb"\b__(?:global|device)__\b")
_REST: Final = "__VA_ARGS__"
_MOST_ROUNDS: Final = 4


class Macro(msgspec.Struct, frozen=True):
    """A macro: the names of its arguments, or none, its text on one line, and where it stands."""

    arguments: tuple[str, ...] | None
    text: str
    start: int = 0


def expand_on_device(data: bytes, seen: Callable[[bytes], bytes] = bytes) -> bytes:
    r"""Return a source without its macros in kernels and device functions.

    Args:
        data: The source.
        seen: Blanks what conditions leave out of a text.

    Example:
        >>> code = b"#define SYNC __syncthreads()\n__global__ void k() { SYNC; }"
        >>> expand_on_device(code).splitlines()[1]
        b'__global__ void k() { __syncthreads(); }'
    """
    for _ in range(_MOST_ROUNDS):
        macros = _Definitions(seen(data))
        edits = Edits(data)
        found, behind = False, 0
        for start, end in _bodies(data, _ON_DEVICE):
            if start >= behind:
                found |= expand(data, start, end, macros.at, edits)
                behind = end
        if not found:
            break
        data = edits.apply()
    return data


class _Definitions:
    """The macros of one file, and what each means at each place."""

    def __init__(self, data: bytes) -> None:
        text_at = {macro.start: macro for _, macro in defined_macros(data)}
        self._events: dict[str, list[tuple[int, Macro | None, bool]]] = {}
        depth = 0
        for match in _DEFINITION.finditer(data):
            opens, closes, ended, begun = match.groups()
            depth += (opens is not None) - (closes is not None)
            name = (ended or begun or b"").decode()
            if name:
                macro = text_at.get(match.start()) if begun else None
                self._events.setdefault(name, []).append((match.start(), macro, depth == 0))
        self._words = {
            name: {
                word
                for _, macro, _ in events
                if macro is not None
                for word in re.findall(r"\w+", macro.text)
            }
            for name, events in self._events.items()
        }
        self._recursive = {name for name in self._events if self._is_recursive(name)}

    def at(self, name: str, position: int) -> Macro | None:
        """Return what a macro means at a place; none if that is unclear."""
        found: list[Macro | None] = []
        for start, macro, certain in self._events.get(name, ()):
            if start < position:
                found = [macro] if certain else [*found, macro]
        meanings = {(each.arguments, each.text) if each is not None else None for each in found}
        return found[-1] if len(meanings) == 1 and name not in self._recursive else None

    def _is_recursive(self, name: str) -> bool:
        """Whether a macro's text speaks of itself: the preprocessor leaves it alone there."""
        pending, seen = [name], set[str]()
        while pending:
            for word in self._words.get(pending.pop(), ()):
                if word == name:
                    return True
                if word not in seen:
                    seen.add(word)
                    pending.append(word)
        return False


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
    yield from _bodies(data, _KERNEL)


def without_definitions(data: bytes) -> bytes:
    r"""Return a text in which definitions of macros inside of kernels are blank.

    Example:
        >>> without_definitions(b"__global__ void k() {\n#define A 1\n}")
        b'__global__ void k() {\n           \n}'
    """
    pieces, position = [], 0
    for start, end in kernel_bodies(data) if _DEFINE.search(data) else ():
        inside = _DEFINE.sub(lambda match: _blank(match[0]), data[start:end])
        pieces += [data[position:start], inside]
        position = end
    return b"".join([*pieces, data[position:]])


def _blank(text: bytes) -> bytes:
    return re.sub(rb"[^\r\n]", b" ", text)


def _bodies(data: bytes, attribute: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    hidden = _without_text(data)
    ends = _matching(hidden)
    for match in attribute.finditer(hidden):
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
            text, stop = _with_arguments(text, values, _rest(macro.arguments)), given[1]
        edits.replace(start + match.start(), start + stop, text)
        behind, found = stop, True
    return found


def _rest(names: tuple[str, ...]) -> str:
    """Return how a macro calls the arguments that follow the others; nothing if none may."""
    last = names[-1] if names else ""
    return (last.removesuffix("...") or _REST) if last.endswith("...") else ""


def _values(names: tuple[str, ...], given: list[str]) -> dict[str, str] | None:
    """Return the arguments of a macro by name; none if their number is wrong."""
    if rest := _rest(names):
        first = len(names) - 1
        names, given = (*names[:-1], rest), [*given[:first], ", ".join(given[first:])]
    if not names and given == [""]:
        given = []
    return dict(zip(names, given, strict=True)) if len(names) == len(given) else None


def _with_arguments(text: str, values: dict[str, str], rest: str) -> str:
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
        elif found[-2:] == [",", "##"] and piece == rest:
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
