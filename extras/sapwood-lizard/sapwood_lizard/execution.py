"""One program from the settings of its runner module to the printed result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sapwood import Cluster, Run
from sapwood.errors import ProgramError
from sapwood_lizard.launch import Checked, start
from sapwood_lizard.runner_module import RunnerModule


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run.

    Attributes:
        seconds: How long it took, without loading the data.
        iterations: How many.
        points: Points of the dataset.
        agents: Agents that took part.
        cut_short: Whether ``limits.iterations`` ended it before the program set ``done``.
        end_aggregate: The last aggregate, encoded; of a C extension as it is.
        end_global_state: The last global state, in the same form.
    """

    seconds: float
    iterations: int
    points: int
    agents: int
    cut_short: bool
    end_aggregate: Any
    end_global_state: Any


def run_with_runner(
    cluster: Cluster,
    checked: Checked,
    runner: RunnerModule,
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    follow: Callable[[Run], None] | None = None,
) -> RunOutcome:
    """Run a program over what its runner module makes of settings.

    Args:
        cluster: Where.
        checked: The program.
        runner: Its runner module.
        settings: For the runner module.
        seed: Of the random numbers of the first global state.
        follow: Called with the run as soon as it has begun, for example to show progress.

    Raises:
        ProgramError: Runner module and program do not belong together.
        SapwoodError: Something of the run failed.
    """
    extension = checked.program.definition.extension
    if runner.extension not in {None, extension}:
        kinds = ("for ctypes", "for C extensions")
        raise ProgramError(
            f"the runner module is {kinds[not extension]}, the program {kinds[extension]}",
            where=str(runner.path),
            hint="C_EXTENSION in the runner and py_c_extention in config.yaml must be the same",
        )
    if not extension:
        runner.check_belongs_to(checked.module)
    params, dataset = runner.inputs(settings, extension=extension)
    if not extension:
        runner.check_belongs_to(checked.module)  # what it imports where it uses it is here now
    begin = time.perf_counter()
    run = start(cluster, checked, params, dataset, seed=seed)
    if follow is not None:
        follow(run)
    result = run.result()
    progress = run.progress
    return RunOutcome(
        seconds=time.perf_counter() - begin,
        iterations=progress.iteration,
        points=progress.items,
        agents=progress.agents,
        cut_short=run.statistics.cut_short,
        **result,
    )
