"""Conditions of the preprocessor that are known: what they leave out is not looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

PREDEFINED: Final[Mapping[str, str]] = {
    "__CUDACC__": "1",
    "__SAPWOOD_CUDA__": "1",
    "__NVCC__": "",
    "__cplusplus": "201703",
    "__linux__": "1",
    "__unix__": "1",
    "__CUDA_ARCH_LIST__": "700",
    "CUDART_VERSION": "12000",
    "CUDA_VERSION": "12000",
    "__CUDACC_VER_MAJOR__": "12",
    "__CUDACC_VER_MINOR__": "0",
    "__DRIVER_TYPES_H__": "",
    "__CUDA_RUNTIME_H__": "",
    "__VECTOR_TYPES_H__": "",
}
"""Macros that every patched source sees; the headers of the shim define those of CUDA."""

ARCHITECTURE: Final = "__CUDA_ARCH__"
"""The macro that device code sees and code of the host does not."""

DEVICE_ARCHITECTURE: Final = "700"
"""Its value in device code: the compute capability that the shim's device reports."""

UNDEFINED: Final = frozenset(
    {
        *("__CUDA_ARCH__", "__CUDACC_RTC__", "__CUDACC_RDC__", "__HIPCC__", "__HIP__"),
        *("__HIP_PLATFORM_AMD__", "__HIP_PLATFORM_HCC__", "__OPENCL_VERSION__"),
        *("_WIN32", "_WIN64", "_MSC_VER", "__APPLE__", "__MINGW32__", "__INTEL_COMPILER"),
        *("_CUFFT_H_", "__QNX__", "__ANDROID__"),
    }
)  # fmt: skip
"""Macros that no patched source sees, although their names could be a compiler's."""

_OF_SYSTEM: Final = re.compile(
    r"_|M_|NULL$|NAN$|EOF$|NDEBUG$|CLOCK_|\w+_(?:MAX|MIN)$|RAND_|PRI|BUFSIZ"
)
"""Names that the compiler or a header of the system may define."""

