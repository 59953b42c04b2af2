"""Programs that reduce fields by user functions, user filters and native code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import FunctionMissingError, ProgramError, UserCodeError

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TREE = (7, 2)
DATA = np.arange(100.0)


def better(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return left if left["score"] >= right["score"] else right


def wrong(left: Any, right: Any) -> Any:
    raise ValueError("these do not fit together")


class Best(sapwood.Program):
    reduce = {"best": better, "mean": "mean", "starts": "gather"}  # noqa: RUF012 - as users do

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        score = float(slice.data.max())
        mean = float(slice.data.mean())
        return {"best": {"score": score}, "mean": mean, "starts": slice.start}


class Wrong(Best):
    reduce = {**Best.reduce, "best": wrong}  # noqa: RUF012 - as above


class Twice(Best):
    def own_filter(self) -> sapwood.Filter:
        return sapwood.Filter()


def test_a_function_reduces_one_field_and_names_the_others(standing: sapwood.Cluster) -> None:
    result = standing.run(Best, DATA).result(60)
    assert result["best"] == {"score": 99.0}
    assert result["mean"] == pytest.approx(DATA.mean())
    assert result["starts"] == sorted(result["starts"])
    assert len(result["starts"]) == 7


def test_an_exception_in_a_function_fails_the_run_and_names_it(standing: sapwood.Cluster) -> None:
    with pytest.raises(UserCodeError, match="do not fit together") as failed:
        standing.run(Wrong, DATA).result(60)
    assert "in wrong" in str(failed.value)


def test_two_ways_to_put_results_together_are_refused(standing: sapwood.Cluster) -> None:
    with pytest.raises(ProgramError, match="keep one of them"):
        standing.run(Twice, DATA).result(60)


FOLDER = {
    "program.toml": """
[program]
python = "spans.py"
sources = ["spans.c"]
inputs = ["x"]
[map]
function = "histogram"
[reduce]
bins = "native:add"
least = "lower"
""",
    "spans.py": """
def lower(left, right):
    return min(left, right, key=lambda value: value[0])
""",
    "spans.c": """
#include <stdint.h>
/* @array x[n]
 * @array bins[4]
 * @array least[1] */
void histogram(const double *x, int64_t n, int64_t *bins, double *least) {
    *least = 1e9;
    for (int64_t i = 0; i < n; i++) {
        bins[(int)x[i] % 4]++;
        if (x[i] < *least) *least = x[i];
    }
}
void add(int64_t *into, const int64_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) into[i] += from[i];
}
""",
}


def write(folder: Path, **changes: str) -> Path:
    for name, text in FOLDER.items():
        (folder / name).write_text(changes.get(name.replace(".", "_"), text))
    return folder


def test_a_folder_names_functions_of_its_files(standing: sapwood.Cluster, tmp_path: Path) -> None:
    result = standing.run(write(tmp_path), {"x": DATA}).result(60)
    assert result["bins"].tolist() == [25, 25, 25, 25]
    assert result["least"].tolist() == [0.0]


def test_a_native_reducer_that_is_missing_is_named(
    standing: sapwood.Cluster, tmp_path: Path
) -> None:
    toml = FOLDER["program.toml"].replace("native:add", "native:ad")
    with pytest.raises(FunctionMissingError, match="did you mean add"):
        standing.run(write(tmp_path, program_toml=toml), {"x": DATA}).result(60)
