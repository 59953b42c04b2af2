"""Runs a peer in processes of its own, for a limited time, and leaves none of them behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
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
    command = _command(peer, work)
    mark = uuid.uuid4().hex
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS), MARK: mark}
    environment |= {"OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, problems = process.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired as error:
        raise PeerFailedError(f"not finished after {time_limit:.0f} s") from error
    finally:
        _end(process, mark)
    if process.returncode:
        last = problems.strip().splitlines()[-1:] or ["without a word"]
        raise PeerFailedError(f"ended with status {process.returncode}: {last[0][:200]}")
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
    # Rank 0 is the front end.
    return ["mpirun", "-n", str(work.agents + 1), *options, python, script, work.to_json()]


def _end(process: subprocess.Popen[str], mark: str) -> None:
    """Kill what is left of a peer: its processes have a variable that nobody else has."""
    for other in psutil.process_iter(["pid"]):
        try:
            if other.environ().get(MARK) == mark:
                other.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue  # it has ended, or is somebody else's
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


__all__ = ["SCRIPTS", "PeerFailedError", "PeerMissingError", "run_peer"]
