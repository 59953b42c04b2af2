from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import Accumulator, gathering
from sapwood.core.errors import ExecutionError

Contribution = tuple[int, float, Any]
"""Rank, weight, value of the only field."""

KINDS = ["i8", "f8", "f4", "u1", ">i4", "c16"]


def native(stack: Any) -> Any:
    return stack.astype(stack.dtype.newbyteorder("="))


EXPECTED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda stack, _weights: np.add.reduce(native(stack)),
    "min": lambda stack, _weights: stack.min(axis=0),
    "max": lambda stack, _weights: stack.max(axis=0),
    "mean": lambda stack, weights: np.average(stack, axis=0, weights=weights),
    "concat": lambda stack, _weights: stack.reshape(-1, *stack.shape[2:]),
    "count": lambda stack, _weights: len(stack),
}


def travelled(value: Any) -> Any:
    """Return a value as the next place sees it."""
    encoded = values.encode(value)
    return values.decode(encoded.body, bytes(encoded.payload()))


def reduce_in_tree(kind: str, parts: Sequence[Contribution], cuts: st.DataObject) -> Any:
    """Reduce contributions in a random tree, each subtree in a random order."""

    def partial(some: Sequence[Contribution]) -> Contribution:
        if len(some) == 1:
            rank, weight, value = some[0]
            return rank, weight, travelled({"x": value})["x"]
        accumulator = accumulate(some)
        total = travelled(accumulator.partial())
        return some[0][0], sum(weight for _, weight, _ in some), total["x"]

    def accumulate(some: Sequence[Contribution]) -> Accumulator:
        accumulator = Accumulator({"x": kind})
        count = len(some)
        marks = cuts.draw(st.sets(st.integers(1, count - 1), min_size=1)) if count > 1 else {}
        bounds = [0, *sorted(marks), count]
        groups = [some[bounds[i] : bounds[i + 1]] for i in range(len(bounds) - 1)]
        for group in cuts.draw(st.permutations(groups)):
            rank, weight, value = partial(group)
            accumulator.add({"x": value}, rank, weight)
        return accumulator

    return accumulate(parts).total()["x"]


