"""``__CUDA_ARCH__``: defined for device code but not for the host's, and both are compiled at once.

nvcc compiles a source twice, and each function belongs to one of the two rounds or to both. Here
what depends on the name is decided before anything else looks at the source: kernels and
``__device__`` functions get what they say for :data:`DEVICE_ARCHITECTURE`, functions of the host
what they say without, and functions for both hold both. Where neither is right, the source is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from sapwood_cuda_cpu.conditions import (
    ARCHITECTURE,
    DEVICE_ARCHITECTURE,
    ConditionGroup,
    Conditions,
)
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.rounds import Body, Round, attribute_macros

DEVICE_PREFIX: Final = "sapwood_device_"
"""How macros are called that mean something else in device code than on the host."""

_NEWER: Final = ("750", "800", "860", "890", "900", "1000", "1200")
"""Architectures that come after the one that device code sees here."""

_MACRO: Final = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_SKIPPED: Final = rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
_COMMENT: Final = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINE: Final = re.compile(rb"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
_DEFINITION: Final = re.compile(
    rb"^[ \t]*#[ \t]*(?:define|undef)\b(?:\\\r?\n|[^\n])*", re.MULTILINE
)
_DIRECTIVE: Final = re.compile(rb"^[ \t]*#[ \t]*(?!pragma\b)\w+", re.MULTILINE)
_PRAGMA: Final = re.compile(rb"^[ \t]*#[ \t]*pragma\b[^\n]*", re.MULTILINE)
_ADVICE: Final = "write both ways into one function that is __host__ __device__, or two functions"


class Trouble(msgspec.Struct, frozen=True):
    """A place of a source that cannot be right for host and device at once."""

    line: int
    text: str
    what: str
    advice: str


class Dependent(msgspec.Struct, frozen=True):
    """What of a program's macros depends on the round in which nvcc would compile.

    Attributes:
        names: Macros that are something else in device code.
        through: Macros that speak of those.
        attributes: Macros that stand for attributes of functions.
    """

    names: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    attributes: Mapping[bytes, frozenset[bytes]] = msgspec.field(default_factory=dict)


def dependent_macros(files: Mapping[str, bytes], known: Mapping[str, Conditions]) -> Dependent:
    r"""Return what of a program's macros depends on the round.

    Args:
        files: Sources and headers by name.
        known: The known macros of each.

    Example:
        >>> text = b"#ifdef __CUDA_ARCH__\n#define FAST 1\n#else\n#define FAST 0\n#endif\n"
        >>> dependent_macros({"a.cu": text}, {"a.cu": Conditions({}, ())}).names
        frozenset({'FAST'})
    """
    if not any(ARCHITECTURE.encode() in data for data in files.values()):
        return Dependent()
    names = frozenset().union(*(_defined_twice(data, known[name]) for name, data in files.items()))
    texts: dict[str, set[str]] = {}
    attributes: dict[bytes, frozenset[bytes]] = {}
    for data in files.values():
        for match in _MACRO.finditer(data):
            words = re.findall(r"\w+", match[2].decode("utf-8", "replace"))
            texts.setdefault(match[1].decode(), set()).update(words)
        for name, found in attribute_macros(data).items():
            attributes[name] = attributes.get(name, frozenset()) | found
    through: set[str] = {ARCHITECTURE}
    while more := {
        name
        for name, words in texts.items()
        if name not in through | names and words & (through | names)
    }:
        through |= more
    return Dependent(names, frozenset(through - {ARCHITECTURE}), attributes)


def _defined_twice(data: bytes, conditions: Conditions) -> set[str]:
    """Return the macros that a source defines in another way for device code."""
    if ARCHITECTURE.encode() not in data:
        return set()
    host, device = conditions.leave_out(data), conditions.on_device().leave_out(data)
    found: set[str] = set()
    for group in _differing(data, conditions):
        one, other = host[group.start : group.end], device[group.start : group.end]
        if _definitions(one) != _definitions(other):
            found |= {name.decode() for name in _DEFINE.findall(one + b"\n" + other)}
    return found


def resolve_architecture(
    data: bytes, conditions: Conditions, dependent: Dependent | None = None
) -> tuple[bytes, tuple[Trouble, ...]]:
    r"""Return a source in which nothing depends on ``__CUDA_ARCH__``, and what cannot be right.

    Args:
        data: The source.
        conditions: Its known macros.
        dependent: What of the program's macros depends on it.

    Example:
        >>> text = b"__device__ int f() {\n#if __CUDA_ARCH__ >= 600\nreturn 1;\n#endif\n}"
        >>> resolve_architecture(text, Conditions({}, ()))[0].split()
        [b'__device__', b'int', b'f()', b'{', b'return', b'1;', b'}']
    """
    found = dependent or Dependent(attributes=attribute_macros(data))
    words = {ARCHITECTURE, *found.names, *found.through}
    if not any(word.encode() in data for word in words):
        return data, ()
    return _Resolver(data, conditions, found).resolve()


def _differing(
    data: bytes, one: Conditions, other: Conditions | None = None
) -> list[ConditionGroup]:
    """Return the outermost conditions that two rounds decide differently, with all decisions.

    Without another round it is that of device code.
    """
    two = one.on_device() if other is None else other
    one.leave_out(data)
    two.leave_out(data)
    found = [
        ConditionGroup(ours.start, ours.end, ours.decisions + theirs.decisions)
        for ours, theirs in zip(one.groups, two.groups, strict=True)
        if ours.decisions != theirs.decisions
    ]
    return [
        each
        for each in sorted(found, key=lambda group: group.start)
        if not any(o.start < each.start and each.end <= o.end for o in found)
    ]


class _Resolver:
    """Resolves one source."""

    def __init__(self, data: bytes, conditions: Conditions, dependent: Dependent) -> None:
        self._data = data
        self._names = dependent.names
        self._dependent = dependent
        self._groups = _differing(data, conditions)
        self._host = Round(conditions.leave_out(data), dependent.attributes)
        on_device = conditions.on_device().leave_out(data)
        self._device = Round(on_device, dependent.attributes)
        self._conditions = conditions
        self._troubles: list[Trouble] = []

    def resolve(self) -> tuple[bytes, tuple[Trouble, ...]]:
        """Return the source, and what cannot be right."""
        found = bytearray(self._data)
        for group in self._groups:
            found[group.start : group.end] = self._choose(group)
        chosen = bytes(found)
        edits = Edits(chosen)
        for body in self._device.bodies:
            if body.kind == "device":
                self._edit_words(chosen, body.start, body.end, edits)
            elif body.kind == "both" and self._is_split(chosen, body):
                self._split(chosen, body, edits)
        self._rename_definitions(chosen, edits)
        self._refuse_newer()
        return edits.apply(), tuple(sorted(self._troubles, key=lambda each: each.line))

    def _trouble(self, at: int, what: str, advice: str = _ADVICE) -> None:
        line = self._data.count(b"\n", 0, at)
        text = self._data.splitlines()[line].decode("utf-8", "replace").strip()
        self._troubles.append(Trouble(line + 1, text, what, advice))

    def _body_at(self, start: int, end: int) -> Body | None:
        """Return the innermost function that holds a part of the source."""
        return self._device.around(start, end) or self._host.around(start, end)

    def _choose(self, group: ConditionGroup) -> bytes:
        """Return what stands in the place of a condition, as long as it."""
        part = slice(group.start, group.end)
        host, device = self._host.text[part], self._device.text[part]
        body = self._body_at(group.start, group.end)
        if body is None:
            return self._merged(group, device)
        if body.kind == "host":
            return host
        return device

    def _refuse_newer(self) -> None:
        """Refuse what device code does on newer GPUs only, with nothing in its place."""
        seen: set[int] = set()
        for number in _NEWER:
            newer = self._conditions.on_device(number)
            for group in _differing(self._data, self._conditions.on_device(), newer):
                body = self._device.around(group.start, group.end)
                part = slice(group.start, group.end)
                if body is None or body.kind == "host" or group.start in seen:
                    continue
                seen.add(group.start)
                if not _code(self._device.text[part]):
                    what = f"code only for GPUs of {ARCHITECTURE} >= {number}, and none for others"
                    self._trouble(group.start, what, "write what other devices do after #else")

    def _merged(self, group: ConditionGroup, device: bytes) -> bytes:
        """Return what stands outside of functions, of both rounds."""
        ours = self._host.without_device_code(group.start, group.end)
        theirs = self._device.without_device_code(group.start, group.end)
        if _code(ours) and _code(theirs) and _code(ours) != _code(theirs):
            self._trouble(group.start, f"declarations that depend on {ARCHITECTURE}")
        elif None in group.decisions:
            self._trouble(group.start, f"a condition on {ARCHITECTURE} and something unknown")
        return bytes(
            other if one in b" \t" else one for one, other in zip(device, ours, strict=True)
        )

    def _rename_definitions(self, chosen: bytes, edits: Edits) -> None:
        """Rename the macros of device code; nothing else may mention them."""
        texts = [match.span() for match in _DEFINITION.finditer(chosen)]
        for match in self._words(chosen, 0, len(chosen), self._names):
            if self._body_at(match.start(), match.end()) is not None:
                continue
            part = slice(match.start(), match.end())
            on_device = self._device.text[part] == match[0]
            on_host = self._host.text[part] == match[0]
            line = chosen[chosen.rfind(b"\n", 0, match.start()) + 1 : match.end()]
            depends = any(g.start <= match.start() < g.end for g in self._groups)
            if _DEFINE.fullmatch(line) and depends and on_host != on_device:
                if on_device:
                    edits.insert(match.start(), DEVICE_PREFIX)
            elif (on_device or on_host) and (
                _DEFINE.fullmatch(line) or not any(a < match.start() < b for a, b in texts)
            ):
                what = f"{match[0].decode()}, which depends on {ARCHITECTURE}"
                self._trouble(match.start(), what)

    def _edit_words(self, chosen: bytes, start: int, end: int, edits: Edits) -> None:
        """Have device code see the architecture, and the macros that depend on it."""
        for match in self._words(chosen, start, end, self._names | {ARCHITECTURE}):
            word = match[0].decode()
            if word in self._names:
                edits.insert(match.start(), DEVICE_PREFIX)
            else:
                text = DEVICE_ARCHITECTURE if word == ARCHITECTURE else "1"
                edits.replace(match.start(), match.end(), text)
        for match in self._words(chosen, start, end, self._dependent.through):
            what = f"{match[0].decode()}, a macro that depends on {ARCHITECTURE} through another"
            self._trouble(match.start(), what, "write it out in device code")

    @staticmethod
    def _words(
        data: bytes, start: int, end: int, names: Collection[str]
    ) -> Iterator[re.Match[bytes]]:
        """Yield where names stand in code; ``defined(NAME)`` as a whole for the architecture."""
        if not names:
            return
        listed = [rb"\b" + name.encode() + rb"\b" for name in names]
        if ARCHITECTURE in names:
            listed.insert(0, rb"\bdefined\s*\(\s*__CUDA_ARCH__\s*\)|\bdefined\s+__CUDA_ARCH__\b")
        pattern = re.compile(_SKIPPED + b"|" + b"|".join(listed), re.DOTALL)
        for match in pattern.finditer(data, start, end):
            if match[0][:1] not in {b"/", b'"', b"'"}:
                yield match

    def _is_split(self, chosen: bytes, body: Body) -> bool:
        names = self._names | self._dependent.through | {ARCHITECTURE}
        return any(body.start < group.start < body.end for group in self._groups) or any(
            self._words(chosen, body.start, body.end, names)
        )

    def _split(self, chosen: bytes, body: Body, edits: Edits) -> None:
        """Have a function for both do one thing in kernels and another one on the host."""
        text = _PRAGMA.sub(b"", _COMMENT.sub(b" ", self._host.text[body.start + 1 : body.end - 1]))
        if _DIRECTIVE.search(text) or body.is_constant:
            self._trouble(body.start, f"a function for host and device that asks {ARCHITECTURE}")
            return
        on_host = " ".join(text.decode("utf-8", "replace").split())
        edits.insert(body.start + 1, " if (::sapwood_cuda::on_device()) {")
        self._edit_words(chosen, body.start + 1, body.end - 1, edits)
        edits.insert(body.end - 1, f"}} else {{ {on_host} }} ")


def _code(text: bytes) -> bytes:
    """Return what of a text is neither comment nor the definition of a macro, without blanks."""
    return b" ".join(_DEFINITION.sub(b"", _COMMENT.sub(b" ", text)).split())


def _definitions(text: bytes) -> list[bytes]:
    return [match[0].strip() for match in _DEFINITION.finditer(_COMMENT.sub(b" ", text))]
