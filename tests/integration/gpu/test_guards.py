"""Random kernels full of guards: loops over threads must agree with a stack per thread, bit by bit.

The kernels are made of what proofs about guards could get wrong: types that wrap, narrow and round,
offsets that are negative or beyond a type, blocks and grids of any shape. A signed sum or product
is made only where it cannot overflow, as C++ leaves open what it is then.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sapwood_cuda_cpu.executable import build_executable

EVERY_TIME = 6
"""Kernels that are compared in each run of the tests."""
NIGHTLY = 100, 100
"""Batches of a night, and kernels of each."""
LAUNCHES = 3


class Type(msgspec.Struct, frozen=True):
    """A type of C++ and the least and the largest of its values; none of a floating one."""

    names: tuple[str, ...]
    low: int
    high: int
    rank: int
    floating: bool = False


def _whole(bits: int, signed: bool, *names: str) -> Type:
    low = -(2 ** (bits - 1)) if signed else 0
    return Type(names, low, low + 2**bits - 1, rank=bits)


BOOL = Type(("bool",), 0, 1, rank=1)
INT = _whole(32, True, "int", "int32_t", "whole")
UINT = _whole(32, False, "unsigned", "uint32_t", "uint", "unsigned int")
LONG = _whole(64, True, "long long", "int64_t", "long", "ptrdiff_t")
ULONG = _whole(64, False, "size_t", "uint64_t", "unsigned long long", "big_t")
FLOAT = Type(("float", "real"), 0, 0, rank=100, floating=True)
DOUBLE = Type(("double",), 0, 0, rank=101, floating=True)
NARROW = (
    BOOL,
    _whole(8, False, "unsigned char", "uint8_t", "tiny"),
    _whole(8, True, "signed char", "int8_t"),
    _whole(16, False, "unsigned short", "uint16_t"),
    _whole(16, True, "short", "int16_t"),
)
TYPES = (INT, INT, UINT, UINT, LONG, ULONG, *NARROW, FLOAT, DOUBLE)
EXACT = 2**24
"""Whole numbers up to this are floats; floats become whole numbers only from such bounds."""


class Value(msgspec.Struct, frozen=True):
    """An expression: its text, its type, and the bounds of its values."""

    text: str
    type: Type
    low: float
    high: float


INDEX = "blockIdx.x * blockDim.x + threadIdx.x"
PARAMETERS = (
    Value("n", INT, -70_000, 70_000),
    Value("off", INT, -70_000, 70_000),
    Value("u", UINT, 0, UINT.high),
    Value("w", LONG, -(2**40), 2**40),
    Value("z", ULONG, 0, ULONG.high),
    Value("t", NARROW[1], 0, 255),
    Value("f", FLOAT, -(2.0**25), 2.0**25),
)
HEAD = """\
#include <cuda_runtime.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
typedef unsigned char tiny;
typedef float real;
typedef unsigned long big_t;
typedef unsigned int uint;
using whole = int;
static unsigned *memory;
static const unsigned words = 1 << 16;
static void say(int kernel, int launch) {
    unsigned long long sum = cudaDeviceSynchronize();
    for (unsigned i = 0; i < words; i++) sum = (sum ^ memory[i]) * 1099511628211ull;
    printf("%d %d %016llx\\n", kernel, launch, sum);
    memset(memory, 0, words * sizeof *memory);
}
"""
ARGUMENTS = "unsigned *o, int n, int off, unsigned u, long long w, size_t z, tiny t, float f"
NUMBERS = (
    *(0, 1, 2, 3, 5, 10, 31, 32, 50, 64, 100, 127, 128, 200, 255, 256, 300, 1000, 32768, 65500),
    *(65535, 65536, 16777216, 2147483647, 2147483648, 4000000000, 4294967286, 4294967295),
)


class Writer:
    """Writes one kernel.

    Args:
        seed: What decides about it.
        number: Its number in its source.
    """

    def __init__(self, seed: str, number: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secrets
        self._number = number
        self._flat = self._random.random() < 0.6
        self._common: list[Value] = list(PARAMETERS)
        self._own: list[Value] = [Value("threadIdx.x", UINT, 0, 255)]
        if self._flat:
            self._own.append(Value(f"({INDEX})", UINT, 0, 4095))
        else:
            self._own += [Value("threadIdx.y", UINT, 0, 3), Value("threadIdx.z", UINT, 0, 3)]
            self._own.append(Value("(blockIdx.y * blockDim.y + threadIdx.y)", UINT, 0, 31))

    def kernel(self) -> str:
        """Return the kernel."""
        if self._flat:
            lines = [f"unsigned g = {INDEX};"]
        else:
            inside = "(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x"
            block = "(blockIdx.y * gridDim.x + blockIdx.x)"
            size = "(blockDim.x * blockDim.y * blockDim.z)"
            lines = [f"unsigned g = {block} * {size} + {inside};"]
        lines += [self._declaration(each) for each in range(self._random.randint(1, 3))]
        cut = self._random.random() < 0.3
        for each in range(self._random.randint(1, 4)):
            lines.append(self._statement(each))
            if cut and each == 0:
                lines.append("__syncthreads();")
            if self._random.random() < 0.3:
                lines.append(self._declaration(each + 10))
        body = "\n".join(f"    {line}" for line in lines)
        return f"__global__ void k{self._number}({ARGUMENTS}) {{\n{body}\n}}\n"

    def launches(self) -> Iterator[str]:
        """Yield what launches it, with other sizes and arguments each time."""
        draw = self._random
        for launch in range(LAUNCHES):
            x, y, z = draw.choice((1, 7, 32, 33, 64, 100, 256)), draw.choice((1, 2, 3)), 1
            grid = f"dim3({draw.choice((1, 2, 3, 5, 16))}, {draw.choice((1, 2))})"
            if self._flat:
                y, grid = 1, str(draw.choice((1, 2, 3, 5, 16)))
            elif x * y > 100:
                y = 1
            else:
                z = draw.choice((1, 2))
            n, off = (
                draw.choice((0, 1, 5, 50, 100, 300, 1000, -1, -10, -300, 65535)) for _ in "no"
            )
            u = draw.choice((0, 1, 10, 100, 1000, 4294967286, 2654435761, 4000000000))
            w = draw.choice((0, 1, 100, -1, -10, 2**32 - 5, 2**32 + 100, -(2**40), 2**31 - 20))
            size = draw.choice((0, 1, 100, 2**64 - 10, 2**32, 2**63))
            f = draw.choice((0.0, 0.5, -0.5, 16777216.0, -1.0, 100.25))
            yield (
                f"    k{self._number}<<<{grid}, dim3({x}, {y}, {z})>>>(memory, {n}, {off}, {u}u, "
                f"{w}ll, {size}ull, {draw.choice((0, 1, 100, 200, 255))}, {f}f); "
                f"say({self._number}, {launch});\n"
            )

    def _declaration(self, number: int) -> str:
        common = self._random.random() < 0.2
        name, value = f"v{number}", self._sum(self._common if common else None)
        kind = self._random.choice(TYPES)
        if self._random.random() < 0.1:
            made, spelled = value, "auto"
        else:
            made = self._converted(value, kind) or value
            spelled = self._random.choice(made.type.names)
        const = "const " if self._random.random() < 0.5 else ""
        (self._common if common else self._own).append(Value(name, made.type, made.low, made.high))
        return f"{const}{spelled} {name} = {value.text};"

    def _converted(self, value: Value, kind: Type) -> Value | None:
        """Return a value as one of another type; none where C++ leaves open what that is."""
        low, high = value.low, value.high
        if kind.floating:
            return Value(value.text, kind, low, high)
        if value.type.floating and not -EXACT < low <= high < EXACT:
            return None
        if value.type.floating and not (kind.low <= low - 1 and high + 1 <= kind.high):
            return None
        if not kind.low <= low <= high <= kind.high:
            low, high = kind.low, kind.high
        return Value(value.text, kind, low, high)

    def _atom(self, chosen: list[Value] | None = None) -> Value:
        draw = self._random
        if draw.random() < 0.3:
            number = draw.choice(NUMBERS)
            if number <= INT.high:
                suffix = draw.choice(("", "", "", "u", "ull"))
            else:
                suffix = draw.choice(("u", "u", "ull", "ll")) if number <= UINT.high else "ull"
            kind = {"": INT, "u": UINT, "ull": ULONG, "ll": LONG}[suffix]
            if draw.random() < 0.08 and number < EXACT:
                return Value(f"{number}.5f", FLOAT, number, number + 1)
            return Value(f"{number}{suffix}", kind, number, number)
        return draw.choice(chosen or [*self._own, *self._common])

    def _sum(self, chosen: list[Value] | None = None) -> Value:
        """Return sums and products, most of them of indices and of what is common."""
        value = self._random.choice(chosen or self._own)
        for _ in range(self._random.choice((0, 1, 1, 2, 3))):
            operator = self._random.choice("+++---**<>/")
            value = self._combined(value, operator, self._atom(chosen))
        return value

    def _combined(self, left: Value, operator: str, right: Value) -> Value:
        draw = self._random
        if operator == "*" and draw.random() < 0.3:
            right = Value("2654435761u", UINT, 2654435761, 2654435761)
        if operator in "+*" and draw.random() < 0.5:
            left, right = right, left
        if operator in "<>":
            return self._shifted(left, operator, right)
        if operator == "/":
            right = Value(str(draw.choice((2, 3, 7, 10))), INT, 2, 10)
        kind = max((left.type, right.type, INT), key=lambda each: (each.rank, each.low == 0))
        one, other = self._converted(left, kind), self._converted(right, kind)
        if one is None or other is None:
            return left
        text = f"({left.text} {operator} {right.text})"
        corners = [
            {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[operator]
            for a in (one.low, one.high)
            for b in (other.low, other.high)
        ]
        low, high = min(corners), max(corners)
        if kind.floating:
            return Value(text, kind, low, high) if abs(low) + abs(high) < 1e15 else left
        if operator == "/":
            low, high = int(low) - 1, int(high) + 1
            low, high = max(low, kind.low), min(high, kind.high)
        if kind.low <= low and high <= kind.high:
            return Value(text, kind, low, high)
        return Value(text, kind, kind.low, kind.high) if kind.low == 0 else left

    def _shifted(self, left: Value, operator: str, right: Value) -> Value:
        if left.type.floating or right.type.floating:
            return left
        kind = left.type if left.type.rank >= INT.rank else INT
        return Value(f"({left.text} {operator * 2} {right.text})", kind, kind.low, kind.high)

    def _comparison(self) -> str:
        left = self._sum()
        right = self._atom(self._common) if self._random.random() < 0.7 else self._sum()
        if self._random.random() < 0.2:
            left, right = right, left
        operator = self._random.choice(("<", "<", "<", "<=", ">", ">=", ">=", "==", "!="))
        return f"{left.text} {operator} {right.text}"

    def _condition(self) -> str:
        parts = [self._comparison()]
        while self._random.random() < 0.35:
            parts.append(self._comparison())
        link = self._random.choice((" && ", " && ", " || "))
        text = link.join(parts)
        if self._random.random() < 0.1:
            return f"!({text})"
        if len(parts) > 1 and self._random.random() < 0.2:
            return f"({text}) && {self._comparison()}"
        return text

    def _statement(self, number: int) -> str:
        salt = self._random.randrange(1, 10**6)
        step = f"o[g] = o[g] * 31 + {salt};"
        kind = self._random.random()
        if kind < 0.35:
            other = f" else o[g] = o[g] * 33 + {salt};" if self._random.random() < 0.2 else ""
            return f"if ({self._condition()}) {{ {step} }}{other}"
        if kind < 0.5:
            return f"if ({self._condition()}) return; {step}"
        if kind < 0.7:
            value = self._random.choice(("2", "o[g]", f"{salt}", "o[g] + 7"))
            return f"o[g] = o[g] * 31 + ({self._condition()} ? {salt} : {value});"
        if kind < 0.9:
            return self._for_loop(number, step)
        return (
            f"for (int r{number} = 0; r{number} < 9 && {self._comparison()}; r{number}++) "
            f"{{ {step} if ({self._comparison()}) break; }}"
        )

    def _for_loop(self, number: int, step: str) -> str:
        """Return a loop that ends: of a narrow type also where its index wraps on the way."""
        draw, name = self._random, f"i{number}"
        kind = draw.choice((INT, UINT, UINT, LONG, ULONG, NARROW[1], NARROW[3], FLOAT))
        sign = draw.choice(("<", "<", "<", "<="))
        start = self._sum()
        if kind.floating:
            start, by, end = Value("threadIdx.x", UINT, 0, 255), "0.1f", "7.3f"
        elif kind is NARROW[1]:  # an odd step comes to each value
            by, end = str(draw.choice((1, 3, 17, 101))), str(draw.choice((5, 100, 200, 250)))
        elif kind is NARROW[3]:
            by, end = str(draw.choice((4097, 6001, 9999))), str(draw.choice((100, 30_000, 60_000)))
        else:
            by, end = draw.choice(("blockDim.x * gridDim.x", "1000", "317u")), "100 + t * 4"
            first = self._converted(start, kind)
            if first is None or first.low < -5000:
                start = Value(f"({INDEX}) + off" if self._flat else "threadIdx.x", UINT, 0, 0)
            if kind.low < 0 and by == "blockDim.x * gridDim.x":
                by = "1000"
        if start.type.floating:
            start = Value("threadIdx.x", UINT, 0, 255)
        spelled = draw.choice(kind.names)
        return (
            f"for ({spelled} {name} = {start.text}; {name} {sign} {end}; {name} += {by}) "
            f"{{ {step} o[g] += (unsigned){name}; }}"
        )


def source_of(seed: str, count: int) -> tuple[str, list[str]]:
    """Return a source with some kernels, and each kernel with its launches."""
    writers = [Writer(f"{seed} {number}", number) for number in range(count)]
    kernels = [writer.kernel() for writer in writers]
    calls = ["".join(writer.launches()) for writer in writers]
    allocated = "    cudaMallocManaged(&memory, words * sizeof *memory);\n"
    cleared = "    memset(memory, 0, words * sizeof *memory);\n"
    main = f"int main() {{\n{allocated}{cleared}{''.join(calls)}    return 0;\n}}\n"
    return HEAD + "".join(kernels) + main, [k + c for k, c in zip(kernels, calls, strict=True)]


def run(folder: Path, source: str, mode: str, compiler: str, flags: str, seconds: int) -> list[str]:
    """Build a source in a mode, run it, and return its lines."""
    folder.mkdir()
    (folder / "guards.cu").write_text(source)
    environment = {
        **os.environ,
        "CXX": compiler,
        "CXXFLAGS": f"{flags} -g0 -ffp-contract=off",
        "SAPWOOD_CUDA_MODE": mode,
    }
    program = folder / "guards"
    kernels = build_executable([folder / "guards.cu"], program, environment=environment)
    assert {kernel.mode.value for kernel in kernels} == {mode}, kernels
    variables = {**os.environ, "SAPWOOD_CUDA_WORKERS": "1"}
    done = subprocess.run(
        [program], capture_output=True, text=True, env=variables, timeout=seconds, check=True
    )
    return done.stdout.splitlines()


def compare(folder: Path, seed: str, count: int, compiler: str, flags: str) -> None:
    """Compare both modes on some kernels."""
    source, kernels = source_of(seed, count)
    block = run(folder / "block", source, "block", compiler, flags, 60)
    fiber = run(folder / "fiber", source, "fiber", compiler, "-O0", 60)
    assert len(block) == len(fiber) == count * LAUNCHES
    wrong = sorted({int(a.split()[0]) for a, b in zip(block, fiber, strict=True) if a != b})
    assert not wrong, f"{len(wrong)} of {count} differ:\n" + "\n".join(
        kernels[k] for k in wrong[:3]
    )


@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++", marks=pytest.mark.nightly)])
def test_loops_agree_with_a_stack_per_thread(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    compare(tmp_path, f"every time {compiler}", EVERY_TIME, compiler, "-O1")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batch", range(NIGHTLY[0]))
def test_a_night_of_random_guards(batch: int, tmp_path: Path) -> None:
    compiler = ("g++", "clang++")[batch % 2]
    if shutil.which(compiler) is None:
        compiler = "g++"
    compare(tmp_path, f"batch {batch}", NIGHTLY[1], compiler, ("-O1", "-O3")[batch % 4 // 2])
