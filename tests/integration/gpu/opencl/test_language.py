"""Programs with OpenCL C sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.image import make_image, open_image
from sapwood.core.errors import BuildError, ConfigurationError, ResourceError
from sapwood.gpu.devices.opencl import OpenClBackend
from sapwood.gpu.opencl.language import CHOICE

needs_device = pytest.mark.skipif(
    not OpenClBackend().discover(), reason="this machine has no OpenCL device"
)
pytestmark = pytest.mark.row("A-GPU-4")

SOURCE = """#define GROUP 64
// Sums blocks of numbers.
// @array x[n], sums[(n + 63) / 64]
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void blocks(__global const float *x, int n, __global float *sums) {
  __local float s[GROUP];
  int l = get_local_id(0), i = get_global_id(0);
  s[l] = i < n ? x[i] : 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int d = GROUP / 2; d > 0; d /= 2) {
    if (l < d) s[l] += s[l + d];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0) sums[get_group_id(0)] = s[0];
}

/* Adds in place.
 * @inout x[n]
 */
kernel void shift(global double *x, const long n, double by) {
  if (get_global_id(0) < n) x[get_global_id(0)] += by;
}
"""
PROGRAM = """
from sapwood import Program, native


class Blocks(Program):
    sources = ("blocks.cl",)
    inputs = ("x",)
    reduce = {"sums": "concat"}
    map = native("blocks")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "blocks.cl").write_text(SOURCE)
    (tmp_path / "blocks.py").write_text(PROGRAM)
    return tmp_path / "blocks.py"


def test_kernels_are_discovered_without_a_device(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(OpenClBackend, "_devices", lambda _self: [])
    cache = BuildCache(tmp_path / "cache")
    loaded = load_program(program)
    built = build(loaded, cache=cache)
    blocks, shift = built.interface.functions
    assert blocks.declaration == "void blocks(const float *x, int n, float *sums)"
    assert (blocks.doc, blocks.line) == ("Sums blocks of numbers.", 4)
    assert [str(each.role) for each in shift.parameters] == ["inout", "scalar", "scalar"]
    with pytest.raises(ResourceError, match="no OpenCL device"):
        open_image(make_image(loaded, built))


@needs_device
def test_kernels_are_called_with_arrays(program: Path) -> None:
    loaded = load_program(program)
    opened = open_image(make_image(loaded, build(loaded)))
    try:
        x = np.arange(200, dtype=np.float32)
        sums = opened.call("blocks", [x], {})["sums"]
        padded = np.append(x, np.zeros(56, np.float32))
        np.testing.assert_allclose(sums, padded.reshape(4, 64).sum(axis=1))
        y = np.arange(5.0)
        for _ in range(2):
            opened.call("shift", [y, 1.5], {})
        np.testing.assert_array_equal(y, np.arange(5.0) + 3.0)
    finally:
        opened.close()


@needs_device
def test_a_mistake_is_named_with_its_line(program: Path) -> None:
    (program.parent / "blocks.cl").write_text(SOURCE.replace("s[0];", "nothing;"))
    with pytest.raises(BuildError) as caught:
        build(load_program(program))
    line = SOURCE[: SOURCE.index("s[0];")].count("\n") + 1
    assert caught.value.where == f"blocks.cl:{line}"
    assert "nothing" in caught.value.details["compiler output"]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("__global const float *x", "__local float *x", "local memory"),
        ("__global const float *x", "image2d_t x", "cannot be passed: image2d_t x"),
        ("@array x[n]", "@array y[n]", "names y"),
    ],
)
def test_what_cannot_be_passed_is_refused(
    program: Path, old: str, new: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenClBackend, "_devices", lambda _self: [])
    (program.parent / "blocks.cl").write_text(SOURCE.replace(old, new))
    with pytest.raises(BuildError, match=what):
        build(load_program(program))


@needs_device
def test_a_device_that_is_not_there(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_program(program)
    built = build(loaded)
    monkeypatch.setenv(CHOICE, "77")
    with pytest.raises(ConfigurationError):
        open_image(make_image(loaded, built))
