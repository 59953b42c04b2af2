"""A Slurm cluster for tests: munge, a controller and four nodes.

All are on loopback, or on separate hosts (network namespaces): the controller on the head, a
node on each host.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.system.hosts.network import Network, until

from sapwood.contexts.process import children

NODES = 4

_CONFIG = """\
ClusterName=sapwood{pid}
SlurmctldHost={host}({address})
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
PlugStackConfig=/dev/null
NodeName=DEFAULT CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=2000
{nodes}
PartitionName=main Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why there can be no Slurm here; empty where there can."""
    if os.geteuid() != 0:
        return "a Slurm cluster of the test's own needs root"
    for program in ("munged", "slurmctld", "slurmd", "salloc", "srun", "squeue", "scancel"):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    return ""


class Slurm:
    """A cluster.

    Args:
        folder: Where all that it keeps is.
        hosts: The hosts that its nodes are; None for all on loopback.

    Attributes:
        environment: The variables by which Slurm's programs find it.
    """

    def __init__(self, folder: Path, hosts: Network | None = None) -> None:
        self.folder = folder
        self._hosts = hosts
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SLURM")
        } | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._servers: list[subprocess.Popen[bytes]] = []
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Start it, and wait for its nodes."""
        for parent in (self.folder, *self.folder.parents):  # munged wants to be reachable by all
            if parent.is_relative_to("/tmp") and parent != Path("/tmp"):  # noqa: S108 - pytest's
                parent.chmod(0o755)
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        (self.folder / "state").mkdir(mode=0o700)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o400)
        ports = _free_ports(NODES + 1)
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName=n{number} NodeHostname={f'n{number}' if self._hosts else host} "
            f"NodeAddr={self._address(f'n{number}')} Port={ports[number]}"
            for number in range(1, NODES + 1)
        ]
        Path(self.environment["SLURM_CONF"]).write_text(
            _CONFIG.format(
                folder=self.folder,
                host=host,
                address=self._address("head"),
                ports=ports,
                nodes="\n".join(nodes),
                count=NODES,
                pid=os.getpid(),
            )
        )
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self._serve("munged", "--foreground", f"--socket={munge / 'socket'}", *files)
        until((munge / "socket").exists)
        self._serve("slurmctld", "-D", "-c")
        for number in range(1, NODES + 1):
            name = f"n{number}"
            self._nodes[name] = self._serve("slurmd", "-D", "-N", name, on=name)
        until(lambda: self.ask("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * NODES)

    def _address(self, name: str) -> str:
        return self._hosts.address(name) if self._hosts else "127.0.0.1"

    def _serve(self, *words: str, on: str = "head") -> subprocess.Popen[bytes]:
        log = (self.folder / f"{words[0]}.out").open("ab")
        place: list[str] = []
        if self._hosts:  # not `ip netns exec`: it hides the control groups that slurmd wants to see
            place = ["nsenter", f"--net=/run/netns/{self._hosts.namespace(on)}"]
        if self._hosts and on != "head":
            named = f'hostname {on} && exec "$0" "$@"'
            place += ["unshare", "--uts", "sh", "-c", named]
        with log:
            server = subprocess.Popen(
                [*place, *words],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._servers.append(server)
        return server

    def _placed(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command that runs on the head."""
        return self._hosts.command("head", *words) if self._hosts else list(words)

    def down(self) -> None:
        """End it, with all that runs in it."""
        if len(self._servers) > 1:
            with contextlib.suppress(subprocess.SubprocessError):
                self.run("scancel", "--user=root", check=False)
                until(lambda: not self.jobs())
        for server in reversed(self._servers):
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to which this is the cluster."""
        chosen: dict[str, Any] = {
            "capture_output": True,
            "text": True,
            "check": True,
            "timeout": 120,
            "env": self.environment,
            **options,
        }
        return subprocess.run(self._placed(words), **chosen)  # noqa: PLW1510 - among them

    def ask(self, *words: str) -> str:
        """Return what a command says; empty where it fails."""
        return self.run(*words, check=False).stdout.strip()

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command to which this is the cluster."""
        chosen: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": self.environment,
            "start_new_session": True,
            **options,
        }
        return subprocess.Popen(self._placed(words), **chosen)

    def sapwood(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``sapwood``."""
        return self.run(*self.program(*words), **{"check": False, **options})

    def program(self, *words: str) -> list[str]:
        """Return the command that is ``sapwood`` with some arguments."""
        return [str(Path(sys.executable).with_name("sapwood")), *words]

    @contextlib.contextmanager
    def taken(self, nodes: int, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Have another job of the same user on some nodes; it ends when its input is closed."""
        words = ("salloc", f"--nodes={nodes}", *options, "cat")
        job = self.popen(*words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            until(lambda: self.jobs("--states=running"))
            yield job
        finally:
            assert job.stdin is not None
            job.stdin.close()
            job.wait(30)
            assert job.stdout is not None
            job.stdout.close()

    def lose(self, name: str, *, killed: bool) -> None:
        """Take a node down from now on.

        Args:
            name: The node.
            killed: It fails: its slurmd and all that runs there in jobs is killed first. Else an
                administrator says that it is down, and Slurm ends what runs there.
        """
        if killed:
            server = self._nodes[name]
            steps = children(server.pid)
            server.kill()
            server.wait()
            for pid in [*steps, *self._marked(f"SLURMD_NODENAME={name}")]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=test")

    def jobs(self, *options: str) -> list[str]:
        """Return the numbers of the jobs that wait or run."""
        return self.ask("squeue", "--noheader", "--format=%i", *options).split()

    def processes(self) -> list[int]:
        """Return the processes that run in its jobs, or hold them."""
        servers = {server.pid for server in self._servers}
        servers |= {child for server in self._servers for child in children(server.pid)}
        return [pid for pid in self._marked() if pid not in servers]

    def _marked(self, *more: str) -> list[int]:
        """Return the processes that have the variable of this cluster, and some others."""
        found: list[int] = []
        marks = (f"SLURM_CONF={self.environment['SLURM_CONF']}", *more)
        wanted = {mark.encode() for mark in marks}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                        found.append(int(folder.name))
        return found

    def is_clean(self) -> bool:
        """Whether neither a job nor a process of one exists."""
        return not self.jobs() and not self.processes()


@contextlib.contextmanager
def slurm_cluster(folder: Path, hosts: Network | None = None) -> Iterator[Slurm]:
    """Start a cluster and end it."""
    made = Slurm(folder, hosts)
    try:
        made.up()
        yield made
    finally:
        made.down()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
