"""A fault that cannot be seen at registration ends the run; there is never a result."""

from collections.abc import Callable
from pathlib import Path

import pytest

import sapwood
from sapwood.core.errors import (
    DataShapeError,
    ExecutionError,
    ProgramError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)
from sapwood.environment.settings import LimitSettings
from sapwood_lizard.execution import RunOutcome
from sapwood_lizard.launch import Checked

CopyFunction = Callable[..., Path]
CheckFunction = Callable[[Path], Checked]
Changes = dict[str, list[tuple[str, str]]]

RunCase = tuple[Changes, type[SapwoodError], str]

IN_A_RUN: dict[str, RunCase] = {
    "a slice that loses points": (
        {
            "python_funcs.py": [
                ("    dataset.num_points = size\n", "    dataset.num_points = size - 1\n")
            ]
        },
        DataShapeError,
        "points where",
    ),
    "a slice that is not returned": (
        {"python_funcs.py": [("size) * dims]\n    return dataset", "size) * dims]")]},
        ProgramError,
        "get_dataset_slice returned NoneType",
    ),
    "a first state that is not returned": (
        {"python_funcs.py": [("    return global_state\n\n\ndef update", "\n\ndef update")]},
        ProgramError,
        "init_global_state returned NoneType",
    ),
    "an aggregate that raises": (
        {"python_funcs.py": [("        total[d] += part[d]", "        total[d] += part[d] / 0")]},
        UserCodeError,
        "ZeroDivisionError.*aggregate",
    ),
    "an update that exits": (
        {"python_funcs.py": [("    global_state.iteration += 1", "    raise SystemExit('no')")]},
        UserCodeError,
        "SystemExit: no.*update_global_state",
    ),
    "a runner module that exits": (
        {
            "runner.py": [
                ("    dataset = python_funcs", "    sys.exit(1)\n    dataset = python_funcs")
            ]
        },
        UserCodeError,
        "SystemExit: 1.*init_dataset",
    ),
    "a result that cannot be reset": (
        {
            "python_funcs.py": [
                ("    for d in range(global_params.dims):\n        sums[d] = 0.0\n", ""),
                (
                    "        for d, value in enumerate(values):\n            self.sums[d] = value",
                    "        pass",
                ),
            ]
        },
        ProgramError,
        "does not reset",
    ),
}

FAULTS = ("EXIT", "ENDLESS", "LAUNCH", "BESIDE", "NOTHING", "ASSERT", "OF_PYTHON")
NUMBER = {name: number for number, name in enumerate(FAULTS, 1000)}
_NUMBERS = ", ".join(f"{name} = {number}" for name, number in NUMBER.items())

FAULTY: Changes = {
    "kernel.cu": [
        ("#include <stdio.h>\n", "#include <assert.h>\n#include <stdio.h>\n"),
        ("int num_points, int dims)", "int num_points, int dims, int what)"),
        ("if (i >= num_points)", "assert(what != ASSERT);\n    if (i >= num_points)"),
        ("&sums[d]", "&sums[what == BESIDE ? d + 1 : d]"),
        (
            "    int grid =",
            (
                "    int what = params->max_iterations;\n    if (what == EXIT) exit(3);\n"
                "    for (volatile int i = 0; what == ENDLESS; i++) {}\n    int grid ="
            ),
        ),
        ("<<<grid, block_size>>>", "<<<grid, what == LAUNCH ? 4096 : block_size>>>"),
        (
            "params->dims);\n    check(",
            "params->dims, what);\n    if (what >= EXIT) return;\n    check(",
        ),
        (
            "check(cudaMallocManaged(&dataset->points,",
            (
                "dataset->points = 0;\n    if (params->max_iterations != NOTHING) "
                "check(cudaMallocManaged(&dataset->points,"
            ),
        ),
        ("static void check", f"enum {{ {_NUMBERS} }};\n\nstatic void check"),
    ]
}
"""One source with all these faults; the number of iterations says which one it has."""

