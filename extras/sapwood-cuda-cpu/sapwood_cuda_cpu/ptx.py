"""Inline PTX of one instruction that C++ can say too, as an expression; the rest is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ASM: Final = re.compile(r"\b(?:asm|__asm__|__asm)\s*(?:volatile\b|__volatile__\b)?\s*\(")
_MACRO: Final = re.compile(r"\s*#\s*define\s+\w+\(([^()]*)\)")
_STRING: Final = re.compile(r'\s*"((?:[^"\\]|\\.)*)"')
_OPERAND: Final = re.compile(r'\s*"[=+]?[rlfdh]"\s*\(')
_RANK: Final = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"
_LANE: Final = f"({_RANK} & 31u)"
_SPECIAL: Final = {
    "laneid": _LANE,
    "warpid": f"({_RANK} >> 5)",
    "smid": "0u",
    "lanemask_eq": f"(1u << {_LANE})",
    "lanemask_lt": f"((1u << {_LANE}) - 1u)",
    "lanemask_le": f"((2u << {_LANE}) - 1u)",
    "lanemask_gt": f"(~((2u << {_LANE}) - 1u))",
    "lanemask_ge": f"(~((1u << {_LANE}) - 1u))",
    "clock": "(unsigned)clock64()",
    "clock64": "clock64()",
    "globaltimer": "clock64()",
    **{f"{ptx}.{axis}": f"{word}.{axis}"
       for ptx, word in {"tid": "threadIdx", "ntid": "blockDim", "ctaid": "blockIdx",
                         "nctaid": "gridDim"}.items()
       for axis in "xyz"},
}  # fmt: skip
_TYPES: Final = {
    "u8": "unsigned char", "s8": "signed char", "u16": "unsigned short", "s16": "short",
    "u32": "unsigned", "s32": "int", "b32": "unsigned", "f32": "float",
    "u64": "unsigned long long", "s64": "long long", "b64": "unsigned long long", "f64": "double",
}  # fmt: skip
_SCOPE: Final = r"(?:\.(?:cta|gpu|sys|global))*"
_ORDER: Final = rf"{_SCOPE}\.(?:volatile|relaxed|acquire|release){_SCOPE}"
_HINT: Final = r"(?:\.(?:global|cg|ca|cs|cv|nc|lu|wb|wt|L1::\w+|L2::\w+))*"
_KIND: Final = rf"\.({'|'.join(_TYPES)})"
_BITS: Final = r"\.(b32|b64)"
_APPROXIMATE: Final = {
    "ex2": "exp2f(%1)",
    "lg2": "log2f(%1)",
    "rcp": "1.0f / %1",
    "rsqrt": "rsqrtf(%1)",
    "sqrt": "sqrtf(%1)",
    "sin": "sinf(%1)",
    "cos": "cosf(%1)",
    "tanh": "tanhf(%1)",
}
"""Functions that a GPU computes to some bits, and a CPU to all."""
_REGISTERS: Final = {2: "%{0}, %{1}", 4: "%{0}, %{1}, %{2}, %{3}"}
"""Registers of a vector, whose numbers begin anywhere."""
_CHANGED: Final = "::sapwood_cuda::set_register(%0, {})"
_READ: Final = "::sapwood_cuda::read_registers((const {{kind}} *)%{}, {})"
_WRITE: Final = "::sapwood_cuda::write_registers(({{kind}} *)%0, {})"
_ORDERED_READ: Final = "::sapwood_cuda::atomic_read(({kind} *)%1)"


def _vectors() -> Iterator[tuple[str, str]]:
    """Yield the patterns of loads and stores of several registers, and their expressions."""
    for count, registers in _REGISTERS.items():
        of_load, of_store = registers.format(*range(4)), registers.format(*range(1, 5))
        yield (
            rf"ld{_HINT}\.v{count}{_KIND} \{{{of_load}\}}, \[%{count}\]",
            _READ.format(count, of_load),
        )
        yield rf"st{_HINT}\.v{count}{_KIND} \[%0\], \{{{of_store}\}}", _WRITE.format(of_store)


_INSTRUCTIONS: Final = tuple(
    (re.compile(pattern), expression)
    for pattern, expression in (
        (r"mov\.[usb](?:32|64) %0, %%(\w+(?:\.[xyz])?)", "%0 = {kind}"),
        (r"(?:membar|fence)\.(?!proxy)[\w.]+", "__threadfence()"),
        (r"bar\.sync 0|barrier\.sync 0", "__syncthreads()"),
        (r"prefetch(?:u)?\.[\w.:]+ \[%0\]", "(void)(%0)"),
        (r"nanosleep\.u32 %0", "__nanosleep(%0)"),
        (r"bfind\.u32 %0, %1", "%0 = 31 - __clz(%1)"),
        (r"popc\.b32 %0, %1", "%0 = __popc(%1)"),
        (r"brev\.b32 %0, %1", "%0 = __brev(%1)"),
        (r"prmt\.b32 %0, %1, %2, %3", "%0 = __byte_perm(%1, %2, %3)"),
        (r"bfe\.u32 %0, %1, %2, %3", "%0 = ::sapwood_cuda::bits_of(%1, %2, %3)"),
        (r"bfi\.b32 %0, %1, %2, %3, %4", "%0 = ::sapwood_cuda::with_bits(%1, %2, %3, %4)"),
        (r"mul\.wide\.u32 %0, %1, %2", "%0 = (unsigned long long)(unsigned)%1 * (unsigned)%2"),
        (r"mul\.lo\.[us]32 %0, %1, %2", "%0 = (unsigned)%1 * (unsigned)%2"),
        (r"mad\.lo\.[us]32 %0, %1, %2, %3", "%0 = (unsigned)%1 * (unsigned)%2 + (unsigned)%3"),
        (r"mul\.hi\.u32 %0, %1, %2", "%0 = __umulhi(%1, %2)"),
        (r"shf\.l\.wrap\.b32 %0, %1, %2, %3", "%0 = __funnelshift_l(%1, %2, %3)"),
        (r"shf\.r\.wrap\.b32 %0, %1, %2, %3", "%0 = __funnelshift_r(%1, %2, %3)"),
        (r"dp4a\.s32\.s32 %0, %1, %2, %3", "%0 = __dp4a((int)%1, (int)%2, (int)%3)"),
        (r"dp4a\.u32\.u32 %0, %1, %2, %3", "%0 = __dp4a((unsigned)%1, (unsigned)%2, (unsigned)%3)"),
        (r"fma\.rn\.f32 %0, %1, %2, %3", "%0 = __fmaf_rn(%1, %2, %3)"),
        (r"fma\.rn\.f64 %0, %1, %2, %3", "%0 = __fma_rn(%1, %2, %3)"),
        *(
            (rf"{name}\.approx(?:\.ftz)?\.f32 %0, %1", f"%0 = {expression}")
            for name, expression in _APPROXIMATE.items()
        ),
        (
            r"cvt\.rni\.sat\.s8\.f32 %0, %1",
            "%0 = ::sapwood_cuda::clamp_to<signed char>(nearbyintf(%1))",
        ),
        (r"cvt\.rni\.s32\.f32 %0, %1", "%0 = __float2int_rn(%1)"),
        *_vectors(),
        (rf"ld{_ORDER}{_BITS} %0, \[%1\]", _CHANGED.format(_ORDERED_READ)),
        (rf"ld{_HINT}{_BITS} %0, \[%1\]", _READ.format(1, "%0")),
        (rf"st{_HINT}{_BITS} \[%0\], %1", _WRITE.format("%1")),
        (rf"ld{_ORDER}{_KIND} %0, \[%1\]", f"%0 = {_ORDERED_READ}"),
        (
            rf"st{_ORDER}{_KIND} \[%0\], %1",
            "::sapwood_cuda::atomic_write(({kind} *)%0, ({kind})%1)",
        ),
        (rf"ld{_HINT}{_KIND} %0, \[%1\]", "%0 = *(const volatile {kind} *)%1"),
        (rf"st{_HINT}{_KIND} \[%0\], %1", "*(volatile {kind} *)%0 = %1"),
        ("", "__threadfence_block()"),
    )
)


def without_ptx(data: bytes) -> bytes:
    r"""Return a source in which PTX that C++ can say too is C++, each on its line.

    Example:
        >>> without_ptx(b'asm("mov.u32 %0, %%ctaid.x;" : "=r"(b));')
        b'((b) = blockIdx.x);'
    """
    if b"asm" not in data:
        return data
    text = data.decode("latin-1")  # each byte a character, and back
    pieces, position = [], 0
    for start, end in _statements(text):
        made = _translated(text[start:end])
        if made is not None and not _macro_takes_axes(text[:start]):
            statement = text[start:end]
            line_end = "\\\n" if "\\\n" in statement else "\n"  # in a macro
            pieces += [text[position:start], made, line_end * statement.count("\n")]
            position = end
    return "".join([*pieces, text[position:]]).encode("latin-1")


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Yield where ``asm(…)`` begins and ends."""
    for match in _ASM.finditer(text):
        yield match.start(), _closing(text, match.end()) + 1


