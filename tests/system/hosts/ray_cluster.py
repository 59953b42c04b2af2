"""A Ray cluster for tests: a head without CPUs and two machines, each a separate host."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, until

NODES = 2
CPUS = 2

STARTS = 3
"""Times that Ray is started on a host: it gives itself 30 s, too few on a machine that is busy."""

_SITTER = """
import json, sys
import ray
from ray.util.placement_group import (
    placement_group, placement_group_table, remove_placement_group)
ray.init(log_to_driver=False, logging_level="ERROR")
groups = []
while line := sys.stdin.readline():
    words = line.split()
    if words[0] == "take":
        groups.append(placement_group([{"CPU": 2}] * int(words[1]), strategy="STRICT_SPREAD"))
        assert groups[-1].wait(30)
    elif words[0] == "give":
        remove_placement_group(groups.pop())
    elif words[0] == "python":  # what the cluster says it was started with
        from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put
        found = json.loads(_internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster"))
        found["python_version"] = words[1]
        text = json.dumps(found).encode()
        _internal_kv_put(b"CLUSTER_METADATA", text, overwrite=True, namespace=b"cluster")
    table = placement_group_table().values()
    print(json.dumps({
        "groups": sum(one["state"] != "REMOVED" for one in table) - len(groups),
        "nodes": sum(one["Alive"] for one in ray.nodes()),
        "free": ray.available_resources().get("CPU", 0),
    }), flush=True)
"""
"""Another program of the same cluster: it may take machines, and tells what is taken."""


def missing() -> str:
    """Return why there can be no Ray here; empty where there can."""
    if importlib.util.find_spec("ray") is None:
        return "this Python has no Ray"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program ip is missing"
    return ""


class RayCluster(Network):
    """A cluster.

    Args:
        folder: Where all that it keeps is; Ray bounds the length of its name.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NODES, prefix="swray", ssh=False)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RAY_")
        } | {
            "RAY_ADDRESS": f"{self.address('head')}:6379",
            "RAY_AUTH_MODE": "disabled",  # a token in the user's home is for other clusters
            "RAY_TMPDIR": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self._sitter: subprocess.Popen[str] | None = None

    def up(self) -> None:
        """Start it, and wait for its nodes."""
        super().up()
        head = ("--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false")
        self.start_ray("head", *head, f"--temp-dir={self.folder / 'ray'}")
        for name in self.names:
            self.start_ray(name)
        self._sitter = subprocess.Popen(
            self.command("head", sys.executable, "-c", _SITTER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        until(lambda: self.asked()["nodes"] == NODES + 1)

    def start_ray(self, name: str, *options: str) -> None:
        """Start Ray on a host."""
        chosen = options or (f"--address={self.environment['RAY_ADDRESS']}", f"--num-cpus={CPUS}")
        words = (
            *(sys.executable, "-m", "ray.scripts.scripts", "start", *chosen),
            f"--node-ip-address={self.address(name)}",
            f"--node-name={name}",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
        )
        for _ in range(STARTS):
            done = self.run(name, *words, check=False)
            if done.returncode == 0:
                return
            self.kill_node(name)
        pytest.fail(f"Ray does not start on {name}: {done.stderr or done.stdout}")

    def down(self) -> None:
        """End it."""
        if self._sitter is not None:
            self._sitter.kill()
            self._sitter.communicate()
        super().down()
        until(lambda: not self.all_processes())

    def all_processes(self) -> list[int]:
        """Return the processes that have the variables of the cluster or of its machines."""
        mark = f"RAY_TMPDIR={self.folder}".encode()
        found: list[int] = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
        return found

    def run(self, name: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        chosen: dict[str, Any] = {
            "capture_output": True,
            "text": True,
            "check": True,
            "timeout": 120,
            "env": self.environment,
            **options,
        }
        return subprocess.run(self.command(name, *words), **chosen)  # noqa: PLW1510 - among them

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command on the head."""
        chosen: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": self.environment,
            "start_new_session": True,
            **options,
        }
        return subprocess.Popen(self.command("head", *words), **chosen)

    def program(self, *words: str) -> list[str]:
        """Return the command that is ``sapwood`` with some arguments."""
        return [str(Path(sys.executable).with_name("sapwood")), *words]

    def asked(self, *words: str) -> dict[str, Any]:
        """Ask another program of the cluster to do something; return what it says of all."""
        assert self._sitter is not None
        assert self._sitter.stdin is not None
        assert self._sitter.stdout is not None
        self._sitter.stdin.write(f"{' '.join(words) or 'look'}\n")
        self._sitter.stdin.flush()
        for line in self._sitter.stdout:
            if line.startswith("{"):  # others are what Ray says of dead nodes
                found: dict[str, Any] = json.loads(line)
                return found
        pytest.fail("the other program of the cluster has ended")

    @contextlib.contextmanager
    def taken(self, nodes: int) -> Iterator[None]:
        """Run another program that holds machines meanwhile."""
        self.asked("take", str(nodes))
        try:
            yield
        finally:
            self.asked("give")

    def kill_node(self, name: str) -> None:
        """Kill all that Ray has on a host, but not what others began there."""
        for pid in super().processes(name):
            if _is_of_ray(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def processes(self, name: str) -> list[int]:
        """Return the processes on a host, without those of Ray itself."""
        sitter = self._sitter.pid if self._sitter is not None else 0
        return [
            pid
            for pid in super().processes(name)
            if pid != sitter and not _is_of_ray(pid, ours=True)
        ]

    def is_clean(self) -> bool:
        """Whether nothing runs on the hosts, and Ray has nothing reserved."""
        return super().is_clean() and self.asked()["groups"] == 0

    def holder(self) -> int:
        """Return the process that holds the machines."""
        for pid in self.processes("head"):
            with contextlib.suppress(OSError):
                if b"Holds machines of a Ray cluster" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        pytest.fail("nothing holds machines")

    def actor(self, name: str) -> int:
        """Return the process of the actor on a host."""
        for pid in self.processes(name):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Sapwood"):
                    return pid
        pytest.fail(f"no actor runs on {name}")


def _is_of_ray(pid: int, *, ours: bool = False) -> bool:
    """Whether a process is Ray's; with ``ours``, those of our actors are not."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True
    if words.startswith(b"ray::"):
        return not (ours and b"Sapwood" in words)
    return b"/site-packages/ray/" in words


@contextlib.contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Start a cluster and end it."""
    folder = Path(tempfile.mkdtemp(prefix="swray"))  # the path of pytest's is too long for Ray
    made = RayCluster(folder)
    try:
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(folder, ignore_errors=True)
