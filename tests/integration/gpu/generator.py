"""Random kernels whose results are defined: no races, no arithmetic that C++ leaves open.

Sums and exclusive ors of atomic operations go to different numbers: their order is not defined.

Each kernel gets ``out``, an element per thread, ``in``, 64 numbers, ``total``, 8 numbers for atomic
operations, a number ``n`` and an object ``view``. Threads share memory by the array ``s``: each
writes its own element, and reads those of others after a barrier.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

Chosen = TypeVar("Chosen")

THREADS: Final = 64
BLOCKS: Final = 3
SHAPES: Final = ("dim3(64, 1)", "dim3(16, 4)", "dim3(64)")

TYPES: Final = """
struct View {
  unsigned *data;
  unsigned step;
  unsigned offset[2];
};
struct Pair {
  unsigned a, b;
  __device__ unsigned sum() const { return a + b; }
  __device__ void add(unsigned v) { a += v, b ^= v; }
  __device__ Pair &operator+=(unsigned v) { a += v + threadIdx.x; return *this; }
  __device__ Pair operator+(unsigned v) const { return {a + v, b ^ threadIdx.x}; }
  __device__ unsigned &operator[](unsigned i) { return i & 1 ? b : a; }
};
struct Placed {
  unsigned t;
  __device__ Placed() : t(threadIdx.x + 3) {}
  __device__ Placed(unsigned v, unsigned w) : t(v * 5 + w + threadIdx.y) {}
  __device__ operator unsigned() const { return t ^ threadIdx.x; }
};
struct Mix {
  unsigned k;
  __device__ unsigned operator()(unsigned v) const { return v * k + threadIdx.x; }
};
struct Scale {
  unsigned k;
  __device__ unsigned operator()(unsigned v) const { return v * 3 + k; }
};
template <class T> struct Box {
  T v;
  __device__ T twice() const { return v + v; }
};
__device__ unsigned plain(unsigned v, unsigned w) { return v * 7 + (w ^ 5); }
__device__ unsigned deep(unsigned v) { return plain(v, 3) + threadIdx.x; }
__device__ unsigned early(unsigned v) {
  for (unsigned i = 0; i < 5; i++) {
    if ((v & 3) == i) return v + i;
    v += 11;
  }
  return v ^ threadIdx.x;
}
__device__ unsigned optional(unsigned v, unsigned t = threadIdx.x) { return v + 2 * t; }
__device__ void change(unsigned &v, unsigned by) { v += by; }
__device__ void set(unsigned *v, unsigned to) { *v ^= to; }
__device__ unsigned local(unsigned v) {
  unsigned a[4] = {v, v + 1, v ^ 2, 9};
  a[v & 3] += 5;
  return a[0] + a[1] * 3 + a[(v >> 2) & 3];
}
template <class F> __device__ unsigned applied(F f, unsigned v) { return f(v) + 1; }
template <unsigned K> __device__ unsigned times(unsigned v) { return v * K + K; }
template <unsigned (*F)(unsigned)> __device__ unsigned through(unsigned v) { return F(v) ^ 6; }
"""


class Kernel:
    """One random kernel.

    Attributes:
        name: Its name.
        text: Its definition.
        launch: The launch, with ``{}`` for the call.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self.name = f"k{seed}"
        self.shape = self._one(SHAPES)
        self._number = 0
        self._readable: list[str] = ["t", "n", "blockIdx.x"]
        self._writable: list[str] = []
        self._pairs: list[str] = []
        self._uniform: list[str] = ["n", "blockIdx.x", "blockDim.x"]
        self._may_exchange = self._chance(0.3)
        self._has_lambdas = self._chance(0.15)
        self._can_read_shared = False
        self._is_template = self._chance(0.3)
        self._functor = self._one(["Mix", "Scale"])
        body = self._body()
        template = "template <class F, unsigned K> " if self._is_template else ""
        functor = "F f" if self._is_template else f"{self._functor} f"
        self.text = (
            f"{template}__global__ void {self.name}(unsigned *out, const unsigned *in, "
            f"unsigned *total, unsigned n, View view, {functor}) {{\n{body}}}\n"
        )
        self.call = f"{self.name}<{self._functor}, 5>" if self._is_template else self.name
        self.arguments = f"out, in, total, {self._random.randrange(9)}, view, {self._functor}{{3}}"

    # Choices.

    def _one(self, choices: Sequence[Chosen]) -> Chosen:
        return self._random.choice(choices)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _fresh(self) -> str:
        self._number += 1
        return f"v{self._number}"

    # Expressions: all are unsigned.

    def _value(self, depth: int = 2) -> str:
        if depth == 0 or self._chance(0.2):
            return self._one([*self._readable, f"{self._random.randrange(1, 40)}u"])
        a, b = self._value(depth - 1), self._value(depth - 1)
        return self._one(
            [
                f"({a} {self._one(['+', '-', '*', '^', '&', '|'])} {b})",
                f"({a} {self._one(['<<', '>>'])} {self._random.randrange(1, 9)})",
                f"({self._condition(a, b)} ? {a} : {b})",
                f"{self._one(['min', 'max'])}({a}, {b})",
                f"(unsigned)({a})",
                self._read(a),
                self._call(a, b),
            ]
        )

    def _read(self, a: str) -> str:
        choices = [f"in[({a}) & 63]", f"view.offset[({a}) & 1]", "view.step"]
        if self._can_read_shared:
            choices += [f"s[(t + {self._random.randrange(64)}) & 63]"] * 2
        if self._pairs:
            pair = self._one(self._pairs)
            choices += [f"{pair}.{self._one(['a', 'b', 'sum()'])}", f"({pair} + ({a})).sum()"]
        return self._one(choices)

    def _call(self, a: str, b: str) -> str:
        return self._one(
            [
                f"plain({a}, {b})",
                f"deep({a})",
                f"early({a})",
                f"optional({a})",
                f"optional({a}, {b})",
                f"local({a})",
                f"f({a})",
                f"applied(f, {a})",
                f"applied(Mix{{2}}, {a})",
                f"times<{self._random.randrange(2, 9)}>({a})",
                f"through<deep>({a})",
                f"Box<unsigned>{{{a}}}.twice()",
                f"Placed({a}, {b}).t",
                "Placed().t",
                f"(Placed({a}, 2) + 1u)",
                *(["K"] if self._is_template else []),
            ]
        )

    def _condition(self, a: str, b: str) -> str:
        return f"({a} & 7) {self._one(['<', '>=', '==', '!='])} ({b} & 7)"

    def _uniform_value(self) -> str:
        a = self._one(self._uniform)
        return self._one([a, f"({a} + {self._random.randrange(9)})", f"(in[{a} & 63] & 15)"])

    # Declarations.

    def _declare(self) -> str:
        name = self._fresh()
        a, b = self._value(), self._value(1)
        scalars = [
            f"unsigned {name} = {a};",
            f"unsigned {name}({a});",
            f"unsigned {name}({self._one(self._readable)});",
            f"unsigned {name}{{{a}}};",
            f"unsigned {name}; {name} = {a};",
            f"unsigned {name} = {a}, {name}x({b}); {name} ^= {name}x;",
            f"auto {name} = unsigned({a});",
            f"unsigned {name} = 0; if ({self._condition(a, b)}) {name} = {b};",
            f"unsigned {name} = {a}; {{ unsigned {name} = {b}; view.step += {name} & 3; }}",
            f"unsigned {name}[2] = {{{a}, {b}}};",
            (
                f"unsigned {name}y[3]; for (int i = 0; i < 3; i++) {name}y[i] = {b} + i; "
                f"unsigned {name} = {name}y[{a} % 3];"
            ),
        ]
        objects = [
            f"Pair {name} = {{{a}, {b}}};",
            f"Pair {name}{{{a}, {b}}};",
            f"Pair {name}; {name}.a = {a}; {name}.b = {b};",
        ]
        others = [
            (f"dim3 {name}({a}, {b});", [f"{name}.x", f"{name}.y"]),
            (f"uint2 {name} = make_uint2({a}, {b});", [f"{name}.x", f"{name}.y"]),
            (f"Placed {name};", [f"{name}.t", f"({name} + 0u)"]),
            (f"Placed {name}({a}, {b});", [f"{name}.t"]),
            (f"const unsigned {name}({a});", [name]),
            (f"const unsigned {name} = {a};", [name]),
            (f"const unsigned &{name} = in[({a}) & 63];", [name]),
        ]
        if self._has_lambdas:
            text = f"auto {name} = [=](unsigned v) {{ return v + t; }};"
            others.append((text, [f"{name}({a})"]))
        kind = self._random.random()
        if kind < 0.5:
            text = self._one(scalars)
            used = f"{name}[1]" if f"{name}[2]" in text else name
            self._readable.append(used)
            self._writable.append(used)
        elif kind < 0.7:
            text = self._one(objects)
            self._pairs.append(name)
            self._writable += [f"{name}.a", f"{name}.b"]
        else:
            text, more = self._one(others)
            self._readable += more
        return text

    # Statements without barriers.

    def _change(self) -> str:
        target = self._one([*self._writable, "view.step", "view.offset[0]"])
        a = self._value()
        choices = [
            f"{target} {self._one(['=', '+=', '^=', '-='])} {a};",
            f"{target}++;",
            f"{target} += 1, view.offset[1] ^= {self._one(self._readable)};",
            f"change({target}, {a});",
            f"set(&{target}, {a});",
            f"{{ unsigned &r = {target}; r += {a}; }}",
            f"{{ unsigned *p = &{target}; *p += {a}; }}",
            f"atomicAdd(&total[({a}) & 3], {self._value(1)});",
            f"atomicXor(&total[{self._random.randrange(4, 8)}], {a});",
        ]
        if self._pairs:
            pair = self._one(self._pairs)
            choices += [f"{pair}.add({a});", f"{pair} += {a};", f"{pair}[{a}] += 3;"]
        return self._one(choices)

    def _inner(self, depth: int) -> str:
        """Return a few statements, in which variables are declared for themselves."""
        kept = [list(each) for each in (self._readable, self._writable, self._pairs)]
        text = " ".join(self._statement(depth) for _ in range(self._random.randrange(1, 4)))
        self._readable, self._writable, self._pairs = kept
        return text

    def _statement(self, depth: int) -> str:
        kind = self._random.random()
        if depth == 0 or kind < 0.45:
            return self._change()
        if kind < 0.6:
            return self._declare()
        a, b = self._value(1), self._value(1)
        i = self._fresh()
        rounds = self._random.randrange(2, 6)
        leave = self._one(["", f"if ({self._condition(a, i)}) {self._one(['break', 'continue'])};"])
        return self._one(
            [
                f"if ({self._condition(a, b)}) {{ {self._inner(depth - 1)} }}",
                (
                    f"if (t < {self._random.randrange(64)}) {{ {self._inner(depth - 1)} }} "
                    f"else {{ {self._inner(depth - 1)} }}"
                ),
                (
                    f"for (unsigned {i} = 0; {i} < {rounds}; {i}++) "
                    f"{{ {leave} {self._inner(depth - 1)} }}"
                ),
                f"for (unsigned {i} = t & 3; {i} < n; {i} += 2) {{ {self._inner(depth - 1)} }}",
                f"unsigned {i} = {a} & 3; while ({i}-- > 0) {{ {self._inner(depth - 1)} }}",
                (
                    f"switch ({a} & 3) {{ case 0: {{ {self._inner(0)} }} break; "
                    f"case 1: {{ {self._inner(0)} }} default: {{ {self._inner(0)} }} }}"
                ),
            ]
        )

    # Statements with barriers, to which all threads come that have not returned.

    def _share(self) -> str:
        write = f"s[t] = {self._value()}; __syncthreads();"
        self._can_read_shared = True
        read = f"{self._declare()} {self._change()} {self._change()}"
        self._can_read_shared = False
        return f"{write} {read} __syncthreads();"

    def _common(self, depth: int) -> str:
        kind = self._random.random()
        if depth == 0 or kind < 0.5:
            return self._share() if not self._may_exchange or kind < 0.3 else self._exchange()
        kept = [list(each) for each in (self._readable, self._writable, self._pairs)]
        i = self._fresh()
        rounds = self._random.randrange(2, 4)
        uniform = self._uniform_value()
        self._readable.append(i)
        inside = f"{self._statement(1)} {self._common(depth - 1)} {self._change()}"
        leave = f"if ({i} == ({uniform} & 3)) break;" if self._chance(0.3) else ""
        self._readable, self._writable, self._pairs = kept
        return self._one(
            [
                f"for (unsigned {i} = 0; {i} < {rounds}; {i}++) {{ {leave} {inside} }}",
                f"unsigned {i} = {rounds}; while ({i} > 1) {{ {inside} {i}--; }}",
                f"unsigned {i} = {uniform}; if ({i} > 3) {{ {inside} }}",
            ]
        )

    def _exchange(self) -> str:
        name, by = self._fresh(), self._random.randrange(1, 32)
        value = self._value(1)
        self._readable.append(name)
        self._writable.append(name)
        kind = self._one(
            [
                f"__shfl_sync(~0u, {value}, {by})",
                f"__shfl_xor_sync(~0u, {value}, {by})",
                f"__shfl_down_sync(~0u, {value}, {by})",
                f"__shfl_up_sync(~0u, {value}, {by})",
                f"__ballot_sync(~0u, {self._condition(value, 't')})",
                f"unsigned(__any_sync(~0u, {self._condition(value, '3')}))",
            ]
        )
        return f"unsigned {name} = {kind}; {name} += {self._value(1)};"

    def _body(self) -> str:
        lines = [
            "__shared__ unsigned s[64];",
            "unsigned t = threadIdx.y * blockDim.x + threadIdx.x;",
            "unsigned at = blockIdx.x * 64 + t;",
            "s[t] = t * n; __syncthreads();",
        ]
        lines += [self._declare() for _ in range(self._random.randrange(1, 4))]
        if not self._may_exchange and self._chance(0.3):
            lines.append(f"out[at] = t; if ({self._condition('t', self._value(1))}) return;")
        if self._chance(0.3):
            lines.append("view.data += blockIdx.x * 64; view.data[t] ^= n;")
        barriers = self._chance(0.8)
        for _ in range(self._random.randrange(2, 6)):
            choose: list[Callable[[], str]] = [lambda: self._statement(2), self._declare]
            if barriers:
                choose += [lambda: self._common(2)] * 2
            lines.append(self._one(choose)())
        lines.append("unsigned r = view.step + view.offset[0] * 3 + view.offset[1];")
        lines += [f"r = r * 31 + {each};" for each in self._readable]
        lines += [f"r = r * 31 + {each}.sum();" for each in self._pairs]
        lines.append("out[at] = r;")
        return "".join(f"  {line}\n" for line in lines)


