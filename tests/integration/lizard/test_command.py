"""``sapwood lizard`` and the interactive prompt."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sapwood.cli.main import app
from sapwood.core.errors import SapwoodError
from sapwood_lizard.directory import read_directory
from sapwood_lizard.runtime_helper import run_using_runner_module

from .conftest import EXAMPLES

CHECKSUM = read_directory(EXAMPLES / "column_sums").checksum
SETTINGS = ("--set", "dims=3", "--set", "max_iterations=10", "--set", "input_file=points.csv")


Lizard = Callable[..., Result]


@pytest.fixture
def lizard(monkeypatch: pytest.MonkeyPatch) -> Lizard:
    """Run the command line to its end, in this process."""

    def run(*words: str, folder: Path = EXAMPLES) -> Result:
        monkeypatch.chdir(folder)
        return CliRunner().invoke(app, ["lizard", *words], prog_name="sapwood")

    return run


@pytest.mark.row("B-PROG-1")
@pytest.mark.row("B-PROG-3")
def test_a_program_registers_and_runs(lizard: Lizard) -> None:
    folder = EXAMPLES / "column_sums"
    done = lizard("run", ".", *SETTINGS, "--agents", "2", folder=folder)
    assert done.exit_code == 0, done.stderr
    first, second, *lines, last = done.stdout.splitlines()
    assert first == f"Program registered, checksum: {CHECKSUM}"
    assert re.fullmatch(r"Run completed in [0-9.e-]+ seconds", second)
    assert lines == ["iterations: 10", "sums: -25.170 -4.180 40.290"]
    assert last == "10 iterations, 150 points, 2 agents"
    listed = json.loads(lizard("list", "--json").stdout)
    assert {"name": "column_sums", "checksum": CHECKSUM} in listed["programs"]


def test_what_a_program_prints_is_not_among_the_json(
    lizard: Lizard, copy_of: Callable[..., Path]
) -> None:
    says = "print('said')\n"
    folder = copy_of(
        "column_sums",
        {
            "python_funcs.py": [
                ("import ctypes\n", f"import ctypes\n\n{says}"),
                (
                    "    global_state.iteration += 1\n",
                    f"    {says}    global_state.iteration += 1\n",
                ),
            ],
            "runner.py": [
                ("import csv\n", f"{says}import csv\n"),
                ("    dataset = python_funcs", f"    {says}    dataset = python_funcs"),
            ],
        },
    )
    done = lizard("run", ".", *SETTINGS, "--agents", "1", "--json", folder=folder)
    answer = json.loads(done.stdout)
    assert answer["output"] == "iterations: 10\nsums: -25.170 -4.180 40.290\n"
    assert (answer["iterations"], answer["points"], answer["agents"]) == (10, 150, 1)
    assert answer["checksum"] == read_directory(folder).checksum
    assert done.stderr.count("said") > 12
    done = lizard("load", ".", "--json", folder=folder)
    assert json.loads(done.stdout)["name"] == "column_sums"


@pytest.mark.row("B-PROG-3")
def test_load_prints_the_checksum_and_remove_forgets(lizard: Lizard) -> None:
    done = lizard("load", "column_sums")
    assert done.stdout == f"Program registered, checksum: {CHECKSUM}\n"
    assert lizard("remove", CHECKSUM).exit_code == 0
    again = lizard("remove", CHECKSUM)
    assert again.exit_code == 2
    assert "no program is registered" in again.stderr


@pytest.mark.row("B-PROG-3")
def test_compile_errors_reach_the_user_and_nothing_is_registered(
    lizard: Lizard, copy_of: Callable[..., Path]
) -> None:
    change = ("int grid = (", "int grid = (nothing + ")
    folder = copy_of("column_sums", {"kernel.cu": [change]})
    done = lizard("load", str(folder))
    assert done.exit_code == 3
    assert "where: kernel.cu:21" in done.stderr
    assert "nothing" in done.stderr
    checksum = read_directory(folder).checksum
    assert lizard("remove", checksum).exit_code == 2


def test_a_crash_is_told_with_its_exit_code(lizard: Lizard) -> None:
    done = lizard("run", "crash", "--set", "dims=2", "--set", "max_iterations=4")
    assert done.exit_code == 4
    assert "SIGSEGV" in done.stderr
    assert "kernel.cu:" in done.stderr
    assert "sums" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "nowhere"), "there is no such folder"),
        (("run", "."), "holds no config.yaml"),
        (("run", "column_sums", "--set", "dims"), "--set cannot be 'dims'"),
        (("run", "column_sums", "--runner", "gone.py"), "there is no such file"),
        (("run", "column_sums", "--set", "dims=3"), "KeyError: 'input_file'"),
        (("remove", "../../x"), "is not a checksum"),
    ],
)
def test_wrong_words(lizard: Lizard, words: tuple[str, ...], message: str) -> None:
    done = lizard(*words)
    assert done.exit_code in {2, 4}
    assert message in done.stderr
    assert "Traceback" not in done.stderr.split("traceback:")[0]


@pytest.mark.row("B-HW-1")
def test_hardware_says_how_large_a_block_is(lizard: Lizard) -> None:
    answer = json.loads(lizard("hardware", "--json").stdout)
    assert answer["block_size"] % 32 == 0
    assert isinstance(answer["gpus"], list)


PROMPT = """
from sapwood_lizard.importing import provide_lizard
provide_lizard()  # what the package sapwood-lizard does when Python starts
from lizard import runtime_helper
seconds = runtime_helper.run_using_runner_module(
    'lizard.column_sums.runner',
    {'dims': 3, 'max_iterations': 10, 'input_file': 'lizard/column_sums/points.csv'},
    'http://localhost:1',  # no server listens there
    CHECKSUM)
