from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood_cuda_cpu import units
from sapwood_cuda_cpu.cursors import Kind
from sapwood_cuda_cpu.fallback import told
from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import Mode, patch_sources
from sapwood_cuda_cpu.semantics import CallEffect, Meaning, read_meanings
from sapwood_cuda_cpu.units import INSTALL, Reading, UnitsMissingError

HEAD = """
struct Plain {
  int v[2];
  __device__ int get() const { return v[0]; }
  __device__ void set() { v[0] = 1; }
};
struct Copied { int *p; __device__ ~Copied() { *p = 0; } };
struct Placed {
  int t;
  __device__ Placed() : t(threadIdx.x) {}
  __device__ int get() const { return t; }
};
struct Fill { __device__ int operator()(int n) const { return n + threadIdx.x; } };
__device__ int pure(int v) { int w = v; w += 2; return w; }
__device__ int own(int v) { int w[2] = {v, v}; return w[v & 1]; }
__device__ int ticket(int *n) { return atomicAdd(n, 1); }
__device__ void meet() { __syncthreads(); }
__device__ void change(int &v) { v = 1; }
template <class F> __device__ int apply(F f, int n) { return f(n); }
"""
ANYTHING = (
    CallEffect.UNKNOWN | CallEffect.WRITES | CallEffect.OWN | CallEffect.PLACED | CallEffect.MEETS
)


def meaning(body: str, head: str = "", template: str = "") -> Meaning:
    kernel = f"{template}__global__ void k(int *x, int n, Plain p) {{ {body} }}"
    code = f"{HEAD}{head}\n{kernel}\n"
    (found,) = read_meanings(read_sources({"a.cu": code.encode()}), Reading()).values()
    return found


def effects(body: str) -> CallEffect:
    found = meaning(f"n = {body};")
    assert found.problem == ""
    return found.effects(0, 1 << 20)


@pytest.mark.parametrize(
    ("expression", "effect"),
    [
        ("pure(3) + min(n, 2)", CallEffect.NONE),
        ("int(sqrtf(n)) + p.get()", CallEffect.NONE),
        ("threadIdx.x", CallEffect.PLACED),
        ("blockIdx.x * blockDim.x", CallEffect.BLOCK),
        ("Placed().get()", CallEffect.PLACED),
        ("Fill()(n)", CallEffect.PLACED),
        ("apply(Fill(), n)", CallEffect.PLACED),
        ("apply(pure, n)", ANYTHING),
        ("own(n)", CallEffect.OWN),
        ("ticket(x)", CallEffect.WRITES | CallEffect.OWN),
        ("(meet(), 1)", CallEffect.MEETS | CallEffect.WRITES | CallEffect.OWN),
        ('printf("a")', CallEffect.WRITES),
    ],
)
@pytest.mark.slow
def test_what_calls_do(expression: str, effect: CallEffect) -> None:
    assert effects(expression) & effect == effect
    assert (
        not effects(expression)
        & ~effect
        & (CallEffect.PLACED | CallEffect.WRITES | CallEffect.MEETS)
    )


@pytest.mark.parametrize(
    ("declaration", "kind"),
    [
        ("int v(n);", Kind.NUMBER),
        ("float *v = nullptr;", Kind.NUMBER),
        ("dim3 v(n, n);", Kind.RECORD),
        ("Plain v;", Kind.RECORD),
        ("float4 v = make_float4(1, 2, 3, 4);", Kind.RECORD),
        ("Copied v{x};", Kind.OTHER),
        ("int v[3][2];", Kind.ARRAY),
        ("Copied v[2];", Kind.OTHER),
        ("int &v = n;", Kind.REFERENCE),
        ("auto v = n;", Kind.NUMBER),
        ("auto v = [=] { return n; };", Kind.RECORD),
    ],
)
@pytest.mark.slow
def test_what_variables_are(declaration: str, kind: Kind) -> None:
    variables = meaning(declaration).variables
    assert [each.name for each in variables] == ["x", "n", "p", "v"]
    assert variables[-1].kind is kind


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("x[n] = p.v[0] + p.get();", set()),
        ("n++;", {"n"}),
        ("n += 1, x += 2;", {"n", "x"}),
        ("p.v[1] = n;", {"p"}),
        ("(p).v[n]--;", {"p"}),
        ("p.set();", {"p"}),
        ("change(n);", {"n"}),
        ("int *q = &n;", {"n"}),
        ("int &r = n;", {"n"}),
        ("const int &r = n;", set()),
        ("int *q = p.v;", {"p"}),
        ("(n ? n : *x) = 3;", {"n"}),
        ("Plain q = p; x[0] = q.v[0];", set()),
        ("n = pure(n);", {"n"}),
        ("x[sizeof(n)] = (int)n;", set()),
        ("if (n) return;", set()),
    ],
)
@pytest.mark.slow
def test_who_is_changed(statement: str, changed: set[str]) -> None:
    assert set(meaning(statement).changes) == changed