def program(seeds: range, *, emulated: bool) -> str:
    """Return a program that runs the kernels of some seeds, and prints a line for each.

    Args:
        seeds: Of the kernels.
        emulated: Whether a context for each thread runs them, in place of CUDA.
    """
    kernels = [Kernel(seed) for seed in seeds]
    head = '#include "emulator.h"' if emulated else "#include <cuda_runtime.h>\n#include <cstdio>"
    runs = ""
    for each in kernels:
        size = f"{BLOCKS}, {each.shape}"
        run = f"{each.call}<<<{size}>>>({each.arguments});"
        if emulated:
            run = f"emulate({size}, [&] {{ {each.call}({each.arguments}); }});"
        runs += f'  begin(); {run} end("{each.name}");\n'
    wait = "" if emulated else "if (cudaDeviceSynchronize() != cudaSuccess) bad = 1;"
    return f"""{head}
{TYPES}
{"".join(each.text for each in kernels)}
unsigned memory[{BLOCKS * THREADS + 64 + 8 + BLOCKS * THREADS}], bad;
unsigned *out = memory, *in = out + {BLOCKS * THREADS}, *total = in + 64;
View view{{total + 8, 5, {{2, 9}}}};
void begin() {{
  for (unsigned i = 0; i < sizeof memory / 4; i++) memory[i] = i * 2654435761u >> 7;
}}
void end(const char *name) {{
  {wait}
  unsigned long long sum = 1469598103934665603ull;
  for (unsigned each : memory) sum = (sum ^ each) * 1099511628211ull;
  printf("%s %llx %u\\n", name, sum, bad);
}}
int main() {{
{runs}}}
"""