def _macro_takes_axes(before: str) -> bool:
    """Whether a text ends in a macro that has a parameter ``x``, which ``threadIdx.x`` would be."""
    line = re.split(r"(?<!\\)\n", before)[-1] if "#" in before else ""
    match = _MACRO.match(line)
    return match is not None and bool({"x", "y", "z"} & set(re.findall(r"\w+", match[1])))


def _translated(statement: str) -> str | None:
    """Return an expression for a whole ``asm(…)``; None where there is none."""
    inside = statement[statement.index("(") + 1 : -1].replace("\\\n", "\n")
    if _STRING.match(inside) is None or not statement.endswith(")"):
        return None
    words = ""
    while match := _STRING.match(inside):
        words += match[1].replace("\\n", " ").replace("\\t", " ")
        inside = inside[match.end() :]
    operands: list[str] = []
    for group in _split(inside)[1:3]:
        found = _operands(group)
        if found is None:
            return None
        operands += found
    return _expression(" ".join(words.strip().removesuffix(";").split()), operands)


def _expression(instruction: str, given: list[str]) -> str | None:
    order = list(dict.fromkeys(map(int, re.findall(r"(?<!%)%(\d+)", instruction))))
    if sorted(order) != list(range(len(given))):
        return None
    operands = [given[number] for number in order]  # in the order of the instruction
    instruction = re.sub(
        r"(?<!%)%(\d+)", lambda match: f"%{order.index(int(match[1]))}", instruction
    )
    instruction = re.sub(r"\s*,\s*", ", ", instruction)
    instruction = re.sub(r"\{\s+|\s+\}", lambda match: match[0].strip(), instruction)
    for pattern, expression in _INSTRUCTIONS:
        match = pattern.fullmatch(instruction)
        if match is None or len(set(re.findall(r"%\d", expression))) != len(operands):
            continue
        kind = {**_SPECIAL, **_TYPES}.get(match[1]) if match.lastindex else ""
        if kind is None:
            return None
        made = expression.replace("{kind}", kind)
        made = re.sub(r"%(\d)", lambda found: operands[int(found[1])], made)
        return f"({made})" if " = " in made else made
    return None


