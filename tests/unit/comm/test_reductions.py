from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.reductions import make_reduction
from sapwood.core.errors import ExecutionError, ProgramError

SAMPLES = st.lists(
    st.lists(st.integers(-1000, 1000), min_size=0, max_size=6), min_size=1, max_size=7
)


def travelled(value: Any) -> Any:
    encoded = values.encode({"x": value})
    return values.decode(encoded.body, bytes(encoded.payload()))["x"]


def in_a_tree(kind: str, parts: Sequence[Any], cuts: st.DataObject) -> Any:
    """Reduce the contributions of agents 1, 2, … over two levels, in any order."""
    ranked = list(enumerate(parts, start=1))
    cut = cuts.draw(st.integers(0, len(ranked)))
    root = make_reduction(kind)
    for group in cuts.draw(st.permutations([ranked[:cut], ranked[cut:]])):
        if not group:
            continue
        junction = make_reduction(kind)
        for rank, value in cuts.draw(st.permutations(group)):
            junction.add(travelled(value), rank, 1.0)
        root.add(travelled(junction.partial()), group[0][0], float(len(group)))
    return root.total()


@given(SAMPLES, st.data())
@pytest.mark.slow
def test_variance_is_that_of_all_samples(parts: list[list[int]], cuts: st.DataObject) -> None:
    total = in_a_tree("variance", [np.array(part, "f8") for part in parts], cuts)
    every = np.array([number for part in parts for number in part], "f8")
    assert total["count"] == len(every)
    if len(every):
        np.testing.assert_allclose(total["mean"], every.mean(), atol=1e-9)
    if len(every) > 1:
        np.testing.assert_allclose(total["variance"], every.var(ddof=1), rtol=1e-9, atol=1e-9)
    else:
        assert np.isnan(total["variance"])


def test_variance_of_vectors_is_element_by_element() -> None:
    samples = np.random.default_rng(1).normal(1e6, 1.0, (50, 3))
    variance = make_reduction("variance")
    variance.add(samples[:20], 1, 20.0)
    variance.add(samples[20:], 2, 30.0)
    np.testing.assert_allclose(variance.total()["variance"], samples.var(axis=0, ddof=1))
    with pytest.raises(ExecutionError, match="do not fit"):
        variance.add(np.ones((4, 2)), 3, 4.0)


@given(SAMPLES, st.data())
@pytest.mark.slow
def test_histogram_is_that_of_numpy(parts: list[list[int]], cuts: st.DataObject) -> None:
    kind = "histogram:-500:500:7"
    total = in_a_tree(kind, [np.array(part, "i8") for part in parts], cuts)
    every = np.array([number for part in parts for number in part], "i8")
    counts, edges = np.histogram(every, 7, (-500, 500))
    np.testing.assert_array_equal(total["counts"], counts)
    np.testing.assert_array_equal(total["edges"], edges)
    assert total["below"] == (every < -500).sum()
    assert total["above"] == (every > 500).sum()
    assert total["counts"].sum() + total["below"] + total["above"] == len(every)


def test_histogram_refuses_numbers_without_an_order() -> None:
    with pytest.raises(ExecutionError, match="complex128 has no order"):
        make_reduction("histogram:0:1:2").add(np.array([1j]), 1, 1.0)


def test_histogram_counts_what_is_not_a_number() -> None:
    histogram = make_reduction("histogram:0:1:2")
    histogram.add(np.array([0.0, 0.5, 1.0, np.nan]), 1, 1.0)
    total = histogram.total()
    assert (total["counts"].tolist(), total["nan"]) == ([1, 2], 1)


@given(SAMPLES, st.integers(1, 9), st.data())
@pytest.mark.slow
def test_top_has_the_largest_and_who_had_them(
    parts: list[list[int]], count: int, cuts: st.DataObject
) -> None:
    total = in_a_tree(f"top:{count}", [np.array(part, "i8") for part in parts], cuts)
    every = [(-number, rank) for rank, part in enumerate(parts, 1) for number in part]
    expected = sorted(every)[:count]
    assert [(-value, rank) for value, rank in zip(*total.values(), strict=True)] == expected


def test_top_leaves_nan_out_and_takes_the_smallest_integer() -> None:
    top = make_reduction("top:3")
    top.add(np.array([np.nan, 1.0, np.inf]), 1, 1.0)
    assert top.total()["values"].tolist() == [np.inf, 1.0]
    lowest = make_reduction("top:2")
    lowest.add(np.array([np.iinfo("i8").min, 0]), 1, 1.0)
    assert lowest.total()["values"].tolist() == [0, np.iinfo("i8").min]


@given(
    st.lists(st.lists(st.integers(0, 9) | st.text(max_size=2), max_size=5), min_size=1, max_size=6),
    st.data(),
)
@pytest.mark.slow
def test_union_is_the_set_of_all(parts: list[list[Any]], cuts: st.DataObject) -> None:
    expected = {member for part in parts for member in part}
    assert in_a_tree("union", parts, cuts) == expected


