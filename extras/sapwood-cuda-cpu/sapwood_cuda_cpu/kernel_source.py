"""CUDA sources of kernels alone: which kernels they have, and that they have nothing else.

NVRTC compiles no code of the host. Kernels with C names are functions of the program then, as
those of OpenCL C are: agents map with them directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sapwood.errors import BuildError
from sapwood.plugins.builds import kernel_signatures
from sapwood.plugins.languages import FunctionSignature
from sapwood_cuda_cpu.parse import parse

_DEVICE: Final = re.compile(rb"\b__device__\b")
_KERNEL: Final = re.compile(rb"\b__global__\b")
_BLANKED: Final = re.compile(
    rb'\b__restrict__\b|\b__launch_bounds__\s*\([^)]*\)|\bextern\s+"C"|\bstatic\b|\bstd::(?=u?int)'
)
_TYPES: Final = {
    rb"long\s+long(?:\s+int)?": b"long",
    rb"unsigned\s+long(?:\s+long)?(?:\s+int)?": b"ulong",
    rb"uint64_t": b"ulong",
    rb"int64_t": b"long",
    rb"uint32_t": b"uint",
    rb"int32_t": b"int",
    rb"uint16_t": b"ushort",
    rb"int16_t": b"short",
    rb"uint8_t": b"uchar",
    rb"int8_t": b"char",
    rb"__half": b"half",
}
"""Names of numbers that OpenCL C calls otherwise; no longer ones stand behind shorter ones."""
_FLAT: Final = {"linkage_specification", "declaration_list"}


def read_kernels(name: str, data: bytes) -> tuple[FunctionSignature, ...]:
    r"""Return the kernels of a source that can be launched by name: those with C names.

    Args:
        name: Of the source, for messages.
        data: Its text.

    Raises:
        BuildError: It has code of the host, a parameter has a type that cannot be passed, or an
            annotation is wrong.

    Example:
        >>> text = b'// @array x[n]\nextern "C" __global__ void f(float *x, int n) { x[n] = 1; }'
        >>> [(kernel.name, len(kernel.parameters)) for kernel in read_kernels("a.cu", text)]
        [('f', 2)]
    """
    root = parse(data).root_node
    shown = bytearray(re.sub(rb"[^\n]", b" ", data))
    for comment in _comments(root):
        shown[comment.start_byte : comment.end_byte] = comment.text
    for node, has_c_name in _functions(root, c_name=False):
        body = node.child_by_field_name("body")
        head = data[node.start_byte : body.start_byte]
        if not _KERNEL.search(head):
            if not _DEVICE.search(head):
                raise _host_code(name, node)
            continue
        if has_c_name:
            shown[node.start_byte : body.start_byte] = _as_opencl(head)
            shown[body.start_byte : body.start_byte + 2] = b"{}"
    return kernel_signatures(name, bytes(shown))


def _comments(node: Any) -> Iterator[Any]:
    for child in node.children:
        if child.type == "comment":
            yield child
        elif child.type in _FLAT or child.type.startswith("preproc_"):
            yield from _comments(child)


def _functions(node: Any, *, c_name: bool) -> Iterator[tuple[Any, bool]]:
    """Yield function definitions, and whether each has a C name."""
    for child in node.named_children:
        if child.type == "function_definition":
            yield child, c_name
        elif child.type == "linkage_specification":
            yield from _functions(child, c_name=True)
        elif child.type != "template_declaration":  # a template has no name to launch it by
            yield from _functions(child, c_name=c_name)


def _as_opencl(head: bytes) -> bytes:
    """Return what stands before a kernel's body, as long as before, as OpenCL C has it."""
    head = _BLANKED.sub(lambda found: re.sub(rb"[^\n]", b" ", found[0]), head)
    head = _KERNEL.sub(b"__kernel  ", head)
    for pattern, word in _TYPES.items():
        head = re.sub(
            rb"\b" + pattern + rb"\b",
            lambda found, word=word: word.ljust(len(found[0])),  # type: ignore[misc]  # a default
            head,
        )
    return head


def _host_code(name: str, node: Any) -> BuildError:
    line = int(node.start_point[0]) + 1
    return BuildError(
        "code of the host needs nvcc: NVRTC compiles kernels alone",
        where=f"{name}:{line}",
        hint="install the CUDA toolkit, or leave kernels and __device__ functions only in the "
        "source and map with a kernel",
    )
