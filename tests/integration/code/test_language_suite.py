"""The built-in languages pass the suite for languages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.code.interface import Interface
from sapwood.code.languages.base import Artefact, BuildRequest, Language, LoadedCode
from sapwood.code.languages.c import C
from sapwood.code.languages.cpp import Cpp
from sapwood.code.languages.python import Python
from sapwood.testing import languages
from sapwood.testing.languages import CHECKS, Check, Sample
from sapwood_cuda_cpu.language import Cuda

C_TEXT = """#include <stdint.h>
{extern}int64_t twice(int64_t i) {{ return 2 * i; }}

/** Adds up.
 * @array x[n] */
{extern}double total(const double *x, int64_t n) {{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}}

/** @array x[n]
 *  @array y[n] */
{extern}void scale(const double *x, int64_t n, double factor, double *y) {{
    for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}}
"""
PYTHON = '''"""Three functions."""


def twice(i):
    return 2 * i


def total(x):
    return x.sum()


def scale(x, factor):
    return {"y": factor * x}
'''
CUDA = """#include <cstdint>
__global__ void scale_all(const double *x, int64_t n, double factor, double *y) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}

extern "C" int64_t twice(int64_t i) { return 2 * i; }

/** @array x[n] */
extern "C" double total(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/** @array x[n]
 *  @array y[n] */
extern "C" void scale(const double *x, int64_t n, double factor, double *y) {
    double *in, *out;
    cudaMalloc(&in, n * sizeof(double));
    cudaMalloc(&out, n * sizeof(double));
    cudaMemcpy(in, x, n * sizeof(double), cudaMemcpyHostToDevice);
    scale_all<<<(n + 255) / 256, 256>>>(in, n, factor, out);
    cudaMemcpy(y, out, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
}
"""


def c_like(language: Any, source: str, text: str) -> Sample:
    return Sample(
        language=language,
        source=source,
        text=text,
        changed=text.replace("2 * i", "3 * i"),
        broken="\n" + text.replace("2 * i", "2 * j"),
        broken_line=next(n for n, line in enumerate(text.splitlines(), 2) if "2 * i" in line),
    )


SAMPLES = {
    "c": c_like(C(), "a.c", C_TEXT.format(extern="")),
    "c++": c_like(Cpp(), "a.cpp", C_TEXT.format(extern='extern "C" ')),
    "cuda": c_like(Cuda(), "a.cu", CUDA),
    "python": Sample(
        language=Python(),
        source="a.py",
        text=PYTHON,
        changed=PYTHON.replace("2 * i", "3 * i"),
        broken="x = 1\ndef twice(i:\n",
        broken_line=2,
        typed=False,
        mapped=False,
    ),
}


class Once:
    """A language that compiles a text once, for the checks that look at what was built."""

    def __init__(self, language: Language, folder: Path) -> None:
        self.name, self.suffixes = language.name, language.suffixes
        self.absorbs = language.absorbs
        self._language = language
        self._folder = folder
        self._built: dict[tuple[str, ...], tuple[Path, Artefact]] = {}

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        return self._language.identity(request)

    def build(self, request: BuildRequest) -> Artefact:
        texts = ((request.folder / name).read_text() for name in request.sources)
        key = (*request.sources, *texts)
        if key not in self._built:
            artefact = self._language.build(request)
            kept = self._folder / f"{self.name}-{len(self._built)}"
            shutil.copytree(request.output, kept)
            self._built[key] = kept, artefact
        kept, artefact = self._built[key]
        shutil.copytree(kept, request.output, dirs_exist_ok=True)
        return artefact

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        return self._language.discover(request, artefact)

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        return self._language.load(path, interface)

    def unload(self, code: LoadedCode) -> None:
        self._language.unload(code)


OF_BUILDS = {
    languages.says_what_decides_a_build,
    languages.builds_into_the_output_folder,
    languages.reports_errors_with_file_and_line,
    languages.builds_sources_in_folders,
}
"""Checks that look at the build itself."""


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Once]:
    """The languages, of which each compiles a text once."""
    folder = tmp_path_factory.mktemp("built")
    return {name: Once(sample.language, folder) for name, sample in SAMPLES.items()}


@pytest.mark.row("A-CODE-6")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SAMPLES)
def test_language(name: str, check: Check, once: dict[str, Once], tmp_path: Path) -> None:
    sample = SAMPLES[name]
    # Only now the environment says where the cache is.
    environment = {**os.environ, "SAPWOOD_CUDA": "cpu", "CXXFLAGS": "-O0"}
    language = sample.language if check in OF_BUILDS else once[name]
    check(msgspec.structs.replace(sample, environment=environment, language=language), tmp_path)
