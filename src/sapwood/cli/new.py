"""``sapwood new``: the files of a program that runs, to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug
from sapwood.core.errors import InputError
from sapwood.core.hints import command_line


@reporting
def new(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to create; the program gets its name.")
    ],
    *,
    language: Annotated[
        Literal["c", "c++", "python", "cuda"],
        typer.Option("--language", "-l", help="Language of the map function."),
    ] = "c",
    debug: Debug = False,
) -> None:
    """Create a folder with a small program that runs.

    Example: `sapwood new fit && sapwood run fit`
    """
    files = new_program(language)
    _write(folder, files)
    typer.echo(f"made {folder} with {', '.join(files)}")
    typer.echo(f"next:  {command_line('run', str(folder))}")
    typer.echo(f"then edit {folder / next(iter(files))}; run it again at each edit with")
    typer.echo(f"       {command_line('run', str(folder), '--watch')}")


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write files into a new or empty folder.

    Raises:
        InputError: The folder holds something already, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(
            "this is a file",
            where=str(folder),
            hint="name a folder that does not exist yet; nothing was written",
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            "the folder is not empty",
            where=str(folder),
            hint="name one that does not exist yet; nothing was written",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


_TOML: Final = """\
[program]
description = "Fits a line to points"
python = "fit.py"                # what happens between two iterations
{sources}inputs = ["x", "y"]              # fields of the data that the map wants

[parameters.rounds]              # sapwood run … -p rounds=50
default = 30
minimum = 1
help = "iterations to make"

[parameters.seed]
default = 1
minimum = 0
help = "of the random numbers of the example's own data"
{map}
[reduce]                         # how the agents' results are put together
sums = "sum"
"""

_PYTHON: Final = '''\
"""Fits the line y = slope * x + offset to points by gradient descent.

Each iteration sends the state to all agents, each agent maps its slice of the points, and the
sum of their results makes the next state.
"""

import numpy as np


def default_data(program):
    """Return the data of a run that is given none."""
    random = np.random.default_rng(program.seed)
    x = random.uniform(-1.0, 1.0, 100_000)
    return {{"x": x, "y": 3.0 * x - 2.0 + random.normal(0.0, 0.1, len(x))}}


def init(program, data):
    """Return the first state. The map gets its entries by their names."""
    return {{"slope": 0.0, "offset": 0.0, "error": 0.0, "items": len(data), "round": 0}}

{map}
def update(program, state, total):
    """Return the next state, made of the reduced result of all agents."""
    slope, offset, squares = total["sums"] / state["items"]
    return {{
        "slope": state["slope"] + float(slope),
        "offset": state["offset"] + float(offset),
        "error": float(np.sqrt(squares)),
        "items": state["items"],
        "round": state["round"] + 1,
    }}


def done(program, state):
    """Say whether this state is the last one."""
    return state["round"] >= program.rounds


def iterations(program):
    """Return how many iterations are planned, for the progress display."""
    return program.rounds


def metrics(program, state):
    """Return what the progress display shows."""
    return {{"slope": state["slope"], "offset": state["offset"], "error": state["error"]}}


def result(program, state):
    """Return what the run gives."""
    return {{name: state[name] for name in ("slope", "offset", "error")}}
'''

_PYTHON_MAP: Final = '''
def map(program, slice, state):
    """Return the partial result of one slice, on an agent."""
    residual = slice.y - (state["slope"] * slice.x + state["offset"])
    return {"sums": np.array([residual @ slice.x, residual.sum(), residual @ residual])}

'''

_COMMENT: Final = """\
/* Adds up residuals of one slice: times x, alone, and squared.
 *
 * x and y are the fields of the data, slope and offset are entries of the state. A name that is not
 * const is an output: it begins with zeros, and [reduce] in program.toml names it.
 *
 * @array x[n], y[n], sums[3]
 */
"""

_LOOP: Final = """\
  for (int64_t i = 0; i < n; i++) {
    double residual = y[i] - (slope * x[i] + offset);
    sums[0] += residual * x[i];
    sums[1] += residual;
    sums[2] += residual * residual;
  }
}
"""

_SIGNATURE: Final = """\
void residuals(const double *x, const double *y, int64_t n, double slope, double offset,
               double *sums) {
"""

_C: Final = "#include <stdint.h>\n\n" + _COMMENT + _SIGNATURE + _LOOP

_CPP: Final = "#include <cstdint>\n\n" + _COMMENT + 'extern "C" ' + _SIGNATURE + _LOOP

_CUDA: Final = (
    """\
#include <cuda_runtime.h>
#include <stdint.h>

__global__ void add_residuals(const double *x, const double *y, int64_t n, double slope,
                              double offset, double *sums) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    double residual = y[i] - (slope * x[i] + offset);
    atomicAdd(&sums[0], residual * x[i]);
    atomicAdd(&sums[1], residual);
    atomicAdd(&sums[2], residual * residual);
  }
}

"""
    + _COMMENT
    + """\
extern "C" int residuals(const double *x, const double *y, int64_t n, double slope,
                         double offset, double *sums) {
  double *dx, *dy, *dsums;
  cudaMalloc(&dx, n * sizeof(double));
  cudaMalloc(&dy, n * sizeof(double));
  cudaMalloc(&dsums, 3 * sizeof(double));
  cudaMemcpy(dx, x, n * sizeof(double), cudaMemcpyHostToDevice);
  cudaMemcpy(dy, y, n * sizeof(double), cudaMemcpyHostToDevice);
  cudaMemset(dsums, 0, 3 * sizeof(double));
  add_residuals<<<(n + 255) / 256, 256>>>(dx, dy, n, slope, offset, dsums);
  cudaMemcpy(sums, dsums, 3 * sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(dx);
  cudaFree(dy);
  cudaFree(dsums);
  return cudaGetLastError();
}
"""
)

_NATIVE: Final = {"c": ("fit.c", _C), "c++": ("fit.cpp", _CPP), "cuda": ("fit.cu", _CUDA)}

LANGUAGES: Final = (*_NATIVE, "python")
"""Languages of the map of a new program."""


def new_program(language: str) -> dict[str, str]:
    """Return the files of a new program by name, the one to edit first at the begin."""
    if language == "python":
        python = _PYTHON.format(map=_PYTHON_MAP)
        return {"fit.py": python, "program.toml": _TOML.format(sources="", map="")}
    name, source = _NATIVE[language]
    toml = _TOML.format(
        sources=f'sources = ["{name}"]'.ljust(33) + "# what the agents run\n",
        map='\n[map]\nfunction = "residuals"'.ljust(40) + f"# in {name}\n",
    )
    return {name: source, "fit.py": _PYTHON.format(map=""), "program.toml": toml}