def test_each_instantiation_of_a_template_counts() -> None:
    body = "x[f(n)] = 1;"
    template = "template <class F> "
    kernel = f"{template}__global__ void k(int *x, int n, F f) {{ {body} }}\n"
    host = "int main() {{ k<<<1, 1>>>(nullptr, 1, {0}); }}\n"
    other = "struct Other { __device__ int operator()(int n) const { return n; } };\n"

    def found(argument: str) -> CallEffect:
        code = HEAD + other + kernel + (host.format(argument) if argument else "")
        (made,) = read_meanings(read_sources({"a.cu": code.encode()}), Reading()).values()
        return made.effects(0, 1 << 20)

    assert found("Fill()") == CallEffect.PLACED
    assert found("Other()") == CallEffect.NONE
    assert CallEffect.UNKNOWN | CallEffect.PLACED in found("")


def test_a_kernel_with_an_error_is_not_known() -> None:
    assert meaning("n = missing(n);").problem.endswith("undeclared identifier 'missing'")


def test_sources_are_read_with_headers_and_macros(tmp_path: Path) -> None:
    (tmp_path / "on_disk.h").write_text("#define MORE 2\n")
    code = b'#include "on_disk.h"\n#include "given.cuh"\n'
    code += b"__global__ void k(int *x) { x[0] = MORE + GIVEN + given(); }"
    files = {"a.cu": code, "given.cuh": b"__device__ int given() { return threadIdx.x; }\n"}
    reading = Reading(folder=tmp_path, macros={"GIVEN": "1"})
    (found,) = read_meanings(read_sources(files), reading).values()
    assert (found.problem, found.effects(0, 1000)) == ("", CallEffect.PLACED)
    (found,) = read_meanings(read_sources(files), Reading(folder=tmp_path)).values()
    assert "GIVEN" in found.problem


def test_without_libclang_kernels_have_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UnitsMissingError(INSTALL)

    monkeypatch.setattr(units, "_library", missing)
    sources = read_sources({"a.cu": b"__global__ void k(int *x) { x[threadIdx.x] = 1; }"})
    patched = patch_sources(sources)
    (kernel,) = patched["a.cu"].kernels
    assert (kernel.mode, kernel.reason) == (Mode.FIBER, INSTALL)
    assert told(patched) == [f"all kernels run with a stack per thread: {INSTALL}"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("static int v = 1; x[0] = v;", "v is not what it looks like"),
        ("auto [a, b] = Plain2{1, 2}; x[0] = a;", "is declared in an unusual way"),
        ("for (int v : p.v) x[0] = v;", "v is declared in an unusual way"),
        ("Copied c{x}; __syncthreads(); x[0] = 1; c.p = x;", "c lives across a barrier"),
        ("struct B { __device__ void operator()() { __syncthreads(); } }; B()();", "waits"),
        ("x[0] = missing;", "use of undeclared identifier 'missing'"),
    ],
)
@pytest.mark.slow
def test_what_is_not_resolved_has_stacks(body: str, reason: str) -> None:
    code = f"{HEAD}struct Plain2 {{ int a, b; }};\n"
    code += f"__global__ void k(int *x, int n, Plain p) {{ {body} }}"
    (kernel,) = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].kernels
    assert kernel.mode is Mode.FIBER
    assert reason in kernel.reason


def test_an_implicit_assignment_does_not_call_the_methods_of_its_class() -> None:
    code = """
    struct Inner { int v; __device__ Inner &operator=(int w) { v = w; return *this; } };
    struct Pair { Inner a, b; __device__ void meet() { __syncthreads(); } };
    __global__ void k(Pair *x, int n) { Pair p = x[threadIdx.x]; p.a = n; x[threadIdx.x] = p; }
    __global__ void waits(Pair *x) { x[threadIdx.x].meet(); }
    """
    k, waits = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].kernels
    assert (k.mode, waits.mode) == (Mode.BLOCK, Mode.FIBER)


@pytest.mark.slow
def test_precompiled_headers_that_libclang_refuses_are_read_again(tmp_path: Path) -> None:
    reading = Reading(environment={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    sources = read_sources({"a.cu": b"__global__ void k(int *x) { x[threadIdx.x] = 1; }"})
    (found,) = read_meanings(sources, reading).values()
    assert found.problem == ""
    for headers in tmp_path.rglob("shim.pch"):
        headers.chmod(0o600)
        headers.write_bytes(b"of another time")
    (found,) = read_meanings(sources, reading).values()
    assert found.problem == ""
    assert [each.name for each in found.variables] == ["x"]


def test_a_kernel_that_ends_elsewhere_for_the_compiler_is_not_cut() -> None:
    code = b"#ifdef __COUNTED\n#define WHERE {\n#else\n#define WHERE if (x[0]) {\n#endif\n"
    code += b"__global__ void k(int *x) { WHERE x[1] = 1; } x[2] = 3; } }"
    (kernel,) = patch_sources(read_sources({"a.cu": code}))["a.cu"].kernels
    assert kernel.mode is Mode.FIBER
    assert kernel.reason == "its end is not where it looks"
