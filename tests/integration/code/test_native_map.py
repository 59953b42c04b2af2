"""Native functions as the map of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.check import check_program
from sapwood.core.errors import ArgumentError, ProgramError

ASSIGN = r"""
#include <stdint.h>
// @array points[n][d], centres[k][d]
// @array sums[k][d], counts[k]
void assign(const uint8_t *points, const double *centres, int64_t n, int64_t d, int64_t k,
            double *sums, int64_t *counts, double *inertia) {
  for (int64_t i = 0; i < n; i++) {
    double best = 1e300;
    int64_t nearest = 0;
    for (int64_t c = 0; c < k; c++) {
      double s = 0;
      for (int64_t j = 0; j < d; j++) {
        double t = points[i * d + j] - centres[c * d + j];
        s += t * t;
      }
      if (s < best) { best = s; nearest = c; }
    }
    *inertia += best;
    counts[nearest]++;
    for (int64_t j = 0; j < d; j++) sums[nearest * d + j] += points[i * d + j];
  }
}
"""
COUNT = """
extern "C" long hits(long start, long stop, long seed) { return (stop - start) * seed; }
"""
ASSIGN_PROGRAM = {
    "map": 'native("assign")',
    "inputs": ("points",),
    "reduce": {"sums": "sum", "counts": "sum", "inertia": "sum"},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    """A cache for all tests of this module: several compile the same source."""
    return BuildCache(tmp_path_factory.mktemp("cache"))


@dataclass
class Slice:
    start: int
    stop: int
    arrays: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.stop - self.start


def test_every_parameter_finds_its_place(opened: Any) -> None:
    points = np.random.default_rng(0).integers(0, 255, (1000, 3), dtype=np.uint8)
    centres = points[:4].astype(float)
    program = opened(ASSIGN, **ASSIGN_PROGRAM)
    result = program.map(Slice(0, 1000, {"points": points}), {"centres": centres, "other": 1})
    distances = ((points[:, None, :] - centres[None]) ** 2).sum(-1)
    nearest = distances.argmin(1)
    assert list(result) == ["sums", "counts", "inertia"]
    assert result["inertia"] == pytest.approx(distances.min(1).sum())
    assert (result["counts"] == np.bincount(nearest, minlength=4)).all()
    expected = [points[nearest == c].sum(0) for c in range(4)]
    assert np.allclose(result["sums"], expected)


def test_each_call_has_new_outputs(opened: Any) -> None:
    program = opened(ASSIGN, **ASSIGN_PROGRAM)
    part = Slice(0, 2, {"points": np.zeros((2, 3), np.uint8)})
    state = {"centres": np.zeros((1, 3))}
    first, second = program.map(part, state), program.map(part, state)
    assert first["counts"] is not second["counts"]
    assert second["counts"].tolist() == [2]


def test_bounds_of_a_range_and_the_function_s_own_value(opened: Any) -> None:
    program = opened(
        {"hits.cpp": COUNT},
        map='native("hits")',
        inputs=(),
        reduce={"return": "sum"},
        seed="parameter(3)",
    )
    result = program.map(Slice(10, 14), {})
    assert result == {"return": 12}
    assert type(result["return"]) is np.int64


def test_count_may_be_an_extent(opened: Any) -> None:
    source = "// @array out[count]\nvoid f(int start, int *out) { out[0] = start; }\n"
    program = opened(source, map='native("f")', inputs=(), reduce={"out": "concat"})
    assert program.map(Slice(5, 8), {})["out"].tolist() == [5, 0, 0]


def test_an_inout_parameter_works_on_a_copy_of_the_state(opened: Any) -> None:
    source = "// @inout x[n]\nvoid f(double *x, int n) { for (int i = 0; i < n; i++) x[i] += 1; }\n"
    program = opened(source, map='native("f")', inputs=(), reduce={"x": "sum"})
    state = {"x": np.zeros(2)}
    state["x"].flags.writeable = False
    assert program.map(Slice(0, 1), state)["x"].tolist() == [1, 1]
    assert state["x"].tolist() == [0, 0]


def test_the_state_comes_before_the_program_s_parameters(opened: Any) -> None:
    source = "int f(int k) { return k; }\n"
    program = opened(
        source, map='native("f")', inputs=(), reduce={"return": "max"}, k="parameter(1)"
    )
    assert program.map(Slice(0, 1), {"k": 5}) == {"return": 5}
    assert program.map(Slice(0, 1), {}) == {"return": 1}


def test_a_python_map_may_call_native_functions(opened: Any) -> None:
    program = opened(
        "double half(double x) { return x / 2; }\n",
        reduce={"h": "sum"},
        half='native("half")',
        map="lambda self, slice, state: {'h': self.half(state['x'])}",
    )
    assert program.map(Slice(0, 1), {"x": 3.0}) == {"h": 1.5}


def test_what_the_state_lacks_is_named(opened: Any) -> None:
    program = opened(ASSIGN, **ASSIGN_PROGRAM)
    with pytest.raises(ArgumentError, match="centres") as caught:
        program.map(Slice(0, 1, {"points": np.zeros((1, 3), np.uint8)}), {"centers": 1})
    assert "centers" in caught.value.hint


GOOD = {"centres": np.zeros((2, 3))}
POINTS = {"points": np.zeros((5, 3), np.uint8)}


@pytest.mark.parametrize(
    ("change", "state", "arrays", "error", "named"),
    [
        ({"reduce": {"sum": "sum"}}, GOOD, POINTS, ProgramError, "field sum is not an output"),
        (
            {"reduce": {"sums": "sum"}},
            GOOD,
            POINTS,
            ProgramError,
            "counts is an output that nothing",
        ),
        ({}, {"centers": GOOD["centres"]}, POINTS, ArgumentError, "centres is not in"),
        (
            {"inputs": ("pixels",)},
            GOOD,
            POINTS,
            ArgumentError,
            "points is a field of the data, but",
        ),
        ({}, {"centres": np.zeros(3)}, POINTS, ArgumentError, "centres wants 2 dimensions"),
        ({}, {"centres": np.zeros((2, 3), "f4")}, POINTS, ArgumentError, "centres wants an array"),
        ({}, GOOD, {"points": np.zeros((5, 3))}, ArgumentError, "points wants an array of uint8"),
        ({}, {**GOOD, "k": "two"}, POINTS, ArgumentError, "k wants int64_t"),
        ({"centres": "parameter(1)"}, {}, POINTS, ArgumentError, "centres is a pointer"),
    ],
)
def test_misfits_are_found_before_the_first_call(
    cache: BuildCache, program_of: Any, change: Any, state: Any, arrays: Any, error: Any, named: str
) -> None:
    program = program_of({"a.c": ASSIGN}, **{**ASSIGN_PROGRAM, **change})
    built = build(program, cache=cache)
    wanted = {name: array for name, array in arrays.items() if name in program.inputs}
    with pytest.raises(error, match=f"assign: .*{named}") as caught:
        check_program(program, built, state=state, arrays=wanted, fields=list(arrays))
    assert caught.value.where == "a.c:5"


def test_a_fitting_program_passes(cache: BuildCache, program_of: Any) -> None:
    program = program_of({"a.c": ASSIGN}, **ASSIGN_PROGRAM)
    built = build(program, cache=cache)
    check_program(program, built)
    check_program(program, built, state=GOOD, arrays=POINTS)


def test_an_unknown_length_is_found_before_the_first_call(
    cache: BuildCache, program_of: Any
) -> None:
    source = "// @array out[m]\nvoid f(int n, int *out) { out[0] = n; }\n"
    program = program_of({"a.c": source}, map='native("f")', inputs=(), reduce={"out": "sum"})
    with pytest.raises(ArgumentError, match="length m"):
        check_program(program, build(program, cache=cache))


def test_what_the_map_changes_in_place_may_be_read_only(cache: BuildCache, program_of: Any) -> None:
    source = "// @inout x[n]\n// @inout y[2]\nvoid f(int *x, int n, int *y) { x[0] = y[0] = n; }\n"
    kind = {"map": 'native("f")', "inputs": ("x",), "reduce": {"x": "concat", "y": "sum"}}
    program = program_of({"a.c": source}, **kind)
    x, y = np.zeros(3, np.int32), np.zeros(2, np.int32)
    x.flags.writeable = y.flags.writeable = False
    check_program(program, build(program, cache=cache), state={"y": y}, arrays={"x": x})
