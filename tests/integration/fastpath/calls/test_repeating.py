"""Calls that are made without Python give what those give that are made with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.code.test_native_map import Slice
from tests.integration.fastpath.calls.serving import Served

from sapwood.code.cache import BuildCache
from sapwood.core.errors import ArgumentError

SOURCE = r"""
#include <fenv.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
// @array points[n], weights[k], bias[k]
// @array sums[k], all[n][k], total[1]
void f(const float *points, const double *weights, const double *bias, long n, long k,
       double scale, long start, double *sums, float *all, double *total) {
  for (long c = 0; c < k; c++)
    for (long i = 0; i < n; i++) {
      double v = points[i] * weights[c] * scale + bias[c] + start;
      sums[c] += v;
      all[i * k + c] += (float)v;
      *total += v;
    }
}
// @array weights[k]
// @array out[16]
void kinds(const double *weights, long k, signed char a, unsigned char b, short c,
           unsigned short d, int e, unsigned g, long h, unsigned long i, _Bool j, float s, double t,
           float u, double v, double w, float x, double *out) {
  double found[] = {a, b, c, d, e, g, h, i, j, s, t, u, v, w, x, weights[k - 1]};
  for (int m = 0; m < 16; m++) out[m] += found[m];
}
// @array weights[k]
// @array out[1]
void many(const double *weights, long k, long a, long b, long c, long d, long e, long g, long h,
          long i, long j, long l, long m, long o, long p, long q, long r, double *out) {
  *out += a + b + c + d + e + g + h + i + j + l + m + o + p + q + 2 * r + weights[k - 1];
}
// @array weights[k]
// @array sums[k]
void beyond(const double *weights, long k, double *sums) {
  for (long c = 0; c < k; c++) sums[c] = weights[c];
  if (weights[0] > 1) sums[k] = 5;
}
// @array weights[k]
// @array sums[k]
void forks(const double *weights, long k, double *sums) {
  for (long c = 0; c < k; c++) sums[c] = weights[c];
  if (weights[0] == 7) fork();
}
// @array weights[k]
// @array sums[k]
void copies(const double *weights, long k, double *sums) {
  if (!fork()) {
    for (long c = 0; c < k; c++) ((double *)weights)[c] = -1;
    _exit(0);
  }
  wait(NULL);
  for (long c = 0; c < k; c++) sums[c] = weights[c];
}
// @array weights[k]
// @array sums[k]
void prints(const double *weights, long k, double *sums) {
  printf("%g ", weights[0]);
  for (long c = 0; c < k; c++) sums[c] = weights[c];
}
// @array weights[k]
// @array sums[k]
void rounds(const double *weights, long k, double *sums) {
  for (long c = 0; c < k; c++) sums[c] = weights[c] / 3;
  fesetround(FE_UPWARD);
}
"""
POINTS = np.arange(5, dtype=np.float32)
PART = Slice(5, 10, {"points": POINTS})
REDUCE = {"total": "sum", "sums": "sum", "all": "concat"}
LONG = 20
"""Calls of which most are made without Python."""

FEW = 4
"""Calls that Python makes before: one that works the arguments out, one like it whose result is
noted, and two whose results are like that."""

Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    """A cache for all tests of this module: they compile the same source."""
    return BuildCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def serve(opened: Any) -> Iterator[Serve]:
    """Return a function that opens a program and has a runner serve its map, one at a time."""
    running: list[Served] = []
    program: list[Any] = []

    def start(name: str = "f", reduce: Any = REDUCE, **more: Any) -> Served:
        inputs = ("points",) if name == "f" else ()
        if not program:
            attributes = {"map": f"native({name!r})", "inputs": inputs, "reduce": dict(reduce)}
            program.append(opened(SOURCE, **attributes))
        if running:
            assert running.pop().end() == 0
        running.append(Served(program[0], PART, **more))
        return running[-1]

    yield start
    assert [each.end() for each in running] == [0] * len(running)


def state_of(turn: int, **entries: Any) -> dict[str, Any]:
    """Return a state of :data:`SOURCE`'s ``f``."""
    first = {"weights": np.array([turn, 1.5]), "bias": np.array([0.25, turn]), "scale": 2.0}
    return {**first, **entries}


def wanted(state: dict[str, Any]) -> dict[str, Any]:
    """Return what ``f`` returns, by numpy."""
    each = POINTS[:, None].astype(float) * state["weights"] * state["scale"] + state["bias"]
    each += state.get("start", PART.start)
    return {"total": np.array([each.sum()]), "sums": each.sum(0), "all": each.astype(np.float32)}


