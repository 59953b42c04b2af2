"""A native map that is called again and again gives what it gives when it is called once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.code.test_native_map import Slice

from sapwood.code import guarded, map_binding, repeated_map
from sapwood.code.native_binding import NativeFunction
from sapwood.code.runner.calls import INLINE
from sapwood.core.errors import ArgumentError

SOURCE = r"""
// @array points[n], weights[k]
// @array sums[k], all[n][k]
void f(const float *points, const double *weights, long n, long k, double scale, double start,
       double *sums, float *all, double *total, long *where) {
  for (long c = 0; c < k; c++)
    for (long i = 0; i < n; i++) {
      double v = points[i] * weights[c] * scale + start;
      sums[c] += v;
      all[i * k + c] += (float)v;
      *total += v;
    }
  *where += start < 0 ? -1 : 1;
}
// @array points[n], weights[k]
// @array sums[k]
void beyond(const float *points, const double *weights, long n, long k, double *sums) {
  sums[weights[0] > 1 ? k : 0] = points[0];
}
// @array weights[k], mode[m]
// @array sums[k]
void by_text(const double *weights, long k, const char *mode, double *sums) {
  for (long c = 0; c < k; c++) sums[c] = mode[0] == 'p' && mode[3] == 's' ? weights[c] : -1;
}
"""
ATTRIBUTES: dict[str, Any] = {
    "map": 'native("f")',
    "inputs": ("points",),
    "reduce": {"total": "sum", "all": "concat", "where": "sum", "sums": "sum"},
    "scale": "parameter(2.0)",
}
PARTS = [Slice(5, 15, {"points": np.arange(10, dtype=np.float32)}), Slice(5, 6)]
PARTS[1].arrays = {"points": np.full(7000, 3, np.float32)}


def expected(part: Slice, state: dict[str, Any]) -> dict[str, Any]:
    """Return what the map returns, by numpy."""
    scale = float(state.get("scale", 2.0))
    start = float(state.get("start", part.start))
    values = part.arrays["points"][:, None] * state["weights"] * scale + start
    where = -1 if start < 0 else 1
    return {"total": values.sum(), "all": values, "where": where, "sums": values.sum(0)}


def same(result: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a result is what is wanted, in the order of the fields."""
    return list(result) == list(wanted) and all(
        np.shape(result[name]) == np.shape(wanted[name])
        and np.allclose(result[name], wanted[name], rtol=1e-5)
        for name in wanted
    )


STATES = st.fixed_dictionaries(
    {"weights": st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=1, max_size=2)},
    optional={
        "scale": st.sampled_from([1, 1.0, True, 2.5, 0.0]),
        "start": st.sampled_from([-1.0, 0.0, -0.0, 4]),
        "other": st.just("something"),
    },
)
TURNS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1]), STATES, st.booleans()), max_size=8)


@pytest.fixture
def program(opened: Any) -> Any:
    return opened(SOURCE, **ATTRIBUTES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TURNS)
def test_any_calls_in_turn_give_what_each_gives(program: Any, turns: list[Any]) -> None:
    kept = []
    for number, entries, keep in turns:
        state = {**entries, "weights": np.array(entries["weights"])}
        for _ in range(2):
            result = program.map(PARTS[number], state)
            wanted = expected(PARTS[number], state)
            assert same(result, wanted)
            if keep:  # what a caller has is not written to again
                kept.append((result, wanted))
    assert all(same(result, wanted) for result, wanted in kept)


def test_a_call_like_the_last_one_is_not_worked_out_again(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"weights": np.ones(2)}
    program.map(PARTS[0], state)
    monkeypatch.setattr(NativeFunction, "invoke", lambda *_: pytest.fail("it was worked out again"))
    for value in (2.0, 3.0):
        state = {"weights": np.full(2, value)}
        assert same(program.map(PARTS[0], state), expected(PARTS[0], state))


def test_other_arrays_are_checked_as_ever(program: Any) -> None:
    program.map(PARTS[0], {"weights": np.ones(2)})
    for wrong in (np.ones(2, np.float32), np.ones((2, 1)), np.ones(4)[::2]):
        with pytest.raises(ArgumentError, match="parameter weights"):
            program.map(PARTS[0], {"weights": wrong})
        program.map(PARTS[0], {"weights": np.ones(2)})


def test_calls_that_are_never_alike_are_not_prepared_for_ever(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(map_binding, "repeatable", _noting(prepared))
    for size in range(1, 3 * repeated_map.MAX_MISSES):
        state = {"weights": np.ones(size)}
        assert same(program.map(PARTS[0], state), expected(PARTS[0], state))
    assert len(prepared) == repeated_map.MAX_MISSES


def test_a_write_beside_an_output_is_found_in_any_call(opened: Any) -> None:
    program = opened(SOURCE, map='native("beyond")', inputs=("points",), reduce={"sums": "sum"})
    for _ in range(3):
        assert program.map(PARTS[0], {"weights": np.ones(1)})["sums"].tolist() == [0]
        with pytest.raises(ArgumentError, match="past its end, at item 1"):
            program.map(PARTS[0], {"weights": np.full(1, 2.0)})
    assert program.map(PARTS[0], {"weights": np.ones(1)})["sums"].tolist() == [0]


def test_a_text_among_the_parameters_stays(opened: Any) -> None:
    program = opened(
        SOURCE,
        map='native("by_text")',
        inputs=(),
        reduce={"sums": "sum"},
        mode='parameter("plus")',
    )
    others = []
    for turn in range(6):
        result = program.map(PARTS[0], {"weights": np.full(3, float(turn))})
        assert result["sums"].tolist() == [turn] * 3
        others += [np.zeros(1) for _ in range(20)]  # they may lie where the text lay


def test_results_differ_where_there_are_no_more_guards(program: Any) -> None:
    held = [guarded.zeros((2,), np.dtype("f8")) for _ in range(guarded.MAX_GUARDED)]
    kept = []
    for turn in range(4):
        state = {"weights": np.full(2, float(turn))}
        kept.append((program.map(PARTS[0], state), expected(PARTS[0], state)))
    assert all(same(result, wanted) for result, wanted in kept)
    del held


def test_what_is_kept_never_lies_in_memory_that_is_lent() -> None:
    assert repeated_map.MAX_KEPT <= INLINE


def _noting(prepared: list[int]) -> Any:
    asked = repeated_map.repeatable

    def noting(*arguments: Any) -> bool:
        prepared.append(1)
        return asked(*arguments)

    return noting
