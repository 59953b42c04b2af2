"""Programs that are C extensions of Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    BuildError,
    DataShapeError,
    FunctionMissingError,
    ProgramError,
    SapwoodError,
    UserCodeError,
)
from sapwood_lizard.execution import RunOutcome
from sapwood_lizard.launch import Checked

from .conftest import EXAMPLES

RunFunction = Callable[..., RunOutcome]
CopyFunction = Callable[..., Path]
EXTENSION = EXAMPLES / "kmeans_extension"
SETTINGS: dict[str, Any] = {
    "num_points": 210,
    "dims": 2,
    "num_centroids": 3,
    "max_iterations": 40,
    "threshold": 1e-9,
    "input_file": EXTENSION / "points.txt",
}

TREE = (4, 2)


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents under two junctions."""
    return standing


@pytest.mark.parametrize(
    "changes",
    [
        [
            ("import random\n", "import random\n\nimport user_program\n"),
            ("    import user_program\n", ""),
        ],
        [
            ("import random\n", "import random\nfrom user_program import kmeans_iteration\n"),
            ("    import user_program\n", ""),
            ("    user_program.kmeans", "    kmeans"),
        ],
        [("return aggregation_result\n", "return None\n")],
        [("return [[0] * k", "return [[0.0] * k")],
        # An aggregate of another form than partial results is made at the root only.
        [
            (
                "return [[0] * k, [0.0] * (k * dims)]",
                "return {'n': [0] * k, 's': [0.0] * (k * dims)}",
            ),
            ("zip(aggregation_result, partial)", "zip(aggregation_result.values(), partial)"),
            ("counts, sums = aggregation_result", "counts, sums = aggregation_result.values()"),
        ],
        # What aggregate makes is what update_global_state gets.
        [
            ("import random\n", "import random\n\nimport numpy as np\n"),
            ("return [[0] * k, [0.0] * (k * dims)]", "return np.zeros(k), np.zeros(k * dims)"),
            (
                (
                    "    for total, part in zip(aggregation_result, partial):\n"
                    "        for i, value in enumerate(part):\n            total[i] += value\n"
                    "    return aggregation_result"
                ),
                "    return tuple(a + np.array(p) for a, p in zip(aggregation_result, partial))",
            ),
            (
                "    counts, sums = aggregation_result\n",
                (
                    "    counts, sums = aggregation_result\n    sums = sums * np.ones_like(sums)\n"
                    "    assert type(aggregation_result) is tuple\n"
                ),
            ),
        ],
        [
            (
                "return [[0] * k, [0.0] * (k * dims)]",
                "return {0: [0] * k, 1: [0.0] * (k * dims)}",
            ),
            ("zip(aggregation_result, partial)", "zip(aggregation_result.values(), partial)"),
            (
                "counts, sums = aggregation_result",
                "counts, sums = aggregation_result[0], aggregation_result[1]",
            ),
        ],
    ],
    ids=["import", "from import", "in place", "floats", "other form", "arrays", "keys"],
)
@pytest.mark.row("B-EXT-1")
def test_variations_of_extensions(
    cluster: sapwood.Cluster,
    outcome: RunFunction,
    copy_of: CopyFunction,
    changes: list[tuple[str, str]],
) -> None:
    expected = outcome(cluster, EXTENSION, SETTINGS).end_global_state
    found = outcome(cluster, copy_of("kmeans_extension", {"python_funcs.py": changes}), SETTINGS)
    assert found.end_global_state[0] == expected[0]
    np.testing.assert_allclose(found.end_global_state[1], expected[1], atol=1e-12)


def test_terminate_is_not_asked_after_the_first_iteration(
    cluster: sapwood.Cluster, outcome: RunFunction
) -> None:
    result = outcome(cluster, EXTENSION, {**SETTINGS, "max_iterations": 1})
    assert result.iterations == 2