@given(st.lists(st.sampled_from(["ok", "old", 3, None, [1, 2]]), min_size=1, max_size=9), st.data())
@pytest.mark.slow
def test_classes_group_the_agents_by_value(parts: list[Any], cuts: st.DataObject) -> None:
    total = in_a_tree("classes", parts, cuts)
    found = {rank: group["value"] for group in total for rank in group["agents"]}
    assert found == dict(enumerate(parts, start=1))
    sizes = [len(group["agents"]) for group in total]
    assert sizes == sorted(sizes, reverse=True)
    assert len({repr(group["value"]) for group in total}) == len(total)


@pytest.mark.row("C2-RED")
def test_classes_fold_the_places_that_agree() -> None:
    junction, root = make_reduction("classes"), make_reduction("classes")
    for rank in (1, 2, 3):
        junction.add({"driver": "550", "gpu": "ok"}, rank, 1.0)
    root.add(travelled(junction.partial()), 1, 3.0)
    root.add({"driver": "550", "gpu": "ok"}, 5, 1.0)
    root.add({"driver": "550", "gpu": "lost"}, 4, 1.0)
    assert [(group["value"]["gpu"], group["places"]) for group in root.total()] == [
        ("ok", "agent[1-3,5]"),
        ("lost", "agent 4"),
    ]


@given(
    st.lists(
        st.none() | st.text(max_size=3) | st.dictionaries(st.text(max_size=2), st.integers(0, 9)),
        min_size=1,
        max_size=9,
    ),
    st.data(),
)
@pytest.mark.slow
def test_gather_keeps_every_value_at_its_rank(parts: list[Any], cuts: st.DataObject) -> None:
    assert in_a_tree("gather", parts, cuts) == parts


@pytest.mark.parametrize(
    "text",
    [
        "tops",
        "top",
        "top:0",
        "top:x",
        "sum:1",
        "histogram:0:1",
        "histogram:1:0:5",
        "histogram:a:b:c",
    ],
)
def test_what_is_no_reduction_is_told_how_to_write_it(text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        make_reduction(text)
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["top:2", "histogram:0:1:3", "variance", "union"])
def test_what_cannot_be_reduced_is_an_error(kind: str) -> None:
    with pytest.raises(ExecutionError):
        make_reduction(kind).add("text", 1, 1.0)


def test_the_variance_of_complex_samples_is_that_of_their_distances() -> None:
    samples = np.array([1 + 2j, 3 - 1j, -2 + 0.5j, 4j])
    variance = make_reduction("variance")
    variance.add(samples[:3], 1, 3.0)
    variance.add(samples[3:], 2, 1.0)
    np.testing.assert_allclose(variance.total()["variance"], samples.var(ddof=1))


@pytest.mark.parametrize(("dtype", "value"), [("f4", 1e38), ("f2", 6e4)])
def test_short_floats_do_not_overflow_in_a_variance(dtype: str, value: float) -> None:
    variance = make_reduction("variance")
    for rank in (1, 2):
        variance.add(np.full(100, value, dtype), rank, 100.0)
    assert variance.total()["mean"] == np.array(value, dtype)
    assert variance.total()["variance"] == 0


def test_a_mean_of_arrays_without_dimensions_goes_through_a_tree() -> None:
    root = make_reduction("mean")
    for ranks in ((1, 2), (3, 4)):
        junction = make_reduction("mean")
        for rank in ranks:
            junction.add(np.array(1.5 * rank), rank, 1.0)
        root.add(travelled(junction.partial()), ranks[0], 2.0)
    assert root.total() == np.array(3.75)


def test_a_union_of_dates_travels() -> None:
    junction = make_reduction("union")
    junction.add(np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"), 1, 1.0)
    root = make_reduction("union")
    root.add(travelled(junction.partial()), 1, 1.0)
    assert root.total() == {np.datetime64("2020-01-01"), np.datetime64("2021-01-01")}


COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9))


@given(st.lists(COUNTS, min_size=1, max_size=7), st.data())
def test_a_tally_adds_by_key_over_any_tree(
    parts: list[dict[str, int]], cuts: st.DataObject
) -> None:
    every = {key for part in parts for key in part}
    total = in_a_tree("tally:6", parts, cuts)
    assert total == {key: sum(part.get(key, 0) for part in parts) for key in every}
    few = in_a_tree("tally:2", parts, cuts)
    assert len(few) <= 3
    assert sum(few.values()) == sum(total.values())


@pytest.mark.parametrize("text", ["tally", "tally:0", "tally:x", "tally:100000"])
def test_a_tally_is_of_some_keys(text: str) -> None:
    with pytest.raises(ProgramError, match="tally:"):
        make_reduction(text)


@pytest.mark.parametrize("value", [3, [1], {"a": "b"}, {"a": np.zeros(2)}])
def test_a_tally_is_of_numbers_by_key(value: Any) -> None:
    with pytest.raises(ExecutionError, match="is not a"):
        make_reduction("tally:3").add(value, 1, 1.0)