IN_C: dict[str, RunCase] = {
    "NOTHING": ({}, ProgramError, "setup_dataset leaves Dataset.points NULL"),
    "EXIT": ({}, RunnerCrashError, "3"),
    "LAUNCH": ({}, ExecutionError, "device reports an error after run_iteration"),
    "BESIDE": (
        {},
        ExecutionError,
        r"byte 24 of the 24 bytes that cudaMallocManaged gave at \S*kernel.cu.*add_columns",
    ),
    "OF_PYTHON": (
        {
            "python_funcs.py": [
                (
                    "enumerate(values):\n            self.sums[d] = value",
                    "enumerate(values, 1):\n            self.sums[d] = value",
                ),
            ],
        },
        ExecutionError,
        r"byte 24 of the 24 bytes that cudaMallocManaged gave at \S*kernel.cu",
    ),
}
"""Faults in C; Python may also write beside memory that C has allocated."""

TREE = (3, 0)


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Three agents."""
    return standing


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize("case", IN_A_RUN.values(), ids=list(IN_A_RUN))
def test_mistakes_end_a_run_and_the_agents_live(
    cluster: sapwood.Cluster,
    copy_of: CopyFunction,
    outcome: Callable[..., RunOutcome],
    case: RunCase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes, kind, message = case
    folder = copy_of("column_sums", changes)
    monkeypatch.chdir(folder)
    settings = {"dims": 3, "max_iterations": 3, "input_file": "points.csv"}
    with pytest.raises(kind, match=f"(?s){message}"):
        outcome(cluster, folder, settings)
    assert cluster.submit(pow, 2, 10).result(30) == 1024


@pytest.mark.row("B-PROG-1")
@pytest.mark.parametrize("fault", IN_C)
def test_mistakes_in_c_end_a_run_and_the_agents_live(
    cluster: sapwood.Cluster,
    copy_of: CopyFunction,
    outcome: Callable[..., RunOutcome],
    fault: str,
) -> None:
    changes, kind, message = IN_C[fault]
    folder = copy_of("column_sums", FAULTY | changes)
    points = str(folder / "points.csv")
    settings = {"dims": 3, "max_iterations": NUMBER[fault], "input_file": points}
    with pytest.raises(kind, match=f"(?s){message}"):
        outcome(cluster, folder, settings)
    assert cluster.submit(pow, 2, 10).result(30) == 1024


def test_an_iteration_that_does_not_end_is_killed(
    make_cluster: Callable[..., sapwood.Cluster],
    copy_of: CopyFunction,
    outcome: Callable[..., RunOutcome],
) -> None:
    folder = copy_of("column_sums", FAULTY)
    cluster = make_cluster(2, limits=LimitSettings(time=0.2))
    points = str(folder / "points.csv")
    settings = {"dims": 3, "max_iterations": NUMBER["ENDLESS"], "input_file": points}
    with pytest.raises(TimeLimitError):
        outcome(cluster, folder, settings)


def test_the_kind_of_runner_and_program_must_be_one(
    cluster: sapwood.Cluster, copy_of: CopyFunction, outcome: Callable[..., RunOutcome]
) -> None:
    change = ("C_EXTENSION = False", "C_EXTENSION = True")
    folder = copy_of("column_sums", {"runner.py": [change]})
    with pytest.raises(ProgramError, match="the runner module is for C extensions"):
        outcome(cluster, folder, {"dims": 3, "input_file": "points.csv"})


def test_a_failure_of_one_run_is_not_that_of_the_next(
    make_cluster: Callable[..., sapwood.Cluster],
    copy_of: CopyFunction,
    outcome: Callable[..., RunOutcome],
) -> None:
    # The device of a CPU node stays broken after a failed assertion, like a GPU.
    folder = copy_of("column_sums", FAULTY)
    good = {"dims": 3, "input_file": str(folder / "points.csv")}
    cluster = make_cluster(1)
    for _ in range(2):
        with pytest.raises(SapwoodError, match=r"(?s)Assert|assert"):
            outcome(cluster, folder, good | {"max_iterations": NUMBER["ASSERT"]})
        assert outcome(cluster, folder, good).iterations == 1