def test_parameters_may_be_numbers_of_numpy(
    cluster: sapwood.Cluster, outcome: RunFunction, copy_of: CopyFunction
) -> None:
    change = ("return [run", "import numpy\n\n    return [numpy.array(run")
    folder = copy_of("kmeans_extension", {"runner.py": [change, ("[name] for", "[name])[()] for")]})
    expected = outcome(cluster, EXTENSION, SETTINGS).end_global_state
    assert outcome(cluster, folder, SETTINGS).end_global_state == expected


def test_two_extensions_at_a_time_have_a_module_each(
    cluster: sapwood.Cluster, outcome: RunFunction, copy_of: CopyFunction
) -> None:
    other = copy_of(
        "kmeans_extension",
        {"wrapper.cpp": [("num_points, k, dims);\n    Py", "num_points / 2, k, dims);\n    Py")]},
    )
    expected = outcome(cluster, EXTENSION, SETTINGS).end_aggregate
    # Half of the 53, 53, 52 and 52 points that agents have.
    assert sum(outcome(cluster, other, SETTINGS).end_aggregate[0]) == 4 * 26
    assert outcome(cluster, EXTENSION, SETTINGS).end_aggregate == expected


@pytest.mark.row("B-EXT-1")
@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        (
            {"wrapper.cpp": [("PyInit_user_program", "PyInit_other")]},
            FunctionMissingError,
            "no source defines PyInit_user_program",
        ),
        (
            {"wrapper.cpp": [("PyObject *array;", "PyObject *array")]},
            BuildError,
            r"does not compile.*wrapper.cpp:1\d",
        ),
        (
            {"python_funcs.py": [("def terminate(", "def terminated(")]},
            FunctionMissingError,
            "no function terminate",
        ),
    ],
)
def test_mistakes_are_told_at_registration(
    copy_of: CopyFunction,
    checked: Callable[[Path], Checked],
    changes: dict[str, list[tuple[str, str]]],
    kind: type[SapwoodError],
    message: str,
) -> None:
    with pytest.raises(kind, match=f"(?s){message}"):
        checked(copy_of("kmeans_extension", changes))


@pytest.mark.row("B-EXT-1")
@pytest.mark.parametrize(
    ("changes", "settings", "kind", "message"),
    [
        ({}, {"num_points": 200}, DataShapeError, "210 rows, the first parameter says 200"),
        (
            {"wrapper.cpp": [('{"unpin_gpu_memory"', '{"unpin"')]},
            {},
            ProgramError,
            "user_program has no function unpin_gpu_memory",
        ),
        (
            {
                "python_funcs.py": [
                    ("return [0, [random", "return [[random"),
                    ("range(k * dims)]]", "range(k * dims)]]"),
                ]
            },
            {},
            ProgramError,
            "the global state of a C extension",
        ),
        (
            {
                "kernel.cu": [
                    ("    double *on_device,", '    return "no device";\n    double *on_device,')
                ]
            },
            {},
            UserCodeError,
            "RuntimeError: CUDA: no device",
        ),
        (
            {"runner.py": [("return [run_settings[name] for name in names]", "return [210, {1}]")]},
            {},
            ProgramError,
            "the global parameters cannot be written as JSON: .*set",
        ),
        (
            {
                "python_funcs.py": [
                    ("    for line in data", '    yield float("x")\n    for line in data')
                ]
            },
            {},
            UserCodeError,
            "ValueError: could not convert string to float.*split_data",
        ),
        (
            {"python_funcs.py": [("range(k * dims)]]", "range(k * dims)] + [[1.0]]]")]},
            {},
            ProgramError,
            "the second is a list of numbers",
        ),
    ],
)
def test_mistakes_end_a_run(
    cluster: sapwood.Cluster,
    outcome: RunFunction,
    copy_of: CopyFunction,
    changes: dict[str, list[tuple[str, str]]],
    settings: dict[str, Any],
    kind: type[SapwoodError],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        outcome(cluster, copy_of("kmeans_extension", changes), SETTINGS | settings)