def same(result: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a result is the one that is expected, in the order of the fields."""
    return list(result) == list(expected) and all(
        result[name].dtype == expected[name].dtype
        and result[name].shape == expected[name].shape
        and np.allclose(result[name], expected[name], rtol=1e-6)
        for name in expected
    )


def test_python_makes_the_first_calls_only(serve: Serve) -> None:
    served = serve()
    for turn in range(LONG):
        state = state_of(turn)
        assert same(served.ask(state), wanted(state))
    assert served.by_python == FEW


def test_each_call_begins_with_the_same_rounding_mode(serve: Serve) -> None:
    served = serve("rounds", {"sums": "sum"})
    for _ in range(LONG):
        assert served.ask({"weights": np.array([1.0])})["sums"] == [1 / 3]  # rounded down
    assert served.by_python == FEW


@pytest.mark.parametrize(
    "other",
    [
        lambda turn: 0.1 * turn,
        lambda turn: turn,
        lambda turn: 1000 + turn,
        lambda turn: -1000 - turn,
        lambda turn: turn % 2 == 0,
        lambda turn: np.float32(turn / 3),
        lambda turn: np.int64(-turn),
        lambda turn: np.full(3, turn),
        lambda _: None,
        lambda _: "the same",
        lambda _: {"n": [1, "two"]},
    ],
)
def test_what_the_function_does_not_take_may_change(
    serve: Serve, other: Callable[[int], Any]
) -> None:
    served = serve()
    for turn in range(LONG):
        state = state_of(turn, other=other(turn))
        assert same(served.ask(state), wanted(state))
    assert served.by_python == FEW


@pytest.mark.parametrize(
    "unlike",
    [
        {"scale": 3.0},
        {"scale": 2},
        {"start": 7},
        {"other": 128},
        {"other": 1.0},
        {"other": -1},
        {"other": True},
        {"other": "text"},
        {"other": np.float64(1)},
        {"other": np.zeros(2)},
        {"weights": np.array([1.0]), "bias": np.array([2.0])},
        {"more": 1},
    ],
)
def test_another_call_goes_the_common_way_and_those_after_it_do_not(
    serve: Serve, unlike: dict[str, Any]
) -> None:
    served = serve()
    for turn in range(LONG):
        state = state_of(turn, other=5)
        assert same(served.ask(state), wanted(state))
    assert served.by_python == FEW
    state = state_of(3, other=5) | unlike
    assert same(served.ask(state), wanted(state))
    assert served.by_python == FEW + 1
    for turn in range(LONG):
        state = state_of(turn, other=6)
        assert same(served.ask(state), wanted(state))
    assert served.by_python <= 2 * FEW + 1


def test_calls_in_another_order_of_names_or_context_are_other_calls(serve: Serve) -> None:
    served = serve()
    for turn in range(LONG):
        served.ask(state_of(turn))
    before = served.by_python
    state = dict(reversed(state_of(4).items()))
    assert same(served.ask(state), wanted(state))
    assert served.by_python == before + 1
    for turn in range(LONG):
        served.ask(state_of(turn))
    before = served.by_python
    assert same(served.ask(state_of(5), context="run-2"), wanted(state_of(5)))
    assert served.by_python == before + 1


STATES = st.fixed_dictionaries(
    {
        "weights": st.sampled_from([[0.5, 1.0], [3.0, -1.0], [2.0]]),
        "scale": st.sampled_from([2.0, 2.0, 2.0, -0.0, 1]),
    },
    optional={
        "start": st.sampled_from([5, 5, -3]),
        "other": st.sampled_from([0, 1, 127, 200, -1, 1.5, float("nan"), False, "a", (1,)]),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(STATES, st.integers(1, 8)), min_size=1, max_size=5))
def test_any_calls_in_turn_give_what_each_gives(serve: Serve, turns: list[Any]) -> None:
    served = serve()
    for entries, times in turns:
        for turn in range(times):
            weights = np.array(entries["weights"]) * turn
            state = {**entries, "weights": weights, "bias": weights + 1}
            assert same(served.ask(state), wanted(state))


def test_calls_that_are_soon_unlike_are_not_expected_for_ever(serve: Serve) -> None:
    served = serve()
    for turn in range(3 * LONG):
        state = state_of(turn, other="x" * turn)
        assert same(served.ask(state), wanted(state))
    before = served.by_python
    for turn in range(LONG):
        assert same(served.ask(state_of(turn, other="x")), wanted(state_of(turn)))
    assert served.by_python == before + LONG
    served.ask(state_of(1), context="run-2")
    for turn in range(LONG):
        assert same(served.ask(state_of(turn), context="run-2"), wanted(state_of(turn)))
    assert served.by_python < before + 2 * LONG


def test_numbers_of_every_kind_arrive(serve: Serve) -> None:
    served = serve("kinds", {"out": "sum"})
    numbers = {
        "a": -128, "b": 255, "c": -(2**15), "d": 2**16 - 1, "e": -(2**31), "g": 2**32 - 1,
        "h": -(2**63), "i": 2**64 - 1, "j": True, "s": -0.1, "t": 1e300, "u": 3.5, "v": -2.25,
        "w": 1e-300, "x": 0.75,
    }  # fmt: skip
    exact = np.array([float(each) for each in numbers.values()] + [0.0])
    exact[9] = np.float32(-0.1)
    for turn in range(LONG):
        exact[-1] = turn
        state = {**numbers, "weights": np.array([1.0, turn])}
        assert np.array_equal(served.ask(state)["out"], exact)
    assert served.by_python == FEW


def test_more_numbers_than_registers_and_the_known_stack_are_pythons(serve: Serve) -> None:
    served = serve("many", {"out": "sum"})
    numbers = {name: number for number, name in enumerate("abcdeghijlmopqr", start=1)}
    for turn in range(LONG):
        state = {**numbers, "weights": np.array([0.0, turn])}
        assert served.ask(state)["out"] == [sum(range(1, 16)) + 15 + turn]
    assert served.by_python == LONG


def test_a_write_beside_an_output_is_found(serve: Serve) -> None:
    served = serve("beyond", {"sums": "sum"})
    for _ in range(2):
        for turn in range(LONG):
            state = {"weights": np.array([turn / LONG, 2.0])}
            assert np.array_equal(served.ask(state)["sums"], state["weights"])
        with pytest.raises(ArgumentError, match="past its end, at item 2"):
            served.ask({"weights": np.array([2.0, 2.0])})
    assert served.by_python < LONG


@pytest.mark.parametrize("function", ["forks", "copies"])
def test_a_copy_of_the_process_does_not_answer_and_has_a_state_of_its_own(
    serve: Serve, function: str
) -> None:
    served = serve(function, {"sums": "sum"})
    for turn in range(LONG):
        state = {"weights": np.array([turn, 2.0])}
        assert np.array_equal(served.ask(state)["sums"], state["weights"])
    assert served.by_python == FEW


def test_what_was_printed_is_there_before_the_answer(serve: Serve) -> None:
    served = serve("prints", {"sums": "sum"})
    for turn in range(LONG):
        served.ask({"weights": np.array([turn, 2.0])})
        assert os.read(served.printed, 100) == b"%d " % turn
    assert served.by_python == FEW


def test_where_python_handles_signals_it_makes_all_calls(serve: Serve) -> None:
    seen, note = os.pipe()

    def prepare() -> None:
        signal.signal(signal.SIGUSR1, lambda *_: os.write(note, b"."))

    served = serve(prepare=prepare)
    served.ask(state_of(0))
    for turn in range(1, LONG):
        os.kill(served.pid, signal.SIGUSR1)
        served.ask(state_of(turn))  # wakes it if the signal came just before it began to wait
        assert os.read(seen, 1) == b"."
    assert served.by_python == LONG
    os.close(seen)
    os.close(note)


def test_beside_other_threads_python_makes_all_calls(serve: Serve) -> None:
    def prepare() -> None:
        import threading  # noqa: PLC0415 - in a separate process

        threading.Thread(target=threading.Event().wait, daemon=True).start()

    served = serve(prepare=prepare)
    for turn in range(LONG):
        served.ask(state_of(turn))
    assert served.by_python == LONG


def test_without_the_library_python_makes_all_calls(opened: Any) -> None:
    program = opened(SOURCE, map="native('f')", inputs=("points",), reduce=dict(REDUCE))
    served = Served(program, PART, fastpath=False)
    for turn in range(LONG):
        assert same(served.ask(state_of(turn)), wanted(state_of(turn)))
    assert served.by_python == LONG
    assert served.end() == 0