_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|define|undef)\b((?:\\\r?\n|[^\n])*)",
    re.MULTILINE,
)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRINGS = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_DEFINE = re.compile(rb"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
_TOKEN = re.compile(r"\s*(defined|\w+|&&|\|\||[<>=!]=|<<|>>|[-+*/%()<>!&|^~?:]|\S)")
_LEVELS: Final = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip


class _Branch(msgspec.Struct):
    """An open ``#if``: whether this branch is taken, and whether one was; None: not known."""

    outer: bool
    now: bool | None
    taken: bool | None
    start: int
    first: int
    decisions: list[bool | None]


class ConditionGroup(msgspec.Struct, frozen=True):
    """A condition from ``#if`` to ``#endif``: where it is, and which branches are taken."""

    start: int
    end: int
    decisions: tuple[bool | None, ...]


class Conditions:
    """The known macros of one file.

    Args:
        given: Macros that the compiler gets on its command line.
        elsewhere: Names that other files of the program define.
        architecture: What device code of some architecture sees as :data:`ARCHITECTURE`.

    Attributes:
        groups: The conditions of the text that was seen last, in the order of their ends.
    """

    def __init__(
        self, given: Mapping[str, str], elsewhere: Iterable[str], architecture: str = ""
    ) -> None:
        self._given = {**given, ARCHITECTURE: architecture} if architecture else dict(given)
        self._elsewhere = frozenset(elsewhere) - UNDEFINED - given.keys()
        self._values: dict[str, str] = {}
        self._unknown: set[str] = set()
        self.groups: list[ConditionGroup] = []

    def on_device(self, architecture: str = DEVICE_ARCHITECTURE) -> Conditions:
        """Return what device code knows."""
        return Conditions(self._given, self._elsewhere, architecture)

    def leave_out(self, data: bytes) -> bytes:
        r"""Return a text in which known conditions, and what they leave out, are blank.

        Example:
            >>> Conditions({}, ()).leave_out(b"#if defined(A) && B > 1\nx\n#else\ny\n#endif")
            b'                       \n \n     \ny\n      '
        """
        self._values = {**PREDEFINED, **self._given}
        self._unknown = set(self._elsewhere)
        self.groups = []
        text = bytearray(data)
        branches: list[_Branch] = []
        for match in _DIRECTIVE.finditer(_hide_comments(data)):
            word = match[1].decode()
            rest = _COMMENT.sub(b" ", match[2]).replace(b"\\\n", b" ").decode("utf-8", "replace")
            live = all(branch.now is not False for branch in branches)
            if word in {"define", "undef"}:
                if live:
                    certain = all(branch.now is True for branch in branches)
                    self._define(word, rest.strip(), certain=certain)
            elif word in {"if", "ifdef", "ifndef"}:
                now = self._holds(word, rest) if live else None
                branches.append(_Branch(live, now, now, match.end(), match.start(), [now]))
                if live and now is not None:
                    _blank(text, match.start(), match.end())
            elif branches:
                self._go_on(text, branches[-1], match, rest)
                branches[-1].decisions.append(branches[-1].now)
                if word == "endif":
                    ended = branches.pop()
                    decisions = tuple(ended.decisions[:-1])
                    self.groups.append(ConditionGroup(ended.first, match.end(), decisions))
        return bytes(text)

    def _go_on(self, text: bytearray, branch: _Branch, match: re.Match[bytes], rest: str) -> None:
        """End one branch of a condition and begin the next one, if there is one."""
        if branch.outer and branch.taken is not None:
            if branch.now is False:
                _blank(text, branch.start, match.start())
            directive = bytes(text[match.start() : match.end()])
            _blank(text, match.start(), match.end())
            if branch.taken:
                branch.now = False
            else:
                branch.now = True if match[1] == b"else" else self._expression(rest)
                branch.taken = branch.now
                if branch.now is None and match[1] == b"elif":  # an #if from here on
                    as_if = re.sub(rb"elif\b", b"if  ", directive, count=1)
                    text[match.start() : match.end()] = as_if
        branch.start = match.end()

    def _define(self, word: str, rest: str, *, certain: bool) -> None:
        name = re.match(r"\w*", rest)[0]  # type: ignore[index]  # it matches the empty text too
        if word == "undef":
            self._values.pop(name, None)
        elif rest[len(name) :].startswith("("):
            self._values.pop(name, None)
            self._unknown.add(name)
        elif name not in self._given:
            self._values[name] = rest[len(name) :].strip()
        if certain and name in self._values:
            self._unknown.discard(name)
        elif not certain:
            self._unknown.add(name)

    def _holds(self, word: str, rest: str) -> bool | None:
        if word == "if":
            return self._expression(rest)
        found = self._is_defined((rest.split() or [""])[0])
        return found if word == "ifdef" or found is None else not found

    def _is_defined(self, name: str) -> bool | None:
        if name in self._unknown:
            return None
        if name in self._values:
            return True
        return None if _OF_SYSTEM.match(name) and name not in UNDEFINED else False

    def _expression(self, text: str) -> bool | None:
        value = _Expression(self, _TOKEN.findall(text)).value()
        return None if value is None else value != 0

    def number(self, name: str, depth: int = 0) -> int | None:
        """Return the value of a name in a condition, if it is known."""
        if re.fullmatch(r"(?:0[xX][\da-fA-F]+|\d+)[uUlL]*", name):
            return int(name.rstrip("uUlL"), 0 if name[:2].lower() == "0x" else 10)
        known = self._is_defined(name)
        if known is None or depth > 8:
            return None
        if not known:
            return 0
        return self.number(self._values[name].strip("() "), depth + 1)


class _Expression:
    """The expression of an ``#if``; every value may be unknown."""

    def __init__(self, conditions: Conditions, tokens: list[str]) -> None:
        self._conditions = conditions
        self._tokens = tokens
        self._at = 0

    def value(self) -> int | None:
        found = self._level(0)
        return found if self._at == len(self._tokens) else None

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token

    def _level(self, level: int) -> int | None:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self._next() in _LEVELS[level]:
            operator = self._take()
            left = _combine(operator, left, self._level(level + 1))
        return left

    def _unary(self) -> int | None:
        taken = self._take()
        if taken == "!":
            value = self._unary()
            return None if value is None else int(value == 0)
        if taken == "-":
            value = self._unary()
            return None if value is None else -value
        if taken == "(":
            value = self._level(0)
            return value if self._take() == ")" else None
        if taken == "defined":
            name = self._take()
            if name == "(":
                name = self._take()
                self._take()
            known = self._conditions._is_defined(name)  # noqa: SLF001 - two halves of one thing
            return None if known is None else int(known)
        if self._next() == "(":  # a function-like macro
            self._at = len(self._tokens) + 1
            return None
        return self._conditions.number(taken) if re.fullmatch(r"\w+", taken) else None


def _combine(operator: str, left: int | None, right: int | None) -> int | None:
    if operator == "&&" and (left == 0 or right == 0):
        return 0
    if operator == "||" and (left or right):
        return 1
    if left is None or right is None:
        return None
    if operator in {"/", "%"}:
        return None if right == 0 else (left // right if operator == "/" else left % right)
    return {
        "&&": lambda: int(bool(left and right)), "||": lambda: int(bool(left or right)),
        "|": lambda: left | right, "^": lambda: left ^ right, "&": lambda: left & right,
        "==": lambda: int(left == right), "!=": lambda: int(left != right),
        "<": lambda: int(left < right), "<=": lambda: int(left <= right),
        ">": lambda: int(left > right), ">=": lambda: int(left >= right),
        "<<": lambda: left << min(right, 64), ">>": lambda: left >> right,
        "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
    }[operator]()  # fmt: skip


def defined_names(data: bytes) -> set[str]:
    """Return the names that a file defines or undefines."""
    return {match[1].decode() for match in _DEFINE.finditer(_hide_comments(data))}


def _hide_comments(data: bytes) -> bytes:
    """Blank block comments that go over lines: a ``#`` in them is not a directive."""

    def blank(match: re.Match[bytes]) -> bytes:
        found = match[0]
        if not found.startswith(b"/*") or b"\n" not in found:
            return found
        return re.sub(rb"[^\n]", b" ", found)

    return _STRINGS.sub(blank, data)


def _blank(text: bytearray, start: int, end: int) -> None:
    text[start:end] = re.sub(rb"[^\r\n]", b" ", bytes(text[start:end]))
