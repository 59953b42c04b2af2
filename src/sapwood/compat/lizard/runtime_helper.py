"""What prompts import as ``lizard.runtime_helper``: run a program by its runner module."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any
from urllib.parse import urlsplit

from sapwood.client.cluster import Cluster
from sapwood.client.local import local
from sapwood.compat.lizard.execution import run_with_runner
from sapwood.compat.lizard.launch import check
from sapwood.compat.lizard.runner_module import RunnerModule, find_runner
from sapwood.compat.lizard.store import ProgramStore
from sapwood.core.errors import ConfigurationError, SapwoodError

__all__ = ["run_using_runner_module"]

_THIS_MACHINE = {"", "localhost", "127.0.0.1", "::1", "0.0.0.0"}  # noqa: S104 - names of a server


def run_using_runner_module(
    module: str,
    run_settings: Mapping[str, Any],
    url: str,
    checksum: str,
    quiet_print: bool = False,  # noqa: FBT001, FBT002 - as above
    print_elapsed_time: bool = True,  # noqa: FBT001, FBT002 - as above
    *,
    cluster: Cluster | None = None,
    seed: int = 0,
) -> float:
    """Run a registered program to its end and print its result.

    Args:
        module: The runner module: a dotted name, or a path.
        run_settings: What the runner makes parameters and dataset of.
        url: Of a server on this machine, for example ``http://localhost:5000``. The agents are
            those of ``cluster``, or of one that is made for this call.
        checksum: The program, as ``sapwood lizard load`` printed it.
        quiet_print: Handed to the runner's ``print_result``.
        print_elapsed_time: Whether to print the time taken.
        cluster: Where to run; by default a cluster on this machine for this call.
        seed: Of the random numbers of the first global state.

    Returns:
        Seconds that the run took.

    Raises:
        SapwoodError: The program is not registered, or the run failed.

    Example:
        ::

            from lizard import runtime_helper
            runtime_helper.run_using_runner_module(
                'config.user_programs.demo_ctypes.runner',
                {'dims': 3, 'max_iterations': 10}, 'http://localhost:5000',
                'f68445ab756aacaa915c4ff4a2db029c8af4556b')
    """
    try:
        _check_url(url)
        checked = check(ProgramStore().get(checksum))
        path, name = find_runner(module)
        python = path.parent / checked.program.definition.python.name
        runner = RunnerModule(path, name=name, python=python if python.is_file() else None)
        with nullcontext(cluster) if cluster is not None else local() as used:
            outcome = run_with_runner(used, checked, runner, run_settings, seed=seed)
    except SapwoodError as error:
        # At a prompt the error says it all; the way to it through Sapwood says nothing.
        raise error.with_traceback(None) from None
    if print_elapsed_time:
        # As lizard-slayer writes it: scripts read it.
        print(f"Run completed in {outcome.seconds} seconds")  # noqa: T201 - that is what it is for
    runner.print_result(outcome.end_global_state, quiet=quiet_print)
    return outcome.seconds


def _check_url(url: str) -> None:
    host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
    if host not in _THIS_MACHINE:
        raise ConfigurationError(
            f"programs cannot be run on another machine yet: {host}",
            where=url[:200],
            hint="give http://localhost:5000: the agents are on this machine",
        )