print(0 < seconds < 60)
"""


@pytest.mark.row("B-RUN-2")
def test_the_prompt_works_as_its_documentation_shows(lizard: Lizard) -> None:
    assert lizard("load", "column_sums").exit_code == 0
    # The folder lies beside: a dotted name is a way through folders, also where it begins
    # like the package.
    done = subprocess.run(
        [sys.executable, "-i", "-c", PROMPT.replace("CHECKSUM", repr(CHECKSUM))],
        cwd=EXAMPLES.parent,
        input="",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"Run completed in [0-9.e-]+ seconds", lines[0]), done.stderr
    assert lines[1:] == ["iterations: 10", "sums: -25.170 -4.180 40.290", "True"]


@pytest.mark.row("B-RUN-2")
@pytest.mark.parametrize(
    ("url", "checksum", "message"),
    [
        ("http://host.invalid:5000", CHECKSUM, "no server answers"),
        ("localhost:1", "0" * 40, "no program is registered"),
        ("http://127.0.0.1:1", "xyz", "is not a checksum"),
    ],
)
def test_what_a_prompt_cannot_ask(url: str, checksum: str, message: str) -> None:
    with pytest.raises(SapwoodError, match=message):
        run_using_runner_module("column_sums.runner", {}, url, checksum)


NEVER_DONE = {
    "python_funcs.py": [
        (
            "    global_state.done = int(global_state.iteration >= global_params.max_iterations)\n",
            "    global_state.done = 0\n",
        )
    ]
}


def test_a_program_that_is_never_done_ends_after_the_most_iterations(
    lizard: Lizard, copy_of: Callable[..., Path]
) -> None:
    folder = copy_of("column_sums", NEVER_DONE)
    done = lizard("run", ".", *SETTINGS, "--agents", "1", "--max-iterations", "4", folder=folder)
    assert done.exit_code == 0, done.stderr
    *_, count, _sums, last = done.stdout.splitlines()
    assert count == "iterations: 4"
    assert last == (
        "4 iterations, 150 points, 1 agent, ended by max_iterations before the program was done"
    )


def test_a_program_that_is_never_done_ends_when_its_time_is_over(
    lizard: Lizard, copy_of: Callable[..., Path]
) -> None:
    folder = copy_of("column_sums", NEVER_DONE)
    done = lizard("run", ".", *SETTINGS, "--agents", "1", "--run-time-limit", "1s", folder=folder)
    assert done.exit_code == 4
    assert "sapwood: error SW203: the run took longer than 1 s and was ended" in done.stderr
    assert "--run-time-limit" in done.stderr
    assert "Run completed" not in done.stdout


def test_the_runner_module_of_another_program_is_refused_before_it_runs(lizard: Lizard) -> None:
    done = lizard(
        "run", ".", *SETTINGS, "--runner", "../column_sums/runner.py", folder=EXAMPLES / "kmeans"
    )
    assert done.exit_code == 2
    assert "error SW120: the runner module belongs to another program" in done.stderr
    assert "its GlobalParams has the fields dims, max_iterations, and the program has dims," in (
        " ".join(done.stderr.split())
    )


@pytest.mark.parametrize("dims", [-1, 2**31])
def test_a_size_that_is_negative_is_named(lizard: Lizard, dims: int) -> None:
    done = lizard(
        *("run", ".", "--set", f"dims={dims}", "--set", "max_iterations=3", "--set"),
        *("input_file=points.txt", "--set", "num_centroids=3", "--set", "threshold=0.01"),
        *("--agents", "1"),
        folder=EXAMPLES / "kmeans",
    )
    assert done.exit_code == 4
    assert f"asks for more memory than the device has, and dims is {-abs(dims)}" in done.stderr
    assert "num_centroids=3" in done.stderr


def test_a_negative_size_is_named_where_the_program_itself_ends(lizard: Lizard) -> None:
    done = lizard(
        *("run", ".", "--set", "dims=-1", "--set", "input_file=points.csv", "--agents", "1"),
        folder=EXAMPLES / "column_sums",
    )
    assert done.exit_code == 4
    assert "cudaMallocManaged asks for -8 bytes: its size is negative" in done.stderr


def test_a_program_of_the_other_kind_than_it_says_is_told_so(
    lizard: Lizard, copy_of: Callable[..., Path]
) -> None:
    wrong = [("py_c_extention: true", "py_c_extention: false")]
    folder = copy_of("kmeans_extension", {"config.yaml": wrong})
    done = lizard("load", str(folder))
    assert done.exit_code == 2
    assert (
        "makes this a program for ctypes, but its Python module is written for a C extension"
        in (" ".join(done.stderr.split()))
    )
    assert "py_c_extention: true" in done.stderr
