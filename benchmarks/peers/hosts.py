"""Runs Open MPI and Ray over several machines, and leaves nothing of them behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from machines import HEAD, Machines
from peers.environment import PeerMissingError, peer_python
from peers.running import BENCHMARKS, SCRIPTS, marked, run_marked, seconds_of
from peers.work import Work

PEERS = ("mpi", "ray")
"""Peers that can be run over several machines."""

TIME_LIMIT = 300.0
"""Seconds after which a peer is killed."""

RAY_PORT = 6379
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


def run_peer_over(peer: str, places: Machines, work: Work) -> dict[str, list[float]]:
    """Return the seconds of each round by figure.

    Args:
        peer: One of :data:`PEERS`.
        places: The machines; the caller is on their head.
        work: What it does; agents are spread evenly over machines.

    Raises:
        PeerMissingError: It cannot be measured on this machine.
        PeerFailedError: It failed, or took too long.
    """
    if not places.prefix:
        raise PeerMissingError("it needs machines of its own: namespaces")
    script = [str(peer_python(peer)), str(BENCHMARKS / "peers" / SCRIPTS[peer]), work.to_json()]
    with marked() as mark, tempfile.TemporaryDirectory(prefix="sp", dir="/tmp") as folder:
        variables = {}
        if peer == "mpi":
            script = [*_mpirun(places, work, Path(folder)), *script]
        else:
            variables["RAY_ADDRESS"] = _start_ray(places, work, folder, mark)
        return seconds_of(run_marked(script, mark, TIME_LIMIT, variables))


def _mpirun(places: Machines, work: Work, folder: Path) -> list[str]:
    """Return the command that starts ranks: 0 on the head, the others on the machines."""
    options = ["mpirun", "-n", str(work.agents + 1), "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    shell = folder / "shell"
    shell.write_text(_REMOTE_SHELL.format(prefix=places.prefix), encoding="ascii")
    shell.chmod(0o700)
    each = -(-work.agents // len(places.names))
    names = (f"{name}:{each}" for name in places.names)
    options += ["--host", ",".join([f"{os.uname().nodename}:1", *names])]
    network = places.address(HEAD).rpartition(".")[0] + ".0/24"
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


def _start_ray(places: Machines, work: Work, folder: str, mark: str) -> str:
    """Start Ray on all machines, and return its address."""
    address = f"{places.address(HEAD)}:{RAY_PORT}"
    each = -(-work.agents // len(places.names))
    python = str(peer_python("ray"))
    for name in (HEAD, *places.names):
        chosen = (
            ["--head", f"--port={RAY_PORT}", "--num-cpus=0", f"--temp-dir={folder}"]
            if name == HEAD
            else [f"--address={address}", f"--num-cpus={each}"]
        )
        words = [python, "-m", "ray.scripts.scripts", "start", *chosen, "--disable-usage-stats"]
        words += [f"--node-ip-address={places.address(name)}", f"--object-store-memory={OBJECTS}"]
        run_marked(places.command(name, words), mark, TIME_LIMIT)
    return address


__all__ = ["PEERS", "run_peer_over"]
