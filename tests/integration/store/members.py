"""Real members of etcd on this machine, for tests."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sapwood.store.opening import open_store

PATIENCE = 60.0
"""Seconds that members have to begin, also on a busy machine."""


def why_no_etcd() -> str:
    """Return why etcd cannot be used here; empty if it can."""
    return "" if shutil.which("etcd") else "no etcd is installed: apt-get install etcd-server"


@dataclasses.dataclass
class Member:
    """One member: its client's port, and its process while it runs."""

    command: Sequence[str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def stop(self) -> None:
        """Let it neither answer nor end, as if it were behind a network that is cut."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [int(found.getsockname()[1]) for found in sockets]


@contextlib.contextmanager
def members(
    folder: Path, count: int, *options: str, scheme: str = "http"
) -> Iterator[list[Member]]:
    """Run a cluster of etcd until the block ends.

    Args:
        folder: For its data and logs.
        count: Number of members.
        options: More words of its command lines.
        scheme: Of the clients' ports.
    """
    ports = free_ports(2 * count)
    clients, peers = ports[:count], ports[count:]
    cluster = ",".join(f"m{n}=http://127.0.0.1:{peer}" for n, peer in enumerate(peers))
    made = []
    for number in range(count):
        client, peer = (
            f"{scheme}://127.0.0.1:{clients[number]}",
            f"http://127.0.0.1:{peers[number]}",
        )
        command = [
            *("etcd", "--name", f"m{number}", "--data-dir", str(folder / f"m{number}")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster, "--initial-cluster-token", folder.name),
            *("--heartbeat-interval", "100", "--election-timeout", "1000", *options),
        ]
        made.append(Member(command, clients[number], folder / f"m{number}.log"))
    try:
        for member in made:
            member.start()
        yield made
    finally:
        for member in made:
            member.kill()


def address(running: Sequence[Member], name: str) -> str:
    return f"etcd://{','.join(f'127.0.0.1:{member.port}' for member in running)}/{name}"


def wait_for(where: str) -> None:
    """Wait until a cluster can be written to."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with open_store(where) as store:
                store.put("ready", b"")
                return
        except Exception:
            if time.monotonic() > deadline:
                raise
