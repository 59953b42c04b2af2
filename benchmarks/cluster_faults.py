"""Faults of a whole cluster: `sapwood down` under attached work, a full disk, a lost quorum.

Each fault has its own scenario, on this machine or on several network namespaces: it starts a
cluster, breaks it, and checks that all ends, or works again, within 30 s of the end of the fault,
with the documented exit code, and that no process and no file of a head is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from machines import HEAD, Machines

PATIENCE = 30.0
"""Seconds after the end of a fault in which everything must have ended, or work again."""

START = 120.0
"""Seconds that a command gets on a busy machine before and after a fault."""

AWAY = 10.0
"""Seconds for which most members of etcd are stopped, or cut off."""

MEMBERS = 3
"""Members of etcd."""

PROGRAM = Path(__file__).with_name("programs") / "centres.py"

ATTACHED = """
import signal, sapwood
with sapwood.connect().start(agents=2) as cluster:
    waiting = cluster.submit(signal.pause)
    while not any(agent.pid for agent in cluster.agents):
        pass
    print("works", flush=True)
    try:
        waiting.result()
    except sapwood.SapwoodError as error:
        raise SystemExit(error.exit_code)
"""


class FaultError(Exception):
    """A cluster did not behave as documented."""


class Scenario:
    """A cluster of one scenario, with its own state folder.

    Args:
        folder: An empty folder.
        name: Distinguishes several heads of the scenario.
    """

    def __init__(self, folder: Path, name: str = "state") -> None:
        self.state = folder / name
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.state),
            "OPENBLAS_NUM_THREADS": "1",
        }

    def command(
        self, *words: str, code: int = 0, timeout: float = START, text: str = ""
    ) -> dict[str, Any]:
        """Run a command, and return what it says.

        Raises:
            FaultError: It ends with another exit code.
        """
        done = self.tried(*words, timeout=timeout, text=text)
        if done.returncode != code:
            raise FaultError(f"{' '.join(words)}: exit code {done.returncode}, {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def tried(
        self, *words: str, timeout: float = START, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, whatever its exit code is."""
        return subprocess.run(
            [sys.executable, "-m", "sapwood", *words, "--json"],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def started(self, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start Python in the environment of this scenario, by the words before it."""
        return subprocess.Popen(
            [*before, sys.executable, *words],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[int]:
        """Return the processes of this scenario."""
        mark, found = f"XDG_STATE_HOME={self.state}\0".encode(), []
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and mark in Path(entry.path, "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def left(self) -> list[str]:
        """Return what is left of a cluster that has ended."""
        files = self.state.glob("sapwood/heads/*/*.json")
        return [*(f"process {pid}" for pid in self.processes()), *map(str, files)]

    def end(self) -> None:
        """End what a scenario that failed has left."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> float:
    """Wait for a condition; return the seconds that it took.

    Raises:
        FaultError: It takes too long.
    """
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise FaultError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - begun


def down(folder: Path, rng: random.Random, lan: Machines) -> str:
    """`sapwood down` while a command and a program use the nodes of a cluster."""
    cluster = Scenario(folder)
    names = lan.names if lan.prefix else ["second"]
    try:
        cluster.command("up", "--listen", f"{lan.address(HEAD)}:0")
        for name in names:
            token = cluster.command("token", "create")["text"]
            joined = cluster.started(
                *["-m", "sapwood", "node", "join", "-", "--as", name, "--background"],
                before=lan.command(name, []),
            )
            _, said = joined.communicate(token, START)
            if joined.returncode:
                raise FaultError(f"the node {name} does not join: {said[-1000:]}")
        run = [*["-m", "sapwood", "run"], str(PROGRAM), *["--on", "head", "--agents", "2"]]
        workers = [
            cluster.started(*run, "-p", "rounds=1000000"),
            cluster.started("-c", ATTACHED),
        ]
        out = workers[1].stdout
        if out is None or out.readline() != "works\n":
            raise FaultError("sapwood.connect() does not start")
        time.sleep(2.0 * rng.random())
        cluster.command("down")
        begun = time.monotonic()
        for worker in workers:
            try:
                _, said = worker.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                raise FaultError("attached work does not end") from None
            if worker.returncode != 6:
                raise FaultError(f"exit code {worker.returncode} in place of 6: {said[-1000:]}")
            if len(said) > 10_000:
                raise FaultError(f"it wrote {len(said)} characters of messages")
        until(lambda: not cluster.left(), f"left: {cluster.left()}")
        took = time.monotonic() - begun
        nodes = len(names) + 1
        return f"attached work ended {took:.1f} s after the cluster of {nodes} nodes"
    finally:
        cluster.end()


def disk(folder: Path, rng: random.Random, _lan: Machines) -> str:
    """The disk of the head is full while the server of a session is killed."""
    cluster = Scenario(folder)
    words = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(cluster.state)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return "left out: this machine lets us mount no file system"
    try:
        cluster.command("up", "--no-node")
        cluster.command(
            "session", "create", "full", "--on", "local", "--agents", "2", "--idle", "0"
        )
        session = cluster.command("session", "show", "full")
        large = cluster.state / "large"
        with large.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        refused = cluster.tried("token", "create").returncode
        if refused != 5:
            raise FaultError(f"token create: exit code {refused} in place of 5")
        os.kill(session["pid"], signal.SIGKILL)
        time.sleep(5.0 * rng.random())
        large.unlink()

        def is_back() -> bool:
            found = json.loads(cluster.tried("session", "show", "full").stdout or "{}")
            return bool(found.get("state") == "detached" and found["pid"] != session["pid"])

        took = until(is_back, "the session is back")
        cluster.command("down")
        until(lambda: not cluster.left(), f"left: {cluster.left()}")
        return f"the session was back {took:.1f} s after there was room"
    finally:
        cluster.end()
        subprocess.run(["umount", "-l", str(cluster.state)], check=True)


def quorum(folder: Path, rng: random.Random, lan: Machines) -> str:
    """Most members of etcd are away, and two heads are without a store."""
    if shutil.which("etcd") is None:
        return "left out: etcd is not installed"
    heads = [Scenario(folder, name) for name in ("one", "two")]
    apart = bool(lan.prefix) and len(lan.names) >= MEMBERS
    hosts = lan.names[:MEMBERS] if apart else [HEAD] * MEMBERS
    with etcd(folder, hosts, lan) as (members, store):
        try:
            until(lambda: etcd_answers(store), "etcd answers", START)
            for head in heads:
                head.command("up", "--no-node", "--store", store)
            away = rng.sample(range(MEMBERS), 2)
            for there in (False, True):
                for number in away:
                    if apart:
                        lan.connect(hosts[number], up=there)
                    else:
                        members[number].send_signal(signal.SIGCONT if there else signal.SIGSTOP)
                time.sleep(0.0 if there else AWAY)

            def serves() -> bool:
                return any(head.tried("token", "create").returncode == 0 for head in heads)

            took = until(serves, "a head serves again")
            serving = next(one for one in heads if one.tried("token", "list").returncode == 0)
            serving.command("down")
            until(lambda: not heads[0].left() and not heads[1].left(), "nothing is left")
            how = "cut off" if apart else "stopped"
            return f"a head served {took:.1f} s after the members that were {how} were back"
        finally:
            for head in heads:
                head.end()


@contextlib.contextmanager
def etcd(
    folder: Path, hosts: Sequence[str], lan: Machines
) -> Iterator[tuple[Sequence[subprocess.Popen[bytes]], str]]:
    """Run members of etcd on hosts; yield them, and the address of a store in them."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2 * MEMBERS)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [int(one.getsockname()[1]) for one in sockets]
    where = [
        f"{lan.address(host)}:{port}" for host, port in zip([*hosts, *hosts], ports, strict=True)
    ]
    clients, peers_at = where[:MEMBERS], where[MEMBERS:]
    peers = ",".join(f"m{n}=http://{peer}" for n, peer in enumerate(peers_at))
    running = []
    try:
        for n in range(MEMBERS):
            client, peer = f"http://{clients[n]}", f"http://{peers_at[n]}"
            words = [*("etcd", "--name", f"m{n}", "--data-dir", str(folder / f"m{n}"))]
            words += ["--listen-client-urls", client, "--advertise-client-urls", client]
            words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            words += ["--initial-cluster", peers]
            with (folder / f"m{n}.log").open("wb") as log:
                command = lan.command(hosts[n], words)
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
        yield running, f"etcd://{','.join(clients)}/faults"
    finally:
        for member in running:
            member.kill()
            member.wait()


def etcd_answers(store: str) -> bool:
    """Return whether a store can be read."""
    from sapwood.store.opening import open_store  # noqa: PLC0415 - of this scenario only

    try:
        with open_store(store) as opened:
            opened.get("none")
    except Exception:  # noqa: BLE001 - it is still starting
        return False
    return True


FAULTS: dict[str, Callable[[Path, random.Random, Machines], str]] = {
    "down": down,
    "disk": disk,
    "quorum": quorum,
}
"""The scenarios: given an empty folder, random numbers and machines, each returns what it saw."""
