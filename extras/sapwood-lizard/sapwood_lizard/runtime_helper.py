"""What prompts import as ``lizard.runtime_helper``: run a program by its runner module."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sapwood import Cluster, SapwoodError, local
from sapwood_lizard.directory import read_directory
from sapwood_lizard.execution import run_with_runner
from sapwood_lizard.extension_program import plain
from sapwood_lizard.launch import check
from sapwood_lizard.registration import define, is_extension, parse_checksum
from sapwood_lizard.remote import RemoteServer, is_this_machine
from sapwood_lizard.runner_module import RunnerModule, find_runner
from sapwood_lizard.store import ProgramStore

__all__ = ["poll_for_event_complete", "run_using_runner_module"]

LOOK: float = 2.0
"""Seconds in which a server on this machine takes a connection."""


def poll_for_event_complete(
    server_address: str, event_id: str, poll_freq: float = 1, max_time: float = 600
) -> Any:
    """Wait until a server has done something.

    Args:
        server_address: Of the server, for example ``http://localhost:5000``.
        event_id: What the server answered with.
        poll_freq: Seconds between two questions.
        max_time: Seconds after which the event is returned as it is.

    Returns:
        The event: ``status``, ``result``, ``completion_time`` and more.

    Raises:
        SapwoodError: The server does not answer, or knows no such event.
    """
    try:
        return RemoteServer(server_address).wait(event_id, max_time, poll_freq)
    except SapwoodError as error:
        raise error.with_traceback(None) from None


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
        url: Of a server, for example ``http://localhost:5000``, which runs the program. Where none
            answers on this machine, agents of this call do, and the program is one that
            ``sapwood lizard load`` has registered.
        checksum: The program, as the loader printed it.
        quiet_print: Handed to the runner's ``print_result``.
        print_elapsed_time: Whether to print the time taken.
        cluster: Where to run instead, in this process.
        seed: Of the random numbers of the first global state, where it is this process that runs.

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
        server = RemoteServer(url)
        if cluster is None and (not is_this_machine(server.host) or _answers(server)):
            return _run_there(
                server, module, run_settings, checksum, quiet_print, print_elapsed_time
            )
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


def _run_there(
    server: RemoteServer,
    module: str,
    settings: Mapping[str, Any],
    checksum: str,
    quiet: bool,  # noqa: FBT001 - as above
    elapsed: bool,  # noqa: FBT001 - as above
) -> float:
    """Have a server run a program."""
    shown = server.ask("GET", f"/programs/{parse_checksum(checksum)}")
    path, name = find_runner(module)
    python = python_beside(path.parent)
    runner = RunnerModule(path, name=name, python=python)
    extension = runner.extension
    if extension is None:
        extension = is_extension(shown["info"], {})
    params, dataset = runner.inputs(settings, extension=extension)
    asked = {"global_params_enc": plain(params), "dataset_enc": plain(dataset)}
    event = server.do(f"/runtimes/{parse_checksum(checksum)}", asked)
    seconds = float(event["completion_time"])
    if elapsed:
        print(f"Run completed in {seconds} seconds")  # noqa: T201 - as above
    runner.print_result(event["result"]["end_global_state"], quiet=quiet)
    return seconds


def python_beside(folder: Path) -> Path | None:
    """Return the Python module of the program in a folder, if its configuration names one."""
    try:
        python = read_directory(folder)
    except SapwoodError:
        return None
    found = folder / define(python).python.name
    return found if found.is_file() else None


def _answers(server: RemoteServer) -> bool:
    """Say whether something listens at the address of a server on this machine."""
    host = "127.0.0.1" if server.host in {"0.0.0.0", ""} else server.host  # noqa: S104 - as people write it
    try:
        socket.create_connection((host, server.port), timeout=LOOK).close()
    except OSError:
        return False
    return True
