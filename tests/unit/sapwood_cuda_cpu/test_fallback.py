"""Which kernels get stacks when their loops do not compile."""

from __future__ import annotations

import pytest

from sapwood.core.errors import BuildError
from sapwood_cuda_cpu.fallback import compile_kernels, told
from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import Patched

SOURCES = {
    "a.cu": b'#include "b.cuh"\n__global__ void one(int *x) {\n  x[threadIdx.x] = 1;\n}\n'
    b"__global__ void two(int *x) {\n  x[threadIdx.x] = 2;\n}\nvoid host() {}\n",
    "b.cuh": b"__global__ void three(int *x) {\n  x[threadIdx.x] = 3;\n}\n",
}


def built(*outputs: str, fiber_only: str = "") -> tuple[dict[str, str], list[str], int]:
    """Return the mode of each kernel, the report, and how often a compiler ran.

    Args:
        outputs: What the compiler says, one text after the other, until it is content.
        fiber_only: Why all kernels get stacks.
    """
    said = list(outputs)
    count = 0

    def compile_patched(patched: dict[str, Patched]) -> None:
        nonlocal count
        count += 1
        if said:
            raise BuildError("a.cu does not compile", details={"compiler output": said.pop(0)})

    sources = read_sources(SOURCES)
    _, patched = compile_kernels(sources, compile_patched, fiber_only=fiber_only)
    modes = {k.name: k.mode.value for each in patched.values() for k in each.kernels}
    return modes, told(patched), count


LOOPS = dict.fromkeys(("one", "two", "three"), "block")


def test_a_source_that_compiles_is_compiled_once() -> None:
    assert built() == (LOOPS, [], 1)


def test_the_kernel_in_which_the_error_is_gets_stacks() -> None:
    modes, lines, count = built("./a.cu: In function 'two':\n./a.cu:6:3: error: no such thing\n")
    assert modes == {**LOOPS, "two": "fiber"}
    why = "its loops do not compile: line 6: no such thing"
    assert lines == [f"a.cu:5: two runs with a stack per thread: {why}"]
    assert count == 2


def test_kernels_that_other_errors_hid_follow() -> None:
    modes, lines, count = built("a.cu:3:1: error: a\n", "b.cuh:2:1: error: b\n")
    assert modes == {"one": "fiber", "two": "block", "three": "fiber"}
    assert (len(lines), count) == (2, 3)


def test_an_error_in_a_header_means_the_kernel_through_which_it_was_come_to() -> None:
    text = "a.cu:6:3:   required from here\n/usr/include/x.h:9:1: error: no constructor\n"
    modes, lines, _ = built(text)
    assert modes == {**LOOPS, "two": "fiber"}
    assert lines[0].endswith("its loops do not compile: /usr/include/x.h:9: no constructor")


def test_where_nothing_says_which_all_get_stacks() -> None:
    modes, lines, count = built("the linker says no\n")
    assert modes == dict.fromkeys(LOOPS, "fiber")
    assert (len(lines), count) == (3, 2)


def test_a_source_that_is_wrong_itself_is_an_error() -> None:
    text = "a.cu:3:1: error: y was not declared\n"
    with pytest.raises(BuildError, match=r"a\.cu does not compile"):
        built(text, text)  # a third run would succeed


def test_stacks_that_were_asked_for_are_not_told() -> None:
    assert built(fiber_only="asked for") == (dict.fromkeys(LOOPS, "fiber"), [], 1)
    with pytest.raises(BuildError):
        built("a.cu:3:1: error: a\n", fiber_only="asked for")
