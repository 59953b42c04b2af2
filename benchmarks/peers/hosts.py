"""Runs Open MPI, Ray and Dask over several machines, and leaves nothing of them behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from machines import HEAD, Machines
from peers.environment import PeerMissingError, peer_python
from peers.running import (
    BENCHMARKS,
    SCRIPTS,
    marked,
    run_marked,
    seconds_of,
    start_marked,
)
from peers.work import Work

PEERS = ("mpi", "ray")
"""Peers that do the :class:`~peers.work.Work` over several machines."""

TIME_LIMIT = 300.0
"""Seconds after which a peer is killed."""

RAY_PORT = 6379
DASK_PORT = 8786
OBJECTS = 200_000_000
"""Bytes of Ray's object store on each machine."""

_REMOTE_SHELL = """\
#!/bin/sh
# mpirun calls this as it calls ssh; each machine has a host name, by which Open MPI knows what
# shares memory.
name=$1
shift
exec ip netns exec {prefix}"$name" unshare --uts sh -c "hostname $name; $*"
"""


def run_peer_over(peer: str, lan: Machines, work: Work) -> dict[str, list[float]]:
    """Return the seconds of each round by figure.

    Args:
        peer: One of :data:`PEERS`.
        lan: The machines; the caller is on their head.
        work: What it does; agents are spread evenly over machines.

    Raises:
        PeerMissingError: It cannot be measured on this machine.
        PeerFailedError: It failed, or took too long.
    """
    python = python_over(peer, lan)
    script = [python, str(BENCHMARKS / "peers" / SCRIPTS[peer]), work.to_json()]
    with marked() as mark, tempfile.TemporaryDirectory(prefix="sp", dir="/tmp") as folder:
        variables = {}
        if peer == "mpi":  # rank 0 is the client, on the head
            script = [*mpirun(lan, work.agents, Path(folder), client=True), *script]
        else:
            variables["RAY_ADDRESS"] = start_ray(lan, work.agents, folder, mark)
        return seconds_of(run_marked(script, mark, TIME_LIMIT, variables))


def python_over(peer: str, lan: Machines) -> str:
    """Return the interpreter of a peer that can be run over machines.

    Raises:
        PeerMissingError: It cannot be measured on these.
    """
    if not lan.prefix:
        raise PeerMissingError("it needs separate machines: network namespaces")
    return str(peer_python(peer))


def mpirun(lan: Machines, agents: int, folder: Path, *, client: bool) -> list[str]:
    """Return the command that starts ranks on the machines, and one before them on the head."""
    ranks = agents + client
    options = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    shell = folder / "shell"
    shell.write_text(_REMOTE_SHELL.format(prefix=lan.prefix), encoding="ascii")
    shell.chmod(0o700)
    each = _each(lan, agents)
    names = [f"{name}:{each}" for name in lan.names]
    if client:
        names.insert(0, f"{os.uname().nodename}:1")
    options += ["--host", ",".join(names)]
    network = lan.address(HEAD).rpartition(".")[0] + ".0/24"
    parameters = {
        "mpi_yield_when_idle": "1",
        "btl": "self,tcp,vader",
        "plm_rsh_agent": str(shell),
        "plm_rsh_no_tree_spawn": "1",
        "oob_tcp_if_include": network,
        "btl_tcp_if_include": network,
    }
    for name, value in parameters.items():
        options += ["--mca", name, value]
    return options


def start_ray(lan: Machines, agents: int, folder: str, mark: str) -> str:
    """Start Ray on all machines, and return its address."""
    address = f"{lan.address(HEAD)}:{RAY_PORT}"
    python = str(peer_python("ray"))
    for name in (HEAD, *lan.names):
        chosen = (
            ["--head", f"--port={RAY_PORT}", "--num-cpus=0", f"--temp-dir={folder}"]
            if name == HEAD
            else [f"--address={address}", f"--num-cpus={_each(lan, agents)}"]
        )
        words = [python, "-m", "ray.scripts.scripts", "start", *chosen, "--disable-usage-stats"]
        words += [f"--node-ip-address={lan.address(name)}", f"--object-store-memory={OBJECTS}"]
        run_marked(lan.command(name, words), mark, TIME_LIMIT)
    return address


def start_dask(lan: Machines, agents: int, limit: int, folder: str, mark: str) -> str:
    """Start the scheduler of Dask on the head and workers on the machines; return its address.

    Args:
        lan: The machines.
        agents: Workers, of one thread each.
        limit: Memory of each, bytes.
        folder: For what they write.
        mark: What :func:`~peers.running.marked` gave.
    """
    address = f"tcp://{lan.address(HEAD)}:{DASK_PORT}"
    python = str(peer_python("dask"))
    words = [python, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    words += ["--host", lan.address(HEAD), "--port", str(DASK_PORT)]
    start_marked(lan.command(HEAD, words), mark, folder)
    for name in lan.names:
        words = [python, "-m", "distributed.cli.dask_worker", address, "--no-dashboard"]
        words += ["--host", lan.address(name), "--nworkers", str(_each(lan, agents))]
        words += ["--nthreads", "1", "--memory-limit", str(limit), "--local-directory", folder]
        start_marked(lan.command(name, words), mark, folder)
    return address


def _each(lan: Machines, agents: int) -> int:
    return -(-agents // len(lan.names))


__all__ = [
    "PEERS",
    "TIME_LIMIT",
    "mpirun",
    "python_over",
    "run_peer_over",
    "start_dask",
    "start_ray",
]
