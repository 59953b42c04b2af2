"""Words of CUDA that the grammar or C++ compilers do not take, as words that they take."""

from __future__ import annotations

import re
from typing import Final

from sapwood_cuda_cpu.constructs import LIBRARY_HEADERS, OWN_HEADERS
from sapwood_cuda_cpu.precompiled import SHIM
from sapwood_cuda_cpu.ptx import without_ptx

_BLOCK: Final = re.compile(
    rb"(?:^|[;})]|\b(?:else|do|try|const|noexcept|override|final|mutable))[\s{]*$"
)
"""What stands before the brace of a block, not of a first value."""


def _begins_block(match: re.Match[bytes]) -> bool:
    """Whether a match begins with the brace of a block: declarations may follow it."""
    before = match.string[max(match.start() - 80, 0) : match.start()]
    return match[0].startswith(b"{") and _BLOCK.search(before) is not None


_REWRITTEN = (
    (re.compile(rb"\b__noinline__\b"), lambda m: b" " * len(m[0])),
    (re.compile(rb"\bstatic(\s+__shared__)\b"), lambda m: b" " * 6 + m[1]),
    (re.compile(rb"\b(__shared__\s+)static\b"), lambda m: m[1] + b" " * 6),
    (  # the grammar does not know __align__, nor any alignment behind a type
        re.compile(
            rb"(__shared__\s+)((?:[\w:]+(?:<[\w:, ]*>)?\s+)*)"
            rb"(?:__align__|alignas)\s*\(([^()]*(?:\([^()]*\))?)\)"
        ),
        lambda m: m[1] + b"__attribute__((aligned(" + m[3] + b"))) " + m[2],
    ),
    (
        re.compile(rb"(?:__align__|alignas)\s*\(([^()]*)\)(\s*)(__shared__)"),
        lambda m: m[3] + b" __attribute__((aligned(" + m[1] + b")))" + m[2],
    ),
    (  # the grammar reads it as comparisons
        re.compile(
            rb"\b(?:(?:cg|cooperative_groups)::)?thread_block_tile\s*<\s*\w+\s*>(?=\s+\w+\s*=)"
        ),
        lambda m: b"auto" + b" " * (len(m[0]) - 4),
    ),
    (  # the grammar reads ``(unsigned(`` as the beginning of a cast
        re.compile(
            rb"([({]\s*)(unsigned|long)(\s*\()(?!\s*[*&)])(?!\s*\w+\s*\)\s*(?:=(?!=)|[;{\[]))"
        ),
        lambda m: m[0] if _begins_block(m) else m[1] + b"+" + m[2] + m[3],
    ),
)


_FORMER: Final = re.compile(rb"\b__((?:shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot))(\s*)\(")
"""Warp operations as before CUDA 9: they mean all lanes that are there."""

_INCLUDE: Final = re.compile(
    rb'^[ \t]*#[ \t]*include[ \t]*[<"][ \t]*([^">\n]+?)[ \t]*[">]', re.MULTILINE
)

_DEFINED: Final = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+__(\w+)", re.MULTILINE)


def rewritten(data: bytes) -> bytes:
    """Return a source with other words, each on its line.

    Example:
        >>> rewritten(b"v = __shfl_down(v, 1); static __shared__ int s;")
        b'v = __shfl_down_sync(0xffffffffu, v, 1);        __shared__ int s;'
    """
    own = set(_DEFINED.findall(data))  # a source may define them for newer versions
    data = _FORMER.sub(
        lambda m: m[0] if m[1] in own else b"__" + m[1] + b"_sync" + m[2] + b"(0xffffffffu, ", data
    )
    for pattern, replacement in _REWRITTEN:
        data = pattern.sub(replacement, data)
    return without_ptx(_INCLUDE.sub(_known_header, data))


def _known_header(match: re.Match[bytes]) -> bytes:
    """Return an include that can be made: many programs include more libraries than they use."""
    for folder, header in OWN_HEADERS.items():
        if match[1].startswith(folder):
            return b"#include <" + header + b">"
    if (
        not LIBRARY_HEADERS.match(match[1])
        or (SHIM / match[1].decode("utf-8", "replace")).is_file()
    ):
        return match[0]
    return b" " * len(match[0])
