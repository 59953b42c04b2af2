"""Machines for benchmarks: network namespaces of this one, each with its own address.

They are on a bridge in one more namespace, so nothing of them is seen by the machine's own
network. What they share is the rest: cores, memory, files. Where namespaces cannot be made (that
needs root), all machines are this one, by the loopback interface.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NETWORK = "10.79.0"
"""The first three numbers of all addresses; the head's last one is 10, that of n1 is 11."""

HEAD = "head"
"""The machine of the benchmark itself."""

INSIDE = "SAPWOOD_BENCHMARK_PREFIX"
"""Variable that tells a benchmark which runs in the head's namespace how namespaces begin."""


class Machines:
    """The head and some machines besides.

    Args:
        count: How many there are besides the head.
        prefix: Begins the names of the namespaces; empty where all machines are this one.

    Attributes:
        names: The machines besides the head.
    """

    def __init__(self, count: int, prefix: str) -> None:
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.prefix = prefix

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        if not self.prefix:
            return "127.0.0.1"
        return f"{NETWORK}.{10 if name == HEAD else 10 + int(name[1:])}"

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs another one on a machine."""
        if not self.prefix:
            return list(words)
        return ["ip", "netns", "exec", self.prefix + name, *words]

    def up(self) -> None:
        """Make the namespaces."""
        switch = f"{self.prefix}switch"
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        for name in (HEAD, *self.names):
            space = self.prefix + name
            _run("ip", "netns", "add", space)
            peer = ("peer", "name", "eth0", "netns", space)
            _run("ip", "-n", switch, "link", "add", name, "type", "veth", *peer)
            _run("ip", "-n", switch, "link", "set", name, "master", "bridge", "up")
            _run("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                _run("ip", "-n", space, "link", "set", link, "up")

    def connect(self, name: str, *, up: bool) -> None:
        """Connect a namespace to the network, or cut it off."""
        _run("ip", "-n", f"{self.prefix}switch", "link", "set", name, "up" if up else "down")

    def down(self) -> None:
        """Remove them, with all that runs there."""
        for name in (HEAD, *self.names, "switch"):
            space = self.prefix + name
            found = subprocess.run(
                ["ip", "netns", "pids", space], capture_output=True, text=True, check=False
            )
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def why_not() -> str:
    """Return why no namespaces can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program ip is missing: install iproute2"
    name = f"swtry{os.getpid()}"
    tried = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        return f"no network namespace can be made: {tried.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return ""


@contextlib.contextmanager
def machines(count: int) -> Iterator[Machines]:
    """Yield machines to a benchmark.

    Where namespaces can be made, this process makes them, runs the whole script once more on the
    head, and exits with its status; only that second process gets here.
    """
    prefix = os.environ.get(INSIDE)
    if prefix is not None:
        yield Machines(count, prefix)
        return
    reason = why_not()
    if reason:
        print(f"note: all machines are this one: {reason}", file=sys.stderr)
        yield Machines(count, "")
        return
    made = Machines(count, f"swb{os.getpid() % 100_000}")
    script = [sys.executable, str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]
    try:
        made.up()
        environment = {**os.environ, INSIDE: made.prefix}
        status = subprocess.run(made.command(HEAD, script), env=environment, check=False).returncode
    finally:
        made.down()
    sys.exit(status)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