@given(
    st.sampled_from(sorted(EXPECTED)),
    st.sampled_from(KINDS),
    st.integers(1, 9),
    st.sampled_from([(), (1,), (3,), (2, 3), (0,)]),
    st.integers(0, 2**32 - 1),
    st.data(),
)
@pytest.mark.slow
def test_any_tree_gives_what_numpy_gives_for_the_flat_list(
    kind: str, dtype: str, count: int, shape: tuple[int, ...], seed: int, cuts: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    if kind == "concat" and not shape:
        shape = (1,)
    stack = random.integers(0, 20, (count, *shape)).astype(dtype)
    weights = random.integers(1, 9, count).astype("f8")
    parts = [(rank + 1, float(weights[rank]), stack[rank]) for rank in range(count)]
    total = reduce_in_tree(kind, parts, cuts)
    expected = EXPECTED[kind](stack, weights)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    if kind in {"sum", "min", "max", "concat"}:
        assert total.dtype == stack.dtype.newbyteorder("=")
        assert total.shape == expected.shape


@given(
    st.sampled_from(["sum", "min", "max", "mean", "concat", "count"]),
    st.lists(st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9), min_size=1, max_size=9),
    st.data(),
)
@pytest.mark.slow
def test_numbers_reduce_as_arrays_of_one_element_do(
    kind: str, numbers: list[float], cuts: st.DataObject
) -> None:
    parts = [(rank, 1.0, number) for rank, number in enumerate(numbers, start=1)]
    total = reduce_in_tree(kind, parts, cuts)
    stack = np.array(numbers, "f8")
    expected = {"concat": stack, "count": len(numbers), "mean": stack.mean()}
    wanted = expected.get(kind, getattr(stack, kind, stack.sum)())
    np.testing.assert_allclose(total, wanted, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("kind", ["sum", "min", "max", "mean"])
@given(st.data())
@pytest.mark.slow
def test_nan_stays_in_any_order(kind: str, data: st.DataObject) -> None:
    numbers = data.draw(st.permutations([1.0, float("nan"), 2.0, -3.0]))
    for wrap in (float, lambda number: np.array([number])):
        accumulator = Accumulator({"x": kind})
        for rank, number in enumerate(numbers, start=1):
            accumulator.add({"x": wrap(number)}, rank, 1.0)
        assert np.isnan(accumulator.total()["x"])


def test_pieces_come_in_the_order_of_ranks() -> None:
    accumulator = Accumulator({"x": "concat"})
    for rank in (3, 1, 2):
        accumulator.add({"x": np.full(rank, rank)}, rank, 1.0)
    assert accumulator.total()["x"].tolist() == [1, 2, 2, 3, 3, 3]


def test_the_mean_is_over_items() -> None:
    accumulator = Accumulator({"x": "mean"})
    accumulator.add({"x": 2}, 1, 3.0)
    accumulator.add({"x": 10}, 2, 1.0)
    accumulator.add({"x": 77}, 3, 0.0)
    assert accumulator.total() == {"x": 4.0}


def test_the_mean_of_small_unsigned_numbers_does_not_wrap() -> None:
    accumulator = Accumulator({"x": "mean"})
    accumulator.add({"x": np.array([200, 0], "u1")}, 1, 1.0)
    accumulator.add({"x": np.array([100, 1], "u1")}, 2, 1.0)
    assert accumulator.total()["x"].tolist() == [150.0, 0.5]


def test_booleans_are_counted_by_a_sum() -> None:
    accumulator = Accumulator({"mask": "sum", "one": "sum"})
    for rank in (1, 2, 3):
        accumulator.add({"mask": np.array([True, False]), "one": np.bool_(True)}, rank, 1.0)
    total = accumulator.total()
    assert total["mask"].tolist() == [3, 0]
    assert total["one"] == 3


def test_what_is_none_is_not_counted() -> None:
    accumulator = Accumulator({"x": "count"})
    for rank, value in enumerate([None, 0, {"a": 1}, "text", None], start=1):
        accumulator.add({"x": value}, rank, 1.0)
    assert accumulator.total() == {"x": 3}


@pytest.mark.parametrize("kind", ["sum", "min", "max", "mean", "concat"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_never_share_memory_with_a_contribution(kind: str, count: int) -> None:
    contributions = [np.arange(4.0) for _ in range(count)]
    accumulator = Accumulator({"x": kind})
    for rank, array in enumerate(contributions, start=1):
        accumulator.add({"x": array}, rank, 1.0)
    total = accumulator.total()["x"]
    assert not any(np.shares_memory(total, array) for array in contributions)
    assert total.flags.writeable
    assert all((array == np.arange(4.0)).all() for array in contributions)


@pytest.mark.parametrize("kind", ["sum", "min", "max", "mean"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2, "f8"), np.zeros(2, "f4")),
        (np.zeros(2), 1.0),
        (1.0, np.zeros(2)),
        (1.0, "text"),
        (1.0, None),
        (1.0, [1.0]),
    ],
)
def test_a_mismatch_names_the_field_and_the_agent(kind: str, first: Any, second: Any) -> None:
    accumulator = Accumulator({"good": "count", "bad": kind})
    accumulator.add({"good": 1, "bad": first}, 1, 1.0)
    with pytest.raises(ExecutionError, match="cannot reduce field 'bad'") as caught:
        accumulator.add({"good": 1, "bad": second}, 2, 1.0)
    assert caught.value.where == "agent 2"


@pytest.mark.parametrize(
    "second", [np.zeros((2, 3)), np.zeros(2, [("a", "i4")]), [[1], [2, 3]], {"pieces": 1, "a": 2}]
)
def test_pieces_that_do_not_fit_name_the_field(second: Any) -> None:
    accumulator = Accumulator({"bad": "concat"})
    accumulator.add({"bad": np.zeros((2, 2))}, 1, 1.0)
    with pytest.raises(ExecutionError, match="cannot reduce field 'bad'"):
        add_and_finish(accumulator, {"bad": second})


def add_and_finish(accumulator: Accumulator, value: Any) -> None:
    accumulator.add(value, 2, 1.0)
    accumulator.total()


def test_a_piece_of_the_wrong_shape_names_its_agent() -> None:
    accumulator = Accumulator({"x": "concat"})
    for rank, shape in [(3, (1, 2)), (1, (4, 2)), (2, (1, 5))]:
        accumulator.add({"x": np.zeros(shape)}, rank, 1.0)
    with pytest.raises(ExecutionError, match=r"\(1, 5\)") as caught:
        accumulator.total()
    assert caught.value.where == "agent 2"


@pytest.mark.parametrize(
    "value",
    [
        {"count": 7},
        {"groups": []},
        {"pieces": []},
        {"count": 2, "mean": 1.0, "squares": 3.0},
        {"counts": np.zeros(3), "outside": np.zeros(3)},
    ],
)
def test_a_value_of_a_user_is_never_taken_for_a_partial_result(value: Any) -> None:
    for kind in ("count", "classes", "gather"):
        junction = Accumulator({"x": kind})
        junction.add({"x": value}, 1, 1.0)
        junction.add({"x": value}, 2, 1.0)
        root = Accumulator({"x": kind})
        root.add(junction.partial(), 3, 2.0)
        found = root.total()["x"]
        assert found == 2 if kind == "count" else len(found) == (1 if kind == "classes" else 2)
    for kind in ("variance", "histogram:0:1:4", "concat"):
        with pytest.raises(ExecutionError, match="cannot reduce field 'x'"):
            Accumulator({"x": kind}).add({"x": value}, 1, 1.0)


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, None, [1], 5])
def test_wrong_fields_name_the_agent_and_what_was_expected(value: Any) -> None:
    accumulator = Accumulator({"a": "sum", "b": "sum"})
    with pytest.raises(ExecutionError, match=r"\['a', 'b'\]") as caught:
        accumulator.add(value, 7, 1.0)
    assert caught.value.where == "agent 7"


