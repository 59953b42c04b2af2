"""Shifts by as many bits as a value has, and by more: a GPU gives 0, or the sign.

C++ leaves them open, and compilers assume that programs do not do that. So a shift in device
code whose amount is not a small number says what it means: ``a << b`` becomes
``a << by << b``, with an object ``by`` of the shim whose operators shift as a GPU does.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import plain, walk

_BY: Final = "::sapwood_cuda::by"
_SMALL: Final = re.compile(r"\(*(?:[12]?\d|3[01])[uUlL]*\)*$")
_MASKED: Final = re.compile(
    r"\(.*&\s*(?:[12]?\d|3[01]|0[xX][01]?[\da-fA-F])[uUlL]*\s*\)$", re.DOTALL
)
_SHIFTS: Final = frozenset({"<<", ">>", "<<=", ">>="})


def edit_shifts(body: Any, edits: Edits) -> None:
    """Have the shifts in the body of a function of the device shift as a GPU does."""
    for node in walk(body):
        if node.type not in {"binary_expression", "assignment_expression"}:
            continue
        operator = node.children[1]
        if operator.type not in _SHIFTS or is_small(node.child_by_field_name("right")):
            continue
        if "std::" in plain(node.text):  # a stream of the host
            continue
        sign = plain(operator.text)
        edits.replace(operator.start_byte, operator.end_byte, f"{sign} {_BY} {sign}")


def is_small(amount: Any) -> bool:
    """Whether an amount is less than the bits of any number, as it stands.

    Example:
        >>> from sapwood_cuda_cpu.parse import CudaSource
        >>> def shift(text):
        ...     code = f"__device__ int f(int a) {{ return {text}; }}"
        ...     source = CudaSource("a.cu", code.encode())
        ...     edits = Edits(source.data)
        ...     edit_shifts(source.functions[0].body, edits)
        ...     return bool(edits)
        >>> shift("1 << 31"), shift("a >> (a & 31)"), shift("1 << 32"), shift("1 << a")
        (False, False, True, True)
    """
    text = plain(amount.text)
    return bool(_SMALL.match(text) or _MASKED.match(text))