def _operands(group: str) -> list[str] | None:
    """Return the expressions of ``"=r"(a), "r"(b)``; None where it is something else."""
    found = []
    while group.strip():
        match = _OPERAND.match(group)
        if match is None:
            return None
        end = _closing(group, match.end())
        found.append(f"({' '.join(group[match.end() : end].split())})")
        group = group[end + 1 :].lstrip().removeprefix(",")
    return found


def _closing(text: str, at: int) -> int:
    """Return where the parenthesis ends that is open at a place; the end where it does not."""
    depth, in_string = 1, False
    while at < len(text):
        letter = text[at]
        if in_string:
            at += letter == "\\"
            in_string = letter != '"'
        elif letter == '"':
            in_string = True
        else:
            depth += (letter == "(") - (letter == ")")
            if not depth:
                break
        at += 1
    return at


def _split(text: str) -> list[str]:
    """Return the pieces between colons that are in no string and in no parentheses."""
    pieces, at, start = [], 0, 0
    while at < len(text):
        if text[at] == ":":
            pieces.append(text[start:at])
            start = at + 1
        elif text[at] == "(":
            at = _closing(text, at + 1)
        elif text[at] == '"':
            at = text.find('"', at + 1) if '"' in text[at + 1 :] else len(text)
        at += 1
    return [*pieces, text[start:]]
