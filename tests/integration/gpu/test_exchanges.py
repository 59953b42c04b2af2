"""Random shuffles in kernels that are cut give what they give with a stack per thread.

Amounts are common or a thread's own, written down or computed, also such that no lane has; blocks
are whole warps or not; values change under conditions between two shuffles.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from sapwood_cuda_cpu.executable import build_executable

EVERY_TIME = 4
NIGHTLY = (8, 100)
"""Sources, and kernels in each."""

HEAD = """\
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
static unsigned long long *memory;
static const unsigned words = 1 << 12;
static void say(int kernel, int launch) {
    unsigned long long sum = cudaDeviceSynchronize();
    for (unsigned i = 0; i < words; i++) sum = (sum ^ memory[i]) * 1099511628211ull;
    printf("%d %d %016llx\\n", kernel, launch, sum);
    memset(memory, 0, words * sizeof *memory);
}
"""
TYPES = ("int", "unsigned", "float", "double", "long long", "unsigned long long")
BLOCKS = ("1", "31", "32", "33", "64", "100", "256", "1024", "dim3(8, 4)", "dim3(5, 3, 3)")
RANK = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)"
AMOUNTS = ("n", "m", "lane / 2", "lane % 3", "31 - lane", "(int)(v) & 15", "lane * n")


class Writer:
    """Writes one kernel.

    Args:
        seed: What decides about it.
        number: Its number in its source.
    """

    def __init__(self, seed: str, number: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secrets
        self._number = number

    def kernel(self) -> str:
        """Return the kernel."""
        draw = self._random
        kind = draw.choice(TYPES)
        lines = [
            f"int rank = {RANK}, lane = rank % 32;",
            f"{kind} v = ({kind})(rank * {draw.randrange(1, 99)} + blockIdx.x);",
        ]
        for each in range(draw.randint(1, 4)):
            lines += self._step(each, kind)
            if draw.random() < 0.3:
                lines.append("__syncthreads();")
        lines.append("o[rank + 1024 * blockIdx.x] = (unsigned long long)(long long)v;")
        body = "\n".join(f"    {line}" for line in lines)
        arguments = "unsigned long long *o, int n, int m"
        return f"__global__ void k{self._number}({arguments}) {{\n{body}\n}}\n"

    def launches(self) -> str:
        """Return what launches it, with other blocks and arguments each time."""
        draw = self._random
        text = ""
        for launch in range(3):
            n, m = draw.randrange(40), draw.choice((0, 1, 2, 4, 8, 16, 31, 33))
            blocks = f"{draw.randint(1, 3)}, {draw.choice(BLOCKS)}"
            text += f"    k{self._number}<<<{blocks}>>>(memory, {n}, {m}); "
            text += f"say({self._number}, {launch});\n"
        return text

    def _step(self, number: int, kind: str) -> list[str]:
        draw = self._random
        word = draw.choice(("__shfl_sync", *("__shfl_up_sync", "__shfl_down_sync") * 2))
        word = draw.choice((word, word, "__shfl_xor_sync"))
        by, name = f"d{number}", f"w{number}"
        loop = draw.choice(
            (f"for (int {by} = 1; {by} < 32; {by} *= 2)", f"for (int {by} = 16; {by}; {by} /= 2)")
        )
        looped = draw.random() < 0.5
        amount = by if looped else draw.choice((*AMOUNTS, str(draw.randrange(40))))
        width = f", {draw.choice((2, 4, 8, 16, 32))}" if draw.random() < 0.4 else ""
        call = f"{kind} {name} = {word}(0xffffffffu, v, {amount}{width});"
        change = draw.choice(
            (
                f"v += {name};",
                f"if (lane >= {amount}) v += {name};",
                f"if (lane % 3) v = {name};",
                f"v = {name} > v ? {name} : v + 1;",
                f"if (lane < n) v -= {name}; else v += 2;",
            )
        )
        limit = "if (v > 100000 || v < 1) v = lane;"  # no overflow, and floats stay exact
        inside = f"{call} {change} {limit}"
        return [f"{loop} {{ {inside} }}"] if looped else [inside]


def source_of(seed: str, count: int) -> tuple[str, list[str]]:
    """Return a source with some kernels, and each kernel with its launches."""
    writers = [Writer(f"{seed} {number}", number) for number in range(count)]
    kernels = [writer.kernel() for writer in writers]
    calls = [writer.launches() for writer in writers]
    main = "    cudaMallocManaged(&memory, words * sizeof *memory);\n"
    main += "    memset(memory, 0, words * sizeof *memory);\n"
    main = f"int main() {{\n{main}{''.join(calls)}    return 0;\n}}\n"
    return HEAD + "".join(kernels) + main, [k + c for k, c in zip(kernels, calls, strict=True)]


def run(folder: Path, source: str, mode: str, compiler: str, flags: str) -> list[str]:
    """Build a source in a mode, run it, and return its lines."""
    folder.mkdir()
    (folder / "exchanges.cu").write_text(source)
    environment = {
        **os.environ,
        "CXX": compiler,
        "CXXFLAGS": f"{flags} -g0 -ffp-contract=off",
        "SAPWOOD_CUDA_MODE": mode,
    }
    program = folder / "exchanges"
    kernels = build_executable([folder / "exchanges.cu"], program, environment=environment)
    assert {kernel.mode.value for kernel in kernels} == {mode}, kernels
    variables = {**os.environ, "SAPWOOD_CUDA_WORKERS": "1"}
    done = subprocess.run(
        [program], capture_output=True, text=True, env=variables, timeout=60, check=True
    )
    return done.stdout.splitlines()


def compare(folder: Path, seed: str, count: int, compiler: str, flags: str) -> None:
    """Compare both modes on some kernels."""
    source, kernels = source_of(seed, count)
    block = run(folder / "block", source, "block", compiler, flags)
    fiber = run(folder / "fiber", source, "fiber", compiler, "-O0")
    assert len(block) == len(fiber) == count * 3
    wrong = sorted({int(a.split()[0]) for a, b in zip(block, fiber, strict=True) if a != b})
    assert not wrong, f"{len(wrong)} of {count} differ:\n" + "\n".join(
        kernels[k] for k in wrong[:3]
    )


@pytest.mark.nightly
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_exchanges_agree_with_a_stack_per_thread(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    compare(tmp_path, f"every time {compiler}", EVERY_TIME, compiler, "-O1")


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batch", range(NIGHTLY[0]))
def test_a_night_of_random_exchanges(batch: int, tmp_path: Path) -> None:
    compiler = ("g++", "clang++")[batch % 2]
    if shutil.which(compiler) is None:
        compiler = "g++"
    compare(tmp_path, f"batch {batch}", NIGHTLY[1], compiler, ("-O1", "-O3")[batch % 4 // 2])
