"""Runs a peer in separate processes, for a limited time, and leaves none of them behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from peers.environment import PeerMissingError, peer_python
from peers.work import Work

BENCHMARKS = Path(__file__).resolve().parents[1]

MARK = "SAPWOOD_PEER_RUN"
"""Variable by which the processes of a peer are known, wherever they went."""

SCRIPTS = {
    "mpi": "mpi_ranks.py",
    "dask": "dask_tasks.py",
    "ray": "ray_actors.py",
    "pipes": "pipes.py",
}
"""The peers, and the script of each."""


class PeerFailedError(Exception):
    """A peer did not finish; the text says how it ended."""


def run_peer(peer: str, work: Work, time_limit: float) -> dict[str, list[float]]:
    """Return the seconds of each round by figure.

    Args:
        peer: Its name, a key of :data:`SCRIPTS`.
        work: What it does.
        time_limit: Seconds after which it is killed.

    Raises:
        PeerMissingError: It cannot be measured on this machine.
        PeerFailedError: It failed, or took too long.
    """
    with marked() as mark:
        output = run_marked(_command(peer, work), mark, time_limit)
    return seconds_of(output)


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """Yield a mark for processes; all that have it are killed at the end, wherever they went."""
    mark = uuid.uuid4().hex
    try:
        yield mark
    finally:
        _end(mark)


def run_marked(
    command: Sequence[str], mark: str, time_limit: float, variables: Mapping[str, str] | None = None
) -> str:
    """Run a command for a limited time, and return what it printed.

    Args:
        command: The command.
        mark: What :func:`marked` gave.
        time_limit: Seconds after which it has failed.
        variables: More for its environment.

    Raises:
        PeerFailedError: It failed, or took too long.
    """
    chosen = {**environment(mark), **(variables or {})}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as problems:
        process = subprocess.Popen(
            command, env=chosen, stdout=output, stderr=problems, start_new_session=True
        )
        try:
            status = process.wait(time_limit)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise PeerFailedError(f"not finished after {time_limit:.0f} s") from error
        output.seek(0)
        problems.seek(0)
        if status:
            said = [line for line in problems.read().splitlines() if line.strip("- ")]
            last = said[-1] if said else "without a word"
            raise PeerFailedError(f"ended with status {status}: {last[:200]}")
        return output.read()


def start_marked(command: Sequence[str], mark: str, folder: str) -> None:
    """Start a command that runs until :func:`marked` ends; its output goes to a file.

    Args:
        command: The command.
        mark: What :func:`marked` gave.
        folder: Where ``said`` is.
    """
    with Path(folder, "said").open("a", encoding="utf-8") as said:
        subprocess.Popen(
            command, env=environment(mark), stdout=said, stderr=said, start_new_session=True
        )


def environment(mark: str) -> dict[str, str]:
    """Return the environment of all processes of a peer."""
    own = {"PYTHONPATH": str(BENCHMARKS), "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    own["RAY_AUTH_MODE"] = "disabled"  # whatever the user's own clusters want
    return {**os.environ, **own, MARK: mark}


def processes_of(mark: str) -> Iterator[psutil.Process]:
    """Yield the processes that have a mark."""
    for one in psutil.process_iter(["pid"]):
        with contextlib.suppress(psutil.Error):  # it has ended, or belongs to another user
            if one.environ().get(MARK) == mark:
                yield one


def seconds_of(output: str) -> dict[str, list[float]]:
    """Return what a peer said in its last line."""
    seconds: dict[str, list[float]] = json.loads(output.strip().splitlines()[-1])
    return seconds


def _command(peer: str, work: Work) -> Sequence[str]:
    script = str(BENCHMARKS / "peers" / SCRIPTS[peer])
    if peer == "pipes":
        return [sys.executable, script, work.to_json()]
    python = str(peer_python(peer))
    if peer != "mpi":
        return [python, script, work.to_json()]
    options = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    # Rank 0 is the client.
    return ["mpirun", "-n", str(work.agents + 1), *options, python, script, work.to_json()]


def _end(mark: str) -> None:
    """Kill what is left of a peer: its processes have a variable that no others have."""
    for one in processes_of(mark):
        with contextlib.suppress(psutil.Error):
            one.send_signal(signal.SIGKILL)


__all__ = [
    "BENCHMARKS",
    "SCRIPTS",
    "PeerFailedError",
    "PeerMissingError",
    "environment",
    "marked",
    "processes_of",
    "run_marked",
    "run_peer",
    "seconds_of",
    "start_marked",
]
