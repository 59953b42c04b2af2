"""Random kernels whose results are defined: no races, no arithmetic that C++ leaves open.

Sums and other atomic operations go to different numbers: their order is not defined together.

Each kernel gets ``out``, an element per thread, ``in``, 64 numbers, ``total``, 16 numbers for
atomic operations, numbers ``n`` and ``limit``, an object ``view``, a functor ``f``, and two
elements of ``own`` and three of ``wide`` per thread. ``pairs`` is ``own`` again, under another
type. Threads share memory by the array ``s``: each writes its own element, and reads those of
others after a barrier.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

Chosen = TypeVar("Chosen")

THREADS: Final = 64
BLOCKS: Final = 3
ALL: Final = BLOCKS * THREADS
FLAT: Final = ("64", "dim3(64)")
SHAPES: Final = (*FLAT, "dim3(64, 1)", "dim3(16, 4)", "dim3(8, 8)", "dim3(32, 2)", "dim3(4, 4, 4)")
GRIDS: Final = ("3", "dim3(3)", "dim3(1, 3)", "dim3(1, 1, 3)")
RANK: Final = "(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x"
BLOCK: Final = "(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x"
STRIDES: Final = (
    "blockDim.x * blockDim.y * blockDim.z * gridDim.x * gridDim.y * gridDim.z",
    "192u",
    "gridDim.x * gridDim.y * gridDim.z * 64u",
)

TYPES: Final = """
typedef unsigned Number;
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
  __device__ static unsigned fixed(unsigned v) { return v * 13 + threadIdx.y; }
  template <class F> __device__ unsigned mapped(F f) const { return f(a) - f(b); }
};
struct Triple : Pair {
  unsigned c;
  __device__ unsigned sum() const { return Pair::sum() * 3 + c; }
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
enum Kind { NONE, SOME = 5 };
extern __shared__ unsigned outer[];
__constant__ unsigned fixed[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ unsigned plain(unsigned v, unsigned w) { return v * 7 + (w ^ 5); }
__device__ float plain(float v, float w) { return v * 2 + w; }
__device__ unsigned deep(unsigned v) { return plain(v, 3u) + threadIdx.x; }
__device__ unsigned early(unsigned v) {
  for (unsigned i = 0; i < 5; i++) {
    if ((v & 3) == i) return v + i;
    v += 11;
  }
  return v ^ threadIdx.x;
}
__device__ unsigned optional(unsigned v, unsigned t = threadIdx.x) { return v + 2 * t; }
__device__ unsigned again(unsigned v, unsigned depth) {
  return depth ? again(v * 3 + 1, depth - 1) : v;
}
__device__ void change(unsigned &v, unsigned by) { v += by; }
__device__ void set(unsigned *v, unsigned to) { *v ^= to; }
__device__ unsigned local(unsigned v) {
  unsigned a[4] = {v, v + 1, v ^ 2, 9};
  a[v & 3] += 5;
  return a[0] + a[1] * 3 + a[(v >> 2) & 3];
}
namespace other { __device__ unsigned deep(unsigned v) { return v ^ 77 * blockIdx.x; } }
template <class F> __device__ unsigned applied(F f, unsigned v) { return f(v) + 1; }
template <unsigned K> __device__ unsigned times(unsigned v) { return v * K + K; }
template <unsigned (*F)(unsigned)> __device__ unsigned through(unsigned v) { return F(v) ^ 6; }
__device__ unsigned summed() { return threadIdx.x; }
template <class... V> __device__ unsigned summed(unsigned v, V... more) {
  return v + 3 * summed(more...);
}
__device__ unsigned spread(unsigned *s, unsigned t, unsigned v) {
  s[t] = v;
  __syncthreads();
  unsigned found = s[(t + 9) & 63];
  __syncthreads();
  return found;
}
__device__ unsigned tiled(unsigned t, unsigned v) {
  __shared__ unsigned tile[64];
  tile[t ^ 5] = v;
  __syncthreads();
  return tile[t] + 1;
}
"""

_DYNAMIC: Final = re.compile(r"extern __shared__ (?:__align__\(16\) )?([a-z ]+) (\w+)\[\];")

Names = tuple[list[str], list[str], list[str], list[str]]


class Kernel:
    """One random kernel.

    Attributes:
        name: Its name.
        lines: The statements of its body, a line for those that belong together.
        call: Its name with the template arguments.
        arguments: Those of the launch.
        size: Grid and block of the launch.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self.name = f"k{seed}"
        self._number = 0
        self._readable: list[str] = ["t", "n", "blockIdx.x", "limit"]
        self._writable: list[str] = []
        self._small: list[str] = []
        self._pairs: list[str] = []
        self._uniform: list[str] = ["n", "blockIdx.x", "blockDim.x"]
        kind = self._one(["flat", "short", "short", "any", "any", "any", "exchange", "exchange"])
        self._is_flat = kind == "flat"
        self._is_short = kind in {"short", "flat"}  # what compilers make vectors of
        self._may_exchange = kind == "exchange"
        self._may_leave = not self._may_exchange and self._chance(0.4)
        self._has_lambdas = not self._is_short and self._chance(0.15)
        self._dynamic: list[str] = []
        self._has_own = self._chance(0.8 if self._is_short else 0.3)
        self._can_read_shared = False
        self._is_template = self._chance(0.3)
        self._functor = self._one(["Mix", "Scale"])
        self.size = f"{self._one(GRIDS[:2])}, {self._one(FLAT)}"
        if not self._is_flat:
            self.size = f"{self._one(GRIDS)}, {self._one(SHAPES)}"
        if self._has_own:
            own = ["own[2 * at]", "own[2 * at + 1]", "pairs[at].a", "pairs[at].b", "wide[at]"]
            self._readable += own
            self._writable += own
            self._pairs.append("pairs[at]")
        body = self._flat_body() if self._is_flat else self._body()
        template = "template <class F, unsigned K> " if self._is_template else ""
        functor = "F f" if self._is_template else f"{self._functor} f"
        self._head = (
            f"{template}__global__ void {self.name}(unsigned *out, const unsigned *in, "
            "unsigned *total, unsigned n, unsigned limit, View view, unsigned *own, Pair *pairs, "
            f"unsigned *wide, {functor})"
        )
        self.lines = body
        self.call = f"{self.name}<{self._functor}, 5>" if self._is_template else self.name
        self.arguments = (
            f"out, in, total, {self._random.randrange(9)}, {self._random.randrange(210)}, view, "
            f"own, (Pair *)own, wide, {self._functor}{{3}}"
        )

    @property
    def text(self) -> str:
        """Its definition."""
        return f"{self._head} {{\n{_joined(self.lines)}}}\n"

    def with_lines(self, lines: list[str]) -> Kernel:
        """Return the kernel with other lines."""
        changed = copy.copy(self)
        changed.lines = lines
        return changed

    # Choices.

    def _one(self, choices: Sequence[Chosen]) -> Chosen:
        return self._random.choice(choices)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _below(self, end: int) -> int:
        return self._random.randrange(end)

    def _fresh(self) -> str:
        self._number += 1
        return f"v{self._number}"

    def _kept(self) -> Names:
        names = (self._readable, self._writable, self._pairs, self._small)
        return tuple(list(each) for each in names)  # type: ignore[return-value] # of four

    def _restore(self, kept: Names) -> None:
        self._readable, self._writable, self._pairs, self._small = kept

    # Expressions: all are unsigned.

    def _value(self, depth: int = 2) -> str:
        if depth == 0 or self._chance(0.2):
            return self._one([*self._readable, f"{self._random.randrange(1, 40)}u"])
        a, b = self._value(depth - 1), self._value(depth - 1)
        return self._one(
            [
                f"({a} {self._one(['+', '-', '*', '^', '&', '|'])} {b})",
                f"({a} {self._one(['<<', '>>'])} {self._random.randrange(1, 9)})",
                f"({a} {self._one(['/', '%'])} {self._random.randrange(1, 9)}u)",
                f"({self._condition(a, b)} ? {a} : {b})",
                f"{self._one(['min', 'max'])}({a}, {b})",
                f"{self._one(['(unsigned)', '~', '-'])}({a})",
                f"(static_cast<{self._one(['unsigned char', 'unsigned short'])}>({a}) * 1u)",
                f"unsigned(int({a} & 63) - int({b} & 63))",
                self._read(a),
                self._call(a, b),
            ]
        )

    def _read(self, a: str) -> str:
        choices = [f"in[({a}) & 63]", f"view.offset[({a}) & 1]", "view.step", f"fixed[({a}) & 7]"]
        if self._can_read_shared:
            choices += [f"s[(t + {self._below(64)}) & 63]"] * 2
        if self._pairs:
            pair = self._one(self._pairs)
            choices += [f"{pair}.{self._one(['a', 'b', 'sum()'])}", f"({pair} + ({a})).sum()"]
            choices += [f"{pair}.mapped(f)", f"{pair}[{a}]"]
        return self._one(choices)

    def _call(self, a: str, b: str) -> str:
        if self._is_short and self._chance(0.7):
            return f"plain({a}, {b})"
        return self._one(
            [
                f"plain({a}, {b})",
                f"unsigned(plain(float(({a}) & 255), 0.5f))",
                f"deep({a})",
                f"other::deep({a})",
                f"early({a})",
                f"optional({a})",
                f"optional({a}, {b})",
                f"again({a}, {b} & 3)",
                f"f({a})",
                f"applied(f, {a})",
                f"applied(Mix{{2}}, {a})",
                f"times<{self._random.randrange(2, 9)}>({a})",
                f"through<deep>({a})",
                f"summed({a}, 4u, {b})",
                f"Pair::fixed({a})",
                f"Box<unsigned>{{{a}}}.twice()",
                f"Placed({a}, {b}).t",
                "Placed().t",
                f"(Placed({a}, 2) + 1u)",
                f"unsigned({self._condition(a, b)} ? SOME : NONE)",
                *([] if self._is_short else [f"local({a})"]),
                *(["K"] if self._is_template else []),
            ]
        )

    def _condition(self, a: str, b: str) -> str:
        return f"({a} & 7) {self._one(['<', '>=', '==', '!='])} ({b} & 7)"

    def _guard(self) -> str:
        x, i, k = self._one(["threadIdx.x", "t", "at"]), self._below(64), self._below(200)
        return self._one(
            [
                f"{x} < {i}",
                "at < limit",
                f"{x} > {i % 9} && {x} < {i}",
                f"t + {i % 7} < limit && {x} >= {i % 5}",
                f"threadIdx.y == {i % 3} || t < {i}",
                f"!({x} >= {i}u)",
                f"int(at) - {i} < {k}",
                f"{x} != {i}",
            ]
        )

    def _uniform_value(self) -> str:
        a = self._one(self._uniform)
        return self._one([a, f"({a} + {self._below(9)})", f"(in[{a} & 63] & 15)"])

    # Declarations.

    def _declare(self) -> str:
        name = self._fresh()
        kind = self._random.random()
        if kind < 0.45:
            return self._scalar(name)
        if kind < 0.6:
            return self._small_number(name)
        return self._object(name) if kind < 0.75 else self._fixed(name)

    def _scalar(self, name: str) -> str:
        a, b = self._value(), self._value(1)
        choices = [
            f"unsigned {name} = {a};",
            f"unsigned {name}({a});",
            f"unsigned {name}({self._one(self._readable)});",
            f"unsigned {name}{{{a}}};",
            f"unsigned {name}; {name} = {a};",
            f"unsigned {name} = {a}, {name}x({b}); {name} ^= {name}x;",
            f"auto {name} = unsigned({a});",
            f"decltype(n) {name}({a});",
            f"Number {name} = Number({a});",
            f"unsigned {name} = 0; if ({self._condition(a, b)}) {name} = {b};",
            f"unsigned {name}; if ({self._guard()}) {name} = {a}; else {name} = {b};",
            f"unsigned {name} = {a}; {{ unsigned {name} = {b}; view.step += {name} & 3; }}",
            f"unsigned {name}{{unsigned((unsigned char)(min({a}, {b})))}};",
            f"unsigned {name}{{(unsigned)(unsigned short)({a})}};",
            f"unsigned {name}((unsigned)({a}));",
            f"unsigned {name}((unsigned({self._one(self._readable)})));",
            f"unsigned {name} = {{{a}}};",
            f"unsigned {name}{{}}; {name} += {a};",
            f"unsigned ({name}) = {a};",
            f"unsigned {name}{{{a}}}, {name}x{{{b}}}; {name} += {name}x;",
            f"auto {name}{{unsigned({a})}};",
            f"auto {name}(unsigned{{{a}}});",
            f"using {name}t = unsigned; {name}t {name}{{{a}}};",
        ]
        if not self._is_short:
            choices += [
                f"unsigned {name}[2] = {{{a}, {b}}};",
                f"unsigned {name}y; unsigned &{name} = {name}y; {name} = {a};",
                f"unsigned {name}y = {a}, *{name}p = &{name}y; unsigned {name} = *{name}p;",
                (
                    f"unsigned {name}y[3]; for (int i = 0; i < 3; i++) {name}y[i] = {b} + i; "
                    f"unsigned {name} = {name}y[{a} % 3];"
                ),
                (
                    f"unsigned {name}y[2][2] = {{{{{a}, 1}}, {{2, {b}}}}}, {name} = 0; "
                    f"for (auto &row : {name}y) for (unsigned each : row) {name} += each;"
                ),
                f"unsigned (*{name}f)(unsigned) = deep; unsigned {name} = {name}f({a});",
                f"unsigned {name}[2]{{{a}, {b}}};",
                f"unsigned {name}y[]{{{a}, {b}, 3}}, {name} = {name}y[{b} % 3];",
                f"unsigned {name}y{{{a}}}, &{name}{{{name}y}}; {name} ^= {b};",
                f"auto [{name}, {name}y] = Pair{{{a}, {b}}}; {name} += {name}y;",
            ]
        text = self._one(choices)
        used = f"{name}[1]" if f"{name}[2]" in text else name
        self._readable.append(used)
        self._writable.append(used)
        return text

    def _small_number(self, name: str) -> str:
        """Declare a number of another type, small enough that nothing rounds or overflows."""
        a = f"(({self._value()}) & 255)"
        text = self._one(
            [
                f"int {name} = int({a}) - 100;",
                f"int {name}({a});",
                f"short {name} = short({a});",
                f"unsigned char {name} = {a};",
                f"long long {name}{{{a}}};",
                f"size_t {name} = {a};",
                f"bool {name} = {a} & 4;",
                f"float {name} = float({a}) * 1.5f + 0.25f;",
                f"double {name}({a}); {name} /= 2;",
                f"int {name}{{int({a})}};",
                f"auto {name}{{(long long)({a}) - 99}};",
                f"unsigned char {name}{{(unsigned char)({a})}};",
            ]
        )
        self._readable.append(f"(unsigned)(int){name}")
        if "bool" not in text:
            self._small.append(name)
        return text

    def _object(self, name: str) -> str:
        a, b = self._value(), self._value(1)
        self._pairs.append(name)
        self._writable += [f"{name}.a", f"{name}.b"]
        choices = [
            f"Pair {name} = {{{a}, {b}}};",
            f"Pair {name}{{{a}, {b}}};",
            f"Pair {name}; {name}.a = {a}; {name}.b = {b};",
            f"auto {name} = Pair{{{a}, {b}}};",
            f"Triple {name}; {name}.a = {a}; {name}.b = 3; {name}.c = {b};",
            f"Pair {name}(Pair{{{a}, {b}}});",
            f"auto {name}{{Pair{{{a}, {b}}}}};",
            f"Pair {name}{{}}; {name}.add({a});",
            f"Triple {name}{{{{{a}, {b}}}, 3}};",
        ]
        others = [each for each in self._pairs if each.startswith("v") and each != name]
        if others and not self._is_short:
            choices += [f"Pair {name}({self._one(others)});", f"Pair {name} = {self._one(others)};"]
        if not self._is_short:
            choices.append(
                f"Pair {name}y[2] = {{{{{a}, 1}}, {{2, {b}}}}}, {name} = {name}y[t & 1];"
            )
        return self._one(choices)

    def _fixed(self, name: str) -> str:
        a, b = self._value(), self._value(1)
        others = [
            (f"dim3 {name}({a}, {b});", [f"{name}.x", f"{name}.y"]),
            (f"uint2 {name} = make_uint2({a}, {b});", [f"{name}.x", f"{name}.y"]),
            (f"Placed {name};", [f"{name}.t", f"({name} + 0u)"]),
            (f"Placed {name}({a}, {b});", [f"{name}.t"]),
            (f"const unsigned {name}({a});", [name]),
            (f"const unsigned {name} = {a};", [name]),
            (f"constexpr unsigned {name} = {self._below(99)};", [name]),
            (f"const unsigned &{name} = in[({a}) & 63];", [name]),
            (f"const auto *{name} = in + (({a}) & 31);", [f"{name}[{self._below(32)}]"]),
            (f"Box<unsigned> {name}{{{a}}};", [f"{name}.twice()"]),
            (f"Box<unsigned> {name} = {{{a}}};", [f"{name}.twice()"]),
            (f"Box<Pair> {name}{{{{{a}, {b}}}}};", [f"{name}.v.a", f"{name}.v.sum()"]),
            (f"Placed {name}{{{a}, {b}}};", [f"{name}.t"]),
            (f"Placed {name} = {{{a}, {b}}};", [f"{name}.t"]),
            (f"dim3 {name}{{{a}, {b}}};", [f"{name}.x", f"{name}.y"]),
            (f"uint2 {name}{{{a}, {b}}};", [f"{name}.x", f"{name}.y"]),
            (f"const uint2 {name}(make_uint2({a}, {b}));", [f"{name}.x", f"{name}.y"]),
            (f"constexpr unsigned {name}{{{self._below(99)}}};", [name]),
            (
                f"struct {name}t {{ unsigned p, q; }} {name}{{{a}, {b}}};",
                [f"{name}.p", f"{name}.q"],
            ),
        ]
        if self._has_lambdas:
            lambdas = ["[=](unsigned v) { return v + t; }", "[&](auto v) { return v * 3 + n; }"]
            others.append((f"auto {name} = {self._one(lambdas)};", [f"{name}({a})"]))
        text, more = self._one(others)
        self._readable += more
        return text

    # Statements without barriers.

    def _change(self) -> str:
        target = self._one([*self._writable, "view.step", "view.offset[0]"])
        a = self._value()
        choices = [
            f"{target} {self._one(['=', '+=', '^=', '-=', '*=', '|='])} {a};",
            f"{target} {self._one(['=', '+='])} {a};",
            f"{self._one(['++', '--'])}{target};",
            f"{target}++;",
            f"{target} += 1, view.offset[1] ^= {self._one(self._readable)};",
            f"change({target}, {a});",
            f"{{ assert(min({a}, 5u) <= 5u); {target} ^= 3; }}",
            f'if ({self._guard()}) assert(({a} & 3) < 4 && "small");',
        ]
        if self._small:
            choices.append(f"{self._one(self._small)} {self._one(['+=', '-='])} {self._below(9)};")
        if self._pairs:
            pair = self._one(self._pairs)
            choices += [f"{pair}.add({a});", f"{pair} += {a};", f"{pair}[{a}] += 3;"]
        if self._has_own:
            mine = ["own[2 * at]", "own[2 * at + 1]", "pairs[at].a", "pairs[at].b"]
            choices += [f"{self._one(mine)} {self._one(['=', '+='])} {self._one(mine)} + {a};"] * 4
        if self._is_short and self._chance(0.8):
            return self._one(choices)
        word = self._one(["Add", "Xor", "Max", "Min", "Or", "And", "Sub"])
        first = {"Add": 0, "Sub": 0, "Xor": 4, "Max": 8, "Min": 10, "Or": 12, "And": 14}[word]
        cells = 4 if first < 8 else 2
        choices += [
            f"set(&{target}, {a});",
            f"{{ unsigned &r = {target}; r += {a}; }}",
            f"{{ unsigned *p = &{target}; *p += {a}; }}",
            f"({self._guard()} ? {target} : view.step) += {a};",
            f"atomic{word}(&total[{first} + (({a}) & {cells - 1})], {self._value(1)});",
            f"atomic{word}(&total[{first + self._below(cells)}], {a});",
        ]
        return self._one(choices)

    def _inner(self, depth: int) -> str:
        """Return a few statements, in which variables are declared for themselves."""
        kept = self._kept()
        text = " ".join(self._statement(depth) for _ in range(self._random.randrange(1, 4)))
        self._restore(kept)
        return text

    def _statement(self, depth: int) -> str:
        kind = self._random.random()
        if depth == 0 or kind < (0.6 if self._is_short else 0.4):
            return self._change()
        if kind < 0.7:
            return self._declare()
        a, b = self._value(1), self._value(1)
        if self._is_short and self._chance(0.7):
            return f"if ({self._guard()}) {{ {self._inner(0)} }}"
        i = self._fresh()
        rounds = self._random.randrange(2, 6)
        leave = self._one(["", f"if ({self._condition(a, i)}) {self._one(['break', 'continue'])};"])
        return self._one(
            [
                f"if ({self._condition(a, b)}) {{ {self._inner(depth - 1)} }}",
                f"if (unsigned {i} = {a}; {i} & 2) {{ {self._inner(depth - 1)} }}",
                (
                    f"if ({self._guard()}) {{ {self._inner(depth - 1)} }} "
                    f"else if ({self._guard()}) {self._change()} "
                    f"else {{ {self._inner(depth - 1)} }}"
                ),
                (
                    f"for (unsigned {i} = 0; {i} < {rounds}; {i}++) "
                    f"{{ {leave} {self._inner(depth - 1)} }}"
                ),
                f"for (unsigned {i} = t & 3; {i} < n; {i} += 2) {{ {self._inner(depth - 1)} }}",
                f"for (int {i} = {rounds}; {i} >= 0; --{i}) {{ {leave} {self._inner(0)} }}",
                f"unsigned {i} = {a} & 3; while ({i}-- > 0) {{ {self._inner(depth - 1)} }}",
                f"unsigned {i} = {a} & 3; do {{ {self._inner(0)} }} while ({i}-- > 1);",
                f"unsigned {i} = t & 7; while (true) {{ if ({i}++ > 8) break; {self._inner(0)} }}",
                (
                    f"switch ({a} & 3) {{ case 0: {{ {self._inner(0)} }} break; "
                    f"case 1: {{ {self._inner(0)} }} default: {{ {self._inner(0)} }} }}"
                ),
                self._stride(i),
                (
                    f"{{ if ({self._guard()}) goto {i}; {{ {self._inner(depth - 1)} }} "
                    f"{i}: {self._change()} }}"
                ),
                (
                    f"{{ unsigned {i}c{{0}}; {i}: {{ {self._inner(0)} }} "
                    f"if (++{i}c < {rounds}) goto {i}; }}"
                ),
                (
                    f"for (unsigned {i}{{0}}; {i} < 3; {i}++) for (unsigned {i}j(0); ; {i}j++) "
                    f"{{ if ({i}j + {i} > ({a} & 7)) goto {i}e; {self._inner(0)} }} "
                    f"{i}e: view.step ^= 1;"
                ),
            ]
        )

    def _stride(self, i: str) -> str:
        """Return a loop over the grid; an element is the same thread's in each of them."""
        value = self._one([f"in[{i} & 63]", f"wide[{i}]", f"plain({i}, n)", "t"])
        change = f"wide[{i}] {self._one(['=', '+='])} {value} + {self._value(1)};"
        if self._chance(0.3):
            change = f"if ({i} & 1) {{ {change} }}"
        end = self._one(["576u", "n * 64", "2 * limit", "limit"])
        return f"for (unsigned {i} = at; {i} < {end}; {i} += {self._one(STRIDES)}) {{ {change} }}"

    # Statements with barriers, to which all threads come that have not returned.

    def _share(self) -> str:
        kind = self._random.random()
        if kind < 0.12:
            name = self._fresh()
            value = self._value(1)
            call = f"spread(s, t, {value})"
            if not self._may_leave:  # a thread that has returned gives no value
                call = self._one([call, f"tiled(t, {value})"])
            self._readable.append(name)
            return f"unsigned {name} = {call}; __syncthreads();"
        if kind < 0.24:
            name = self._fresh()
            text = (
                "if (t < 8) c[t] = t + n; __syncthreads(); "
                f"atomicAdd(&c[({self._value(1)}) & 7], {self._value(1)}); __syncthreads(); "
                f"unsigned {name} = c[({self._value(1)}) & 7]; __syncthreads();"
            )
            self._readable.append(name)
            return text
        if kind < 0.34:
            name = self._fresh()
            word = self._one(["_count", "_or", "_and"])
            asked = self._condition(self._value(1), self._value(1))
            self._readable.append(f"(unsigned){name}")
            return f"const int {name} = __syncthreads{word}({asked});"
        array = self._one(["s[t]", "s[t]", "q[t / 16][t % 16]", "sp[t].a", *self._dynamic])
        write = f"{array} = {self._value()}; __syncthreads();"
        name = array.split("[", maxsplit=1)[0]
        more = {"s": [], "q": ["q[(t + 3) / 16 & 3][n]"], "sp": ["sp[63 - t].a"]}.get(
            name, [f"{name}[(t + {self._below(64)}) & 63]", f"{name}[t ^ {self._below(64)}]"]
        )
        kept = list(self._readable)
        self._readable += more
        self._can_read_shared = array.startswith("s[")
        read = f"{self._declare()} {self._change()} {self._change()}"
        self._can_read_shared = False
        self._readable = kept + [each for each in self._readable if each not in {*kept, *more}]
        return f"{write} {read} __syncthreads();"

    def _common(self, depth: int) -> str:
        kind = self._random.random()
        if depth == 0 or kind < 0.5:
            return self._share() if not self._may_exchange or kind < 0.3 else self._exchange()
        kept = self._kept()
        i = self._fresh()
        rounds = self._random.randrange(2, 4)
        uniform = self._uniform_value()
        over = self._share() if depth > 1 and self._chance(0.1) else ""
        if over:  # all threads jump, or none
            self._restore(kept)
            return f"{{ if ({uniform} & 1) goto {i}; {{ {over} }} {i}: {self._change()} }}"
        self._readable.append(i)
        inside = f"{self._statement(1)} {self._common(depth - 1)} {self._change()}"
        leave = f"if ({i} == ({uniform} & 3)) break;" if self._chance(0.3) else ""
        self._restore(kept)
        kept = self._kept()
        other = self._share()
        self._restore(kept)
        return self._one(
            [
                f"for (unsigned {i} = 0; {i} < {rounds}; {i}++) {{ {leave} {inside} }}",
                f"for (unsigned {i} = 32; {i} > 4; {i} >>= 1) {{ {leave} {inside} }}",
                f"unsigned {i} = {rounds}; while ({i} > 1) {{ {inside} {i}--; }}",
                f"unsigned {i} = {uniform}; if ({i} > 3) {{ {inside} }}",
                f"unsigned {i}; {i} = {uniform} & 1; if ({i}) {{ {inside} }} else {{ {other} }}",
            ]
        )

    def _exchange(self) -> str:
        name, by = self._fresh(), self._random.randrange(1, 32)
        value = self._value(1)
        width = self._one(["", "", ", 32", ", 16", ", 8"])
        self._readable.append(name)
        self._writable.append(name)
        asked = self._condition(value, "t")
        kind = self._one(
            [
                f"__shfl_sync(~0u, {value}, {by}{width})",
                f"__shfl_sync(0xffffffff, {value}, t & {by}{width})",
                f"__shfl_xor_sync(~0u, {value}, {self._one([1, 2, 4, 8, 16, by])}{width})",
                f"__shfl_down_sync(~0u, {value}, {by}{width})",
                f"__shfl_up_sync(~0u, {value}, {by}{width})",
                f"__ballot_sync(~0u, {asked})",
                f"__popc(__ballot_sync(~0u, {asked}))",
                f"unsigned(__any_sync(~0u, {self._condition(value, '3')}))",
                f"unsigned(__all_sync(~0u, {self._condition(value, '3')}))",
                f"__reduce_add_sync(~0u, {value})",
                f"__match_any_sync(~0u, {value} & 3)",
            ]
        )
        if self._chance(0.2):
            return (
                f"unsigned {name} = {value}; for (int o = 16; o > 0; o >>= 1) "
                f"{name} += {self._one(['__shfl_down_sync', '__shfl_xor_sync'])}(~0u, {name}, o);"
            )
        return f"unsigned {name} = {kind}; {name} += {self._value(1)};"

    # Bodies.

    def _flat_body(self) -> list[str]:
        """Return a body that asks for its index in the grid only, and has no barrier."""
        lines = ["unsigned at = blockIdx.x * blockDim.x + threadIdx.x;"]
        lines += self._one([["if (at >= limit) return;"], ["if (at < limit) {"], []])
        closing = ["}"] if lines[-1].endswith("{") else []
        lines.append("unsigned t = at & 63;")
        self._readable.remove("blockIdx.x")
        lines += [self._declare() for _ in range(self._random.randrange(1, 3))]
        lines += [self._statement(1) for _ in range(self._random.randrange(1, 5))]
        return [*lines, *self._result(), *closing]

    def _dynamic_memory(self) -> list[str]:
        """Return declarations of memory whose size comes with the launch."""
        if self._is_short or not self._chance(0.4):
            return []
        self.size += ", 512"
        self._dynamic = self._one([["d[t]"], ["d[t]", "d2[t]"], ["m[t]"], ["outer[t]"]])
        aligned = self._one(["", "__align__(16) "])
        return {
            "d[t]": [f"extern __shared__ {aligned}unsigned d[];"],
            "m[t]": [
                f"extern __shared__ {aligned}unsigned char bytes[];",
                self._one(
                    ["unsigned *m = (unsigned *)bytes;", "auto *m((unsigned *)&bytes[256]);"]
                ),
            ],
            "outer[t]": [],
        }[self._dynamic[0]] + ["unsigned *d2 = d + 64;"] * (len(self._dynamic) - 1)

    def _result(self) -> Iterable[str]:
        yield "unsigned r = view.step + view.offset[0] * 3 + view.offset[1];"
        for each in self._readable:
            yield f"r = r * 31 + {each};"
        for each in self._pairs:
            yield f"r = r * 31 + {each}.sum();"
        yield "out[at] = r;"

    def _body(self) -> list[str]:
        lines = [
            *self._dynamic_memory(),
            "__shared__ unsigned s[64], c[8], q[4][16];",
            "__shared__ Pair sp[64];",
            f"unsigned t = {RANK};",
            f"unsigned at = ({BLOCK}) * 64 + t;",
            "s[t] = t * n; c[t & 7] = n; q[t / 16][t % 16] = t; sp[t].a = n; "
            + "".join(f"{each} = t; " for each in self._dynamic)
            + "__syncthreads();",
        ]
        lines += [self._declare() for _ in range(self._random.randrange(1, 4))]
        leave = self._below(4) if self._may_leave else 9
        if self._chance(0.3):
            lines.append(f"view.data += ({BLOCK}) * 64; view.data[t] ^= n;")
        barriers = self._chance(0.5 if self._is_short else 0.8)
        for number in range(self._random.randrange(2, 6)):
            if number == leave:
                asked = self._one([self._guard(), self._condition("t", self._value(1))])
                lines.append(f"out[at] = t; if ({asked}) return;")
            choose: list[Callable[[], str]] = [lambda: self._statement(2), self._declare]
            if barriers:
                choose += [lambda: self._common(2)] * 2
            lines.append(self._one(choose)())
        return [*lines, *self._result()]


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"  {line}\n" for line in lines)


def program(kernels: Sequence[Kernel], *, emulated: bool) -> str:
    """Return a program that runs some kernels, and prints a line for each.

    Args:
        kernels: The kernels.
        emulated: Whether a context for each thread runs them, in place of CUDA.
    """
    head = (
        '#include "emulator.h"'
        if emulated
        else "#include <cuda_runtime.h>\n#include <assert.h>\n#include <cstdio>"
    )
    runs = ""
    for each in kernels:
        run = f"{each.call}<<<{each.size}>>>({each.arguments});"
        if emulated:
            run = f"emulate({each.size}, [&] {{ {each.call}({each.arguments}); }});"
        runs += f'  begin(); {run} end("{each.name}");\n'
    text = TYPES + "".join(each.text for each in kernels)
    if emulated:
        text = _DYNAMIC.sub(r"static \1 *const \2 = (\1 *)dynamic_;", text)
    wait = "" if emulated else "if (cudaDeviceSynchronize() != cudaSuccess) bad = 1;"
    return f"""{head}
{text}
unsigned memory[{ALL + 64 + 16 + ALL + 2 * ALL + 3 * ALL}], bad;
unsigned *out = memory, *in = out + {ALL}, *total = in + 64, *own = total + {16 + ALL};
unsigned *wide = own + {2 * ALL};
View view{{total + 16, 5, {{2, 9}}}};
void begin() {{
  for (unsigned i = 0; i < sizeof memory / 4; i++) memory[i] = i * 2654435761u >> 7;
}}
void end(const char *name) {{
  {wait}
  unsigned long long sum = 1469598103934665603ull;
  for (unsigned each : memory) sum = (sum ^ each) * 1099511628211ull;
  printf("%s %llx %u\\n", name, sum, bad);
  fflush(stdout);
}}
int main() {{
{runs}}}
"""