def test_nothing_to_reduce_is_an_empty_result() -> None:
    accumulator = Accumulator({})
    accumulator.add({}, 1, 1.0)
    assert accumulator.total() == {}


INTEGERS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    *(
        st.integers(np.iinfo(one).min, np.iinfo(one).max).map(np.dtype(one).type)
        for one in ("i1", "u1", "i4", "u4", "i8", "u8")
    ),
)


@given(st.lists(INTEGERS, min_size=1, max_size=9), st.data())
@pytest.mark.slow
def test_a_sum_of_integers_is_exact_in_any_tree_and_order(
    numbers: list[Any], cuts: st.DataObject
) -> None:
    parts = [(rank, 1.0, number) for rank, number in enumerate(numbers, start=1)]
    total = reduce_in_tree("sum", parts, cuts)
    exact = sum(int(number) for number in numbers)
    assert total == exact
    kinds = {int if isinstance(one, bool) else type(one) for one in numbers}
    kind = kinds.pop() if len(kinds) == 1 else int
    if kind is not int and not np.iinfo(kind).min <= exact <= np.iinfo(kind).max:
        kind = int
    assert type(total) is kind


@given(st.lists(INTEGERS | st.floats(width=32).map(np.float32), min_size=1, max_size=9), st.data())
@pytest.mark.slow
def test_the_type_of_a_sum_does_not_depend_on_the_tree(
    numbers: list[Any], cuts: st.DataObject
) -> None:
    parts = [(rank, 1.0, number) for rank, number in enumerate(numbers, start=1)]
    totals = [reduce_in_tree("sum", parts, cuts) for _ in range(2)]
    assert type(totals[0]) is type(totals[1])


@pytest.mark.parametrize(("kind", "expected"), [("min", "-0.0"), ("max", "0.0")])
def test_the_sign_of_zero_does_not_depend_on_the_order(kind: str, expected: str) -> None:
    for numbers in ([0.0, -0.0], [-0.0, 0.0], [0, -0.0], [-0.0, 0]):
        accumulator = Accumulator({"x": kind})
        for rank, number in enumerate(numbers, start=1):
            accumulator.add({"x": number}, rank, 1.0)
        assert str(float(accumulator.total()["x"])) == expected


@pytest.mark.parametrize(
    "value", [np.str_("a"), np.bytes_(b"a"), np.array(["a"]), np.zeros(1, [("a", "f8")])]
)
@pytest.mark.parametrize("kind", ["sum", "min", "max", "mean"])
def test_texts_and_records_are_not_numbers(kind: str, value: Any) -> None:
    with pytest.raises(ExecutionError, match="neither a number nor an array of numbers"):
        Accumulator({"x": kind}).add({"x": value}, 1, 1.0)


@pytest.mark.filterwarnings("error")
def test_error_settings_of_the_caller_change_no_result() -> None:
    def total(kind: str, *contributions: Any) -> Any:
        gathered = gathering()({"x": kind})
        for rank, value in enumerate(contributions, start=1):
            encoded = values.encode({"x": value})
            payload = Payload(bytes(encoded.payload())) if encoded.nbytes else None
            gathered.add(encoded.body, payload, rank, 1.0)
        return gathered.total()["x"]

    with np.errstate(all="raise"):
        assert np.isnan(total("sum", np.float64("inf"), np.float64("-inf")))
        assert np.isinf(total("sum", np.float16(6e4), np.float16(6e4)))
        assert np.isnan(total("mean", np.array([np.inf]), np.array([-np.inf]))).all()


class Strange(np.ndarray[Any, Any]):
    """An array whose arithmetic fails as nothing of numpy's does."""

    def __add__(self, other: Any) -> Any:
        raise LookupError("no such thing")

    def __array_ufunc__(self, *_arguments: Any, **_options: Any) -> Any:
        raise LookupError("no such thing")


def test_an_exception_of_any_type_names_the_field_and_the_agent() -> None:
    accumulator = Accumulator({"x": "sum"})
    accumulator.add({"x": np.ones(2).view(Strange)}, 1, 1.0)
    with pytest.raises(ExecutionError, match=r"field 'x': LookupError: no such thing \(agent 2\)"):
        accumulator.add({"x": np.ones(2).view(Strange)}, 2, 1.0)
